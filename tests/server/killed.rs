//! `kill -9` while files are written: nothing acknowledged is lost, and nothing incomplete is used.

use std::{
    collections::HashSet,
    fs,
    path::Path,
    sync::mpsc::channel,
    thread::{self, sleep},
    time::Duration,
};

use nix::sys::signal::Signal;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use serde_json::{Value, json};

use crate::server::harness::{PATIENCE, PROMPT, Server, serve};

const ROUNDS: u64 = 8;

/// The longest time from the start of a write, or from the answer to one, to the kill. Half of the
/// writes are complete by then, on an idle machine.
const DELAY_MAX_US: u32 = 30_000;

fn options<'f>(slots: &'f Path, cache: &'f Path) -> Vec<&'f str> {
    let [slots, cache] = [slots, cache].map(|folder| folder.to_str().unwrap());
    let folders = ["--slot-save-path", slots, "--cache-disk", cache];
    [&["-c", "4096", "-np", "1", "--log-format", "json"], &folders[..]].concat()
}

/// The prompt of a round, of about 600 tokens or more.
fn prompt(round: u64) -> String {
    let letter = char::from(b'a' + (round % 20) as u8);
    format!("{letter} ") + &PROMPT.repeat(40 + 5 * round as usize)
}

fn ask(server: &Server, prompt: &str) -> Value {
    let body = json!({ "prompt": prompt, "n_predict": 4, "temperature": 0 });
    server.post("/completion", body).json()
}

fn incomplete(folder: &Path) -> usize {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "partial")).count()
}

fn pause(random: &mut Pcg32) {
    sleep(Duration::from_micros(u64::from(random.next_u32() % DELAY_MAX_US)));
}

/// Saves a slot again and again under one name, until the server is killed.
#[test]
fn a_saved_slot_is_whole_whenever_the_server_is_killed() {
    let [slots, cache] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let options = options(slots.path(), cache.path());
    let mut random = Pcg32::seed_from_u64(1);
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let mut server = serve(&options);
        assert_eq!(incomplete(slots.path()), 0, "a start removes incomplete files");
        let file = json!({ "filename": "slot" });
        if acknowledged > 0 {
            let restored = server.post("/slots/0?action=restore", file.clone()).json();
            let tokens = restored["n_restored"].as_u64().unwrap();
            // The last acknowledged text, or the next one, which may be whole as well.
            assert!(tokens >= acknowledged, "round {round}: {tokens} after {acknowledged}");
        }
        let tokens = ask(&server, &prompt(round))["tokens_cached"].as_u64().unwrap();
        let address = server.address.clone();
        let (acknowledge, acknowledged_now) = channel();
        let saving = thread::spawn(move || {
            let body = file.to_string();
            while let Ok(answer) = ureq::post(format!("http://{address}/slots/0?action=save"))
                .content_type("application/json")
                .send(&body[..])
            {
                assert_eq!(answer.status(), 200);
                // At the end, nobody receives this.
                let _ = acknowledge.send(());
            }
        });
        let first = round % 2 == 0;
        if first {
            acknowledged_now.recv_timeout(PATIENCE).unwrap();
        }
        pause(&mut random);
        server.signal(Signal::SIGKILL);
        server.exit_code();
        saving.join().unwrap();
        if first || acknowledged_now.try_recv().is_ok() {
            acknowledged = tokens;
        }
    }
}

/// Stops a server, and kills it while it writes its conversations.
#[test]
fn conversations_on_disk_are_whole_whenever_the_server_is_killed() {
    let [slots, cache] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let options = options(slots.path(), cache.path());
    let mut random = Pcg32::seed_from_u64(2);
    let mut whole = HashSet::new();
    for round in 0..=ROUNDS {
        let mut server = serve(&options);
        assert_eq!(incomplete(cache.path()), 0, "a start removes incomplete files");
        let reused = |text: &str| ask(&server, text)["timings"]["cache_n"].as_u64().unwrap();
        for round in &whole {
            assert!(reused(&prompt(*round)) > 500, "the conversation of round {round} was lost");
        }
        ask(&server, &prompt(round));
        server.signal(Signal::SIGTERM);
        pause(&mut random);
        server.signal(Signal::SIGKILL);
        server.exit_code();
        let log = server.stderr_to_end();
        assert!(!log.contains("ignored"), "{log}");
        if log.contains(r#""message":"saved""#) {
            whole.insert(round);
        }
    }
    assert!(!whole.is_empty(), "no conversation was saved before a kill");
}
