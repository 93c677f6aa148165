//! `bench -npl` on a tiny model: several sequences side by side.

use serde_json::Value;

use crate::cli::{bench::bench, run};
use rope_cpu_testing::reader::tiny;

/// llama-batched-bench's columns in their order.
const COLUMNS: [&str; 10] =
    ["PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s"];

/// llama-batched-bench's keys in their order.
const KEYS: [&str; 18] = [
    "n_kv_max",
    "n_batch",
    "n_ubatch",
    "flash_attn",
    "is_pp_shared",
    "n_gpu_layers",
    "n_threads",
    "n_threads_batch",
    "pp",
    "tg",
    "pl",
    "n_kv",
    "t_pp",
    "speed_pp",
    "t_tg",
    "speed_tg",
    "t",
    "speed",
];

fn jsonl(options: &[&str]) -> Vec<Value> {
    let run = bench(&[options, &["-o", "jsonl"]].concat());
    run.stdout.lines().map(|line| rope_cpu::json::parse(line).unwrap()).collect()
}

#[test]
fn the_table_is_that_of_llama_batched_bench() {
    let run = bench(&["-npp", "20,5", "-ntg", "3", "-npl", "1,4", "-r", "1", "-b", "16"]);
    let lines: Vec<_> = run.stdout.lines().collect();
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect()
    };
    assert_eq!(cells(lines[0])[0], "n_batch");
    assert_eq!(cells(lines[0])[1..], COLUMNS);
    assert!(lines[0].ends_with(
        "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |"
    ));
    let expected = [
        ["20", "3", "1", "23"],
        ["20", "3", "4", "92"],
        ["5", "3", "1", "8"],
        ["5", "3", "4", "32"],
    ];
    assert_eq!(lines.len(), 2 + expected.len() + 2, "{}", run.stdout);
    for (line, expected) in lines[2..].iter().zip(expected) {
        for (column, cell) in lines[0].split('|').zip(line.split('|')) {
            // A speed of more digits than its column holds widens it.
            let width = column.len().max(cell.trim().len() + 2 * usize::from(!cell.is_empty()));
            assert_eq!(cell.len(), width, "{line}");
        }
        let cells = cells(line);
        assert_eq!(cells[1..5], expected);
        assert!(cells[5..].iter().all(|cell| cell.parse::<f64>().unwrap() >= 0.0), "{line}");
    }
    assert!(lines[7].starts_with("build: rope-cpu-"), "{}", lines[7]);
}

