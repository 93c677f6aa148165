//! Who may send requests.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::server::harness::{PATIENCE, PROMPT, Reply, Server, serve};

#[test]
fn a_key_is_required_except_for_health() {
    let server = serve(&["-c", "256", "--api-key", "first,second"]);
    let body = json!({ "prompt": PROMPT, "n_predict": 1 }).to_string();
    let post = |headers: &[(&str, &str)]| server.send("POST", "/completion", headers, &body);
    for headers in [
        &[][..],
        &[("authorization", "Bearer third")],
        &[("authorization", "Bearer ")],
        &[("authorization", "first")],
        &[("authorization", "Bearer firsts")],
        &[("x-api-key", "firs")],
    ] {
        let error = post(headers).refused(401, &["Invalid API Key"]);
        assert_eq!(error["type"], "authentication_error");
    }
    let schemes = [("authorization", "Bearer first"), ("authorization", "bearer first")];
    for headers in schemes.into_iter().chain([("x-api-key", "second")]) {
        post(&[headers]).json();
    }
    for path in ["/health", "/livez", "/readyz"] {
        server.get(path).json();
    }
    for path in ["/props", "/slots", "/v1/models", "/metrics", "/nothing"] {
        server.get(path).refused(401, &[]);
    }
}

/// Sends a request with a key.
fn with_key(server: &Server, key: &str, path: &str, body: Value) -> Reply {
    server.send("POST", path, &[("x-api-key", key)], &body.to_string())
}

#[test]
fn a_key_reuses_only_its_own_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let disk = ["--cache-disk", folder.path().to_str().unwrap()];
    let options = ["-c", "2048", "-np", "2", "--api-key", "first,second"];
    let prompt = PROMPT.repeat(40);
    let ask = |server: &Server, key: &str| {
        let body = json!({ "prompt": prompt, "n_predict": 1 });
        let answer = with_key(server, key, "/completion", body).json();
        answer["timings"]["cache_n"].as_u64().unwrap() > 0
    };
    let mut server = serve(&[&options[..], &disk].concat());
    for (key, reuses) in [("first", false), ("second", false), ("first", true), ("second", true)] {
        assert_eq!(ask(&server, key), reuses, "{key}");
    }
    server.signal(Signal::SIGTERM);
    assert_eq!(server.exit_code(), Some(0));
    // Each key continues its own file.
    assert_eq!(folder.path().read_dir().unwrap().count(), 2);
    let server = serve(&[&options[..], &disk].concat());
    for key in ["first", "second"] {
        assert!(ask(&server, key), "{key}");
    }
    // Neither does another key, nor a server without keys.
    let options = ["-c", "2048", "--api-key", "second,third"];
    let server = serve(&[&options[..], &disk].concat());
    assert!(!ask(&server, "third"));
    let server = serve(&[&["-c", "2048"], &disk[..]].concat());
    assert!(!ask(&server, ""));
    for options in
        [["--api-key", "first,second", "--share-cache"], ["--api-key", "first,first", "--no-ui"]]
    {
        let server = serve(&[&["-c", "2048"], &options[..]].concat());
        let last = if options[2] == "--share-cache" { "second" } else { "first" };
        assert_eq!(["first", last].map(|key| ask(&server, key)), [false, true], "{options:?}");
    }
}

#[test]
fn a_key_sees_saves_and_erases_only_its_own_slots() {
    let folder = tempfile::tempdir().unwrap();
    let saved = ["--slot-save-path", folder.path().to_str().unwrap()];
    let server =
        serve(&[&["-c", "512", "-np", "1", "--api-key", "first,second"], &saved[..]].concat());
    let ask = |key: &str| {
        with_key(&server, key, "/completion", json!({ "prompt": PROMPT, "n_predict": 1 })).json()
    };
    let act = |key: &str, action: &str, slot: usize| {
        let path = format!("/slots/{slot}?action={action}");
        with_key(&server, key, &path, json!({ "filename": "state" }))
    };
    let tokens = |key: &str| {
        let slots = server.send("GET", "/slots", &[("x-api-key", key)], "").json();
        slots[0]["n_tokens"].as_u64().unwrap()
    };
    ask("first");
    assert!(tokens("first") > 0);
    assert_eq!(tokens("second"), 0);
    for action in ["save", "erase", "restore"] {
        act("second", action, 0).refused(403, &["slot 0", "another API key", "--share-cache"]);
    }
    act("first", "save", 0).json();
    // It takes the slot, as any request may, and has no file of this name.
    ask("second");
    act("second", "restore", 0).refused(400, &["state"]);
    act("second", "save", 0).json();
    act("second", "erase", 0).json();
    act("first", "restore", 0).json();
    assert!(ask("first")["timings"]["cache_n"].as_u64().unwrap() > 0);
}

/// Headers are bytes: clients send a key in UTF-8.
#[test]
fn a_key_may_have_any_letters() {
    let server = serve(&["-c", "256", "--api-key", "schlüssel"]);
    for (key, status) in [("schlüssel", "200"), ("schlussel", "401")] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "GET /props HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
             connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let head = String::from_utf8_lossy(&answer);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{key}: {head}");
    }
}

