//! `passkey` on a tiny model, which finds no key, and on a real one, which does.

use rope_cpu::{eval::passkey::Prompts, gguf::File, tokenizer::Tokenizer};
use serde_json::Value;

use crate::cli::{Run, run, smollm2};
use rope_cpu_testing::reader::tiny_reader;

/// Runs `passkey` with the tiny model, for which every letter is a token: a prompt has 400 or more.
fn passkey(options: &[&str]) -> Run {
    let file = tiny_reader(1, true);
    run(&[&["passkey", "-m", file.path().to_str().unwrap()], options].concat())
}

#[test]
fn a_grid_is_shown_for_each_method() {
    let run = passkey(&[
        "--lengths",
        "900,600",
        "--depths",
        "3",
        "--keys",
        "2",
        "--methods",
        "none,linear",
    ]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = run.stdout.lines().map(words).collect();
    let start = lines.iter().position(|line| line == "linear").unwrap();
    assert_eq!(lines[start + 1], "tokens at 0 % at 50 % at 100 % all seconds");
    // The shorter length comes first, and nothing is found.
    assert!(lines[start + 2].starts_with("600 ·· 0/2 ·· 0/2 ·· 0/2 0 % "), "{}", lines[start + 2]);
    assert!(lines[start + 3].starts_with("900 ·· 0/2"), "{}", lines[start + 3]);
    assert!(lines.contains(&"none none".into()), "{}", run.stdout);
    assert!(run.stdout.contains("The largest length up to which at least 20 % are found"));
    // The factor that the length needs: 600 / 256.
    run.said(&[
        "linear, 600 tokens: RoPE: linear",
        "factor 2.34375",
        "1/24: none, 600 tokens, key at 100 %",
    ]);
}

#[test]
fn methods_that_do_the_same_are_asked_once() {
    let methods = "linear:rope-scale=1,none,yarn:rope-scale=1,ntk";
    let run =
        passkey(&["-c", "600", "--depths", "1", "--keys", "2", "--json", "--methods", methods]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.said(&[
        "1/4: linear:rope-scale=1, 600 tokens",
        "none, 600 tokens: the same as linear:rope-scale=1",
        "yarn:rope-scale=1, 600 tokens: the same as linear:rope-scale=1",
        "3/4: ntk, 600 tokens",
    ]);
    let json: Value = rope_cpu::json::parse(&run.stdout).unwrap();
    let grid = |method: usize| &json["methods"][method]["lengths"][0];
    assert_eq!(grid(0)["cells"], grid(2)["cells"]);
    assert_eq!(grid(0)["seconds"], grid(1)["seconds"]);
    assert_ne!(grid(0)["rope"], grid(1)["rope"]);
}

#[test]
fn a_context_that_rolls_is_that_of_training() {
    let run =
        passkey(&["--lengths", "600", "--depths", "2", "--keys", "1", "--attention-sinks", "4"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.said(&["attention sinks 4", "context 256 (rolling)", "2/2: "]);
}

#[test]
fn json_and_drawings_have_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("map.svg");
    let plot =
        ["-c", "600", "--depths", "1", "--keys", "1", "--json", "--plot", path.to_str().unwrap()];
    let run = passkey(&plot);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let json: Value = rope_cpu::json::parse(&run.stdout).unwrap();
    let method = &json["methods"][0];
    assert_eq!(method["effective_window"], Value::Null);
    let length = &method["lengths"][0];
    assert_eq!((&length["length"], &length["rate"]), (&600.into(), &0.0.into()));
    let cell = rope_cpu::json::parse::<Value>(r#"{"depth_percent": 50, "found": 0, "keys": 1}"#);
    assert_eq!(length["cells"][0], cell.unwrap());
    let svg = std::fs::read_to_string(&path).unwrap();
    for part in ["as given: keys found, trained for 256 tokens", "600", "50 %", "0 %", "#E25C50"] {
        assert!(svg.contains(part), "{part} is not in {svg}");
    }
}

#[test]
fn what_was_answered_is_not_asked_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("answers.jsonl");
    let file = tiny_reader(1, true);
    let model = file.path().to_str().unwrap();
    let with = |options: &[&str]| {
        let common = ["passkey", "-m", model, "-c", "600", "--keys", "1", "--json", "-o"];
        run(&[&common[..], &[path.to_str().unwrap()], options].concat())
    };
    let first = with(&["--depths", "2"]);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    let lines = std::fs::read_to_string(&path).unwrap();
    assert_eq!(lines.lines().count(), 2);
    let record: Value = rope_cpu::json::parse(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&record["depth"], &record["found"]), (&100.into(), &false.into()));
    assert_eq!(record["key"].as_u64().unwrap().to_string().len(), 5);
    assert!(record["tokens"].as_u64().unwrap() <= 600 - 16);
    // The second key is at the start: only the task is the same.
    let second: Value = rope_cpu::json::parse(lines.lines().nth(1).unwrap()).unwrap();
    let reused = second["reused"].as_u64().unwrap();
    assert!(reused > 100 && reused < 250, "{second}");

    // An incomplete line is replaced, and a new position is tested.
    std::fs::write(&path, lines.trim_end()).unwrap();
    let again = with(&["--depths", "3"]);
    again.said(&[
        "1 answers are already computed",
        "1/2: as given, 600 tokens, key at 50 %",
        "2/2",
    ]);
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);
    let same = with(&["--depths", "3"]);
    same.said(&["3 answers are already computed"]);
    assert!(!same.stderr.contains("key at"), "{}", same.stderr);
    assert_eq!(same.stdout, again.stdout);

    with(&["-ctk", "q8_0"]).refused(
        2,
        &["answers.jsonl: line 1 is of another model, adapter, cache type, attention or --override-kv"],
    );
    with(&["--depths", "1", "--seed", "1"]).said(&["1/1: as given, 600 tokens"]);
    std::fs::write(&path, "{}\n").unwrap();
    with(&[]).refused(2, &["answers.jsonl: line 1 is not a result of this command"]);
}

/// Forks of what the prompts of all keys share would read no fewer tokens.
#[test]
fn each_shared_prefix_is_read_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("answers.jsonl");
    let options = ["-c", "700", "--depths", "4", "--keys", "3", "-o", path.to_str().unwrap()];
    let run = passkey(&options);
    assert_eq!(run.code, Some(0), "{}", run.stderr);

    let file = tiny_reader(1, true);
    let file = File::open(file.path()).unwrap();
    let gguf = file.parse(&[]).unwrap();
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
    let prompts = Prompts::new(&tokenizer, 700).unwrap();
    let (mut read, mut all) = (0, Vec::new());
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        let record: Value = rope_cpu::json::parse(line).unwrap();
        let number = |name: &str| record[name].as_u64().unwrap() as usize;
        all.push(prompts.tokens(number("depth") as u32, number("key") as u32));
        read += number("tokens") - number("reused");
    }
    assert_eq!(all.len(), 4 * 3);
    // In this order, each prompt follows the one that it shares most with.
    all.sort();
    let mut least = all[0].len();
    for pair in all.windows(2) {
        let shared = pair[0].iter().zip(&pair[1]).take_while(|(a, b)| a == b).count();
        // The last token is always read.
        least += pair[1].len() - shared.min(pair[1].len() - 1);
    }
    assert_eq!(read, least);
}

