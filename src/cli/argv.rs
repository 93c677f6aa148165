//! Conversion of a command line in llama-cli's form to one that clap parses.
//!
//! llama-cli has short options of several letters (`-ctk`), takes the next argument as the value of an
//! option even if it begins with a dash (`-n -1`, `-p "- a list"`), and has many options about GPUs.
//! Each option of rope-cpu becomes `--its-long-name=value`, and llama-cli's other options are ignored
//! or rejected. `bench` treats llama-bench's options in this way, and those of llama-batched-bench, and `perplexity` llama-perplexity's.
//! All commands accept the short options of several letters. In `run`, the path of a model may be
//! given without `-m`. `help COMMAND` becomes `COMMAND --help`.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Read,
    path::Path,
};

use clap::{Arg, Command};

use super::{
    environment,
    error::Error,
    llama_bench,
    llama_cli::{self, Treatment, Value},
    llama_server,
};

/// Short options of several letters, with their long options.
pub const SHORT_FORMS: &[(&str, &str)] = &[
    ("-hf", "hf-repo"),
    ("-hfr", "hf-repo"),
    ("-hff", "hf-file"),
    ("-hft", "hf-token"),
    ("-sys", "system-prompt"),
    ("-sysf", "system-prompt-file"),
    ("-cnv", "conversation"),
    ("-no-cnv", "no-conversation"),
    ("-st", "single-turn"),
    ("-sp", "special"),
    ("-ub", "ubatch-size"),
    ("-ctk", "cache-type-k"),
    ("-ctv", "cache-type-v"),
    ("-gan", "grp-attn-n"),
    ("-gaw", "grp-attn-w"),
    ("-co", "color"),
    ("-jf", "json-schema-file"),
    ("-pg", "prompt-gen"),
    ("-npp", "n-prompt"),
    ("-ntg", "n-gen"),
    ("-npl", "n-parallel"),
    ("-pps", "shared-prompt"),
    ("-oe", "output-err"),
    ("-np", "parallel"),
    ("-cram", "cache-ram"),
    ("-to", "timeout"),
    ("-lv", "log-verbosity"),
    ("-rea", "reasoning"),
    ("-md", "spec-draft-model"),
    ("-ctkd", "spec-draft-type-k"),
    ("-ctvd", "spec-draft-type-v"),
];

/// Options whose value is free text, which may have the form of an option.
const FREE_TEXT: &[&str] = &[
    "prompt",
    "system-prompt",
    "reverse-prompt",
    "chat-template",
    "chat-template-kwargs",
    "dry-sequence-breaker",
    "grammar",
    "json-schema",
];

/// The options of a command, and those of the program whose command lines it accepts.
struct Dialect<'c> {
    command: &'c Command,
    /// The number of words that name the command, including the program's name.
    words: usize,
    program: &'static str,
    foreign: fn(&str) -> Option<(Value, Treatment)>,
}

impl<'c> Dialect<'c> {
    /// Returns the dialect of a command line, which starts with the program's name.
    fn of(root: &'c Command, argv: &[OsString]) -> Self {
        let (command, words) = environment::command_of(root, argv);
        let (program, foreign): (_, fn(&str) -> _) = match command.get_name() {
            "bench" => ("llama-bench", llama_bench::find),
            "perplexity" => ("llama-perplexity", llama_cli::find),
            "serve" | "open" => ("llama-server", llama_server::find),
            "rope-cpu" | "run" | "sweep" | "passkey" => ("llama-cli", llama_cli::find),
            _ => ("", |_| None),
        };
        Dialect { command, words, program, foreign }
    }
}

/// A command line for clap, and notes about ignored options.
#[derive(Debug, PartialEq, Eq)]
pub struct Normalized {
    /// The program's name and the arguments.
    pub argv: Vec<OsString>,
    /// The notes, of one sentence each.
    pub notes: Vec<String>,
}

