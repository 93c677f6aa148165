//! Answers in the form that a grammar gives.

use std::path::PathBuf;

use rope_cpu::json;
use serde_json::Value;

use crate::cli::{Run, finish, rope_cpu, run, smollm2};
use rope_cpu_testing::reader::tiny_reader;

/// The options of a run with a tiny model, with letters and spaces as its vocabulary.
fn tiny(options: &[&str]) -> Run {
    let model = tiny_reader(3, true);
    let model = ["-m", model.path().to_str().unwrap(), "-p", "the", "--no-display-prompt"];
    run(&[&model[..], &["-n", "12", "--temp", "0"], options].concat())
}

/// Writes a file in `folder`, and returns its path.
fn file(folder: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("grammar");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn an_answer_follows_a_grammar_and_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let grammar = "root ::= \"qq\" [z] | \"wrong\" \"1\"\n";
    let path = file(&folder, &format!("\u{feff}{grammar}"));
    for options in [["--grammar", grammar], ["--grammar-file", path.to_str().unwrap()]] {
        let run = tiny(&options);
        assert_eq!((run.code, run.stdout.trim()), (Some(0), "qqz"), "{}", run.stderr);
    }
    let run = tiny(&["--grammar", "%llguidance {}\nstart: \"zz\" \"q\""]);
    assert_eq!(run.stdout.trim(), "zzq");
    let run = tiny(&["--grammar", "root ::= \"q\"*", "--ignore-eos", "-n", "5"]);
    assert_eq!(run.stdout.trim(), "qqqqq");
}

#[test]
fn an_invalid_grammar_is_reported_with_its_origin() {
    tiny(&["--grammar", "root ::= q"]).refused(2, &["--grammar: line 1, column 10: there is no"]);
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "\nroot ::= \"q");
    let path = path.to_str().unwrap();
    tiny(&["--grammar-file", path]).refused(2, &[path, ": line 2, column 10: the text has no end"]);
    tiny(&["-j", r#"{"not": {}}"#]).refused(2, &["--json-schema: /not: the keyword `not`"]);
    tiny(&["-jf", path]).refused(2, &[path, ": line 2, column 1: not JSON: expected value"]);
    file(&folder, "\u{feff}{\"not\": {}}");
    tiny(&["-jf", path]).refused(2, &[path, ": /not: the keyword `not`"]);
    tiny(&["-jf", "/no/such"]).refused(2, &["cannot read /no/such"]);
    let no_digits = tiny(&["-j", r#"{"type": "object"}"#]);
    no_digits.refused(2, &["--json-schema: no answer can begin: no token is permitted"]);
}

#[test]
fn only_one_grammar_can_be_given() {
    let options = ["--grammar", "--grammar-file", "--json-schema", "--json-schema-file"];
    for (i, first) in options.iter().enumerate() {
        for second in &options[i + 1..] {
            tiny(&[first, "x", second, "y"]).refused(2, &[first, second, "cannot be used with"]);
        }
    }
    tiny(&["--grammar"]).refused(2, &["--grammar <TEXT>"]);
}

#[test]
fn variables_give_a_grammar_that_options_replace() {
    let model = tiny_reader(3, true);
    let options = ["-m", model.path().to_str().unwrap(), "-p", "the", "--no-display-prompt"];
    for (more, expected) in [(&[][..], "qq"), (&["--grammar", "root ::= \"zz\""], "zz")] {
        let mut command = rope_cpu(&[&options[..], more].concat());
        command.env("ROPE_CPU_GRAMMAR", "root ::= \"qq\"");
        assert_eq!(finish(command).stdout.trim(), expected);
    }
}

#[test]
fn every_answer_of_a_chat_is_json() {
    let Some(model) = smollm2() else { return };
    let schema = r#"{"type": "object", "properties": {"city": {"type": "string", "maxLength": 20},
        "capital": {"type": "boolean"}}, "required": ["city", "capital"],
        "additionalProperties": false}"#;
    let question = "Which city is the capital of France? Answer in JSON.";
    let run =
        run(&["-m", &model, "-st", "-p", question, "-j", schema, "--no-display-prompt", "-q"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let answer: Value = json::parse(&run.stdout).unwrap();
    assert!(answer["city"].is_string() && answer["capital"].is_boolean(), "{answer}");
}
