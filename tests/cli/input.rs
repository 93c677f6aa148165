//! The sources of a prompt, and the output besides the answer.

use crate::cli::{Run, finish, gemma3, rope_cpu, run};
use rope_cpu_testing::reader::tiny_reader;

/// Runs a tiny model greedily on `input`.
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
fn a_dash_stands_for_standard_input() {
    let typed = text(&["-p", "the rain"], "");
    for ending in ["", "\n", "\r\n"] {
        assert_eq!(text(&["-f", "-"], &format!("the rain{ending}")), typed, "{ending:?}");
    }
    let tokenized = |options: &[&str]| piped(&["tokenize"], options, "the rain").stdout;
    assert_eq!(tokenized(&["-f", "-"]), tokenized(&["-p", "the rain"]));

    let long = "the rain in the north, ".repeat(12);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &long).unwrap();
    let judged = |file: &str| piped(&["perplexity"], &["-c", "16", "-f", file], &long).stdout;
    assert!(judged("-").contains("PPL"));
    assert_eq!(judged("-"), judged(file.path().to_str().unwrap()));
    let model = tiny_reader(7, true);
    let short = ["perplexity", "-m", model.path().to_str().unwrap(), "-f", "-"];
    run(&short).refused(2, &["standard input: "]);
}

/// A device without an end.
#[cfg(target_os = "linux")]
#[test]
fn a_text_without_an_end_is_refused() {
    let model = tiny_reader(7, true);
    let model = model.path().to_str().unwrap();
    run(&["tokenize", "-m", model, "-f", "/dev/zero"])
        .refused(2, &["/dev/zero", "it has more than 1 GiB"]);
}

#[test]
fn byte_order_marks_are_no_part_of_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    let path = path.to_str().unwrap();
    std::fs::write(path, "\u{feff}the rain").unwrap();
    let typed = text(&["-p", "the rain"], "");
    assert_eq!(text(&["-f", path], ""), typed);
    assert_eq!(text(&["-f", "-"], "\u{feff}the rain"), typed);
    let model = tiny_reader(7, true);
    let model = model.path().to_str().unwrap();
    for (option, utf16) in
        [("-f", b"\xff\xfea\0"), ("-sysf", b"\xfe\xff\0a"), ("-jf", b"\xff\xfea\0")]
    {
        std::fs::write(path, utf16).unwrap();
        let line = ["-m", model, "-p", "the rain", option, path];
        run(&line).refused(2, &[path, " is UTF-16 text: save it as UTF-8"]);
    }
}

#[test]
fn a_file_follows_the_text_on_a_line_of_its_own() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "the rain\n").unwrap();
    let expected = text(&["-p", "in short\\nthe rain"], "");
    for (prompt, file) in [
        ("in short", file.path().to_str().unwrap()),
        ("in short\\n", file.path().to_str().unwrap()),
        ("in short", "-"),
    ] {
        assert_eq!(text(&["-p", prompt, "-f", file], "the rain"), expected, "{prompt:?} {file}");
    }
}

#[test]
fn several_texts_are_on_lines_of_their_own() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "in the north\n").unwrap();
    let expected = text(&["-p", "in short\\nthe rain\\nin the north"], "");
    let file = file.path().to_str().unwrap();
    assert_eq!(text(&["-p", "in short", "-f", file, "-p", "the rain"], ""), expected);
}

#[test]
fn bytes_that_are_not_utf8_are_read_with_a_note() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"the r\xe4in\n").unwrap();
    let expected = text(&["-p", "the r\u{fffd}in"], "");
    let file = file.path().to_str().unwrap();
    let run = piped(&[], &[&FEW[..], &["-f", file]].concat(), "");
    assert_eq!(run.stdout, expected);
    run.said(&["is not entirely UTF-8: 1 bytes, the first of them byte 5, are not part of"]);
    assert_eq!(text(&["-p", "the r\\xe4in"], ""), expected);
}

/// With SentencePiece each byte is a token; the first byte of a character takes the others with it.
#[test]
fn bytes_that_are_not_utf8_reach_the_model_in_conversations_too() {
    let Some(model) = gemma3() else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"the r\xe4in").unwrap();
    let file = file.path().to_str().unwrap();
    let [plain, chat] = [&["-no-cnv"][..], &["-st", "--chat-template", "gemma"]];
    for (form, source) in
        [(plain, ["-f", file]), (chat, ["-f", file]), (chat, ["-p", r"the r\xe4in"])]
    {
        let options = ["-m", &model, "-n", "1", "-c", "256", "--verbose-prompt"];
        let run = run(&[&options, form, &source].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.said(&["\n   466 -> '\u{fffd}'\n   343 -> 'i'\n   348 -> 'n'\n"]);
    }
}

#[test]
fn unread_input_is_noted_and_not_waited_for() {
    let note = "standard input is not read";
    let with = |options: &[&str], input| piped(&[], &[&FEW[..], options].concat(), input);
    with(&["-p", "the rain", "-n", "200"], "in the north").said(&[note, "add -f - to read it"]);
    for (options, input) in [(["-p", "the rain"], ""), (["-f", "-"], "the rain")] {
        let run = with(&options, input);
        assert!(!run.stderr.contains(note), "{}", run.stderr);
    }
    // A pipe that stays open.
    let model = tiny_reader(7, true);
    let mut open = std::process::Command::new(assert_cmd::cargo::cargo_bin!("rope-cpu"))
        .args(["-m", model.path().to_str().unwrap(), "-p", "the", "-n", "1", "-q"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let input = open.stdin.take();
    assert!(open.wait().unwrap().success());
    drop(input);
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

#[test]
fn more_threads_than_processors_are_warned_of_once() {
    let processors = std::thread::available_parallelism().unwrap().get();
    let with = |command: &[&str], options: &[&str], threads: usize| {
        let threads = threads.to_string();
        let run = piped(command, &[options, &["-t", &threads]].concat(), "");
        run.stderr.matches("that this process may use, which slows it down").count()
    };
    let few = [&FEW[..], &["-p", "the"]].concat();
    assert_eq!(with(&[], &few, processors), 0);
    assert_eq!(with(&[], &few, processors + 1), 1);
    let bench = ["-p", "8", "-n", "0", "-r", "1"];
    assert_eq!(with(&["bench"], &bench, processors + 1), 1);
}