/// Converts `argv`, which starts with the program's name, for `command`.
///
/// # Errors
/// If an option of the other program is not supported.
pub fn normalize(command: &Command, mut argv: Vec<OsString>) -> Result<Normalized, Error> {
    // clap's own help command would have a manual page for each of its subcommands.
    if argv.get(1).is_some_and(|word| word == "help") {
        argv.remove(1);
        argv.push("--help".into());
    }
    let dialect = Dialect::of(command, &argv);
    let mut typed = argv.into_iter().peekable();
    let mut argv: Vec<OsString> = typed.by_ref().take(1).collect();
    let mut left_out = Vec::new();
    let takes_file = matches!(dialect.command.get_name(), "rope-cpu" | "run" | "serve" | "open");
    let is_model = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"--model=");

    while let Some(arg) = typed.next() {
        if arg == "--" {
            argv.push(arg);
            argv.extend(typed);
            break;
        }
        let Some(text) = arg.to_str().filter(|text| text.len() > 1 && text.starts_with('-')) else {
            let may_be_model = takes_file && argv.len() >= dialect.words;
            let bare = may_be_model && !argv.iter().any(is_model) && is_gguf(arg.as_ref());
            argv.push(if bare { joined("model", &arg) } else { arg });
            continue;
        };
        let name = text.split_once('=').map_or(text, |(name, _)| name);
        let inline = name.len() < text.len();

        if let Some(option) = find(dialect.command, name) {
            let long = option.get_long().unwrap_or_default();
            let follows =
                !inline && typed.peek().is_some_and(|next| is_value(&dialect, option, long, next));
            argv.push(match typed.next_if(|_| follows) {
                Some(value) => joined(long, &value),
                None if inline => format!("--{long}{}", &text[name.len()..]).into(),
                None => format!("--{long}").into(),
            });
            continue;
        }
        let Some((value, treatment)) = (dialect.foreign)(name) else {
            argv.push(arg); // clap reports the error
            continue;
        };
        let refused = |hint: &str| {
            let hint = if hint.is_empty() { String::new() } else { format!(": {hint}") };
            Error::usage(format_args!(
                "{name} is a {} option that rope-cpu does not support{hint}",
                dialect.program
            ))
        };
        if let Treatment::Unsupported(hint) = treatment {
            return Err(refused(hint));
        }
        let is_listed = |list: &[&str], value: &OsStr| list.iter().any(|v| value == *v);
        match value {
            Value::OneOf(list) | Value::Optional(list) if inline => {
                if !is_listed(list, OsStr::new(&text[name.len() + 1..])) {
                    return Err(refused(&format!(
                        "only {name} {} is supported",
                        list.join(" or ")
                    )));
                }
            }
            _ if inline => {}
            Value::No => {}
            Value::Any => drop(typed.next()),
            Value::OneOf(list) => {
                if typed.next().is_some_and(|value| !is_listed(list, &value)) {
                    return Err(refused(&format!(
                        "only {name} {} is supported",
                        list.join(" or ")
                    )));
                }
            }
            Value::Optional(list) => match typed.peek() {
                Some(next) if is_listed(list, next) => drop(typed.next()),
                Some(next) if !next.as_encoded_bytes().starts_with(b"-") => {
                    return Err(refused(&format!(
                        "only {name} {} is supported",
                        list.join(" or ")
                    )));
                }
                _ => {}
            },
        }
        left_out.push((name.to_string(), treatment));
    }
    Ok(Normalized { argv, notes: llama_cli::notes(&left_out) })
}

/// Returns whether a word is the path of a model, by its extension or the first bytes of the file.
fn is_gguf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let mut begins_so = || {
        // Opening a pipe could block.
        let read = path.is_file().then(|| File::open(path)?.read_exact(&mut magic));
        matches!(read, Some(Ok(()))) && magic == *b"GGUF"
    };
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf")) || begins_so()
}

/// Returns the option of `command` that has this name, short form or alias.
fn find<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    let has = |long: &str| {
        command.get_arguments().find(|arg| {
            arg.get_long() == Some(long)
                || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&long))
        })
    };
    if let Some(long) = name.strip_prefix("--") {
        return has(long);
    }
    if let Some((_, long)) = SHORT_FORMS.iter().find(|(short, _)| *short == name) {
        return has(long);
    }
    let mut letters = name.chars().skip(1);
    match (letters.next(), letters.next()) {
        // -h is shorter than --help, so it is not replaced.
        (Some(letter), None) if letter != 'h' => {
            command.get_arguments().find(|arg| arg.get_short() == Some(letter))
        }
        _ => None,
    }
}

/// Returns whether `next` is the value of the `option` before it.
fn is_value(dialect: &Dialect<'_>, option: &Arg, long: &str, next: &OsStr) -> bool {
    let Some(range) = option.get_num_args().filter(|range| range.takes_values()) else {
        return false;
    };
    let text = next.to_string_lossy();
    if range.min_values() == 0 {
        return option.get_possible_values().iter().any(|v| v.matches(&text, false));
    }
    // If the value is missing, an error is better than the next option as the value.
    let is_option = text.starts_with('-')
        && (find(dialect.command, &text).is_some() || (dialect.foreign)(&text).is_some());
    FREE_TEXT.contains(&long) || !is_option
}

