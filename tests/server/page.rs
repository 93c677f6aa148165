//! The web page, and what the server has for it.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use flate2::read::GzDecoder;
use rope_cpu::json::parse;
use rope_cpu_testing::reader::tiny_reader;
use serde_json::{Value, json};

use crate::server::harness::{Server, serve};

#[test]
fn the_page_is_complete_and_loads_nothing_from_elsewhere() {
    let server = serve(&["-c", "256", "--api-key", "secret"]);
    let page = server.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    let attributes = page.text.split('"').filter(|text| text.starts_with("page/"));
    let mut names: Vec<_> = attributes.map(String::from).collect();
    assert!(names.contains(&"page/app.js".to_string()), "{names:?}");
    // A file for each name, and for each module that it imports.
    let mut next = 0;
    while let Some(name) = names.get(next).cloned() {
        let file = server.get(&format!("/{name}"));
        assert_eq!(file.status, 200, "{name}");
        if name.ends_with(".js") {
            assert_eq!(file.header("content-type"), Some("text/javascript; charset=utf-8"));
            let imports = |start| file.text.split(start).skip(1);
            let modules = imports("from './").chain(imports("import('./"));
            let modules = modules.filter_map(|rest| rest.split_once('\'').map(|(name, _)| name));
            for module in modules.map(|name| format!("page/{name}")) {
                if !names.contains(&module) {
                    names.push(module);
                }
            }
        }
        next += 1;
    }
    assert!(names.len() > 15, "{names:?}");
    server.get("/page/nothing.js").refused(404, &["File Not Found"]);
    server.get("/page/../props").refused(404, &[]);
    server.get("/page/%2e%2e%2fprops").refused(404, &[]);
    server.get("/props").refused(401, &[]);
}

#[test]
fn files_are_sent_again_only_if_they_changed() {
    let server = serve(&["-c", "256"]);
    let first = server.get("/page/app.js");
    let tag = first.header("etag").unwrap();
    let again = server.send("GET", "/page/app.js", &[("if-none-match", tag)], "");
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    let other = server.send("GET", "/page/app.js", &[("if-none-match", "\"0\"")], "");
    assert_eq!((other.status, other.text), (200, first.text));
}

#[test]
fn files_are_compressed_for_clients_that_accept_it() {
    let server = serve(&["-c", "256"]);
    let get = |accepted: &str, tag: &str| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let request = format!(
            "GET /page/vendor.js HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{accepted}If-None-Match: {tag}\r\n\r\n",
            server.address()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        let end = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        (String::from_utf8_lossy(&reply[..end]).to_lowercase(), reply[end + 4..].to_vec())
    };
    let tag = |head: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix("etag: "));
        line.unwrap().to_string()
    };
    let (head, plain) = get("", "x");
    assert!(head.contains("vary: accept-encoding") && !head.contains("content-encoding"), "{head}");
    let none = ["gzip;q=0", "br", "x-gzip, deflate", "gzip;q=much"];
    for accepted in none.map(|names| format!("Accept-Encoding: {names}\r\n")) {
        let (head, body) = get(&accepted, "x");
        assert!(body == plain && !head.contains("content-encoding"), "{accepted}: {head}");
    }
    for names in ["gzip", "deflate, GZIP, br", "br;q=1.0, gzip;q=0.8"] {
        let accepted = format!("Accept-Encoding: {names}\r\n");
        let (head, compressed) = get(&accepted, "x");
        assert!(head.contains("content-encoding: gzip\r\n"), "{names}: {head}");
        assert!(compressed.len() * 2 < plain.len(), "{names}: {}", compressed.len());
        let mut text = Vec::new();
        GzDecoder::new(&compressed[..]).read_to_end(&mut text).unwrap();
        assert!(text == plain, "{names}");
        // The same file in another encoding is another one.
        let (head, body) = get(&accepted, &tag(&head));
        assert!(head.starts_with("http/1.1 304") && body.is_empty(), "{head}");
        assert!(!head.contains("content-encoding"), "{head}");
        let (head, _) = get(&accepted, &tag(&get("", "x").0));
        assert!(head.starts_with("http/1.1 200"), "{head}");
    }
}

