//! Rewrites a command line in llama.cpp's form to one that clap parses.
//!
//! llama.cpp's programs have short options of several letters (`-ctk`). The word after an option is
//! its value even if it starts with a dash (`-n -1`, `-p "- a list"`). clap has neither. Each
//! option becomes `--its-long-name=value` here, and [`llama`] drops or rejects options that
//! rope-cpu does not have. In `run`, `serve` and `launch`, a model needs no `-m`, and `help COMMAND` becomes
//! `COMMAND --help`.

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
    llama::{self, Program},
    names::find,
};

/// A command line for clap, and notes about ignored options.
#[derive(Debug, PartialEq, Eq)]
pub struct Normalized {
    /// The program's name and the arguments.
    pub argv: Vec<OsString>,
    /// The notes, one sentence each.
    pub notes: Vec<String>,
}

/// Converts `argv`, which starts with the program's name, for clap.
///
/// # Errors
/// If an option of llama.cpp's program is not supported.
pub fn normalize(root: &Command, mut argv: Vec<OsString>) -> Result<Normalized, Error> {
    // clap's own help command would have a manual page for each of its subcommands.
    if argv.get(1).is_some_and(|word| word == "help") {
        argv.remove(1);
        argv.push("--help".into());
    }
    let (command, words) = environment::command_of(root, &argv);
    let program = Program::of(command.get_name());
    let mut typed = argv.into_iter().peekable();
    let mut argv: Vec<OsString> = typed.by_ref().take(1).collect();
    let mut left_out = Vec::new();
    let takes_file = matches!(command.get_name(), "rope-cpu" | "run" | "serve" | "open" | "launch");
    let is_model = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"--model=");

    while let Some(arg) = typed.next() {
        if arg == "--" {
            argv.push(arg);
            argv.extend(typed);
            break;
        }
        let Some(text) = arg.to_str().filter(|text| text.len() > 1 && text.starts_with('-')) else {
            let may_be_model = takes_file && argv.len() >= words;
            let bare = may_be_model && !argv.iter().any(is_model) && is_gguf(arg.as_ref());
            argv.push(if bare { joined("model", &arg) } else { arg });
            continue;
        };
        let (name, inline) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let next = typed.peek().map(OsString::as_os_str);
        if let Some(option) = find(command, name) {
            let long = option.get_long().unwrap_or_default();
            let is_value = |next| is_value(command, program, option, next);
            let follows = inline.is_none() && next.is_some_and(is_value);
            let following = typed.next_if(|_| follows);
            let value = inline.map(OsStr::new).or(following.as_deref());
            argv.push(
                value.map_or_else(|| format!("--{long}").into(), |value| joined(long, value)),
            );
        } else if let Some((treatment, takes_next)) = program.ignored(name, inline, next)? {
            left_out.push((name.to_string(), treatment));
            typed.next_if(|_| takes_next);
        } else {
            argv.push(arg); // clap reports the error
        }
    }
    Ok(Normalized { argv, notes: llama::notes(&left_out) })
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

/// Returns whether `next` is the value of the `option` before it.
fn is_value(command: &Command, program: Program, option: &Arg, next: &OsStr) -> bool {
    let Some(range) = option.get_num_args().filter(|range| range.takes_values()) else {
        return false;
    };
    let text = next.to_string_lossy();
    if range.min_values() == 0 {
        return option.get_possible_values().iter().any(|v| v.matches(&text, false));
    }
    // If the value is missing, an error is better than the next option as the value.
    let is_option =
        text.starts_with('-') && (find(command, &text).is_some() || program.find(&text).is_some());
    option.is_allow_hyphen_values_set() || !is_option
}

fn joined(long: &str, value: &OsStr) -> OsString {
    let mut arg = OsString::from(format!("--{long}="));
    arg.push(value);
    arg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{command, names};

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
        let typed = "--mlock --no-mmap -lm mlock --prio 2 --numa distribute -C 0xff --poll 0 \
                     --swa-full -dt 0.1 --log-disable -v -lv 3 --log-colors off --log-file x \
                     --simple-io --warmup -m x";
        let (argv, notes) = normalized(&typed.split_whitespace().collect::<Vec<_>>()).unwrap();
        assert_eq!(argv, ["--model=x"]);
        assert_eq!(
            notes,
            [
                "ignored, since rope-cpu maps weights and uses them as they are stored: --mlock, \
                 --no-mmap, -lm",
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
        let root = command();
        // sweep is like run, but with -o
        for command in ["run", "bench"].map(|name| root.find_subcommand(name).unwrap()) {
            let program = Program::of(command.get_name());
            for option in command.get_arguments() {
                let long = option.get_long().into_iter().map(|long| format!("--{long}"));
                let short = option.get_short().map(|short| format!("-{short}"));
                let letters = names::several_letters(option).map(String::from);
                for name in long.chain(short).chain(letters) {
                    assert_eq!(program.find(&name), None, "{name}");
                }
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
