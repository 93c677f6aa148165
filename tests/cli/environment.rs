//! Options that environment variables set.

use std::collections::BTreeSet;

use crate::cli::{Run, finish, rope_cpu};
use rope_cpu_testing::reader::tiny_reader;

#[track_caller]
fn with(variables: &[(&str, &str)], arguments: &[&str]) -> Run {
    let mut command = rope_cpu(arguments);
    command.envs(variables.iter().copied());
    finish(command)
}

#[test]
fn what_is_typed_goes_first_then_ours_then_llama_cpps() {
    let all = [("LLAMA_ARG_MODEL", "/no/llama.gguf"), ("ROPE_CPU_MODEL", "/no/ours.gguf")];
    with(&all, &["-m", "/no/typed.gguf"]).refused(2, &["/no/typed.gguf"]);
    with(&all, &["--model=/no/typed.gguf"]).refused(2, &["/no/typed.gguf"]);
    for command in [
        &[][..],
        &["run"],
        &["passkey"],
        &["sweep"],
        &["embed", "text"],
        &["tokenize", "-p", "text"],
        &["rope", "explain"],
        &["rope", "disturbance", "-c", "512"],
    ] {
        with(&all, command).refused(2, &["/no/ours.gguf"]);
        with(&all[..1], command).refused(2, &["/no/llama.gguf"]);
        with(&[all[0], ("ROPE_CPU_MODEL", "")], command).refused(2, &["/no/llama.gguf"]);
    }
}

#[test]
fn a_wrong_value_names_the_variable() {
    let wrong = [("LLAMA_ARG_THREADS", "many")];
    with(&wrong, &["embed", "-m", "x", "text"]).refused(2, &["LLAMA_ARG_THREADS"]);
    with(&wrong, &["-m", "x"])
        .refused(2, &["environment variable LLAMA_ARG_THREADS: invalid value 'many'"]);
    with(&wrong, &["-m", "/no/such.gguf", "-t", "1"]).refused(2, &["/no/such.gguf"]);
    let among_others = [("LLAMA_ARG_TOP_K", "4"), wrong[0], ("ROPE_CPU_ISA", "scalar")];
    with(&among_others, &["-m", "x"]).refused(2, &["environment variable LLAMA_ARG_THREADS: "]);
    // Errors in the command line have priority, and help is always printed.
    with(&wrong, &["-m", "x", "--no-such"]).refused(2, &["unexpected argument '--no-such'"]);
    assert_eq!(with(&wrong, &["--help"]).code, Some(0));
    with(&[("ROPE_CPU_ISA", "mmx")], &["bench", "-m", "x"])
        .refused(2, &["environment variable ROPE_CPU_ISA: ", "scalar"]);
    // Commands where the options have another meaning ignore the variables.
    with(&wrong, &["inspect", "/no/such.gguf"]).refused(2, &["error: /no/such.gguf"]);
}

#[test]
fn what_excludes_a_typed_option_gives_way_to_it() {
    let file = [("ROPE_CPU_SYSTEM_PROMPT_FILE", "/no/such.txt")];
    let model = [("ROPE_CPU_MODEL", "/no/such.gguf")];
    assert_eq!(with(&model, &["rope", "disturbance", "--table3"]).code, Some(0));
    with(&file, &["-m", "/no/such.gguf", "-sys", "text"]).refused(2, &["/no/such.gguf"]);
    let both = [("ROPE_CPU_SYSTEM_PROMPT_FILE", "x"), ("ROPE_CPU_SYSTEM_PROMPT", "text")];
    with(&both, &["-m", "x"])
        .refused(2, &["environment variable ", both[0].0, both[1].0, "cannot be used"]);
}

#[test]
fn what_is_typed_wins_in_every_spelling_and_the_last_of_it() {
    let variables = [("LLAMA_ARG_N_PREDICT", "3"), ("ROPE_CPU_CTX_SIZE", "many")];
    for predict in [&["-n5"][..], &["-n", "5"], &["--n-predict=5"], &["-n", "4", "-n", "5"]] {
        let typed = [&["-m", "/no/such.gguf", "-p", "hi"], predict].concat();
        for context in ["-c512", "-c=512", "--ctx-size=512"] {
            let all = [&typed[..], &[context]].concat();
            with(&[variables[0], ("ROPE_CPU_CTX", "9")], &all).refused(2, &["/no/such.gguf"]);
        }
        // The variable is used if the option is not given.
        with(&variables, &typed).refused(2, &["environment variable ROPE_CPU_CTX_SIZE: "]);
    }
    let shift = [("LLAMA_ARG_CONTEXT_SHIFT", "maybe")];
    with(&shift, &["-m", "x"]).refused(2, &["LLAMA_ARG_CONTEXT_SHIFT", "must be on or off"]);
}

