//! Where a prompt comes from, and what is shown beside the answer.

use crate::{Run, finish, rope_cpu, tiny::tiny_reader};

/// A run of a tiny model on `input`, with the likeliest text.
fn piped(command: &[&str], options: &[&str], input: &str) -> Run {
    let model = tiny_reader(7, true);
    let mut line = command.to_vec();
    line.extend(["-m", model.path().to_str().unwrap()]);
    line.extend(options);
    let mut command = rope_cpu(&line);
    command.write_stdin(input);
    let run = finish(command);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run
}

const FEW: [&str; 5] = ["--temp", "0", "-n", "4", "--ignore-eos"];

fn text(options: &[&str], input: &str) -> String {
    piped(&[], &[&FEW[..], options].concat(), input).stdout
}

#[test]
fn what_does_not_end_in_a_newline_gets_one() {
    let shown = text(&["-p", "the rain"], "");
    assert!(shown.ends_with('\n') && !shown.ends_with("\n\n"), "{shown:?}");
    let answer = text(&["-p", "the rain", "--no-display-prompt"], "");
    assert_eq!(shown, format!("the rain{answer}"));
    assert_eq!(text(&["-p", "the rain\\n", "-n", "0"], ""), "the rain\n");
    assert_eq!(text(&["-p", "the rain", "-n", "0", "--no-display-prompt"], ""), "");
}

#[test]
fn quiet_leaves_warnings_and_the_answer() {
    let loud = piped(&[], &[&FEW[..], &["-p", "the"]].concat(), "");
    for quiet in ["-q", "--quiet"] {
        let run = piped(&[], &[&FEW[..], &["-p", "the", "--keep", "5", quiet]].concat(), "");
        assert_eq!(run.stdout, loud.stdout);
        let lines: Vec<_> = run.stderr.lines().collect();
        assert!(matches!(lines[..], [line] if line.starts_with("warning: --keep 5")), "{lines:?}");
    }
    for option in ["--no-perf", "--no-show-timings"] {
        let run = piped(&[], &[&FEW[..], &["-p", "the", option]].concat(), "");
        run.said(&["RoPE: "]);
        assert!(!run.stderr.contains("answer ") && !run.stderr.contains("note"), "{}", run.stderr);
    }
}

#[test]
fn the_answer_counts_what_was_written() {
    for (tokens, said) in [("0", "answer  0 tokens\n"), ("1", "answer  1 token\n")] {
        piped(&[], &[&FEW[..], &["-p", "the", "-n", tokens]].concat(), "").said(&[said]);
    }
    piped(&[], &[&FEW[..], &["-p", "the", "-n", "3"]].concat(), "").said(&["answer  3 tokens in "]);
}
