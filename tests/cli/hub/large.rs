//! Large files, which several connections download.

use std::{fs, thread, time::Duration};

use rope_cpu::hub::{Event, Hub, Options};

use super::{Setup, is, setup};
use crate::cli::finish;

const REPO: &str = "user/large-GGUF";
const NAME: &str = "user/large-GGUF:Q8_0";

/// A file that is large enough for several connections, and no model.
fn large() -> (Setup, Vec<u8>) {
    let hub = setup();
    let bytes: Vec<u8> =
        (0..20u32 << 18).flat_map(|i| (i.wrapping_mul(0x9e37_79b9)).to_le_bytes()).collect();
    hub.server.state().add(REPO, "large-Q8_0.gguf", &bytes, true);
    (hub, bytes)
}

fn ranges(log: &[String]) -> Vec<&str> {
    let came = log.iter().filter(|line| line.starts_with("cdn"));
    came.filter_map(|line| Some(line.split_once(" bytes=")?.1)).collect()
}

impl Setup {
    fn large(&self, bytes: &[u8]) -> std::path::PathBuf {
        self.cache(REPO).join("blobs").join(super::sha256(bytes))
    }
}

#[test]
fn several_connections_fetch_a_large_file() {
    let (hub, bytes) = large();
    let pulled = hub.run(&["pull", REPO]);
    is(&pulled, &format!("{NAME}\n"));
    assert!(fs::read(hub.large(&bytes)).unwrap() == bytes);
    for ending in ["part", "ranges", "ranges-new"] {
        assert!(!hub.large(&bytes).with_extension(ending).exists(), "{ending}");
    }
    let log = hub.server.log();
    let ranges = ranges(&log);
    assert!(ranges.len() >= 2, "{log:?}");
    assert!(ranges.contains(&format!("0-{}", bytes.len() - 1).as_str()), "{log:?}");
    // The second pull downloads nothing.
    is(&hub.run(&["pull", NAME]), &format!("{NAME}\n"));
    assert_eq!(hub.server.log().len(), 1);
}

#[test]
fn each_range_resumes_where_it_broke() {
    let (hub, bytes) = large();
    hub.server.state().breaks = vec![3 << 20, 1 << 20, 0, 70_000];
    let pulled = hub.run(&["pull", REPO]);
    is(&pulled, &format!("{NAME}\n"));
    pulled.said(&["the connection broke after ", "; trying again"]);
    assert!(fs::read(hub.large(&bytes)).unwrap() == bytes);
}

#[test]
#[cfg(unix)]
fn a_killed_download_resumes() {
    let (hub, bytes) = large();
    hub.server.state().pace = Some(Duration::from_millis(20));
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("rope-cpu"));
    command.args(["pull", REPO]).env("HF_ENDPOINT", hub.server.endpoint());
    command.env("HF_HOME", hub.home.path()).env_remove("HF_HUB_CACHE").env_remove("LLAMA_CACHE");
    let mut killed = command.spawn().unwrap();
    let list = hub.large(&bytes).with_extension("ranges");
    // Until the list says that at least a megabyte has come.
    let missing = || {
        let text = fs::read_to_string(&list).unwrap_or_default();
        let ranges = text.lines().filter_map(|line| line.split_once(' '));
        let left =
            ranges.map(|(at, end)| end.parse::<usize>().unwrap() - at.parse::<usize>().unwrap());
        text.ends_with("end\n").then(|| left.sum::<usize>())
    };
    while missing().is_none_or(|missing| missing > bytes.len() - (1 << 20)) {
        thread::sleep(Duration::from_millis(20));
        assert!(killed.try_wait().unwrap().is_none());
    }
    killed.kill().unwrap(); // SIGKILL
    killed.wait().unwrap();
    let left = missing().unwrap();
    assert!(0 < left && left < bytes.len());
    let text = fs::read_to_string(&list).unwrap();
    let listed = text.lines().filter_map(|line| line.split_once(' '));
    let listed: Vec<usize> = listed.map(|(at, _)| at.parse().unwrap()).collect();
    hub.server.state().pace = None;
    hub.server.log();
    is(&hub.run(&["pull", REPO]), &format!("{NAME}\n"));
    assert!(fs::read(hub.large(&bytes)).unwrap() == bytes);
    let log = hub.server.log();
    let starts: Vec<usize> = ranges(&log)
        .iter()
        .map(|range| range.split('-').next().unwrap().parse().unwrap())
        .collect();
    // Each range continues where it was.
    assert!(listed.iter().all(|at| starts.contains(at)), "{listed:?} {log:?}");
}

