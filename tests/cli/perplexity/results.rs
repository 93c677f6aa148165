//! Results of several methods and windows: shown side by side, drawn, and saved.

use std::fs;

use serde_json::Value;

use super::Case;
use crate::cli::Run;
use rope_cpu_testing::reader::tiny_reader;

#[test]
fn several_methods_and_windows_are_shown_side_by_side() {
    let case = Case::new(3, true);
    let windows = ["--window", "64,260", "--stride", "32", "--buckets", "64"];
    let both = [&windows[..], &["--methods", "none,linear:rope-scale=2"]].concat();
    let plot = case.path("plot.svg");
    let run = case.run(&[&both[..], &["--plot", &plot]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let json: Value =
        rope_cpu::json::parse(&case.run(&[&both[..], &["--json"]].concat()).stdout).unwrap();
    let rows = json.as_array().unwrap();
    assert_eq!(rows.len(), 4);
    // Each result equals the result of a separate run.
    let alone = ["--window", "260", "--stride", "32", "--buckets", "64", "--json"];
    let linear = case.run(&[&alone[..], &["--rope-scale", "2"]].concat());
    let linear: Value = rope_cpu::json::parse(&linear.stdout).unwrap();
    let row = &rows[3];
    assert_eq!(row["method"], "linear:rope-scale=2");
    for part in ["perplexity", "tokens", "window", "stride", "windows", "buckets"] {
        assert_eq!(row[part], linear[part], "{part}");
    }
    let shown = format!("{:.4}", row["perplexity"].as_f64().unwrap());
    assert!(run.stdout.contains(&shown), "{shown} is not in\n{}", run.stdout);
    let last = format!("{:.4}", row["buckets"][4]["perplexity"].as_f64().unwrap());
    let line = run.stdout.lines().find(|line| line.trim().starts_with("256 - 259")).unwrap();
    assert!(line.ends_with(&last), "{last} is not in {line}");
    assert_eq!(run.stdout.matches("PPL by position in windows of").count(), 2);
    let svg = fs::read_to_string(&plot).unwrap();
    for part in [
        "Perplexity by position: windows of 260 tokens, trained for 256",
        "position in a window of 64",
        "position in a window of 260",
        "trained: 256",
        "linear:rope-scale=2",
    ] {
        assert!(svg.contains(part), "{part}");
    }
    // Saved results are not computed again, and new ones are.
    let kept = case.path("kept.jsonl");
    let keep = |methods| {
        case.run(&[&windows[..], &["-o", &kept, "--json", "--methods", methods]].concat())
    };
    assert!(!keep("none").stderr.contains("already computed"));
    let again = keep("none,linear:rope-scale=2");
    again.said(&["1/4: none, windows of 64: already computed", "2/4: linear:rope-scale=2"]);
    let times = |text: &str| -> Vec<Value> {
        let mut rows: Vec<Value> = rope_cpu::json::parse(text).unwrap();
        rows.iter_mut().for_each(|row| row["seconds"] = Value::Null);
        rows
    };
    assert_eq!(times(&again.stdout), times(&keep("none,linear:rope-scale=2").stdout));
    assert_eq!(fs::read_to_string(&kept).unwrap().lines().count(), 4);
    case.run(&["--plot", &plot]).refused(2, &["--buckets"]);
    case.run(&["--window", "64,600"]).refused(2, &["the text has"]);
    case.run(&["--methods", "none,linear,none"]).refused(2, &["--methods: none is listed twice"]);
    let once = case.json(&["--window", "64,64"]);
    assert_eq!(once["window"], 64, "{once}");
}

#[test]
fn a_context_that_rolls_may_be_smaller_than_a_window() {
    let case = Case::new(3, true);
    let window = ["--window", "300", "--stride", "300", "--buckets", "100"];
    let methods = ["--methods", "none,none:attention-sinks=4", "--json"];
    let parsed = |run: Run| -> Value { rope_cpu::json::parse(&run.stdout).unwrap() };
    let rows = parsed(case.run(&[&window[..], &methods].concat()));
    // The tiny model was trained for 256 tokens; beyond that, the oldest tokens are evicted.
    let at = |row: usize, bucket: usize| &rows[row]["buckets"][bucket]["perplexity"];
    assert_eq!(at(0, 0), at(1, 0));
    assert_ne!(at(0, 2), at(1, 2));
    // A smaller context evicts earlier.
    let sinks = ["-c", "64", "--attention-sinks", "4", "--json"];
    let small = parsed(case.run(&[&window[..], &sinks].concat()));
    assert_ne!(&small["buckets"][0]["perplexity"], at(1, 0));
    assert_eq!(small["tokens"], rows[1]["tokens"]);
}

#[test]
fn every_method_of_a_drawing_is_distinguishable() {
    let case = Case::new(3, true);
    let plot = case.path("plot.svg");
    let methods: Vec<_> =
        (2..24).map(|n| format!("yarn:rope-scale={n}:yarn-beta-fast=16")).collect();
    let methods = methods.join(",");
    let window = ["--window", "64", "--chunks", "1", "--buckets", "64"];
    let run = case.run(&[&window[..], &["--methods", &methods, "--plot", &plot]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let svg = fs::read_to_string(&plot).unwrap();
    // 22 names, of 36 letters at most.
    assert!(svg.starts_with(r#"<svg width="1200" height="496""#), "{}", &svg[..80]);
    // The sample beside the second name has no gaps, the twelfth has many and the last has longer dashes.
    let dashes = |i: usize| {
        let name = format!("\nyarn:rope-scale={}:yarn-beta-fast=16\n", i + 2);
        let before = &svg[..svg.find(&name).unwrap()];
        let text = &before[before.rfind("<text").unwrap()..];
        let y = text.split(" y=\"").nth(1).unwrap().split('"').next().unwrap();
        (874..904).filter(|x| svg.contains(&format!("points=\"{x},{y} "))).count()
    };
    assert_eq!([1, 11, 21].map(dashes), [1, 4, 3]);
}

/// A device that cannot be written.
#[cfg(target_os = "linux")]
#[test]
fn a_drawing_that_cannot_be_written_costs_nothing_else() {
    let case = Case::new(1, true);
    let run = case.run(&["--window", "64", "--buckets", "64", "--plot", "/dev/full"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    run.said(&["cannot write /dev/full"]);
    assert!(run.stdout.contains("PPL by position"), "{}", run.stdout);
}

#[cfg(target_os = "linux")]
#[test]
fn results_are_kept_in_regular_files_alone() {
    let run = Case::new(1, true).run(&["--window", "64", "--output", "/dev/full"]);
    run.refused(2, &["/dev/full: is not a regular file"]);
}

#[test]
fn results_of_something_else_are_not_taken() {
    let case = Case::new(1, true);
    let kept = case.path("kept.jsonl");
    let keep = |options: &[&str]| case.run(&[&["-c", "64", "-o", &kept], options].concat());
    assert_eq!(keep(&[]).code, Some(0));
    keep(&[]).said(&["already computed"]);
    let lines = || fs::read_to_string(&kept).unwrap();
    let first: Value = rope_cpu::json::parse(lines().trim()).unwrap();
    let bytes: Vec<u8> = case.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    assert_eq!(first["text_crc"], crc32fast::hash(&bytes));

    // Another text with as many tokens.
    let text = fs::read_to_string(case.path("text")).unwrap();
    fs::write(case.path("text"), text.replacen(',', ".", 1)).unwrap();
    assert!(!keep(&[]).stderr.contains("already computed"));
    assert_eq!(lines().lines().count(), 2);
    // Other metadata, and other weights in a file of the same name and size.
    let base = ["--override-kv", "llama.rope.freq_base=float:20000"];
    keep(&base).refused(2, &["kept.jsonl: line 1 is of another model", "--override-kv"]);
    let other = tiny_reader(2, true);
    fs::copy(other.path(), case.model.path()).unwrap();
    keep(&[]).refused(2, &["kept.jsonl: line 1 is of another model"]);
    fs::remove_file(&kept).unwrap();
    assert_eq!(keep(&base).code, Some(0));
    let line: Value = rope_cpu::json::parse(lines().trim()).unwrap();
    assert_eq!(line["overrides"][0], "llama.rope.freq_base=float:20000");
    keep(&base).said(&["already computed"]);
}

#[test]
fn no_other_file_is_taken_for_results() {
    let case = Case::new(1, true);
    let kept = case.path("notes.txt");
    let keep = || case.run(&["-c", "64", "-o", &kept]);
    for other in ["do not lose this", "do not lose this\n", "{\"model\": \"x\"}\n"] {
        fs::write(&kept, other).unwrap();
        keep().refused(2, &["notes.txt: line 1 is not a result of this command"]);
        assert_eq!(fs::read_to_string(&kept).unwrap(), other);
    }
    // An incomplete line, also one cut within a character, is removed.
    for cut in [&b"{\"mo"[..], b"{\"model\":\"\xe2\x82"] {
        fs::write(&kept, cut).unwrap();
        assert_eq!(keep().code, Some(0));
        keep().said(&["already computed"]);
    }
}
