//! Help texts, and errors in command lines.

use crate::cli::run;

#[test]
fn short_help_fits_a_terminal_of_80_columns() {
    let commands = run(&["-h"]).stdout;
    let names = commands.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names: Vec<_> = names.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"run") && names.contains(&"inspect"), "{names:?}");
    for arguments in names.iter().map(|name| vec![*name, "-h"]).chain([vec!["-h"]]) {
        let help = run(&arguments);
        assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        for line in help.stdout.lines() {
            assert!(line.chars().count() <= 79, "{arguments:?}: {line}");
        }
    }
}

#[test]
fn short_help_takes_one_line_for_each_option() {
    let help = run(&["-h"]).stdout;
    let options = help.split("\nModel:").nth(1).unwrap().split("\nExamples:").next().unwrap();
    for line in options.lines().filter(|line| line.starts_with(' ')) {
        assert!(line.trim_start().starts_with('-'), "{line}");
    }
}

#[test]
fn long_help_is_more_detailed() {
    let help = run(&["--help"]);
    assert_eq!(help.code, Some(0));
    assert!(help.stdout.len() > run(&["-h"]).stdout.len());
    for part in ["--rope-freq-scale", "[-ctk]", "Examples:", "--display-prompt"] {
        assert!(help.stdout.contains(part), "{part}");
    }
}

#[test]
fn without_arguments_the_first_commands_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.gguf"), "GGUF").unwrap();
    let mut command = crate::cli::rope_cpu(&[]);
    command.env("ROPE_CPU_MODELS_DIR", folder.path());
    let start = crate::cli::finish(command);
    start
        .refused(2, &["rope-cpu -m model.gguf ", "rope-cpu -hf ", "rope-cpu serve -m model.gguf "]);
    assert_eq!(start.stderr.lines().count(), 11, "{}", start.stderr);
    let usage = "Usage: rope-cpu [OPTIONS] <--model <FILE>|--hf-repo <REPO>>";
    assert!(run(&["-h"]).stdout.contains(usage));
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = run(&["--version"]).stdout;
    let rest = version.strip_prefix(concat!("rope-cpu ", env!("CARGO_PKG_VERSION")));
    // In release builds the commit follows.
    assert!(rest.is_some_and(|rest| rest == "\n" || rest.starts_with(" (")), "{version}");
}

#[test]
fn unknown_and_missing_options_are_reported() {
    run(&["--no-such-option"]).refused(2, &["--no-such-option"]);
    run(&["-p", "hello"]).refused(2, &["--model <FILE>"]);
    run(&["-m"]).refused(2, &["--model <FILE>"]);
    run(&["run"]).refused(2, &["--model <FILE>"]);
    run(&["no-such-command"]).refused(2, &["no-such-command"]);
}

#[test]
fn unsupported_options_of_llama_cli_are_rejected_by_name() {
    for option in ["--image", "-mu", "--adaptive-target", "--control-vector", "-hfd"] {
        let said = format!("{option} is a llama-cli option that rope-cpu does not support");
        run(&["-m", "x.gguf", option, "1"]).refused(2, &[&said]);
    }
}

#[test]
fn values_out_of_range_are_reported_with_the_range() {
    let cases: [(&[&str], &str); 37] = [
        (&["-ctk", "q6_0"], "must be one of f32, f16, bf16, q8_0, q5_0, q4_0"),
        (&["--isa", "mmx"], "scalar"),
        (&["-c", "-5"], "--ctx"),
        (&["-c", "99999999999"], "at most 1073741824"),
        (&["-c", "99999999999999999999"], "at most 1073741824"),
        (&["-c", "many"], "not a whole number, such as 4096 or 4k"),
        (&["-n", "5x"], "not a whole number, such as 4096 or 4k"),
        (&["-t", "x"], "'--threads <N>': not a whole number\n"),
        (&["--top-k", "x"], "'--top-k <N>': must be a whole number of at most 18 digits\n"),
        (&["--top-k", "9999999999999999999"], "'--top-k <N>': must be a whole number of at most"),
        (
            &["--repeat-last-n", "-5"],
            "'--repeat-last-n <N>': must be a whole number of at least -1\n",
        ),
        (&["Why is it blue?"], "'Why is it blue?' is not a command: give a prompt with -p\n"),
        (&["bench"], "the options of a command follow it: rope-cpu bench ...\n"),
        (&["--top-p", "x"], "'--top-p <N>': must be a number\n"),
        (&["--rope-scale", ""], "must be a number"),
        (&["--mirostat", "3"], "must be a whole number from 0 to 2"),
        (&["-s", "x"], "must be a whole number from -1 to 4294967295"),
        (&["--keep", "-2"], "must be at least -1"),
        (&["-ub", "0"], "at least 1"),
        (&["-n", "-3"], "--predict"),
        (&["-t", "0"], "from 1 to 1024"),
        (&["--power", "0"], "'--power <PERCENT>': must be from 1 to 100\n"),
        (&["--nice", "20"], "must be a whole number from 0 to 19"),
        (&["-s", "4294967296"], "--seed"),
        (&["--top-p", "1.5"], "--top-p 1.5: must be from 0 to 1"),
        (
            &["--rope-scaling", "su"],
            "none, linear, ntk, ntk-mixed, dynamic, dynamic-linear, yarn, dynamic-yarn, llama3, longrope, dprope, clex, cope, rerope, leaky-rerope, self-extend, lm-infinite, string, dca, ntk-by-parts, auto",
        ),
        (&["--rope-scaling", "drope"], "no setting applies it: DroPE models are trained to"),
        (&["--override-kv", "a=b"], "KEY=TYPE:VALUE"),
        (&["--lora-scaled", "a.gguf"], "FILE:SCALE"),
        (&["--lora-scaled", "a.gguf:0.5,b.gguf:much"], "the scale much is not a finite number"),
        (&["-r", ""], "--reverse-prompt is empty"),
        (&["--spec-draft-n-max", "16"], "must be a whole number from 1 to 15"),
        (&["--draft", "0"], "'--spec-draft-n-max <N>': must be a whole number from 1 to 15"),
        (
            &["--spec-type", "eagle"],
            "must be one of auto, none, ngram-simple, draft-mtp, draft-simple, draft-sparse",
        ),
        (&["--spec-type", "draft-simple"], "give it with -md"),
        (&["-md", "x", "--spec-type", "ngram-mod"], "add draft-simple"),
        (&["-md", "x", "--spec-type", "draft-sparse"], "add draft-simple"),
    ];
    run(&["tokenize", "-m", "x", "-p", "a", "--override-kv", "x"]).refused(2, &["KEY=TYPE:VALUE"]);
    for (options, said) in cases {
        let arguments = [&["-m", "x.gguf"], options].concat();
        run(&arguments).refused(2, &[said]);
    }
}

