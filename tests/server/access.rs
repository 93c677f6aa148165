//! Who may send requests.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::json;

use crate::harness::{PATIENCE, PROMPT, serve};

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
    for headers in [("authorization", "Bearer first"), ("x-api-key", "second")] {
        post(&[headers]).json();
    }
    for path in ["/health", "/livez", "/readyz"] {
        server.get(path).json();
    }
    for path in ["/props", "/slots", "/v1/models", "/metrics", "/nothing"] {
        server.get(path).refused(401, &[]);
    }
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
    for host in ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.nip.io"] {
        get(host).refused(403, &["Host"]);
    }
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
}
