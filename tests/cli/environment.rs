//! Options that environment variables set.

use crate::{Run, finish, rope_cpu, tiny::tiny_reader};

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
    with(&wrong, &["-m", "x"])
        .refused(2, &["environment variable LLAMA_ARG_THREADS: invalid value 'many'"]);
    with(&wrong, &["-m", "/no/such.gguf", "-t", "1"]).refused(2, &["/no/such.gguf"]);
    let among_others = [("LLAMA_ARG_TOP_K", "4"), wrong[0], ("ROPE_CPU_ISA", "scalar")];
    with(&among_others, &["-m", "x"]).refused(2, &["environment variable LLAMA_ARG_THREADS: "]);
    // What is wrong with the command line is told first, and help is given in any case.
    with(&wrong, &["-m", "x", "--no-such"]).refused(2, &["unexpected argument '--no-such'"]);
    assert_eq!(with(&wrong, &["--help"]).code, Some(0));
    with(&[("ROPE_CPU_ISA", "mmx")], &["bench", "-m", "x"])
        .refused(2, &["environment variable ROPE_CPU_ISA: ", "scalar"]);
    // Commands whose options mean other things do not hear.
    with(&wrong, &["inspect", "/no/such.gguf"]).refused(2, &["error: /no/such.gguf"]);
}

#[test]
fn what_excludes_a_typed_option_gives_way_to_it() {
    let file = [("ROPE_CPU_FILE", "/no/such.txt")];
    let model = [("ROPE_CPU_MODEL", "/no/such.gguf")];
    assert_eq!(with(&model, &["rope", "disturbance", "--table3"]).code, Some(0));
    with(&file, &["-m", "/no/such.gguf", "-p", "text"]).refused(2, &["/no/such.gguf"]);
    let both = [file[0], ("ROPE_CPU_PROMPT", "text")];
    with(&both, &["-m", "x"]).refused(
        2,
        &["environment variable ", "ROPE_CPU_PROMPT", "ROPE_CPU_FILE", "cannot be used"],
    );
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
        // It is heard, where nothing is typed.
        with(&variables, &typed).refused(2, &["environment variable ROPE_CPU_CTX_SIZE: "]);
    }
    let shift = [("LLAMA_ARG_CONTEXT_SHIFT", "maybe")];
    with(&shift, &["-m", "x"]).refused(2, &["LLAMA_ARG_CONTEXT_SHIFT", "by on and off"]);
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
        &["environment variable ROPE_CPU_NO_SHOW_TIMINGS is \"maybe\"", "by on and off"],
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