#[test]
fn an_invalid_value_within_a_value_is_reported_once() {
    let run = run(&["perplexity", "-m", "x", "-f", "x", "--methods", "yarn:rope-scale=x"]);
    run.refused(2, &["'yarn:rope-scale=x'", "'x' for '--rope-scale <N>': must be a number\n"]);
    assert_eq!(run.stderr.matches("invalid value").count(), 1, "{}", run.stderr);
}

#[test]
fn help_is_a_command_too() {
    assert_eq!(run(&["help"]).stdout, run(&["--help"]).stdout);
    for command in [&["inspect"][..], &["rope", "bake"]] {
        let help = run(&[&["help"], command].concat());
        assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
        assert_eq!(help.stdout, run(&[command, &["--help"]].concat()).stdout);
    }
    assert_eq!(run(&["help", "-h"]).stdout, run(&["-h"]).stdout);
    run(&["help", "no-such-command"])
        .refused(2, &["no such command, file or model: 'no-such-command'"]);
}

#[test]
fn a_model_needs_no_flag_and_other_words_are_rejected() {
    let model = rope_cpu_testing::reader::tiny_reader(1, true);
    let path = model.path().to_str().unwrap();
    let alone = run(&[path, "-p", "the", "-n", "1", "-no-cnv"]);
    assert_eq!(alone.code, Some(0), "{}", alone.stderr);
    run(&["/none.gguf"]).refused(2, &["/none.gguf", "(os error 2)"]);
    run(&["no-such-command"]).refused(2, &["no such command, file or model: 'no-such-command'"]);
    run(&[path, "other.gguf"]).refused(2, &["other.gguf"]);
    let shown = run(&["inspect", path]).stdout;
    assert!(shown.contains("llama"), "{shown}");
    for model in [&["-m", path][..], &["--model", path], &[&format!("--model={path}")]] {
        assert_eq!(run(&[&["inspect"], model].concat()).stdout, shown);
    }
    run(&["inspect", path, "-m", path]).refused(2, &["cannot be used with"]);
    run(&["inspect"]).refused(2, &["<FILE>"]);
}

#[test]
fn numbers_of_tokens_may_end_in_k_or_m() {
    let model = rope_cpu_testing::reader::tiny_reader(1, true);
    let model = model.path().to_str().unwrap();
    // Without the available memory, which changes from run to run.
    let plan = |context| {
        let run = run(&["-m", model, "-c", context, "-ub", "1K", "-n", "1k", "--dry-run"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let (before, after) = run.stdout.split_once("; ").unwrap();
        format!("{before}\n{}", after.split_once('\n').unwrap().1)
    };
    assert!(plan("2k").contains("a context of 2048 "), "{}", plan("2k"));
    assert_eq!(plan("1m"), plan("1048576"));
}

#[test]
fn conflicting_options_are_reported() {
    run(&["-m", "x", "-sys", "a", "-sysf", "b"]).refused(2, &["--system-prompt-file"]);
}

#[test]
fn a_missing_file_is_named() {
    run(&["-m", "/none.gguf"]).refused(2, &["/none.gguf", "(os error 2)"]);
    run(&["inspect", "/none.gguf"]).refused(2, &["/none.gguf", "(os error 2)"]);
}

#[test]
fn a_file_that_is_not_a_model_is_named() {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in [("empty.gguf", &b""[..]), ("text.gguf", b"once upon a time there was")] {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let path = path.to_str().unwrap();
        run(&["-m", path]).refused(2, &[path]);
        run(&["inspect", path]).refused(2, &[path]);
    }
}

/// `rope-cpu .. | head -c 0`: the pipe is closed before the first byte.
#[test]
fn a_closed_pipe_ends_help_and_reports_quietly() {
    for arguments in [&["--help"][..], &["--version"]] {
        let (code, stderr) = crate::cli::model::with_closed_stdout(arguments);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}
