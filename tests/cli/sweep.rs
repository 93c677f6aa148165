//! `sweep` on a tiny model: its output, not its speed.

use serde_json::Value;

use crate::cli::{Run, run};
use rope_cpu_testing::reader::tiny;

/// Runs `sweep` on the tiny model, in a context of three steps.
fn sweep(options: &[&str]) -> Run {
    let file = tiny();
    let model = file.path().to_str().unwrap();
    run(&[&["sweep", "-m", model, "-t", "1", "-c", "60", "-ub", "16"], options].concat())
}

#[test]
fn the_table_is_that_of_llama_sweep_bench() {
    let run = sweep(&["-ngl", "99"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let lines: Vec<_> = run.stdout.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |",
            "|-------|--------|--------|----------|----------|----------|----------|",
        ]
    );
    let rows: Vec<Vec<f64>> = lines[2..]
        .iter()
        .map(|line| line.trim_matches('|').split('|').map(|c| c.trim().parse().unwrap()).collect())
        .collect();
    let counts: Vec<_> = rows.iter().map(|row| &row[..3]).collect();
    assert_eq!(counts, [[16.0, 4.0, 0.0], [16.0, 4.0, 16.0], [16.0, 4.0, 32.0]]);
    assert!(rows.iter().all(|row| row[4] > 0.0 && row[6] > 0.0), "{rows:?}");
    run.said(&["note: ignored", "Memory: ", "RoPE: no scaling", "context 60 (--ctx 60)"]);
}

#[test]
fn objects_and_rows_have_the_same_points() {
    let parse = |line: &str| -> Value { rope_cpu::json::parse(line).unwrap() };
    let step = ["--step", "20", "-n", "3", "-ctk", "q8_0"];
    let run = sweep(&[&step[..], &["-o", "jsonl"]].concat());
    let points: Vec<_> = run.stdout.lines().map(parse).collect();
    let number = |point: &Value, name: &str| point[name].as_f64().unwrap();
    let csv = sweep(&[&step[..], &["-o", "csv"]].concat()).stdout;
    let mut lines = csv.lines();
    let names: Vec<_> = lines.next().unwrap().split(',').collect();
    assert_eq!(names[..7], ["pp", "tg", "n_kv", "t_pp", "speed_pp", "t_tg", "speed_tg"]);
    assert_eq!(points.len(), 3);
    for ((point, line), depth) in points.iter().zip(lines).zip([0.0, 20.0, 40.0]) {
        let cells: Vec<_> = line.split(',').collect();
        assert_eq!((cells.len(), &cells[..2]), (names.len(), &["20", "3"][..]), "{line}");
        assert_eq!((number(point, "n_kv"), cells[2].parse().unwrap()), (depth, depth));
        assert_eq!((number(point, "n_kv_max"), number(point, "n_ubatch")), (60.0, 16.0));
        assert!(number(point, "limit_tg") > 0.0 && number(point, "cache_bytes") > 0.0, "{point}");
        let speed = 20.0 / number(point, "t_pp");
        // Times have a resolution of a microsecond in the output.
        let bound = 1e-6 / number(point, "t_pp") * speed;
        assert!((number(point, "speed_pp") - speed).abs() <= bound, "{point}");
    }
}

#[test]
fn a_plot_has_both_speeds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("speed.svg");
    let run = sweep(&["--plot", path.to_str().unwrap()]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    for part in [
        "Prompt processing by depth, trained for 256 tokens",
        "Generation by depth",
        "prompt",
        "answer",
        "limit of the memory bandwidth",
        "tokens/s",
        "depth in tokens",
    ] {
        assert!(svg.contains(part), "{part}: {svg}");
    }
    // One mark for each of three points, on each of three lines.
    assert!(svg.matches("<circle").count() >= 9, "{svg}");
}

#[test]
fn invalid_sweeps_are_reported() {
    sweep(&["--step", "61"]).refused(2, &["a step of 61 tokens", "context of 60"]);
    sweep(&["--plot", "/no/such/folder/x.svg"]).refused(2, &["/no/such/folder/x.svg"]);
    sweep(&["-o", "sql"]).refused(2, &["sql"]);
    sweep(&["--image", "x"]).refused(2, &["--image is a llama-cli option"]);
    run(&["sweep"]).refused(2, &["--model <FILE>"]);
    let plan = sweep(&["--dry-run"]);
    assert!(plan.code == Some(0) && plan.stdout.contains("context of 60"), "{}", plan.stdout);
}
