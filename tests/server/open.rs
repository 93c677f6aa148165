//! `rope-cpu open`: a server, and its page in the browser.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::server::harness::Server;
use rope_cpu_testing::reader::tiny_reader;

/// Runs `rope-cpu open` where only the programs in `folder` are found.
fn open(folder: &Path, model: &Path, sign: &str) -> Server {
    let mut command = Server::command(&["open"], model, &[]);
    command.env("PATH", folder);
    Server::run(command, sign)
}

#[test]
fn the_page_is_opened_in_the_browser() {
    let (folder, model) = (tempfile::tempdir().unwrap(), tiny_reader(7, true));
    let [browser, opened] = ["xdg-open", "opened"].map(|name| folder.path().join(name));
    fs::write(&browser, format!("#!/bin/sh\necho \"$1\" >'{}'\n", opened.display())).unwrap();
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    let mut server = open(folder.path(), model.path(), "the browser shows http://");
    server.post("/tokenize", json!({ "content": "the" })).json();
    server.wait_until(|_| fs::read_to_string(&opened).is_ok_and(|url| url.ends_with("/\n")));
    let url = fs::read_to_string(&opened).unwrap();
    assert!(url.starts_with("http://127.0.0.1:") && !url.contains(":8080"), "{url}");
    assert!(server.stderr().contains(&format!("{} ", url.trim())), "{}", server.stderr());
    server.wait_until(|server| server.stderr().contains("press Ctrl-C here to stop"));
    assert!(!server.stderr().contains("/tokenize"), "{}", server.stderr());
    server.signal(Signal::SIGINT);
    assert_eq!(server.exit_code(), Some(0), "{}", server.stderr());
}

#[test]
fn a_server_without_its_page_is_refused() {
    let model = tiny_reader(7, true);
    let run = Server::command(&["open"], model.path(), &["--no-ui"]).output().unwrap();
    let stderr = String::from_utf8(run.stderr).unwrap();
    assert!(run.status.code() == Some(2) && stderr.contains("use rope-cpu serve"), "{stderr}");
}

#[test]
fn without_a_browser_the_address_is_printed() {
    let (folder, model) = (tempfile::tempdir().unwrap(), tiny_reader(7, true));
    let mut server = open(folder.path(), model.path(), "\nopen http://");
    server.get("/health").json();
    assert!(server.stderr().contains("/ in a browser"), "{}", server.stderr());
    server.signal(Signal::SIGINT);
    assert_eq!(server.exit_code(), Some(0), "{}", server.stderr());
}