fn joined(long: &str, value: &OsStr) -> OsString {
    let mut arg = OsString::from(format!("--{long}="));
    arg.push(value);
    arg
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::cli::command;

    fn dialects(command: &Command) -> [Dialect<'_>; 4] {
        ["run", "serve", "bench", "sweep"]
            .map(|name| Dialect::of(command, &["rope-cpu", name].map(Into::into)))
    }

    fn normalized(typed: &[&str]) -> Result<(Vec<String>, Vec<String>), String> {
        let argv = ["rope-cpu"].iter().chain(typed).map(OsString::from).collect();
        normalize(&command(), argv)
            .map(|n| {
                let argv = n.argv.into_iter().skip(1).map(|a| a.into_string().unwrap()).collect();
                (argv, n.notes)
            })
            .map_err(|e| e.to_string())
    }

    fn argv(typed: &[&str]) -> Vec<String> {
        let (argv, notes) = normalized(typed).unwrap();
        assert!(notes.is_empty(), "{notes:?}");
        argv
    }

    #[test]
    fn each_short_form_is_an_option_and_its_help_shows_the_first() {
        let command = command();
        let mut seen = HashSet::new();
        for (short, long) in SHORT_FORMS.iter().filter(|(_, long)| seen.insert(long)) {
            let dialects = dialects(&command);
            let options: Vec<_> =
                dialects.iter().filter_map(|dialect| find(dialect.command, short)).collect();
            assert!(!options.is_empty(), "--{long} is missing");
            for option in options {
                let help = option.get_help().unwrap().to_string();
                assert!(help.contains(&format!("[{short}]")), "{long}: {help}");
            }
        }
    }

    #[test]
    fn values_are_assigned_as_in_llama_cli() {
        assert_eq!(argv(&["-m", "x", "-n", "-1"]), ["--model=x", "--predict=-1"]);
        assert_eq!(argv(&["-p", "-st"]), ["--prompt=-st"]);
        assert_eq!(argv(&["-p", "", "--ctx=7"]), ["--prompt=", "--ctx=7"]);
        assert_eq!(
            argv(&["-ctk", "q8_0", "-no-cnv"]),
            ["--cache-type-k=q8_0", "--no-conversation"]
        );
        assert_eq!(argv(&["--ctx-size", "9", "-c", "8"]), ["--ctx=9", "--ctx=8"]);
        assert_eq!(argv(&["--color", "-m", "x"]), ["--color", "--model=x"]);
        assert_eq!(argv(&["-co", "off"]), ["--color=off"]);
        assert_eq!(argv(&["--stop", "-"]), ["--reverse-prompt=-"]);
    }

    #[test]
    fn a_forgotten_value_does_not_swallow_the_next_option() {
        assert_eq!(argv(&["-m", "-p", "x"]), ["--model", "--prompt=x"]);
    }

    #[test]
    fn gpu_options_are_ignored_with_one_note() {
        let typed = ["-ngl", "99", "-m", "x", "--no-host", "-sm", "row", "-ngl", "0"];
        let (argv, notes) = normalized(&typed).unwrap();
        assert_eq!(argv, ["--model=x"]);
        assert_eq!(notes, ["ignored, since rope-cpu runs on the CPU only: -ngl, --no-host, -sm"]);
    }

    #[test]
    fn options_for_what_is_always_done_are_ignored_and_their_opposites_rejected() {
        let (argv, notes) = normalized(&["-fa", "on", "--mmap", "-fa", "-m", "x"]).unwrap();
        assert_eq!(argv, ["--model=x"]);
        assert_eq!(notes, ["ignored, since this is always the case in rope-cpu: -fa, --mmap"]);
        for refused in [["-fa", "off"], ["-np", "2"]] {
            for typed in [&refused[..], &[&refused.join("=")]] {
                let message = normalized(typed).unwrap_err();
                assert!(message.starts_with(&format!("{} is a llama-cli option", refused[0])));
            }
        }
        assert_eq!(normalized(&["--flash-attn=on", "-m", "x"]).unwrap().0, ["--model=x"]);
    }

    #[test]
    fn options_that_do_not_change_the_text_are_ignored_with_the_reason() {
        let typed = "--mlock --no-mmap -lm mlock -tb 4 --prio 2 --numa distribute -C 0xff --poll 0 \
                     --swa-full -dt 0.1 --log-disable -v -lv 3 --log-colors off --log-file x \
                     --simple-io --warmup -m x";
        let (argv, notes) = normalized(&typed.split_whitespace().collect::<Vec<_>>()).unwrap();
        assert_eq!(argv, ["--model=x"]);
        assert_eq!(
            notes,
            [
                "ignored, since rope-cpu maps weights and uses them as they are stored: --mlock, \
                 --no-mmap, -lm",
                "ignored, since -t sets the threads for both prompts and answers: -tb",
                "ignored, since the operating system schedules the threads of rope-cpu: --prio, \
                 --numa, -C, --poll",
                "ignored, since the KV cache of rope-cpu has another layout: --swa-full, -dt",
                "ignored, since rope-cpu writes no log: --log-disable, -v, -lv, --log-colors, \
                 --log-file",
                "ignored, since rope-cpu detects terminals: --simple-io",
                "ignored, since only bench and sweep have a warm-up: --warmup",
            ]
        );
    }

    #[test]
    fn the_path_of_a_model_may_stand_alone() {
        assert_eq!(argv(&["a.gguf"]), ["--model=a.gguf"]);
        assert_eq!(
            argv(&["run", "-n", "5", "b/a.GGUF"]),
            ["run", "--predict=5", "--model=b/a.GGUF"]
        );
        // Only the first is a model, and the value of an option is not.
        assert_eq!(argv(&["a.gguf", "b.gguf"]), ["--model=a.gguf", "b.gguf"]);
        assert_eq!(argv(&["-m", "a.gguf", "b.gguf"]), ["--model=a.gguf", "b.gguf"]);
        assert_eq!(argv(&["inspect", "a.gguf"]), ["inspect", "a.gguf"]);
        assert_eq!(argv(&["no-such-command"]), ["no-such-command"]);
        let folder = tempfile::tempdir().unwrap();
        for (bytes, is_model) in [(&b"GGUF and more"[..], true), (b"GGU", false), (b"other", false)]
        {
            let path = folder.path().join("model");
            std::fs::write(&path, bytes).unwrap();
            let path = path.to_str().unwrap();
            let expected = if is_model { format!("--model={path}") } else { path.into() };
            assert_eq!(argv(&[path]), [expected]);
        }
    }

    #[test]
    fn an_unsupported_option_is_rejected_by_name() {
        let message = normalized(&["--image", "x.png"]).unwrap_err();
        assert_eq!(
            message,
            "--image is a llama-cli option that rope-cpu does not support: models read text only, no \
             images, sounds or videos"
        );
        let message = normalized(&["-m", "x", "-mu=y"]).unwrap_err();
        assert!(message.contains("-mu is a llama-cli option"), "{message}");
        assert!(message.ends_with("give a file with -m"), "{message}");
    }

    #[test]
    fn no_option_of_rope_cpu_is_listed_as_unsupported() {
        let command = command();
        let [run, _, bench, _] = dialects(&command); // sweep is like run, but with -o
        for dialect in [run, bench] {
            for arg in dialect.command.get_arguments() {
                let long = arg.get_long().into_iter().map(|long| format!("--{long}"));
                let short = arg.get_short().into_iter().map(|short| format!("-{short}"));
                for name in long.chain(short) {
                    assert_eq!((dialect.foreign)(&name), None, "{name}");
                }
            }
            let short_forms = SHORT_FORMS.iter().map(|(short, _)| short);
            for short in short_forms.filter(|short| find(dialect.command, short).is_some()) {
                assert_eq!((dialect.foreign)(short), None, "{short}");
            }
        }
    }

    #[test]
    fn bench_takes_the_options_of_llama_bench() {
        let typed = ["bench", "-ngl", "99", "-p", "1,2", "-pg", "3,4", "-fa", "0,1", "-sm", "row"];
        let (argv, notes) = normalized(&typed).unwrap();
        assert_eq!(argv, ["bench", "--n-prompt=1,2", "--prompt-gen=3,4"]);
        assert_eq!(
            notes,
            [
                "ignored, since rope-cpu runs on the CPU only: -ngl, -sm",
                "ignored, since rope-cpu has only one kind of attention: -fa"
            ]
        );
        let message = normalized(&["bench", "--list-devices"]).unwrap_err();
        assert!(message.starts_with("--list-devices is a llama-bench option"), "{message}");
    }

    #[test]
    fn other_commands_and_what_follows_two_dashes_are_left_alone() {
        assert_eq!(argv(&["inspect", "-ngl"]), ["inspect", "-ngl"]);
        assert_eq!(argv(&["tokenize", "-hf", "x"]), ["tokenize", "--hf-repo=x"]);
        assert_eq!(argv(&["rope", "explain", "-hfr", "x"]), ["rope", "explain", "--hf-repo=x"]);
        assert_eq!(argv(&["run", "-st", "--", "-st"]), ["run", "--single-turn", "--", "-st"]);
        assert_eq!(argv(&["--no-such-thing", "-", "-h"]), ["--no-such-thing", "-", "-h"]);
    }
}
