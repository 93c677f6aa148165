//! `-hf`: models of the hub, downloaded from a server that imitates it.

mod large;
mod proxy;
pub mod server;

use std::{fs, path::PathBuf, time::Duration};

use assert_cmd::Command;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;

use crate::cli::{Run, finish, rope_cpu, run};
use rope_cpu::hub::{Event, Hub, Options};
use rope_cpu_testing::reader::{tiny_in_parts, tiny_reader};
use server::{COMMIT, Server, git, sha256};

const REPO: &str = "user/tiny-GGUF";
const MODEL: &str = "tiny-Q4_K_M.gguf";

/// The server with a model in several quants, and an empty cache.
struct Setup {
    server: Server,
    home: tempfile::TempDir,
    model: Vec<u8>,
}

fn setup() -> Setup {
    let model = fs::read(tiny_reader(5, true).path()).unwrap();
    let server = Server::start();
    let mut state = server.state();
    state.add(REPO, MODEL, &model, true);
    state.add(REPO, "README.md", b"a model", false);
    state.add(REPO, "a-Q2_K.gguf", b"no model", true);
    state.add(REPO, "mmproj-Q4_K_M.gguf", b"no model", true);
    drop(state);
    Setup { server, home: tempfile::tempdir().unwrap(), model }
}

