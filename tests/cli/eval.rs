//! `eval` on a tiny model, which knows no answer, and on a real one.

use std::{fs, path::Path};

use serde_json::Value;
use sha2::Digest;
use tempfile::tempdir;

use crate::cli::{Run, run, smollm2};
use rope_cpu_testing::reader::tiny_reader;

/// Runs `eval` with the tiny model, for which every letter is a token.
fn eval(options: &[&str]) -> Run {
    let file = tiny_reader(1, true);
    run(&[&["eval", "-m", file.path().to_str().unwrap()], options].concat())
}

/// The options of a short run with two tasks, two methods and two samples.
const SHORT: [&str; 7] = [
    "niah_single_1,passkey",
    "--lengths",
    "1300,1100",
    "--samples",
    "2",
    "--methods",
    "none,linear",
];

fn cells(run: &Run) -> Vec<Value> {
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let json: Value = rope_cpu::json::parse(&run.stdout).unwrap();
    json["cells"].as_array().unwrap().clone()
}

#[test]
fn a_table_is_shown_for_each_task() {
    let run = eval(&SHORT);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = run.stdout.lines().map(words).collect();
    let start = lines.iter().position(|line| line == "niah_single_1, found, 2 samples").unwrap();
    assert_eq!(lines[start + 1], "method 1100 tokens 1300 tokens");
    assert_eq!(lines[start + 2], "none 0.0 (0.0 to 0.0) 0.0 (0.0 to 0.0)");
    assert!(lines[start + 3].starts_with("linear 0.0"), "{}", lines[start + 3]);
    assert!(run.stdout.contains("passkey, found, 2 samples"));
    assert!(run.stdout.contains("Effective length: the longest up to which"), "{}", run.stdout);
    assert!(run.stdout.contains("+ and -: better and worse than none"), "{}", run.stdout);
    run.said(&[
        "1/16: none, 1100 tokens: niah_single_1 1",
        "16/16: linear, 1300 tokens: passkey 2",
    ]);
}

