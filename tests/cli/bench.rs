//! `bench` on a tiny model: its output, not its speed.

use std::process::Command;

use serde_json::Value;

use crate::cli::{Run, gemma3, run};
use rope_cpu_testing::{
    models::skip,
    reader::{EMBEDDINGS, LAYER_WEIGHTS, NETWORK_WEIGHTS, WEIGHTS, tiny},
};

/// Runs `bench` on the tiny model.
pub fn bench(options: &[&str]) -> Run {
    let file = tiny();
    let model = file.path().to_str().unwrap();
    let run = run(&[&["bench", "-m", model, "-t", "1"], options].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run
}

fn json(options: &[&str]) -> Vec<Value> {
    let run = bench(&[options, &["-o", "json"]].concat());
    rope_cpu::json::parse(&run.stdout).unwrap()
}

const FEW: [&str; 6] = ["-p", "8", "-n", "2", "-r", "2"];

/// llama-bench's columns in their order, of build b11434.
const LLAMA_BENCH: &str = "build_commit,build_number,cpu_info,gpu_info,backends,model_filename,\
    model_type,model_size,model_n_params,n_batch,n_ubatch,n_threads,cpu_mask,cpu_strict,poll,\
    type_k,type_v,n_gpu_layers,n_cpu_moe,split_mode,main_gpu,no_kv_offload,flash_attn,devices,\
    tensor_split,tensor_buft_overrides,load_mode,lazy_mode,embeddings,no_op_offload,no_host,repack,\
    fit_target,fit_min_ctx,n_prompt,n_gen,n_depth,test_time,avg_ns,stddev_ns,avg_ts,stddev_ts";

#[test]
fn the_table_is_that_of_llama_bench() {
    let run = bench(&["-p", "8", "-n", "2", "-r", "2", "-pg", "4,2", "-d", "0,16"]);
    let lines: Vec<_> = run.stdout.lines().collect();
    assert_eq!(lines.len(), 2 + 6 + 2, "{}", run.stdout);
    let names: Vec<_> = lines[0].split('|').map(str::trim).collect();
    let expected = ["", "model", "size", "params", "backend", "threads", "test", "t/s"];
    assert_eq!(names[..8], expected);
    assert_eq!(names[8..], ["pp, tg t/s", "of limit", ""]);
    assert!(lines[1].starts_with("| ------------------------------ | ---------: |"));
    let width = |line: &str| line.chars().count();
    for (line, test) in
        lines[2..8].iter().zip(["pp8", "tg2", "pp4+tg2", "pp8 @ d16", "tg2 @ d16", "pp4+tg2 @ d16"])
    {
        assert_eq!(width(line), width(lines[0]), "{line}");
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        assert_eq!(cells[1], "llama 58K F32");
        assert_eq!((cells[4], cells[5], cells[6]), ("CPU", "1", test));
        let (speed, deviation) = cells[7].split_once(" ± ").unwrap();
        let kind = [" % peak", " % read", " %"][["pp8", "tg2", "pp4"]
            .iter()
            .position(|name| test.split([' ', '+']).next() == Some(name))
            .unwrap()];
        assert!(cells[9].ends_with(kind), "{line}");
        let phases: Vec<f64> = cells[8].split(", ").map(|speed| speed.parse().unwrap()).collect();
        assert_eq!(phases.len(), if test.contains('+') { 2 } else { 1 }, "{line}");
        assert!(phases.iter().all(|&speed| speed > 0.0), "{line}");
        assert!(speed.parse::<f64>().unwrap() > 0.0 && deviation.parse::<f64>().is_ok(), "{line}");
    }
    assert!(lines[9].starts_with("build: rope-cpu-"), "{}", lines[9]);
    assert_eq!(run.stderr, "");
}

#[test]
fn the_table_shows_what_is_not_as_always() {
    let options = ["-ub", "4,8", "-ctk", "q8_0", "--rope-freq-scale", "0.5", "--isa", "scalar"];
    let run = bench(&[&FEW[..], &options].concat());
    let names: Vec<_> = run.stdout.lines().next().unwrap().split('|').map(str::trim).collect();
    assert_eq!(names[6..11], ["n_ubatch", "type_k", "rope", "isa", "test"]);
    let rope = format!("{:<24}", "linear x2");
    for part in [&format!("|        4 |   q8_0 | {rope} | scalar     |"), "|        8 |   q8_0 |"] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
    let base = ["--rope-freq-scale", "0.3", "--rope-freq-base", "20000"];
    let run = bench(&[&FEW[..], &base].concat());
    assert!(run.stdout.contains("| linear x3.33333, base 20000 |"), "{}", run.stdout);
    // Printed once for all tests.
    let run = bench(&[&FEW[..], &["-d", "0,4", "--rope-freq-scale", "2"]].concat());
    assert_eq!(run.stderr.matches("warning: ").count(), 1, "{}", run.stderr);
}

#[test]
fn json_has_the_columns_and_the_samples() {
    let rows = json(&[&FEW[..], &["-d", "5", "-ctv", "q8_0"]].concat());
    assert_eq!(rows.len(), 2);
    for (row, (prompt, generation)) in rows.iter().zip([(8, 0), (0, 2)]) {
        let names: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        let theirs: Vec<_> = LLAMA_BENCH.split(',').collect();
        assert_eq!(names[..theirs.len()], theirs);
        assert_eq!(names[names.len() - 2..], ["samples_ns", "samples_ts"]);
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert_eq!((number("n_prompt"), number("n_gen")), (prompt as f64, generation as f64));
        assert_eq!((number("n_depth"), number("n_threads")), (5.0, 1.0));
        assert_eq!(number("model_n_params"), WEIGHTS as f64);
        assert_eq!(number("model_size"), 4.0 * WEIGHTS as f64);
        assert_eq!((&row["type_k"], &row["type_v"]), (&"f16".into(), &"q8_0".into()));
        assert_eq!((&row["no_host"], &row["repack"]), (&false.into(), &false.into()));
        assert_eq!((&row["rope_type"], number("rope_factor")), (&"none".into(), 1.0));
        let list = |name: &str| -> Vec<f64> {
            row[name].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
        };
        let (ns, ts) = (list("samples_ns"), list("samples_ts"));
        assert_eq!((ns.len(), ts.len()), (2, 2));
        let mean = (ns[0] + ns[1]) / 2.0;
        assert!((number("avg_ns") - mean).abs() <= 0.5);
        let phases = [&row["prompt_ts"], &row["generation_ts"]];
        let [read, other] = if prompt > 0 { phases } else { [phases[1], phases[0]] };
        assert!(read.as_f64().unwrap() > 0.0 && other.is_null(), "{row}");
        let tokens = (prompt + generation) as f64;
        assert!((ts[0] - 1e9 * tokens / ns[0]).abs() <= 1e-6 * ts[0], "{row}");
        assert!((number("avg_ts") - (ts[0] + ts[1]) / 2.0).abs() <= 1e-6 * ts[0]);
        // A page of 256 positions in each of two layers: 16 values as f16, as q8_0 filled to 32.
        assert_eq!(number("cache_bytes"), (2 * 256 * (2 * 32 + 34)) as f64);
        assert!(number("time_to_first_token_ns") > 0.0 && number("peak_memory_bytes") > 1e6);
        for name in ["gops", "peak_share"] {
            assert_eq!(row[name].is_null(), prompt == 0, "{name}");
        }
        for name in ["gb_per_s", "bandwidth_share"] {
            assert_eq!(row[name].is_null(), generation == 0, "{name}");
        }
    }
}

/// The rates in bytes and operations are the rates in tokens, times the cost of a token.
#[test]
fn bytes_and_operations_are_counted() {
    let rows = json(&["-p", "8", "-n", "3", "-d", "10", "-r", "1"]);
    let seconds = |row: &Value| row["avg_ns"].as_f64().unwrap() / 1e9;
    let close = |found: f64, expected: f64| (found - expected).abs() <= 1e-4 * expected;

    // Only the last token has an output, and needs the last network.
    let unused = 7 * NETWORK_WEIGHTS;
    let weights = (2 * (8 * 2 * LAYER_WEIGHTS - unused) + 2 * EMBEDDINGS) as f64;
    let visible: u64 = 2 * (11..=18).sum::<u64>();
    let operations = weights + (4 * 64 * visible) as f64;
    let gops = rows[0]["gops"].as_f64().unwrap();
    assert!(close(1e9 * gops * seconds(&rows[0]), operations), "{gops}");

    let weights = 4 * 3 * (WEIGHTS + 64); // and one row of the embeddings
    let visible: u64 = 2 * (11..=13).sum::<u64>();
    let bytes = (weights + visible * 2 * 2 * 32) as f64; // keys and values, f16, filled to 32
    let gb = rows[1]["gb_per_s"].as_f64().unwrap();
    assert!(close(1e9 * gb * seconds(&rows[1]), bytes), "{gb}");
}

#[test]
fn csv_and_jsonl_have_a_row_for_each_test() {
    let run = bench(&[&FEW[..], &["-o", "csv", "-oe", "jsonl"]].concat());
    let lines: Vec<_> = run.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", run.stdout);
    assert!(lines[0].starts_with(LLAMA_BENCH), "{}", lines[0]);
    let rows: Vec<Value> =
        run.stderr.lines().map(|line| rope_cpu::json::parse(line).unwrap()).collect();
    assert_eq!(rows.len(), 2);
    let names: Vec<_> = lines[0].split(',').collect();
    for (line, row) in lines[1..].iter().zip(&rows) {
        // No value of this run contains a quotation mark.
        let cells: Vec<_> =
            line.trim_matches('"').split("\",\"").map(|cell| cell.to_string()).collect();
        assert_eq!(cells.len(), names.len(), "{line}");
        for (name, cell) in names.iter().zip(cells) {
            let expected = match &row[name] {
                Value::String(text) => text.clone(),
                Value::Bool(truth) => u8::from(*truth).to_string(),
                Value::Null => String::new(),
                number => number.to_string(),
            };
            let same_number = || cell.parse::<f64>().unwrap() == expected.parse::<f64>().unwrap();
            assert!(cell == expected || same_number(), "{name}: {cell:?}, {expected:?}");
        }
    }
}

#[test]
#[cfg_attr(windows, ignore = "an emulated Windows has no Python, and the output is that of Linux")]
fn sql_fills_a_table() {
    let run = bench(&[&FEW[..], &["-o", "sql"]].concat());
    let script = "import sqlite3, sys\n\
        db = sqlite3.connect(':memory:')\n\
        db.executescript(sys.stdin.read())\n\
        for row in db.execute('SELECT n_prompt, n_gen, gops IS NULL, typeof(avg_ns) FROM llama_bench'):\n\
        \x20   print(*row)\n";
    let mut python = assert_cmd::Command::from_std({
        let mut python = Command::new("python3");
        python.args(["-c", script]);
        python
    });
    let output = match python.write_stdin(run.stdout.as_str()).output() {
        Ok(output) => output,
        Err(e) => return skip(&format!("no python3: {e}")),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "8 0 0 integer\n0 2 1 integer\n", "{said}");
}

#[test]
fn options_of_llama_bench_without_effect_go_with_a_note() {
    let run = bench(&[&FEW[..], &["-ngl", "99", "-fa", "0,1", "-mmp", "0", "--progress"]].concat());
    run.said(&[
        "note: ignored, since rope-cpu runs on the CPU only: -ngl\n",
        "note: ignored, since rope-cpu has only one kind of attention: -fa\n",
        "note: ignored, since rope-cpu maps weights and uses them as they are stored: -mmp\n",
        "bench: test 1/2: warm-up\nbench: test 1/2: run 1/2\nbench: test 1/2: run 2/2\n",
    ]);
}

#[test]
fn invalid_measurements_are_reported() {
    let file = tiny();
    let model = file.path().to_str().unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["-p", "0", "-n", "0"], "nothing to measure"),
        (&["-p", "5-1"], "5 is larger than 1"),
        (&["-pg", "5"], "must be two numbers"),
        (&["-t", "0"], "from 1 to 1024"),
        (&["-r", "0"], "at least 1"),
        (&["-ctk", "f16,q6_0"], "q6_0"),
        (&["-o", "xml"], "xml"),
        (&["--list-devices"], "--list-devices is a llama-bench option"),
        (&["--no-such-option"], "--no-such-option"),
    ];
    for (options, said) in cases {
        run(&[&["bench", "-m", model], options].concat()).refused(2, &[said]);
    }
    run(&["bench", "-m", "/no/such.gguf"]).said(&["/no/such.gguf"]);
    // Reported before the first is measured.
    run(&["bench", "-m", model, "-m", "/no/such.gguf"]).refused(2, &["/no/such.gguf"]);
    let huge = run(&["bench", "-m", model, "-d", "1000000000", "-o", "csv"]);
    huge.refused(1, &["needs", "is available"]);
}

/// Sliding windows drop keys behind the depth, but the depth is read only once.
#[test]
fn a_depth_beyond_a_window_is_filled_once() {
    let Some(model) = gemma3() else { return };
    let options = ["-p", "300", "-n", "0", "-d", "700", "-r", "2", "--progress", "-o", "csv"];
    let run = run(&[&["bench", "-m", &model], &options[..]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.stderr.matches("depth of 700 tokens").count(), 1, "{}", run.stderr);
}