impl Setup {
    fn with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Run {
        let mut command = self.command(arguments);
        command.envs(variables.iter().copied());
        finish(command)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = rope_cpu(arguments);
        for (name, _) in std::env::vars() {
            if name.to_lowercase().ends_with("_proxy") {
                command.env_remove(name);
            }
        }
        command.env("HF_ENDPOINT", self.server.endpoint()).env("HF_HOME", self.home.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Run {
        self.with(&[], arguments)
    }

    /// Continues a text with a model of the hub.
    fn answer(&self, model: &[&str]) -> Run {
        self.run(&[model, &["-p", "on the train", "-n", "8", "--temp", "0"]].concat())
    }

    /// The folder of a repository in the cache.
    fn cache(&self, repo: &str) -> PathBuf {
        self.home.path().join("hub").join(format!("models--{}", repo.replace('/', "--")))
    }

    fn blob(&self) -> PathBuf {
        self.cache(REPO).join("blobs").join(sha256(&self.model))
    }

    /// The link to the blob, with the model's name.
    fn snapshot(&self) -> PathBuf {
        self.cache(REPO).join("snapshots").join(COMMIT).join(MODEL)
    }

    /// The first line of a log.
    fn listed(&self) -> String {
        format!("hub GET /api/models/{REPO}/revision/main?blobs=true")
    }

    fn resolved(&self) -> String {
        format!("hub GET /{REPO}/resolve/{COMMIT}/{MODEL}")
    }

    /// A request to the host that serves the file.
    fn came(&self, range: &str) -> String {
        format!("cdn GET /{}?signature=1{range}", sha256(&self.model))
    }
}

fn is(run: &Run, expected: &str) {
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.stdout, expected, "{}", run.stderr);
}

/// The text that the model generates if it is given as a file.
fn expected() -> String {
    let model = tiny_reader(5, true);
    let path = model.path().to_str().unwrap();
    run(&["-m", path, "-p", "on the train", "-n", "8", "--temp", "0"]).stdout
}

#[test]
fn a_model_is_fetched_once_to_the_cache_that_all_share() {
    let hub = setup();
    let first = hub.answer(&["-hf", REPO]);
    is(&first, &expected());
    first.said(&[&format!("downloading {MODEL} ("), &format!(" of {REPO} from http://127")]);
    assert_eq!(hub.server.log(), [hub.listed(), hub.resolved(), hub.came("")]);

    // The layout of huggingface_hub.
    let cache = hub.cache(REPO);
    assert_eq!(fs::read_to_string(cache.join("refs/main")).unwrap(), COMMIT);
    let path = hub.snapshot();
    #[cfg(unix)]
    assert_eq!(
        fs::read_link(&path).unwrap(),
        PathBuf::from("../../blobs").join(sha256(&hub.model))
    );
    assert_eq!(fs::read(&path).unwrap(), hub.model);
    assert_eq!(fs::read(hub.blob()).unwrap(), hub.model);
    assert!(!hub.blob().with_extension("part").exists());

    let second = hub.answer(&["--hf-repo", REPO]);
    is(&second, &expected());
    assert!(!second.stderr.contains("downloading"), "{}", second.stderr);
    assert_eq!(hub.server.log(), [hub.listed()]);

    is(&hub.answer(&["-hf", REPO, "--offline"]), &expected());
    assert_eq!(hub.server.log(), [""; 0]);

    // A newer commit without the file, which another quant was downloaded from.
    let main = hub.cache(REPO).join("refs/main");
    fs::create_dir_all(hub.cache(REPO).join("snapshots/newer")).unwrap();
    fs::write(&main, "newer").unwrap();
    is(&hub.answer(&["-hf", REPO, "--offline"]), &expected());
    fs::write(&main, COMMIT).unwrap();

    // Another commit with the same file: it is not downloaded again.
    fs::remove_file(path).unwrap();
    is(&hub.answer(&["-hfr", &format!("{REPO}:q4_k_m")]), &expected());
    assert_eq!(hub.server.log(), [hub.listed()]);

    hub.server.state().status = Some(503);
    let kept = hub.answer(&["-hf", REPO]);
    is(&kept, &expected());
    kept.said(&["note: ", "answers 503", "; using ", MODEL]);
}

/// `kill -9` at any moment: the next download goes on, and the file is whole.
#[test]
fn a_killed_download_goes_on() {
    let hub = setup();
    let mut random = Pcg32::seed_from_u64(4);
    let mut killed = 0;
    for _ in 0..10 {
        let mut command = hub.command(&["-hf", REPO, "-p", "on the train", "-n", "8"]);
        command.timeout(Duration::from_micros(u64::from(random.next_u32() % 100_000)));
        // Windows has a code for killed programs.
        killed += usize::from(finish(command).code != Some(0));
        if hub.snapshot().exists() {
            assert_eq!(fs::read(hub.snapshot()).unwrap(), hub.model);
            fs::remove_dir_all(hub.cache(REPO)).unwrap();
        }
    }
    assert!(killed > 0, "no download was killed");
    is(&hub.answer(&["-hf", REPO]), &expected());
    assert_eq!(fs::read(hub.blob()).unwrap(), hub.model);
}

#[test]
fn a_broken_connection_is_taken_up_where_it_broke() {
    let hub = setup();
    hub.server.state().breaks = vec![1000, 0, 500];
    let run = hub.answer(&["-hf", REPO]);
    is(&run, &expected());
    run.said(&["the connection broke after 1000 of ", "; trying again"]);
    let came: Vec<_> =
        hub.server.log().into_iter().filter(|line| line.starts_with("cdn")).collect();
    let ranges = ["", " bytes=1000-", " bytes=1000-", " bytes=1500-"];
    assert_eq!(came, ranges.map(|range| hub.came(range)));
    assert_eq!(fs::read(hub.blob()).unwrap(), hub.model);
}

#[test]
fn what_has_come_is_kept_for_the_next_run() {
    let hub = setup();
    hub.server.state().breaks = [vec![3000], vec![0; 9]].concat();
    let run = hub.answer(&["-hf", REPO]);
    run.refused(1, &["broke after 3000 of ", MODEL, REPO, "the same command resumes from there"]);
    let part = hub.blob().with_extension("part");
    assert_eq!(fs::read(&part).unwrap(), hub.model[..3000]);
    assert!(!hub.blob().exists() && !hub.cache(REPO).join("refs").exists());

    hub.server.log();
    hub.server.state().breaks.clear();
    is(&hub.answer(&["-hf", REPO]), &expected());
    assert_eq!(hub.server.log(), [hub.listed(), hub.resolved(), hub.came(" bytes=3000-")]);

    // A run that ended after the last byte, before the check.
    fs::remove_file(hub.snapshot()).unwrap();
    fs::rename(hub.blob(), &part).unwrap();
    is(&hub.answer(&["-hf", REPO]), &expected());
    assert_eq!(hub.server.log(), [hub.listed()]);

    // A partial file that is too long, and a server without range requests.
    for (bytes, range) in [([&hub.model[..], b"x"].concat(), ""), (vec![7; 99], " bytes=99-")] {
        fs::remove_file(hub.snapshot()).unwrap();
        fs::remove_file(hub.blob()).unwrap();
        fs::write(&part, bytes).unwrap();
        hub.server.state().no_ranges = true;
        is(&hub.answer(&["-hf", REPO]), &expected());
        assert_eq!(hub.server.log()[2], hub.came(range));
    }
}

#[test]
fn two_programs_do_not_fetch_the_same() {
    let hub = setup();
    fs::create_dir_all(hub.blob().parent().unwrap()).unwrap();
    let other = fs::File::create(hub.blob().with_extension("lock")).unwrap();
    other.lock().unwrap();
    let (endpoint, cache) = (hub.server.endpoint(), hub.home.path().join("hub"));
    let client = Hub::new(Options { endpoint, cache, token: None, offline: false }).unwrap();
    let mut other = Some(other);
    let mut end = |event: Event| {
        if let Event::Waiting = event {
            fs::write(hub.blob(), &hub.model).unwrap();
            other = None;
        }
    };
    let path = client.model(&REPO.parse().unwrap(), &mut end).unwrap();
    assert_eq!(fs::read(path).unwrap(), hub.model);
    assert!(other.is_none());
    assert_eq!(hub.server.log(), [hub.listed()]);
}

#[test]
fn what_has_the_wrong_sum_is_not_kept() {
    let hub = setup();
    hub.server.state().garbled = true;
    let run = hub.answer(&["-hf", REPO]);
    run.refused(
        1,
        &[MODEL, REPO, "has the checksum ", &format!("instead of {}", sha256(&hub.model))],
    );
    hub.server.state().garbled = false;
    let part = hub.blob().with_extension("part");
    assert!(!part.exists() && !hub.blob().exists());

    // The start of another file.
    fs::write(&part, [1; 100]).unwrap();
    hub.answer(&["-hf", REPO]).refused(1, &["the same command fetches it again"]);
    is(&hub.answer(&["-hf", REPO]), &expected());
}

#[test]
fn small_files_are_checked_by_their_git_names() {
    let hub = setup();
    hub.server.state().add("user/small", "a b.gguf", &hub.model, false);
    is(&hub.answer(&["-hf", "user/small"]), &expected());
    let blob = hub.cache("user/small").join("blobs").join(git(&hub.model));
    assert_eq!(fs::read(blob).unwrap(), hub.model);
    let resolved = format!("hub GET /user/small/resolve/{COMMIT}/a%20b.gguf");
    assert_eq!(hub.server.log()[1..], [resolved]);
}

/// CVE-2025-51471: a registry names another host, which then gets the token.
#[test]
fn the_token_goes_to_the_hub_and_nowhere_else() {
    let hub = setup();
    hub.server.state().token = Some("hf_secret".into());
    let without = hub.answer(&["-hf", REPO]);
    without.refused(2, &["answers 401 to the request for user/tiny-GGUF", "-hft or HF_TOKEN"]);
    let wrong = hub.answer(&["-hf", REPO, "-hft", "hf_wrong"]);
    wrong.refused(2, &["the token is not valid"]);
    assert!(!wrong.stderr.contains("hf_wrong"), "{}", wrong.stderr);

    // Where it was found, the CDN answers 400.
    let blob = hub.blob();
    let ask = |variables: &[(&str, &str)], arguments: &[&str]| {
        let _ = fs::remove_dir_all(hub.cache(REPO));
        let rest = ["-hf", REPO, "-p", "on the train", "-n", "8", "--temp", "0"];
        is(&hub.with(variables, &[arguments, &rest].concat()), &expected());
        assert!(blob.exists());
    };
    ask(&[], &["-hft", "hf_secret"]);
    ask(&[("HF_TOKEN", "hf_secret")], &[]);
    ask(&[("HF_TOKEN", "hf_wrong"), ("ROPE_CPU_HF_TOKEN", "hf_secret")], &[]);
    fs::write(hub.home.path().join("token"), "hf_secret\n").unwrap();
    ask(&[], &[]);
}

#[test]
fn errors_of_the_hub_are_reported() {
    let hub = setup();
    hub.answer(&["-hf", "user/none"]).refused(2, &["404", "user/none", "check the name"]);
    let quant = hub.answer(&["-hf", "user/tiny-GGUF:Q6_K"]);
    quant.refused(2, &["has no model of Q6_K: it has a-Q2_K.gguf, tiny-Q4_K_M.gguf\n"]);
    let file = hub.answer(&["-hf", REPO, "-hff", "b.gguf"]);
    file.refused(2, &["user/tiny-GGUF has no file b.gguf: it has a-Q2_K.gguf, "]);
    hub.answer(&["-hf", "tiny"]).refused(2, &["--hf-repo", "USER/MODEL:QUANT"]);
    let none = ["-hf", REPO, "--offline"];
    hub.answer(&none).refused(2, &["user/tiny-GGUF was not fetched to ", "without --offline"]);
    let mut state = hub.server.state();
    for status in [403, 418, 500] {
        state.status = Some(status);
        drop(state);
        let code = if status == 500 { 1 } else { 2 };
        hub.answer(&["-hf", REPO]).refused(code, &[&format!("answers {status}"), REPO]);
        state = hub.server.state();
    }
    drop(state);
    let dead = [("HF_ENDPOINT", "http://127.0.0.1:9")];
    hub.with(&dead, &["-hf", REPO]).refused(1, &["http://127.0.0.1:9 cannot be reached", REPO]);
}

/// CVE-2026-7020: the digest of a file is a path out of the folder of models.
#[test]
fn a_listing_cannot_lead_out_of_the_cache() {
    let hub = setup();
    let model = |name: &str, hash: &str| {
        format!(r#"{{"rfilename":"{name}","size":4,"lfs":{{"sha256":"{hash}"}}}}"#)
    };
    let hash = &sha256(b"four")[..];
    let listing = |sha: &str, file| format!(r#"{{"sha":"{sha}","siblings":[{file}]}}"#);
    for (text, said) in [
        ("<html>".into(), "cannot read"),
        (listing("../..", model("a.gguf", hash)), "\"../..\" is not a commit"),
        (listing(COMMIT, model("../a.gguf", hash)), "../a.gguf cannot be fetched"),
        (listing(COMMIT, model("/tmp/a.gguf", hash)), "/tmp/a.gguf cannot be fetched"),
        (listing(COMMIT, model("a.gguf", "../../a")), "a.gguf cannot be fetched"),
        (listing(COMMIT, r#"{"rfilename":"a.gguf"}"#.into()), "a.gguf cannot be fetched"),
    ] {
        hub.server.state().listing = Some(text);
        hub.answer(&["-hf", REPO]).refused(1, &[said]);
    }
}

#[test]
fn all_parts_of_a_model_are_fetched() {
    let hub = setup();
    let folder = tempfile::tempdir().unwrap();
    let parts = tiny_in_parts(5, folder.path()).map(|path| fs::read(path).unwrap());
    let names = ["Q8_0/tiny-Q8_0-00001-of-00002.gguf", "Q8_0/tiny-Q8_0-00002-of-00002.gguf"];
    hub.server.state().add("user/parts", names[0], &parts[0], true);
    hub.answer(&["-hf", "user/parts"]).refused(2, &["user/parts lacks ", names[1]]);
    hub.server.state().add("user/parts", names[1], &parts[1], true);
    is(&hub.answer(&["-hf", "user/parts"]), &expected());
    is(&hub.answer(&["-hf", "user/parts", "-hff", names[1], "--offline"]), &expected());
    let second = hub.cache("user/parts").join("snapshots").join(COMMIT).join(names[1]);
    fs::remove_file(second).unwrap();
    hub.answer(&["-hf", "user/parts", "--offline"]).refused(2, &["was not fetched"]);
}

#[test]
fn every_command_with_a_model_fetches_it() {
    let hub = setup();
    let commands: [&[&str]; 11] = [
        &[],
        &["run", "-p", "x"],
        &["bench"],
        &["sweep"],
        &["perplexity", "-f", "Cargo.toml"],
        &["passkey"],
        &["tokenize", "-p", "x"],
        &["detokenize", "1"],
        &["rope", "explain"],
        &["rope", "compare", "-c", "64"],
        &["rope", "disturbance", "-c", "64"],
    ];
    for command in commands {
        let run = hub.run(&[command, &["-hf", REPO, "--offline"]].concat());
        run.refused(2, &["user/tiny-GGUF was not fetched to "]);
    }
    let tokens = hub.run(&["tokenize", "-hf", REPO, "-p", "the", "--ids"]);
    is(&tokens, "[0, 20, 34]\n");
    let explained = hub.with(&[("HF_HUB_OFFLINE", "1")], &["rope", "explain", "-hf", REPO]);
    assert!(explained.stdout.contains("no scaling"), "{}", explained.stderr);

    hub.server.state().add("user/other", "b.gguf", &hub.model, true);
    let both = format!("{REPO},user/other");
    let bench = hub.run(&["bench", "-hf", &both, "-p", "8", "-n", "0", "-r", "1", "-o", "json"]);
    assert_eq!(bench.code, Some(0), "{}", bench.stderr);
    for name in [MODEL, "b.gguf"] {
        assert!(bench.stdout.contains(name), "{}", bench.stdout);
    }
    hub.answer(&["-hf", &both]).refused(2, &["-hf: 2 models are given"]);
}

#[test]
fn variables_and_options_go_together() {
    let hub = setup();
    let file = ["-p", "on the train", "-n", "8", "--temp", "0"];
    is(&hub.with(&[("LLAMA_ARG_HF_REPO", REPO)], &file), &expected());
    let variables = [("LLAMA_ARG_HF_REPO", "user/x"), ("LLAMA_ARG_HF_FILE", MODEL)];
    is(&hub.with(&variables, &[&["-hf", REPO], &file[..]].concat()), &expected());
    hub.with(&[("LLAMA_ARG_OFFLINE", "1")], &["-hf", "user/x"]).refused(2, &["was not fetched"]);
    // The command line has priority.
    let typed = ["-m", "/none.gguf"];
    hub.with(&variables, &typed).refused(2, &["/none.gguf", "(os error 2)"]);
    hub.with(&[("LLAMA_ARG_MODEL", "/no/such.gguf")], &["-hf", "user/x", "--offline"])
        .refused(2, &["user/x was not fetched"]);
    hub.run(&["-m", "x", "-hf", REPO]).refused(2, &["--hf-repo", "cannot be used", "--model"]);
    hub.run(&["-m", "x", "-hff", "y"]).refused(2, &["--hf-file", "cannot be used"]);
    hub.run(&["-hff", "y"]).refused(2, &["<--model <FILE>|--hf-repo <REPO>>"]);
    let cache = tempfile::tempdir().unwrap();
    let elsewhere = [("HF_HUB_CACHE", cache.path().to_str().unwrap())];
    is(&hub.with(&elsewhere, &[&["-hf", REPO], &file[..]].concat()), &expected());
    assert!(cache.path().join("models--user--tiny-GGUF/refs/main").exists());
}

#[test]
fn an_endpoint_or_a_token_that_can_be_none_is_named() {
    let hub = setup();
    let typed = ["-hf", REPO, "-p", "x"];
    hub.with(&[("HF_ENDPOINT", "garbage")], &typed).refused(2, &["HF_ENDPOINT is \"garbage\""]);
    hub.with(&[("HF_TOKEN", "a\u{1}b")], &typed).refused(2, &["HF_TOKEN"]);
}