#[test]
fn a_run_goes_on_where_it_was_interrupted() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("answers.jsonl");
    let file = tiny_reader(1, true);
    let common =
        ["eval", "-m", file.path().to_str().unwrap(), "--json", "-o", path.to_str().unwrap()];
    let with = |options: &[&str]| run(&[&common[..], options].concat());
    let whole = with(&SHORT);
    let lines = fs::read_to_string(&path).unwrap();
    assert_eq!(lines.lines().count(), 16);
    // The run ends within an answer.
    let cut = lines.lines().take(9).collect::<Vec<_>>().join("\n");
    fs::write(&path, format!("{cut}\n{{\"model\":\"tin")).unwrap();
    let again = with(&[&SHORT[..], &["--parallel", "1"]].concat());
    again.said(&["9 answers are already computed", "7/7: "]);
    let without_times = |run: &Run| {
        cells(run)
            .into_iter()
            .map(|mut cell| {
                cell["seconds"] = Value::Null;
                cell
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(without_times(&again), without_times(&whole));
    let rest = fs::read_to_string(&path).unwrap();
    let answers = |text: &str| {
        let mut all: Vec<_> = text
            .lines()
            .map(|line| {
                let line: Value = rope_cpu::json::parse(line).unwrap();
                ["task", "method", "length", "number", "answer", "scores"]
                    .map(|name| line[name].to_string())
            })
            .collect();
        all.sort();
        all
    };
    // The answers side by side are those of one at a time.
    assert_eq!(answers(&rest), answers(&lines));
    // Other samples are new answers; so is another seed.
    with(&[&SHORT[..], &["--seed", "1"]].concat()).said(&["1/16: "]);
    // Other attention gives other answers.
    for other in ["\"sparse_attention\":0.9", "\"prefill\":\"0.2 by small.gguf\""] {
        fs::write(&path, lines.replace("{\"model\"", &format!("{{{other},\"model\""))).unwrap();
        let other = with(&SHORT);
        assert!(other.code != Some(0), "{}", other.stdout);
        other.said(&["cache type, attention or --override-kv: choose another --output file"]);
    }
}

#[test]
fn prompts_can_lack_what_a_draft_model_leaves_out() {
    let directory = tempdir().unwrap();
    let [log, file] = [directory.path().join("log.jsonl"), directory.path().join("small.gguf")];
    fs::copy(tiny_reader(2, true).path(), &file).unwrap();
    let (log, file) = (log.to_str().unwrap(), file.to_str().unwrap());
    let options = ["-c", "3000", "--samples", "1", "-md", file, "--prefill-share", "0.1"];
    let answer = |options: &[&str]| {
        let _ = fs::remove_file(log);
        let run = eval(&[&["niah_single_1", "-o", log], options].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let line: Value = rope_cpu::json::parse(&fs::read_to_string(log).unwrap()).unwrap();
        (line["answer"].clone(), line["prefill"].clone())
    };
    let (whole, none) = answer(&options[..6]);
    assert_eq!(none, Value::Null);
    let (part, share) = answer(&options);
    assert!(part != whole, "{part}");
    assert_eq!(share, "0.1 by small.gguf");
    let task = format!("choices={}", questions(directory.path()));
    eval(&[&[&task[..]], &options[..]].concat())
        .refused(2, &["--prefill-share: choices scores choices, and their prompts are always"]);
}

#[test]
fn methods_that_do_the_same_are_computed_once() {
    let run = eval(&[
        "vt",
        "-c",
        "1900",
        "--samples",
        "1",
        "--methods",
        "linear:rope-scale=1,none",
        "--json",
    ]);
    let cells = cells(&run);
    run.said(&["1/1: ", "none, 1900 tokens: the same as linear:rope-scale=1"]);
    assert_eq!(cells[0]["mean"], cells[1]["mean"]);
}

/// Writes a file of questions with two and three choices, with a byte order mark.
fn questions(directory: &Path) -> String {
    let path = directory.join("questions.jsonl");
    let text = r#"{"query": "abc", "choices": ["de", "fgh"], "gold": 0}
{"query": "abcd", "choices": ["de", "e", "eefg"], "gold": "1"}
"#;
    fs::write(&path, format!("\u{feff}{text}")).unwrap();
    path.to_str().unwrap().into()
}

#[test]
fn choices_are_scored_by_their_likelihood() {
    let directory = tempdir().unwrap();
    let (questions, log) = (questions(directory.path()), directory.path().join("log.jsonl"));
    let task = format!("choices={questions}");
    let run = eval(&[&task, "-c", "64", "--json", "-o", log.to_str().unwrap()]);
    let cells = cells(&run);
    let [acc, acc_norm] = &cells[..] else { panic!("{cells:?}") };
    assert_eq!((&acc["metric"], &acc_norm["metric"]), (&"acc".into(), &"acc_norm".into()));
    assert_eq!(acc["samples"], 2);
    let lines = fs::read_to_string(&log).unwrap();
    let second: Value = rope_cpu::json::parse(lines.lines().nth(1).unwrap()).unwrap();
    let sums: Vec<f64> =
        second["log_likelihoods"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    assert!(sums.len() == 3 && sums.iter().all(|sum| *sum < 0.0), "{sums:?}");
    let best = (0..3).max_by(|a, b| sums[*a].total_cmp(&sums[*b])).unwrap();
    assert_eq!(second["scores"][0], f64::from(u8::from(best == 1)));
}

#[test]
fn a_report_is_one_page_and_the_same_in_other_forms() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("run.v1");
    let run = eval(&[&SHORT[..], &["--report", path.to_str().unwrap()]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let text = |ending: &str| {
        fs::read_to_string(directory.path().join(format!("run.v1.{ending}"))).unwrap()
    };
    let html = text("html");
    for part in
        ["<th><button>1100 tokens</button></th>", "<td>linear</td>", "<script>", "</html>\n"]
    {
        assert!(html.contains(part), "{part}");
    }
    // The maps, and the curves of both tasks.
    assert_eq!(html.matches("<svg").count(), 3);
    // Nothing is loaded from elsewhere.
    assert!(!html.contains("src=") && !html.contains("<link"), "{html}");
    assert!(
        text("md").contains("| none | 0.0 (0.0 to 0.0) | 0.0 (0.0 to 0.0) |"),
        "{}",
        text("md")
    );
    let json: Value = rope_cpu::json::parse(&text("json")).unwrap();
    assert_eq!(json["cells"].as_array().unwrap().len(), 8);
}

#[test]
fn a_report_says_where_its_numbers_come_from() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("run");
    let file = tiny_reader(1, true);
    let model = file.path().to_str().unwrap();
    let with = ["--seed", "7", "--report", path.to_str().unwrap()];
    let mut command = crate::cli::rope_cpu(&[&["eval", "-m", model], &SHORT[..], &with].concat());
    let run = crate::cli::finish({
        command.env("ROPE_CPU_CACHE_TYPE_K", "q8_0");
        command
    });
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let text = |ending: &str| fs::read_to_string(path.with_extension(ending)).unwrap();
    let sum = sha2::Sha256::digest(fs::read(model).unwrap());
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    for ending in ["html", "md", "json"] {
        // JSON writes the separators of Windows twice.
        let text = text(ending).replace(r"\\", r"\");
        for part in
            [&sum, model, "ROPE_CPU_CACHE_TYPE_K=q8_0 ", "--seed 7", "RoPE: linear", "factor "]
        {
            assert!(text.contains(part), "{ending}: {part}: {text}");
        }
    }
    let json: Value = rope_cpu::json::parse(&text("json")).unwrap();
    let origin = &json["origin"];
    assert_eq!((&origin["seed"], &origin["model"]["files"][0]["sha256"]), (&7.into(), &sum.into()));
    assert_eq!(origin["rope"].as_array().unwrap().len(), 4);
}

#[test]
fn invalid_tasks_are_reported() {
    let directory = tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    eval(&["-c", "900"]).refused(2, &["<TASK,...>"]);
    eval(&["niah", "-c", "900"])
        .refused(2, &["unknown task \"niah\": choose from ruler, passkey, niah_single_1"]);
    eval(&["vt,vt", "-c", "900"]).refused(2, &["vt is listed twice"]);
    eval(&["ruler,vt", "-c", "900", "--haystack", &write("a.txt", "A text.")])
        .refused(2, &["vt is listed twice"]);
    eval(&["niah_single_2", "-c", "900"])
        .refused(2, &["niah_single_2 needs a text: give one with --haystack FILE"]);
    eval(&["qa_1", "-c", "900"]).refused(2, &["qa_1 needs a file: give one with qa_1=FILE"]);
    eval(&["hellaswag", "-c", "900"])
        .refused(2, &["hellaswag needs a file: give one with hellaswag=FILE"]);
    eval(&["vt=x", "-c", "900"]).refused(2, &["vt reads no file"]);
    eval(&["vt", "-c", "100"]).refused(2, &["vt: the length of 100 tokens must be at least "]);
    eval(&["choices=/no/such/file", "-c", "900"]).refused(2, &["/no/such/file"]);
    let field = write(
        "b.jsonl",
        "{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"gold\": 1}\n{\"query\": \"q\", \"gold\": 1}\n",
    );
    eval(&[&format!("choices={field}"), "-c", "900"]).refused(
        2,
        &["b.jsonl: line 2: missing field `choices`; choices has the fields query, choices, gold"],
    );
    // No letter of the question is a token, and the model adds none before it.
    let unknown =
        write("e.jsonl", "{\"query\": \"1\", \"choices\": [\"a\", \"b\"], \"gold\": 1}\n");
    let file = tiny_reader(1, false);
    let model = file.path().to_str().unwrap();
    run(&["eval", "-m", model, &format!("choices={unknown}"), "-c", "64"])
        .refused(2, &["choices: question 1: choice 1 starts at token 0 of 2: it needs a token"]);
    let long = write("c.jsonl", "{\"prompt\": \"abc\", \"answers\": \"a\", \"tokens\": 100}\n");
    eval(&[&format!("generation={long}"), "-c", "64"])
        .refused(2, &["generation: question 1 has 10", "more than the length of 64"]);
    let endless = write(
        "d.jsonl",
        "{\"prompt\": \"abc\", \"answers\": \"a\", \"tokens\": 18446744073709551615}\n",
    );
    eval(&[&format!("generation={endless}"), "-c", "64"])
        .refused(2, &["generation: question 1 has 18446744073709551615 tokens"]);
    eval(&["vt", "-c", "900", "--chat"]).refused(2, &["--chat: the model has no chat template"]);
    eval(&["vt", "-c", "1900", "--report", "/no/such/folder/x"])
        .refused(2, &["/no/such/folder/x.html"]);
    let sparse = eval(&["vt", "-c", "1900", "--sparse-attention", "0.9"]);
    assert!(sparse.code != Some(0), "{}", sparse.stdout);
    sparse.said(&["--sparse-attention has no effect on this llama model"]);
    // A length beyond memory is refused before it starts.
    let big = eval(&["passkey", "-c", "1024m"]);
    assert_eq!((big.code, &big.stdout[..]), (Some(1), ""), "{}", big.stderr);
    big.said(&["--no-memory-check"]);
}

/// The model finds a number in a short text, and knows that Paris is in France.
#[test]
fn a_real_model_answers() {
    let Some(model) = smollm2() else { return };
    let directory = tempdir().unwrap();
    let path = directory.path().join("questions.jsonl");
    fs::write(&path, r#"{"query": "The capital of France is", "choices": ["London", "Paris", "Rome"], "gold": 1}"#).unwrap();
    let task = format!("niah_single_1,choices={}", path.display());
    let run = run(&["eval", "-m", &model, &task, "-c", "640", "--samples", "1", "--json"]);
    let cells = cells(&run);
    let means: Vec<_> = cells.iter().map(|cell| cell["mean"].as_f64().unwrap()).collect();
    assert_eq!(means, [1.0, 1.0, 1.0], "{cells:#?}");
}