#[test]
fn the_page_can_be_left_out() {
    for option in ["--no-ui", "--no-webui"] {
        let server = serve(&["-c", "256", option]);
        for path in ["/", "/page/app.js"] {
            server.get(path).refused(404, &["without its web page"]);
        }
    }
    for options in [["--no-ui", "--ui"], ["--no-webui", "--webui"]] {
        let server = serve(&[&["-c", "256"], &options[..]].concat());
        assert_eq!(server.get("/").status, 200, "{options:?}");
    }
}

#[test]
fn the_plan_has_the_numbers_of_a_length() {
    let server = serve(&["-c", "512", "--rope-scaling", "linear", "--rope-scale", "2"]);
    let plan = server.get("/rope").json();
    assert!(plan["plan"].as_str().unwrap().starts_with("RoPE: linear"), "{plan}");
    assert_eq!((&plan["method"], &plan["factor"]), (&"linear".into(), &2.0.into()));
    assert_eq!((&plan["tokens"], &plan["context"]), (&512.into(), &512.into()));
    let numbers = |name: &str| -> Vec<f64> { parse(&plan[name].to_string()).unwrap() };
    let (now, trained) = (numbers("wavelengths"), numbers("trained_wavelengths"));
    assert!(!now.is_empty());
    for (now, trained) in now.iter().zip(&trained) {
        assert!((now / trained - 2.0).abs() < 1e-12, "{now} {trained}");
    }
    let last = |plan: &Value| plan["distances"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last(&plan), serde_json::json!([511, 255.5, 255.5]));
    let shorter = server.get("/rope?tokens=101").json();
    assert_eq!(last(&shorter), serde_json::json!([100, 50.0, 50.0]));
    for tokens in ["0", "513", "-1", "x", ""] {
        server.get(&format!("/rope?tokens={tokens}")).refused(400, &["tokens", "from 1 to 512"]);
    }
}

#[test]
fn the_properties_say_whether_the_context_rolls() {
    let rolls = |options: &[&str]| serve(options).get("/props").json()["context_rolls"].take();
    assert_eq!(rolls(&["-c", "512"]), false);
    assert_eq!(rolls(&["-c", "512", "--attention-sinks", "4"]), true);
}

#[test]
fn the_properties_have_the_memory() {
    let server = serve(&["-c", "512"]);
    let memory = server.get("/props").json()["memory"].take();
    for name in ["weights_bytes", "buffers_bytes", "context_bytes"] {
        assert!(memory[name].as_u64().unwrap() > 0, "{name}: {memory}");
    }
    assert_eq!(memory["cache_bytes"], 0);
}

/// Starts a server that finds only the programs of a folder.
fn serve_with_programs(folder: &Path, options: &[&str]) -> (Server, tempfile::NamedTempFile) {
    let model = tiny_reader(7, true);
    let mut command = Server::command(&["serve", "--port", "0"], model.path(), options);
    command.env("PATH", folder);
    (Server::run(command, "listening on http://"), model)
}

#[test]
fn a_pdf_becomes_text_with_the_users_program() {
    let folder = tempfile::tempdir().unwrap();
    let pdf = json!({ "data": "JVBERi0xLjcgYnl0ZXM=" });
    let (server, _model) = serve_with_programs(folder.path(), &["-c", "256"]);
    server.post("/pdf", pdf.clone()).refused(501, &["pdftotext was not found", "poppler-utils"]);
    // The program is found as soon as it is there.
    let program = folder.path().join("pdftotext");
    fs::write(&program, "#!/bin/sh\nexec /bin/cat \"$5\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    // One after another: the next is not refused because of the one before.
    for _ in 0..5 {
        assert_eq!(server.post("/pdf", pdf.clone()).json(), json!({ "text": "%PDF-1.7 bytes" }));
    }
    for wrong in [json!({}), json!({ "data": "%PDF-" }), json!({ "data": "aGVsbG8=" })] {
        server.post("/pdf", wrong).refused(400, &["\"data\"", "a PDF in base64"]);
    }
    // It is a part of the page, and needs a key as other requests do.
    let (server, _model) = serve_with_programs(folder.path(), &["-c", "256", "--no-ui"]);
    server.post("/pdf", pdf.clone()).refused(404, &["without its web page"]);
    let (server, _model) = serve_with_programs(folder.path(), &["-c", "256", "--api-key", "a"]);
    server.post("/pdf", pdf).refused(401, &[]);
}
