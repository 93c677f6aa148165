//! A server that the system refuses something: room on the disk, open files, or its model's file.

use std::{
    fs::{self, File},
    net::TcpStream,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::server::harness::{PROMPT, Server, serve};
use rope_cpu_testing::reader::tiny_reader;

/// Starts a server under a limit of the shell, such as `ulimit -n 24`.
fn limited(limit: &str, options: &[&str]) -> Server {
    let model = tiny_reader(7, true);
    let command = Server::command(&["serve", "--port", "0"], model.path(), options);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limit} && exec \"$0\" \"$@\"")]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        assert!(value.is_none(), "a variable to set");
        shell.env_remove(name);
    }
    // The server has opened the model, so the file can go.
    Server::run(shell, "listening on http://")
}

fn ask(server: &Server, prompt: &str) -> Value {
    let body = json!({ "prompt": prompt, "n_predict": 10, "temperature": 0 });
    server.post("/completion", body).json()
}

fn names(folder: &Path) -> Vec<String> {
    let name = |file: fs::DirEntry| file.file_name().into_string().unwrap();
    fs::read_dir(folder).unwrap().map(|file| name(file.unwrap())).collect()
}

#[test]
fn a_full_disk_costs_files_and_no_answer() {
    let [cache, slots] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [cache, slots] = [&cache, &slots].map(|folder| folder.path());
    let options = ["-c", "2048", "-np", "1", "--log-format", "json"];
    let folders =
        ["--cache-disk", cache.to_str().unwrap(), "--slot-save-path", slots.to_str().unwrap()];
    // Files of at most 200 blocks of 512 bytes, or of 1,024, as shells differ. The short text takes
    // 64 KiB, and the long one 256.
    let mut server = limited("ulimit -f 200", &[&options[..], &folders].concat());
    let save = || server.post("/slots/0?action=save", json!({ "filename": "slot" }));
    let expected = ask(&server, PROMPT);
    let saved = save().json();
    let long = PROMPT.repeat(60);
    ask(&server, &long);
    let parts = ["slot: File too large", "was not saved", "--slot-save-path"];
    assert_eq!(save().refused(507, &parts)["type"], "server_error");
    // The file of the short text is what it was.
    assert_eq!(names(slots), ["slot"]);
    let restored = server.post("/slots/0?action=restore", json!({ "filename": "slot" })).json();
    assert_eq!(restored["n_restored"], saved["n_saved"]);
    assert_eq!(ask(&server, PROMPT)["content"], expected["content"]);

    ask(&server, &long);
    server.signal(Signal::SIGTERM);
    assert_eq!(server.exit_code(), Some(0), "{}", server.stderr());
    let log = server.stderr_to_end();
    assert!(log.contains("cannot write") && log.contains("File too large"), "{log}");
    assert_eq!(names(cache), [""; 0]);
}

#[test]
fn connections_beyond_the_limit_of_open_files_wait() {
    let server = limited("ulimit -n 32", &["-c", "256"]);
    let expected = ask(&server, PROMPT);
    let open: Vec<_> = (0..40).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    server.wait_until(|server| server.stderr().contains("cannot accept connections"));
    let said = server.stderr();
    assert!(said.contains("Too many open files") && said.contains("ulimit -n"), "{said}");
    drop(open);
    assert_eq!(ask(&server, PROMPT)["content"], expected["content"]);
    assert_eq!(server.stderr().matches("cannot accept").count(), 1, "{said}");
}

#[test]
fn a_server_without_any_file_left_says_what_it_could_not_do() {
    let model = tiny_reader(7, true);
    for files in 5..10 {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]);
        shell.args([env!("CARGO_BIN_EXE_rope-cpu"), "serve", "--port", "0", "-m"]);
        let output = shell.arg(model.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{files}: {said}");
        assert!(
            said.contains("error: ") && said.contains("Too many open files"),
            "{files}: {said}"
        );
        assert!(!said.contains("cannot write the output"), "{files}: {said}");
    }
}

/// Calls that wait, such as `epoll_wait`, fail with EINTR when a stopped process continues.
#[test]
fn a_server_that_is_stopped_and_continued_loses_nothing() {
    let cache = tempfile::tempdir().unwrap();
    let options = ["-c", "2048", "-np", "1", "--cache-disk", cache.path().to_str().unwrap()];
    let mut server = serve(&options);
    let long = PROMPT.repeat(60);
    let prompts = [PROMPT, &long];
    let expected = prompts.map(|prompt| ask(&server, prompt)["content"].take());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let server = &server;
        let stopping = scope.spawn(|| {
            let mut stops = 0;
            while !done.load(Relaxed) {
                for (signal, milliseconds) in [(Signal::SIGSTOP, 1), (Signal::SIGCONT, 3)] {
                    server.signal(signal);
                    thread::sleep(Duration::from_millis(milliseconds));
                }
                stops += 1;
            }
            stops
        });
        for round in 0..10 {
            let again = prompts.map(|prompt| ask(server, prompt)["content"].take());
            assert_eq!(again, expected, "round {round}");
        }
        server.signal(Signal::SIGTERM);
        // It writes the conversation.
        thread::sleep(Duration::from_millis(100));
        done.store(true, Relaxed);
        let stops = stopping.join().unwrap();
        assert!(stops > 20, "{stops} stops");
    });
    assert_eq!(server.exit_code(), Some(0), "{}", server.stderr());
    let server = serve(&options);
    assert!(ask(&server, &long)["timings"]["cache_n"].as_u64() > Some(500));
}

#[test]
fn a_model_that_is_replaced_is_used_and_one_that_is_shortened_is_named() {
    let model = tiny_reader(7, true);
    let mut server = Server::start(model.path(), &["-c", "256"]);
    let expected = ask(&server, PROMPT);
    let other = tiny_reader(8, true);
    let kept = model.path().with_extension("kept");
    fs::rename(model.path(), &kept).unwrap();
    fs::copy(other.path(), model.path()).unwrap();
    let other_prompt = PROMPT.to_string() + " and the south";
    let answer = ask(&server, PROMPT);
    assert_eq!(answer["content"], expected["content"]);

    File::options().write(true).open(&kept).unwrap().set_len(4096).unwrap();
    // The server closes the connection in the middle of the request.
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let body = json!({ "prompt": other_prompt }).to_string();
    let head = "POST /completion HTTP/1.1\r\nhost: localhost\r\ncontent-length:";
    std::io::Write::write_all(
        &mut stream,
        format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes(),
    )
    .unwrap();
    assert_eq!(server.exit_code(), Some(2), "{}", server.stderr());
    let said = server.stderr_to_end();
    assert_eq!(said.matches("the file was shortened").count(), 1, "{said}");
    fs::remove_file(kept).unwrap();
}