#[test]
fn invalid_tests_are_reported() {
    passkey(&["--lengths", "100"]).refused(2, &["--lengths 100: must be at least "]);
    let short = passkey(&["-c", "100"]);
    short.refused(2, &["--ctx 100: must be at least "]);
    // With this length the test runs.
    let tokens = short.stderr.split("at least ").nth(1).unwrap().split(',').next().unwrap();
    let asked = passkey(&["-c", tokens, "--depths", "1", "--keys", "1", "--share", "0.004"]);
    assert_eq!(asked.code, Some(0), "{}", asked.stderr);
    assert!(asked.stdout.contains("at least 0.4 % are found"), "{}", asked.stdout);
    passkey(&["--lengths", "600", "-c", "600"]).refused(2, &["--lengths", "--ctx"]);
    passkey(&["--methods", "su"])
        .refused(2, &["'su' for '--methods", "must be one of none, linear"]);
    passkey(&["--methods", "yarn:no-flag=1"])
        .refused(2, &["unexpected argument '--no-flag' found"]);
    passkey(&["--methods", "none:rope-scale=2"]).refused(
        2,
        &["--methods none:rope-scale=2: --rope-scale 2 contradicts --rope-scaling none"],
    );
    passkey(&["--methods", "none", "--rope-scale", "2"])
        .refused(2, &["RoPE flags have no effect with --methods"]);
    passkey(&["--share", "0"]).refused(2, &["must be above 0 and at most 1"]);
    passkey(&["--depths", "0"]).refused(2, &["--depths"]);
    passkey(&["-c", "600", "--plot", "/no/such/folder/x.svg"])
        .refused(2, &["/no/such/folder/x.svg"]);
}

/// Keys are found within the trained length, as a shorter context shows.
#[test]
fn a_real_model_finds_keys() {
    let Some(model) = smollm2() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("answers.jsonl");
    let options = ["-c", "1024", "--depths", "2", "--keys", "2", "--json", "-o"];
    let run = run(&[&["passkey", "-m", &model], &options[..], &[path.to_str().unwrap()]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let json: Value = rope_cpu::json::parse(&run.stdout).unwrap();
    assert_eq!(json["methods"][0]["effective_window"], 1024, "{json:#}");
    // With the answer's 16 tokens, another filler of 24 tokens does not fit.
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        let record: Value = rope_cpu::json::parse(line).unwrap();
        let tokens = record["tokens"].as_u64().unwrap();
        assert!((1024 - 16 - 24 + 1..=1024 - 16).contains(&tokens), "{record}");
    }
}
