//! Saving, restoring and erasing the sequences of slots.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::server::harness::{PROMPT, Server, serve};

fn act(server: &Server, action: &str, name: &str) -> Value {
    server.post(&format!("/slots/0?action={action}"), json!({ "filename": name })).json()
}

#[test]
fn a_slot_is_saved_erased_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["-c", "512", "-np", "1", "--slot-save-path", folder.path().to_str().unwrap()];
    let body = json!({ "prompt": PROMPT, "n_predict": 20, "temperature": 0 });
    let server = serve(&options);
    let first = server.post("/completion", body.clone()).json();
    let saved = act(&server, "save", "slot.bin");
    assert_eq!(saved["n_saved"], first["tokens_cached"]);
    assert_eq!(saved["n_written"], folder.path().join("slot.bin").metadata().unwrap().len());
    let erased = act(&server, "erase", "");
    assert_eq!(erased["n_erased"], saved["n_saved"]);
    let again = server.post("/completion", body.clone()).json();
    assert_eq!(again["timings"]["cache_n"], 0);
    assert_eq!(again["content"], first["content"]);

    // Another server of the same model continues where the first one has stopped.
    let other = serve(&options);
    let restored = act(&other, "restore", "slot.bin");
    assert_eq!(restored["n_restored"], saved["n_saved"]);
    let continued = other.post("/completion", body).json();
    let prompt = first["tokens_evaluated"].as_u64().unwrap();
    assert_eq!(continued["timings"]["cache_n"], prompt - 1);
    assert_eq!(continued["content"], first["content"]);
}

#[test]
fn files_outside_the_folder_and_damaged_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(inside.join("slot.1.partial"), "of a server that was killed").unwrap();
    let server = serve(&["-c", "512", "--slot-save-path", inside.to_str().unwrap()]);
    assert!(!inside.join("slot.1.partial").exists());
    let act = |action: &str, name: &str| {
        server.post(&format!("/slots/0?action={action}"), json!({ "filename": name }))
    };
    for name in
        ["../outside", "/etc/passwd", "a/b", ".hidden", "", "..", "a\\b", "a\0b", " ", "a b"]
    {
        act("save", name).refused(400, &["\"filename\""]);
    }
    act("restore", "missing").refused(400, &["missing"]);
    // Neither is a link followed, nor is a pipe waited for.
    let target = folder.path().join("target");
    std::fs::write(&target, "of someone else").unwrap();
    std::os::unix::fs::symlink("../target", inside.join("link")).unwrap();
    nix::unistd::mkfifo(&inside.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for action in ["save", "restore"] {
        for name in ["link", "pipe"] {
            act(action, name).refused(400, &[name, "not a regular file"]);
        }
    }
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "of someone else");
    server.post("/completion", json!({ "prompt": PROMPT, "n_predict": 4 })).json();
    act("save", "whole").json();
    let mode = std::fs::metadata(inside.join("whole")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut bytes = std::fs::read(inside.join("whole")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(inside.join("damaged"), bytes).unwrap();
    act("restore", "damaged").refused(400, &["damaged"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    serve(&["-c", "512"])
        .post("/slots/0?action=save", json!({ "filename": "a" }))
        .refused(501, &["--slot-save-path"]);
}
