//! Runs of a real model.

use std::{
    io::Read,
    process::{Command, Stdio},
};

use crate::cli::{Run, finish, rope_cpu, run, smollm2};
use rope_cpu_testing::{
    builder::{Builder, STRING, string},
    reader::{tiny_reader, tiny_with_tensor, tiny_with_vision},
};
use tempfile::NamedTempFile;

/// Runs the model greedily to continue the text of `-p`.
fn likeliest(model: &str, options: &[&str]) -> Run {
    let arguments = [&["-m", model, "--temp", "0", "-no-cnv"], options].concat();
    run(&arguments)
}

fn text(model: &str, options: &[&str]) -> String {
    let run = likeliest(model, options);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.stdout
}

const PROMPT: &str = "The capital of France is";

#[test]
fn text_goes_to_stdout_and_all_else_to_stderr() {
    let Some(model) = smollm2() else { return };
    let run = likeliest(&model, &["-p", PROMPT, "-n", "12"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let answer = run.stdout.strip_prefix(PROMPT).unwrap();
    assert!(answer.contains("Paris"), "{answer}");
    run.said(&["RoPE: no scaling", "Memory: ", "Threads: ", "prompt  ", "answer  ", "tokens/s"]);
    run.said(&["memory  ", "seed    "]);
    assert!(!run.stdout.contains("RoPE") && !run.stdout.contains("tokens/s"), "{}", run.stdout);

    // The same text, from a file and from standard input, without the prompt.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("prompt.txt");
    std::fs::write(&file, format!("{PROMPT}\n")).unwrap();
    let options = ["-f", file.to_str().unwrap(), "-n", "12", "--no-display-prompt"];
    assert_eq!(text(&model, &options), answer);
    let quiet = ["-m", &model, "--temp", "0", "-n", "12", "--no-display-prompt", "-no-cnv"];
    let mut piped = rope_cpu(&[&quiet[..], &["--no-show-timings"]].concat());
    piped.write_stdin(PROMPT);
    let piped = finish(piped);
    assert_eq!(piped.stdout, answer);
    assert!(!piped.stderr.contains("tokens/s"), "{}", piped.stderr);
}

#[test]
fn the_requested_context_is_used_and_its_origin_shown() {
    let Some(model) = smollm2() else { return };
    let options =
        ["--ctx", "16384", "--rope-freq-scale", "0.5", "-p", PROMPT, "-n", "4", "-ngl", "99"];
    let run = likeliest(&model, &options);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.said(&["RoPE: linear, factor 2 (--rope-freq-scale 0.5)", "context 16384 (--ctx 16384)"]);
    run.said(&["note: ignored, since rope-cpu runs on the CPU only: -ngl\n"]);
}

#[test]
fn contradictory_rope_options_are_errors() {
    let Some(model) = smollm2() else { return };
    let both = ["--rope-scale", "4", "--rope-freq-scale", "0.25", "-p", "x"];
    likeliest(&model, &both).refused(2, &["--rope-scale 4", "--rope-freq-scale 0.25"]);
    let none = ["--rope-scaling", "none", "--rope-scale", "4", "-p", "x"];
    likeliest(&model, &none).refused(2, &["--rope-scaling none"]);
}

#[test]
fn a_dry_run_shows_the_plan_and_computes_nothing() {
    let Some(model) = smollm2() else { return };
    let dry = |options: &[&str]| {
        run(&[
            &["-m", &model][..],
            &["--dry-run"][usize::from(options.contains(&"--dry-run=json"))..],
            options,
        ]
        .concat())
    };
    let plan = dry(&["-c", "16384", "-ctk", "q8_0", "-ctv", "f32"]);
    assert_eq!(plan.code, Some(0), "{}", plan.stderr);
    // 30 layers of 3 heads of 64 values: 34 bytes for 32 of them as q8_0, 128 as f32.
    for part in ["keys (q8_0) 95.6 MiB", "values (f32) 360.0 MiB", "context of 16384", "RoPE: "] {
        assert!(plan.stdout.contains(part), "{part}: {}", plan.stdout);
    }

    // The same as JSON, with the origin of each value.
    let json = dry(&["-c", "16384", "-ctk", "q8_0", "--dry-run=json", "--rope-scaling", "yarn"]);
    let json: serde_json::Value = rope_cpu::json::parse(&json.stdout).unwrap();
    assert_eq!(json["context"], serde_json::json!({"value": 16384, "origin": "--ctx 16384"}));
    assert_eq!(json["memory"]["keys"], 30 * 3 * 2 * 34 * 16384);
    assert_eq!(json["rope"]["values"]["factor"]["value"], 2.0);
    assert_eq!(json["memory"]["fits"], true);

    let huge = dry(&["-c", "1000000000"]);
    assert_eq!(huge.code, Some(1));
    assert!(huge.stdout.contains("TiB"), "{}", huge.stdout);
    huge.said(&["error: a context of 1000000000 tokens needs", "The largest context that fits is"]);
    assert_eq!(dry(&["-c", "1000000000", "--no-memory-check"]).code, Some(0));

    // The context that the error suggests fits, also for a rolling one.
    let trained = ["--override-kv", "llama.context_length=int:1000000000"];
    for sinks in [&[][..], &["--attention-sinks", "4"]] {
        assert_eq!(dry(&[&trained[..], sinks].concat()).code, Some(0), "{sinks:?}");
    }

    let refused = likeliest(&model, &["-c", "1000000000", "-p", "x"]);
    refused.refused(1, &["The largest context that fits is"]);
}

/// The planned memory is slightly more than the memory of a run that fills its context.
#[test]
fn the_plan_covers_what_a_run_takes() {
    let Some(model) = smollm2() else { return };
    let mebibytes = |text: &str, before: &str| {
        let number = text.split(before).nth(1).and_then(|rest| rest.split(' ').next());
        number.and_then(|n| n.parse::<f64>().ok()).unwrap_or_else(|| panic!("{before}: {text}"))
    };
    let prompt = "All work and no play makes Jack a dull boy. ".repeat(90); // 991 tokens
    for types in [["-ctk", "f32", "-ctv", "f32"], ["-ctk", "q8_0", "-ctv", "q4_0"]] {
        let mut options = vec!["-c", "1024", "--ignore-eos", "-p", &prompt];
        options.extend(types);
        let run = likeliest(&model, &options);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let planned = mebibytes(&run.stderr, "Memory: ");
        let taken = mebibytes(&run.stderr, "memory  ");
        assert!(taken <= planned && planned <= 1.5 * taken, "{taken} of {planned} MiB: {types:?}");
    }
}

#[test]
fn a_prompt_beyond_the_context_is_refused_with_the_numbers() {
    let Some(model) = smollm2() else { return };
    let options = ["-c", "8", "-p", "one two three four five six seven eight nine ten"];
    likeliest(&model, &options).refused(2, &["the prompt of 10 tokens", "the context of 8"]);
    likeliest(&model, &["-p", ""]).refused(2, &["the prompt is empty"]);
}

#[test]
fn a_full_context_is_noted() {
    let Some(model) = smollm2() else { return };
    let run = likeliest(&model, &["-c", "12", "--ignore-eos", "-p", PROMPT]);
    assert_eq!(run.code, Some(0));
    run.said(&["the context of 12 tokens is full", "answer  8 tokens in"]);
}

#[test]
fn stop_strings_end_the_text_wherever_tokens_end() {
    let Some(model) = smollm2() else { return };
    let options = ["-p", PROMPT, "-n", "16", "--no-display-prompt"];
    let whole = text(&model, &options);
    // From the middle of a word to the middle of the next.
    let at = whole.char_indices().filter(|(_, c)| *c == ' ').nth(3).unwrap().0;
    let stop = &whole[at - 2..at + 3];
    let before = whole.find(stop).unwrap();
    let stopped = text(&model, &[&options[..], &["-r", stop, "-r", "never there"]].concat());
    assert_eq!(stopped, format!("{}\n", &whole[..before]));
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let Some(model) = smollm2() else { return };
    let draw = |seed| {
        let run = likeliest(&model, &["-p", "Once", "-n", "12", "--temp", "1.5", "-s", seed]);
        run.said(&[&format!("seed    {seed}")]);
        run.stdout
    };
    assert_eq!(draw("7"), draw("7"));
    assert_ne!(draw("7"), draw("8"));
}

#[test]
fn threads_do_not_change_the_text() {
    let Some(model) = smollm2() else { return };
    let options = ["-m", &model, "-no-cnv", "--temp", "0", "-p", PROMPT, "-n", "24"];
    let with = |threads: &[&str], said: &str| {
        let run = run(&[&options[..], threads].concat());
        run.said(&[said]);
        run.stdout
    };
    let one = with(&["-t", "1"], "Threads: 1 (--threads 1), ");
    assert_eq!(with(&["-t", "3"], "Threads: 3 (--threads 3), "), one);
    let both = "Threads: 1 (--threads 1; --threads-batch 3), ";
    assert_eq!(with(&["-t", "1", "-tb", "3"], both), one);
}

#[test]
fn one_answer_in_the_chat_template() {
    let Some(model) = smollm2() else { return };
    let asked = |options: &[&str]| run(&[&["-m", &model, "--temp", "0"], options].concat());
    let options = ["-st", "-p", "What is 2+2?", "-n", "40"];
    let plain = asked(&options).stdout;
    assert!(plain.contains('4') && !plain.contains("<|im_end|>"), "{plain}");
    let special = asked(&[&options[..], &["-sp"]].concat()).stdout;
    assert_eq!(special, format!("{}<|im_end|>\n", plain.strip_suffix('\n').unwrap()));

    let shown = asked(&[&options[..], &["--verbose-prompt", "-sys", "Be brief."]].concat());
    shown.said(&["1 -> '<|im_start|>'", " brief'"]);

    // A template makes a question of the prompt, wherever it comes from.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "What is 2+2?").unwrap();
    for source in [["-p", "What is 2+2?"], ["-f", file.path().to_str().unwrap()]] {
        let run = asked(&[&source[..], &["-n", "40"]].concat());
        assert_eq!(run.stdout, plain);
        run.said(&["Chat: the prompt is a message in the model's template; -no-cnv continues it"]);
    }
    asked(&["-p", ""]).refused(2, &["the prompt is empty"]);

    asked(&["-no-cnv", "-sys", "x", "-p", "x"]).refused(2, &["-sys", "-no-cnv"]);
    asked(&["--chat-template", "{% if %}", "-p", "x"]).refused(2, &["--chat-template"]);
}

#[test]
fn escapes_are_processed_unless_disabled() {
    let Some(model) = smollm2() else { return };
    let echoed = |options: &[&str]| text(&model, &[&["-n", "0", "-p", r"a\tb"], options].concat());
    assert_eq!(echoed(&[]), "a\tb\n");
    assert_eq!(echoed(&["--no-escape"]), "a\\tb\n");
}

#[test]
fn a_closed_pipe_ends_the_text_quietly() {
    let Some(model) = smollm2() else { return };
    let (code, stderr) =
        with_closed_stdout(&["-m", &model, "-no-cnv", "-p", "Once upon a time", "-n", "400"]);
    assert_eq!(code, Some(0));
    assert!(!stderr.contains("error") && !stderr.contains("tokens/s"), "{stderr}");
}

/// Runs the program with a closed stdout; returns its exit code and stderr.
pub fn with_closed_stdout(arguments: &[&str]) -> (Option<i32>, String) {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("rope-cpu"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (child.wait().unwrap().code(), stderr)
}

#[test]
fn a_chat_template_that_fails_is_named() {
    let model = tiny_reader(1, true);
    let model = model.path().to_str().unwrap();
    run(&["-m", model, "--chat-template", "{{ nothing() }}", "-p", "x"])
        .refused(2, &["--chat-template: the chat template fails", "-no-cnv"]);

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("doubling.jinja");
    let doubling = "{% set ns = namespace(a='aaaaaaaaaa') %}{% for i in range(60) %}\
                    {% set ns.a = ns.a + ns.a %}{% endfor %}";
    for (source, reason) in [
        (doubling.into(), "too large"),
        (format!("{{{{ {}1 }}}}", "-".repeat(20_000)), "4000 words"),
    ] {
        std::fs::write(&file, source).unwrap();
        run(&["-m", model, "--chat-template-file", file.to_str().unwrap(), "-p", "x"])
            .refused(2, &["doubling.jinja", reason]);
    }
}

#[test]
fn a_vision_part_beside_the_text_is_named_and_ignored() {
    let [with, without] = [tiny_with_vision(3), tiny_reader(3, true)].map(|model| {
        let path = model.path().to_str().unwrap();
        let asked = run(&["-m", path, "-no-cnv", "-p", "the", "-n", "4", "--temp", "0"]);
        assert_eq!(asked.code, Some(0), "{}", asked.stderr);
        asked
    });
    with.said(&["warning: ", "its vision or audio part (2.0 KiB) is ignored: text only"]);
    assert!(!without.stderr.contains("vision"), "{}", without.stderr);
    assert_eq!(with.stdout, without.stdout);
}

#[test]
fn a_second_model_is_refused() {
    for command in [&["run", "-p", "a"][..], &["serve"]] {
        let run = run(&[command, &["-m", "a.gguf", "-m", "b.gguf"]].concat());
        run.refused(2, &["-m is given twice, as a.gguf and b.gguf", "remove one of them"]);
    }
}

/// OSC 0 would set the title of the terminal.
#[test]
fn escapes_of_a_file_do_not_reach_the_terminal() {
    let text = "x\x1b]0;title\x07\u{9b}2J\u{202e}";
    let key = |name: &str| Builder::new().key(name, STRING, string(text)).file();
    let tensor = tiny_with_tensor(7, text);
    let plain = tiny_reader(7, true);
    let template = format!("{{{{ raise_exception('{text}') }}}}");
    let architecture = key("general.architecture");
    let unknown = format!("{{{{ '{text}' | no_filter }}}}");
    let of = |file: &NamedTempFile| file.path().to_str().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("q.gguf").to_str().unwrap().to_string();
    let generate = ["-p", "a", "-n", "1"];
    for (file, args) in [
        (&tensor, &["-m", "FILE", generate[0], generate[1]][..]),
        (&architecture, &["-m", "FILE", generate[0], generate[1]]),
        (&plain, &["-m", "FILE", "-p", "a", "-n", "1", "--chat-template", &template]),
        (&plain, &["-m", "FILE", "-p", "a", "-n", "1", "--chat-template", &unknown]),
        (&tensor, &["inspect", "FILE"]),
        (&architecture, &["inspect", "FILE"]),
        (&tensor, &["quantize", "FILE", &target, "q8_0"]),
        (&tensor, &["rope", "explain", "-m", "FILE"]),
    ] {
        let args: Vec<_> = args.iter().map(|arg| arg.replace("FILE", &of(file))).collect();
        let Run { stdout, stderr, .. } = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let shown = stdout + &stderr;
        let is_raw = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!shown.contains(is_raw), "{args:?}: {shown:?}");
    }
    let shown = run(&["-m", &of(&tensor), "-p", "a"]).stderr;
    assert!(shown.contains(r"tensor x\u{1b}]0;title\u{7}\u{9b}2J\u{202e}"), "{shown}");
}
