//! The cache on disk.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use nix::sys::signal::Signal;
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::harness::{PROMPT, Server, serve};
use rope_cpu_testing::reader::{tiny_adapter, tiny_reader};

/// A conversation of at least 600 tokens, which begins with `first`.
fn long(first: &str) -> String {
    first.to_string() + &PROMPT.repeat(40)
}

fn ask(server: &Server, prompt: &(impl Serialize + ?Sized), tokens: usize) -> Value {
    let body =
        json!({ "prompt": prompt, "n_predict": tokens, "temperature": 0, "return_tokens": true });
    server.post("/completion", body).json()
}

fn options<'f>(folder: &'f TempDir, more: &[&'f str]) -> Vec<&'f str> {
    let folder = folder.path().to_str().unwrap();
    [&["-c", "2048", "-np", "1", "--log-format", "json", "--cache-disk", folder][..], more].concat()
}

fn files(folder: &TempDir) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect()
}

fn stop(mut server: Server) -> String {
    server.signal(Signal::SIGTERM);
    assert_eq!(server.exit_code(), Some(0), "{}", server.stderr());
    server.stderr()
}

#[test]
fn conversations_go_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&options(&folder, &[]));
    let prompts = ["a ", "in ", "no "].map(long);
    let first = prompts.each_ref().map(|prompt| ask(&server, prompt, 20));
    let tokens = first[0]["tokens_evaluated"].as_u64().unwrap();
    assert!(tokens >= 600, "{tokens}");
    // From memory, for comparison.
    let again = prompts.each_ref().map(|prompt| ask(&server, prompt, 20));
    stop(server);
    assert_eq!(files(&folder).len(), 3);

    let server = serve(&options(&folder, &[]));
    for (prompt, again) in prompts.iter().zip(&again) {
        let restored = ask(&server, prompt, 20);
        assert_eq!(restored["timings"]["cache_n"], again["timings"]["cache_n"]);
        assert_eq!(restored["timings"]["prompt_n"], 1);
        assert_eq!(restored["content"], again["content"]);
    }
    server.wait_until(|server| server.stderr().matches(r#""source":"disk""#).count() == 3);
    // What continues a conversation takes the place of its file.
    let prompt = json!({ "content": prompts[0], "add_special": true });
    let prompt = server.post("/tokenize", prompt).json()["tokens"].take();
    let tokens = |tokens: &Value| tokens.as_array().unwrap().clone();
    let longer = [tokens(&prompt), tokens(&again[0]["tokens"]), vec![json!(5)]].concat();
    ask(&server, &longer, 20);
    stop(server);
    assert_eq!(files(&folder).len(), 3);
    let server = serve(&options(&folder, &[]));
    let restored = ask(&server, &longer, 20);
    assert_eq!(restored["timings"]["prompt_n"], 1);
}

#[test]
fn the_end_does_not_wait_for_the_disk_beyond_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&options(&folder, &["--drain-timeout", "0"]));
    let prompts = ["a ", "in ", "no ", "on "].map(long);
    for prompt in &prompts {
        ask(&server, prompt, 20);
    }
    let log = stop(server);
    assert!(log.contains("conversations are not on disk"), "{log}");
    // What is there is whole.
    let server = serve(&options(&folder, &[]));
    assert!(!server.stderr().contains("ignored"), "{}", server.stderr());
    ask(&server, &prompts[3], 20);
    let log = stop(server);
    assert!(!log.contains("not on disk"), "{log}");
}

#[test]
fn damaged_files_are_removed_and_others_are_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&options(&folder, &[]));
    let expected = ["a ", "in "].map(|first| ask(&server, &long(first), 20));
    stop(server);
    let [damaged, cut] = &files(&folder)[..] else { panic!() };
    // One byte of a page; the header is whole.
    let mut bytes = fs::read(damaged).unwrap();
    let last = bytes.len() - 100;
    bytes[last] ^= 1;
    fs::write(damaged, &bytes).unwrap();
    fs::write(cut, &fs::read(cut).unwrap()[..1000]).unwrap();
    fs::write(folder.path().join("strange.sequence"), "not a sequence").unwrap();
    fs::write(folder.path().join("notes"), "of someone else").unwrap();
    fs::write(folder.path().join("a.sequence.1.partial"), "of a server that was killed").unwrap();
    assert_eq!(fs::metadata(damaged).unwrap().permissions().mode() & 0o777, 0o600);

    let server = serve(&options(&folder, &[]));
    assert_eq!(server.stderr().matches("ignored and removed").count(), 2, "{}", server.stderr());
    for (first, expected) in ["a ", "in "].iter().zip(&expected) {
        let answer = ask(&server, &long(first), 20);
        // The token at the beginning of all texts may be in the slot.
        assert!(answer["timings"]["cache_n"].as_u64().unwrap() <= 1, "{answer}");
        assert_eq!(answer["content"], expected["content"]);
    }
    server.wait_until(|server| server.stderr().matches("ignored and removed").count() == 3);
    assert_eq!(files(&folder), [folder.path().join("notes")]);
    stop(server);
    assert_eq!(files(&folder).len(), 3);

    // Files of another model stay, and are not used.
    let model = tiny_reader(8, true);
    let other = Server::start(model.path(), &options(&folder, &[]));
    assert_eq!(ask(&other, &long("a "), 20)["timings"]["cache_n"], 0);
    assert!(!other.stderr().contains("ignored"), "{}", other.stderr());
    stop(other);
    assert_eq!(files(&folder).len(), 4);
}