#[test]
fn requests_to_another_host_are_refused() {
    let server = serve(&["-c", "256", "--allowed-hosts", "model.example"]);
    let get = |host: &str| server.send("GET", "/health", &[("host", host)], "");
    let clipped = ["[127.0.0.1", "127.0.0.1]", "[[::1]]", "[127.0.0.1]:80", "[::1", "::1]:80"];
    let names = ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.nip.io"];
    for host in names.into_iter().chain(clipped) {
        get(host).refused(403, &["Host"]);
    }
    get("model-7b.svc.example:8080").refused(
        403,
        &["--allowed-hosts model-7b.svc.example,", "ROPE_CPU_ALLOWED_HOSTS=model-7b.svc.example,"],
    );
    // What is no name is not repeated.
    let error = get("<b>x").refused(403, &["names no host"]);
    assert!(!error.to_string().contains("<b>"), "{error}");
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", "model.example:443"] {
        get(host).json();
    }
}

#[test]
fn pages_of_other_origins_are_refused_by_default() {
    let origin = ("origin", "https://page.example");
    let allowed = "access-control-allow-origin";
    let server = serve(&["-c", "256"]);
    assert_eq!(server.send("GET", "/health", &[origin], "").header(allowed), None);
    let server = serve(&["-c", "256", "--cors-origins", "https://page.example"]);
    let reply = server.send("GET", "/health", &[origin], "");
    assert_eq!(reply.header(allowed), Some("https://page.example"));
    let reply = server.send("GET", "/health", &[("origin", "https://other.example")], "");
    assert_eq!(reply.header(allowed), None);

    let asked = ("access-control-request-headers", "content-type,x-stainless-lang");
    let asked = [origin, ("access-control-request-method", "POST"), asked];
    let reply = server.send("OPTIONS", "/v1/chat/completions", &asked, "");
    assert_eq!(reply.header("access-control-allow-headers"), Some(asked[2].1));
}

/// Returns the status of a request with these headers.
fn status(server: &Server, request: &str, headers: &[(&str, &str)]) -> u16 {
    let (method, path) = request.split_once(' ').unwrap();
    let body = json!({ "prompt": PROMPT, "n_predict": 1 }).to_string();
    server.send(method, path, headers, &body).status
}

#[test]
fn requests_of_other_pages_are_refused_before_they_act() {
    let server = serve(&["-c", "256", "--slot-save-path", "/tmp"]);
    let own = format!("http://{}", server.address);
    let json = ("content-type", "application/json");
    let all = ["POST /completion", "POST /slots/0?action=erase", "GET /slots", "GET /props"];
    for request in all {
        let status = |headers: &[(&str, &str)]| status(&server, request, headers);
        for origin in ["https://page.example", "null", "http://localhost:1", "http://127.0.0.1"] {
            assert_eq!(status(&[json, ("origin", origin)]), 403, "{request} {origin}");
            let same_site = ("sec-fetch-site", "same-site");
            assert_eq!(status(&[json, ("origin", origin), same_site]), 403, "{request} {origin}");
        }
        assert_eq!(status(&[json, ("sec-fetch-site", "cross-site")]), 403, "{request}");
        for headers in [
            &[json][..],
            &[json, ("origin", &own)],
            &[json, ("sec-fetch-site", "none")],
            // Behind a proxy that changes the Host header.
            &[json, ("origin", "https://page.example"), ("sec-fetch-site", "same-origin")],
        ] {
            assert_eq!(status(headers), 200, "{request} {headers:?}");
        }
    }
    // The page may be opened from anywhere.
    let cross_site = ("sec-fetch-site", "cross-site");
    for path in ["GET /", "GET /health", "GET /page/app.js"] {
        assert_eq!(status(&server, path, &[cross_site]), 200, "{path}");
    }
    server
        .send("POST", "/completion", &[("origin", "https://page.example")], "{}")
        .refused(403, &["https://page.example", "--cors-origins"]);
    for (origins, origin) in [
        ("https://page.example", "https://page.example"),
        ("localhost", "http://localhost:3000"),
        ("*", "null"),
    ] {
        let server = serve(&["-c", "256", "--cors-origins", origins]);
        let headers = [json, ("origin", origin), cross_site];
        assert_eq!(status(&server, "POST /completion", &headers), 200, "{origins}");
    }
}

#[test]
fn bodies_of_pages_must_be_json() {
    let server = serve(&["-c", "256"]);
    let own = format!("http://{}", server.address);
    let (own, mode) = (("origin", &own[..]), ("sec-fetch-mode", "no-cors"));
    let forms =
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"];
    for form in forms {
        let form = ("content-type", form);
        for of_page in [own, mode] {
            let headers = [form, of_page];
            assert_eq!(status(&server, "POST /completion", &headers), 415, "{headers:?}");
        }
        // curl sends a form by default.
        assert_eq!(status(&server, "POST /completion", &[form]), 200, "{form:?}");
    }
    for form in ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"] {
        let headers = [("content-type", form), own, mode];
        assert_eq!(status(&server, "POST /completion", &headers), 200, "{form}");
    }
    server
        .send("POST", "/completion", &[own], "{}")
        .refused(415, &["Content-Type", "application/json"]);
    // Without a body there is nothing to have a type.
    assert_eq!(server.send("POST", "/slots/0?action=erase", &[own], "").status, 200);
}

#[test]
fn a_host_that_is_not_clear_is_refused() {
    let server = serve(&["-c", "256"]);
    let status = |headers: &[u8]| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\n").unwrap();
        stream.write_all(headers).unwrap();
        stream.write_all(b"connection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()[9..12].to_string()
    };
    assert_eq!(status(b"host: localhost\r\n"), "200");
    assert_eq!(status(b"host: localhost\r\nhost: localhost\r\n"), "400");
    assert_eq!(status(b"host: localhost\r\nhost: evil.example\r\n"), "400");
    assert_eq!(status(b"host: \xff\xfe\r\n"), "400");
    assert_eq!(status("host: löcalhost\r\n".as_bytes()), "400");
}