#[test]
fn json_lines_have_the_keys_of_llama_batched_bench() {
    let rows = jsonl(&["-npp", "300", "-ntg", "4", "-npl", "1,3", "-r", "2", "-ctk", "f32"]);
    assert_eq!(rows.len(), 2);
    for (row, sequences) in rows.iter().zip([1, 3]) {
        let names: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names[..KEYS.len()], KEYS);
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert_eq!((number("pp"), number("tg"), number("pl")), (300.0, 4.0, f64::from(sequences)));
        assert_eq!(number("n_kv"), f64::from(sequences * 304));
        assert_eq!(number("n_kv_max"), 3.0 * 304.0);
        assert_eq!((number("is_pp_shared"), number("n_threads")), (0.0, 1.0));
        assert_eq!(row["type_k"], "f32");
        let tokens = |name: &str, time: &str| number(name) * number(time);
        let close = |found: f64, expected: f64| (found - expected).abs() <= 0.01 * expected;
        assert!(close(tokens("speed_pp", "t_pp"), f64::from(300 * sequences)), "{row}");
        assert!(close(tokens("speed_tg", "t_tg"), f64::from(4 * sequences)), "{row}");
        assert!(close(tokens("speed", "t"), number("n_kv")), "{row}");
        assert!(close(number("t"), number("t_pp") + number("t_tg")), "{row}");
        // Two pages in each of two layers and sequence.
        assert_eq!(number("cache_bytes"), f64::from(sequences * 2 * 2 * 256 * (4 * 32 + 2 * 32)));
        assert_eq!(row["samples_t_pp"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_shared_prompt_is_read_once() {
    let rows = jsonl(&["-npp", "300", "-ntg", "4", "-npl", "3", "-pps", "-r", "1"]);
    let number = |name: &str| rows[0][name].as_f64().unwrap();
    assert_eq!((number("is_pp_shared"), number("n_kv")), (1.0, 312.0));
    let read = number("speed_pp") * number("t_pp");
    assert!((read - 300.0).abs() < 3.0, "{read}");
    // The first page is shared; each sequence has written to its own copy of the second.
    assert_eq!(number("cache_bytes"), f64::from((1 + 3) * 2 * 256 * (2 * 32 + 2 * 32)));
}

#[test]
fn each_format_has_a_row_for_each_test() {
    let few = ["-p", "8", "-n", "2", "-npl", "1-2", "-r", "1"];
    let csv = bench(&[&few[..], &["-o", "csv"]].concat()).stdout;
    assert!(csv.starts_with(&KEYS.join(",")), "{csv}");
    assert_eq!(csv.lines().count(), 3, "{csv}");
    let sql = bench(&[&few[..], &["-o", "sql"]].concat()).stdout;
    assert_eq!(sql.matches("INSERT INTO batched_bench (n_kv_max, ").count(), 2, "{sql}");
    let json = bench(&[&few[..], &["-o", "json"]].concat()).stdout;
    let rows: Vec<Value> = rope_cpu::json::parse(&json).unwrap();
    assert_eq!(rows.len(), 2);
    // A speed that does not apply is empty or null.
    let row = &jsonl(&["-p", "8", "-n", "0", "-npl", "2", "-r", "1"])[0];
    assert_eq!((&row["tg"], &row["speed_tg"]), (&0.into(), &Value::Null));
    let progress = bench(&[&few[..], &["--progress"]].concat());
    progress.said(&["bench: test 2/2: warm-up\nbench: test 2/2: run 1/1\n"]);
}

#[test]
fn the_context_limits_all_sequences_together() {
    let few = ["-npp", "8", "-ntg", "2", "-npl", "1,2,4", "-r", "1", "-o", "jsonl"];
    let run = bench(&[&few[..], &["-c", "20"]].concat());
    run.said(&["note: skipped 1 test of 3, with more tokens than --ctx 20"]);
    let rows: Vec<Value> =
        run.stdout.lines().map(|line| rope_cpu::json::parse(line).unwrap()).collect();
    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[1]["pl"], &rows[1]["n_kv"]), (&2.into(), &20.into()));
    assert_eq!(rows[0]["n_kv_max"], 20);
    let model = tiny();
    let small = [&["bench", "-m", model.path().to_str().unwrap()], &few[..], &["-c", "9"]].concat();
    crate::cli::run(&small)
        .refused(2, &["--ctx 9: the smallest test has 10 tokens in all sequences"]);
}

#[test]
fn invalid_measurements_are_reported() {
    let file = tiny();
    let model = file.path().to_str().unwrap();
    let cases: [(&[&str], &[&str]); 7] = [
        (&["-c", "64"], &["--n-parallel"]),
        (&["-npl", "0"], &["--n-parallel", "must be at least 1"]),
        (&["-npl", "4-1"], &["4 is larger than 1"]),
        (&["-npl", "2", "-pg", "4,2"], &["--n-parallel", "--prompt-gen", "cannot be used with"]),
        (&["-npl", "2", "-d", "5"], &["--n-parallel", "--n-depth", "cannot be used with"]),
        (&["-pps"], &["--n-parallel"]),
        (&["-npl", "2", "-p", "0", "-n", "0"], &["nothing to measure"]),
    ];
    for (options, said) in cases {
        run(&[&["bench", "-m", model], options].concat()).refused(2, said);
    }
    let huge = ["-p", "100000", "-n", "1", "-npl", "1000000"];
    run(&[&["bench", "-m", model], &huge[..]].concat())
        .refused(1, &["1000000 contexts of 100001 tokens need ", "is available"]);
}
