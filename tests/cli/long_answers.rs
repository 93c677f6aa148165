//! Long answers: a full context, and frequencies that change.

use crate::cli::{Run, run};
use rope_cpu_testing::reader::tiny_reader;

const PROMPT: &str = "the rain in the north";

/// Generates greedily after the prompt, without a limit.
fn write(options: &[&str]) -> Run {
    let model = tiny_reader(7, true);
    let model = model.path().to_str().unwrap();
    run(&[&["-m", model, "-p", PROMPT, "--temp", "0", "--ignore-eos"], options].concat())
}

#[test]
fn an_answer_goes_on_where_the_context_is_full() {
    let write = |more: &[&str]| write(&[&["-c", "300"], more].concat());
    let ended = write(&["--keep", "5"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.said(&["the context of 300 tokens is full", "--keep 5 has no effect"]);
    let text = ended.stdout;
    for keep in ["0", "5", "-1"] {
        let gone_on = write(&["-n", "900", "--context-shift", "--keep", keep]);
        assert_eq!(gone_on.code, Some(0), "{}", gone_on.stderr);
        gone_on.said(&["its oldest 768 tokens were evicted", "--context-shift"]);
        assert!(gone_on.stdout.starts_with(text.trim_end()) && gone_on.stdout.len() > text.len());
    }
    // The last of the two flags counts, as in llama.cpp, and -2 ends the answer.
    for more in [&["--context-shift", "--no-context-shift"][..], &["--context-shift", "-n", "-2"]] {
        let ended = write(more);
        ended.said(&["the context of 300 tokens is full"]);
        assert_eq!(ended.stdout, text);
    }
}

#[test]
fn a_prompt_is_read_on_where_the_context_is_full() {
    let model = tiny_reader(7, true);
    let model = model.path().to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long");
    std::fs::write(&path, "the rain in the north, ".repeat(60)).unwrap();
    let ask = ["-m", model, "-f", path.to_str().unwrap(), "--temp", "0", "--ignore-eos"];
    let with = |more: &[&str]| run(&[&ask[..], &["-n", "8", "-c", "300"], more].concat());
    with(&[]).refused(2, &["does not fit in the context of 300"]);
    let shifted = with(&["--context-shift"]);
    assert_eq!(shifted.code, Some(0), "{}", shifted.stderr);
    shifted.said(&["note: the context was full: its oldest ", " tokens were evicted"]);
    assert!(shifted.stdout.starts_with("the rain in the north, the rain"), "{}", shifted.stdout);
    // How the prompt is cut into batches makes no difference.
    let small = with(&["--context-shift", "-ub", "16"]);
    assert_eq!(small.stdout, shifted.stdout);
    with(&["--context-shift", "--keep", "-1"]).refused(2, &["--keep -1: "]);
}

#[test]
fn a_change_of_frequencies_is_noted() {
    let write = |more: &[&str]| {
        write(&[&["-n", "700", "-c", "1024", "--rope-scaling", "dynamic"], more].concat())
    };
    let run = write(&["--rope-policy", "run"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.said(&[
        "frequencies change at this length: 256 tokens are computed again",
        "tokens were computed again",
    ]);
    assert_eq!(run.stderr.matches("are computed again").count(), 1, "{}", run.stderr);
    let other = write(&[]);
    assert!(!other.stderr.contains("again"), "{}", other.stderr);
}

#[test]
fn what_leaves_no_room_to_shift_is_refused() {
    let model = tiny_reader(7, true);
    let model = model.path().to_str().unwrap();
    let write = |prompt: &str, context: &str, more: &[&str]| {
        let options = ["-m", model, "-p", prompt, "-c", context, "--context-shift", "-n", "1"];
        run(&[&options[..], more].concat())
    };
    write(PROMPT, "256", &[])
        .refused(2, &["--context-shift: ", "context of 256 tokens", "at least 257"]);
    let long = "rain ".repeat(30);
    write(&long, "300", &["--keep", "60"])
        .refused(2, &["--keep 60: ", "keep 61 tokens", "at least 318"]);
    write(&long, "300", &["--keep", "-1"]).refused(2, &["--keep -1: "]);
    write(&long, "300", &["--keep", "-2"]).refused(2, &["--keep"]);
    write(PROMPT, "300", &["--attention-sinks", "4"])
        .refused(2, &["--attention-sinks 4 and --context-shift both set"]);
}