#[test]
fn values_are_shown_with_what_set_them() {
    let model = tiny_reader(1, true);
    let arguments = ["-m", model.path().to_str().unwrap(), "--dry-run"];
    let shown = |variables: &[(&str, &str)], more: &[&str]| {
        let run = with(variables, &[&arguments, more].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stdout
    };
    let variable = [("LLAMA_ARG_CTX_SIZE", "128")];
    let context = "context 128 (LLAMA_ARG_CTX_SIZE=128)";
    assert!(shown(&variable, &[]).contains(context), "{}", shown(&variable, &[]));
    let typed = shown(&variable, &["-c", "64"]);
    assert!(typed.contains("context 64 (--ctx 64)"), "{typed}");
    let list = "llama.rope.freq_base=float:20000,llama.context_length=int:512";
    let changed = shown(&[], &["--override-kv", list]);
    for part in [
        "base 20000 (--override-kv llama.rope.freq_base)",
        "trained context 512 (--override-kv llama.context_length)",
        "a context of 512 (--override-kv llama.context_length)",
    ] {
        assert!(changed.contains(part), "{part} is not in:\n{changed}");
    }
    assert!(!shown(&[], &[]).contains("--override-kv"));
    for report in [&["explain"][..], &["explain", "--json"], &["compare", "--json"]] {
        let typed = [&["rope"], report, &arguments[..2], &["--override-kv", list]].concat();
        let run = with(&[], &typed);
        assert!(run.stdout.contains("--override-kv llama.rope.freq_base"), "{}", run.stdout);
        assert!(!run.stdout.contains('`'), "{report:?}: {}", run.stdout);
    }
}

#[test]
fn switches_are_on_or_off() {
    let model = tiny_reader(1, true);
    let arguments = ["-m", model.path().to_str().unwrap(), "-p", "the", "-n", "2", "-no-cnv"];
    let shows = |variables: &[(&str, &str)]| {
        let run = with(variables, &arguments);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stderr.contains("tokens/s")
    };
    assert!(shows(&[]));
    assert!(shows(&[("LLAMA_ARG_SHOW_TIMINGS", "on")]));
    assert!(shows(&[("ROPE_CPU_NO_SHOW_TIMINGS", "off")]));
    assert!(!shows(&[("LLAMA_ARG_SHOW_TIMINGS", "0")]));
    assert!(!shows(&[("LLAMA_ARG_NO_SHOW_TIMINGS", "1")]));
    assert!(!shows(&[("ROPE_CPU_NO_SHOW_TIMINGS", "true")]));
    with(&[("ROPE_CPU_NO_SHOW_TIMINGS", "maybe")], &arguments).refused(
        2,
        &["environment variable ROPE_CPU_NO_SHOW_TIMINGS is \"maybe\"", "must be on or off"],
    );
}

#[test]
fn the_long_help_names_the_variables() {
    for command in [&["--help"][..], &["run", "--help"], &["perplexity", "--help"]] {
        let help = with(&[], command).stdout;
        for variable in ["[env: LLAMA_ARG_CTX_SIZE]", "[env: LLAMA_ARG_ROPE_SCALING_TYPE]"] {
            assert!(help.contains(variable), "{variable} is not in:\n{help}");
        }
    }
    assert!(with(&[], &["--help"]).stdout.contains("ROPE_CPU_ and its long name"));
    assert!(!with(&[], &["-h"]).stdout.contains("LLAMA_ARG"));
}

#[test]
fn these_variables_of_llama_cpp_are_read() {
    const READ: [&str; 43] = [
        "LLAMA_ARG_BATCH",
        "LLAMA_ARG_CACHE_TYPE_K",
        "LLAMA_ARG_CACHE_TYPE_V",
        "LLAMA_ARG_CHAT_TEMPLATE",
        "LLAMA_ARG_CHAT_TEMPLATE_FILE",
        "LLAMA_ARG_CHAT_TEMPLATE_KWARGS",
        "LLAMA_ARG_CONTEXT_SHIFT",
        "LLAMA_ARG_CTX_SIZE",
        "LLAMA_ARG_FREQUENCY_PENALTY",
        "LLAMA_ARG_GRP_ATTN_N",
        "LLAMA_ARG_GRP_ATTN_W",
        "LLAMA_ARG_HF_FILE",
        "LLAMA_ARG_HF_REPO",
        "LLAMA_ARG_MIN_P",
        "LLAMA_ARG_MODEL",
        "LLAMA_ARG_MODELS_DIR",
        "LLAMA_ARG_MODELS_PRESET",
        "LLAMA_ARG_NO_CONTEXT_SHIFT",
        "LLAMA_ARG_NO_SHOW_TIMINGS",
        "LLAMA_ARG_N_PREDICT",
        "LLAMA_ARG_OFFLINE",
        "LLAMA_ARG_PRESENCE_PENALTY",
        "LLAMA_ARG_REPEAT_PENALTY",
        "LLAMA_ARG_ROPE_FREQ_BASE",
        "LLAMA_ARG_ROPE_FREQ_SCALE",
        "LLAMA_ARG_ROPE_SCALE",
        "LLAMA_ARG_ROPE_SCALING_TYPE",
        "LLAMA_ARG_SHOW_TIMINGS",
        "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K",
        "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V",
        "LLAMA_ARG_SPEC_DRAFT_MODEL",
        "LLAMA_ARG_SPEC_DRAFT_N_MAX",
        "LLAMA_ARG_SPEC_TYPE",
        "LLAMA_ARG_TEMPERATURE",
        "LLAMA_ARG_THREADS",
        "LLAMA_ARG_TOP_K",
        "LLAMA_ARG_TOP_P",
        "LLAMA_ARG_UBATCH",
        "LLAMA_ARG_YARN_ATTN_FACTOR",
        "LLAMA_ARG_YARN_BETA_FAST",
        "LLAMA_ARG_YARN_BETA_SLOW",
        "LLAMA_ARG_YARN_EXT_FACTOR",
        "LLAMA_ARG_YARN_ORIG_CTX",
    ];
    let help = with(&[], &["--help"]).stdout;
    let shown = help.split("[env: LLAMA_ARG_").skip(1).filter_map(|rest| rest.split_once(']'));
    let shown: BTreeSet<_> = shown.map(|(ending, _)| format!("LLAMA_ARG_{ending}")).collect();
    assert!(shown.iter().eq(READ.iter()), "{shown:#?}");
}

#[test]
fn variables_without_an_option_are_noted_and_ignored() {
    let model = tiny_reader(1, true);
    let arguments = ["-m", model.path().to_str().unwrap(), "-p", "the", "-n", "1"];
    let notes = |variables: &[(&str, &str)], arguments: &[&str]| -> Vec<String> {
        let run = with(variables, arguments);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let notes = run.stderr.lines().filter_map(|line| line.strip_prefix("note: "));
        notes.map(String::from).collect()
    };
    let gpu = "ignored, since rope-cpu runs on the CPU only: ";
    let always = "ignored, since this is always the case in rope-cpu: ";
    let mapped = "ignored, since rope-cpu maps weights and uses them as they are stored: ";
    let scheduled = "ignored, since the operating system schedules the threads of rope-cpu: ";
    let cache = "ignored, since the KV cache of rope-cpu has another layout: ";
    let missing = "ignored, since rope-cpu does not support them: ";
    for (name, value, reason) in [
        ("N_GPU_LAYERS", "99", gpu),
        ("KV_OFFLOAD", "off", gpu),
        ("CPU_MOE", "1", gpu),
        ("FIT", "off", gpu),
        ("FLASH_ATTN", "on", always),
        ("FLASH_ATTN", "true", always),
        ("FLASH_ATTN", "auto", always),
        ("FLASH_ATTN", "off", missing),
        ("MMAP", "1", always),
        ("MMAP", "0", mapped),
        ("NO_MMAP", "0", mapped),
        ("MLOCK", "1", mapped),
        ("PERF", "off", always),
        ("PERF", "on", missing),
        ("REPACK", "disabled", always),
        ("N_PARALLEL", "1", always),
        ("N_PARALLEL", "4", missing),
        ("LOAD_MODE", "mmap", mapped),
        ("LOAD_MODE", "mlock", mapped),
        ("NUMA", "distribute", scheduled),
        ("CACHE_RAM", "0", cache),
        ("DRAFT_MAX", "4", missing),
        ("PORT", "8080", missing),
    ] {
        let variable = format!("LLAMA_ARG_{name}");
        let found = notes(&[(&variable, value)], &arguments);
        assert_eq!(found, [format!("{reason}{variable}")], "{value}");
    }
    let all = [
        ("LLAMA_ARG_NUMA", "numactl"),
        ("LLAMA_ARG_PORT", "512"),
        ("LLAMA_ARG_DRAFT_MAX", "4"),
        ("LLAMA_ARG_MLOCK", ""),
        ("LLAMA_ARG_TOP_K", "3"),
        ("LLAMA_ARG_DEVICE", "none"),
        ("LLAMA_CACHE", "/no/such"),
    ];
    let expected = [
        format!("{gpu}LLAMA_ARG_DEVICE"),
        format!("{missing}LLAMA_ARG_DRAFT_MAX, LLAMA_ARG_PORT"),
        format!("{scheduled}LLAMA_ARG_NUMA"),
    ];
    assert_eq!(notes(&all, &arguments), expected);
    // Commands without a counterpart in llama.cpp print no note.
    let inspect = ["inspect", model.path().to_str().unwrap()];
    assert!(notes(&all, &inspect).is_empty());
    // All commands report unknown variables with rope-cpu's prefix, but not the variables of other
    // commands.
    let ours = [
        ("ROPE_CPU_CTXSIZE", "8"),
        ("ROPE_CPU_STOPP", "x"),
        ("ROPE_CPU_CTX_SIZE", "64"),
        ("ROPE_CPU_STOP", "x"),
        ("ROPE_CPU_ISA", "scalar"),
        ("ROPE_CPU_LENGTHS", "8"),
        ("ROPE_CPU_NO", ""),
    ];
    let unknown = "ignored, since rope-cpu has no such option: ";
    let expected = [format!("{unknown}ROPE_CPU_CTXSIZE, ROPE_CPU_STOPP")];
    assert_eq!(notes(&ours, &arguments), expected);
    assert_eq!(notes(&ours, &inspect), expected);
}