#[test]
fn the_least_recently_used_files_are_removed_first() {
    let folder = tempfile::tempdir().unwrap();
    let names = ('a'..'m').map(|letter| format!("{letter} "));
    let wide = ["-ctk", "f32", "-ctv", "f32"];
    let server = serve(&options(&folder, &wide));
    for first in names.clone() {
        ask(&server, &long(&first), 4);
    }
    // Used again, and therefore the last to go.
    ask(&server, &long("a "), 4);
    stop(server);
    let bytes: u64 = files(&folder).iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(files(&folder).len() == names.count() && bytes > 2 << 20, "{bytes}");
    let server = serve(&options(&folder, &[&wide[..], &["--cache-disk-limit", "1"]].concat()));
    let size = || -> u64 {
        files(&folder).iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    };
    server.wait_until(|_| size() <= 1 << 20);
    assert!(files(&folder).len() >= 2);
    assert_eq!(ask(&server, &long("a "), 4)["timings"]["prompt_n"], 1);
    assert_eq!(ask(&server, &long("l "), 4)["timings"]["prompt_n"], 1);
    assert!(ask(&server, &long("b "), 4)["timings"]["cache_n"].as_u64().unwrap() <= 1);
}

#[test]
fn conversations_are_on_disk_before_memory_is_full() {
    let folder = tempfile::tempdir().unwrap();
    // Room for two conversations. One is in the slot.
    let server = serve(&options(&folder, &["--cache-ram", "0"]));
    let prompts = ["a ", "in ", "no ", "on "].map(long);
    let first = prompts.each_ref().map(|prompt| ask(&server, prompt, 700));
    server.wait_until(|_| !files(&folder).is_empty());
    server.wait_until(|server| server.stderr().contains(r#""message":"saved""#));
    let again = ask(&server, &prompts[0], 20);
    assert!(again["timings"]["cache_n"].as_u64().unwrap() > 500, "{again}");
    let text = first[0]["content"].as_str().unwrap();
    assert!(text.starts_with(again["content"].as_str().unwrap()));
    assert!(server.stderr().contains(r#""message":"restored""#), "{}", server.stderr());
}

/// A file does not tell its scales.
#[test]
fn conversations_with_scales_of_their_own_have_no_file() {
    let (folder, adapter) = (tempfile::tempdir().unwrap(), tiny_adapter());
    let options = options(&folder, &["--lora", adapter.path().to_str().unwrap()]);
    let model = tiny_reader(7, true);
    let prompt = long("a ");
    let ask = |server: &Server, scale: f64| {
        let body = json!({
            "prompt": prompt, "n_predict": 20, "temperature": 0, "lora": [{ "id": 0, "scale": scale }],
        });
        server.post("/completion", body).json()["timings"]["cache_n"].as_u64().unwrap()
    };
    let server = Server::start(model.path(), &options);
    assert_eq!(ask(&server, 0.5), 0);
    stop(server);
    assert_eq!(files(&folder).len(), 0);
    let server = Server::start(model.path(), &options);
    assert_eq!((ask(&server, 0.5), ask(&server, 1.0)), (0, 0));
    stop(server);
    assert_eq!(files(&folder).len(), 1);
    let server = Server::start(model.path(), &options);
    assert_eq!(ask(&server, 0.5), 0);
    assert!(ask(&server, 1.0) >= 600);
}

#[test]
fn documents_that_were_read_in_advance_are_not_read_again() {
    let (folder, texts, model) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tiny_reader(7, true));
    let notes = texts.path().join("notes");
    fs::write(&notes, long("a ")).unwrap();
    let read = |more: &[&str]| {
        let arguments = ["read", "-c", "2048", "-o", folder.path().to_str().unwrap()];
        let notes = notes.to_str().unwrap();
        let command =
            Server::command(&arguments, model.path(), &[&[notes][..], more].concat()).output();
        String::from_utf8(command.unwrap().stdout).unwrap()
    };
    let line = read(&[]);
    let tokens: u64 = line.split(": ").last().unwrap().split(' ').next().unwrap().parse().unwrap();
    let document = files(&folder).pop().unwrap();

    let prompt = long("a ") + " and then the rain";
    let expected = ask(&serve(&["-c", "2048"]), &prompt, 20);
    let server = Server::start(model.path(), &options(&folder, &["--cache-disk-limit", "1"]));
    let answer = ask(&server, &prompt, 20);
    assert_eq!(
        (&answer["content"], &answer["timings"]["cache_n"]),
        (&expected["content"], &json!(tokens))
    );
    server.wait_until(|server| server.stderr().contains(r#""source":"disk""#));
    // A conversation that continues a document does not take its place.
    let log = stop(server);
    assert!(document.exists() && files(&folder).len() == 2, "{log}");
    assert_eq!(log.matches("not used").count(), 0, "{log}");

    // Damaged documents stay unused, and so do documents of other settings.
    let mut bytes = fs::read(&document).unwrap();
    bytes.pop();
    fs::write(&document, &bytes).unwrap();
    read(&["-ctk", "q8_0"]);
    let server = Server::start(model.path(), &options(&folder, &[]));
    let log = stop(server);
    let name = document.file_name().unwrap().to_str().unwrap();
    assert!(log.contains(&format!("{name} is ignored: the file is damaged")), "{log}");
    assert!(log.contains("not used: ") && log.contains("set --cache-type-k q8_0"), "{log}");
    assert_eq!(files(&folder).len(), 3);
}

#[test]
fn a_folder_that_others_may_write_to_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let warning = "other users may write to this folder";
    assert!(!serve(&options(&folder, &[])).stderr().contains(warning));
    for mode in [0o770, 0o702] {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        let stderr = serve(&options(&folder, &[])).stderr();
        assert!(stderr.contains(warning) && stderr.contains("chmod go-w"), "{mode:o}: {stderr}");
    }
}