#[test]
fn a_server_without_ranges_sends_the_whole_file() {
    let (hub, bytes) = large();
    hub.server.state().no_ranges = true;
    is(&hub.run(&["pull", REPO]), &format!("{NAME}\n"));
    assert!(fs::read(hub.large(&bytes)).unwrap() == bytes);
    assert!(!hub.large(&bytes).with_extension("ranges").exists());
}

#[test]
fn a_large_file_with_the_wrong_sum_is_not_kept() {
    let (hub, bytes) = large();
    hub.server.state().garbled = true;
    hub.run(&["pull", REPO]).refused(1, &["has the checksum", "fetches it again"]);
    for ending in ["", "part", "ranges"] {
        assert!(!hub.large(&bytes).with_extension(ending).exists(), "{ending}");
    }
    hub.server.state().garbled = false;
    is(&hub.run(&["pull", REPO]), &format!("{NAME}\n"));
}

#[test]
fn two_pulls_of_one_file_share_one_download() {
    let (hub, bytes) = large();
    hub.server.state().pace = Some(Duration::from_millis(5));
    let runs = thread::scope(|scope| {
        let [one, two] = [0; 2].map(|_| scope.spawn(|| hub.run(&["pull", REPO])));
        [one.join().unwrap(), two.join().unwrap()]
    });
    runs.iter().for_each(|run| is(run, &format!("{NAME}\n")));
    assert!(fs::read(hub.large(&bytes)).unwrap() == bytes);
    assert!(runs.iter().any(|run| run.stderr.contains("another process is downloading")));
}

#[test]
fn too_little_space_is_seen_first() {
    let (hub, bytes) = large();
    hub.server.state().size = Some(1 << 60);
    let run = hub.run(&["pull", REPO]);
    run.refused(1, &["user/large-GGUF needs 1", "GiB", "free ", "HF_HUB_CACHE"]);
    let log = hub.server.log();
    assert!(log.iter().all(|line| !line.contains("resolve")), "{log:?}");
    assert!(!hub.large(&bytes).with_extension("part").exists());
}

/// A limit of the size of files stands for a full disk: the system refuses to write.
#[test]
#[cfg(unix)]
fn a_disk_that_refuses_to_write_is_reported() {
    let (hub, bytes) = large();
    let program = assert_cmd::cargo::cargo_bin!("rope-cpu");
    let limited = format!("trap '' XFSZ; ulimit -f 10; exec {} pull {REPO}", program.display());
    let mut command = assert_cmd::Command::new("sh");
    command.args(["-c", &limited]).env("HF_ENDPOINT", hub.server.endpoint());
    command.env("HF_HOME", hub.home.path()).env_remove("HF_HUB_CACHE").env_remove("LLAMA_CACHE");
    let run = finish(command);
    run.refused(1, &["cannot write ", "HF_HUB_CACHE"]);
    assert!(!hub.large(&bytes).exists());
    is(&hub.run(&["pull", REPO]), &format!("{NAME}\n"));
}

#[test]
fn events_of_ranges_count_up_to_the_size() {
    let (hub, bytes) = large();
    let (endpoint, cache) = (hub.server.endpoint(), hub.home.path().join("hub"));
    let client = Hub::new(Options { endpoint, cache, token: None, offline: false }).unwrap();
    let (mut started, mut last) = (0, 0);
    let mut count = |event: Event| match event {
        Event::Started { bytes, .. } => started = bytes,
        Event::Received { done } => {
            assert!(done >= last);
            last = done;
        }
        _ => {}
    };
    client.model(&REPO.parse().unwrap(), &mut count).unwrap();
    assert_eq!((started, last), (bytes.len() as u64, bytes.len() as u64));
}

#[test]
fn what_cannot_be_pulled_has_a_sentence() {
    let (hub, _) = large();
    hub.run(&["pull", "llama3"]).refused(2, &["llama3", "give USER/MODEL or USER/MODEL:QUANT"]);
    hub.run(&["pull", "user/none"]).refused(2, &["404", "check the name"]);
    hub.server.state().token = Some("hf_secret".into());
    hub.run(&["pull", REPO]).refused(2, &["401", "private or gated", "HF_TOKEN"]);
    is(
        &hub.run(&["pull", "https://huggingface.co/user/large-GGUF", "-hft", "hf_secret"]),
        &format!("{NAME}\n"),
    );
}
