//! The options of llama.cpp's programs that rope-cpu does not have, by program. Options that do not
//! change results are ignored with a note; the others are rejected by name.

mod bench;
mod cli;
mod server;

use std::ffi::OsStr;

use indexmap::{IndexMap, IndexSet};

use super::error::Error;

/// A program of llama.cpp, with the command lines that a command accepts.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    name: &'static str,
    /// The first table with an option decides its treatment.
    tables: &'static [&'static [Entry]],
}

/// Names separated by spaces, the values that they take, and the treatment. The value of a rejected
/// option is not read.
type Entry = (&'static str, Value, Treatment);

/// The treatment of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Ignored, with a note that starts with this text. Results are the same without the option.
    Ignored(&'static str),
    /// Rejected, with a hint on what to do instead, which may be empty. The option's environment
    /// variable, which other programs share, is ignored with a note.
    Unsupported(&'static str),
}

impl Treatment {
    /// The option is about GPUs.
    const GPU: Self = Self::Ignored("ignored, since rope-cpu runs on the CPU only");
    /// The option selects what rope-cpu always does.
    const ALWAYS: Self = Self::Ignored("ignored, since this is always the case in rope-cpu");
    /// The option selects how weights are loaded.
    const MAPPED: Self =
        Self::Ignored("ignored, since rope-cpu maps weights and uses them as they are stored");
    /// The option sets the processors or priorities of threads.
    const SCHEDULED: Self =
        Self::Ignored("ignored, since the operating system schedules the threads of rope-cpu");
    /// The option is about a log.
    const LOG: Self = Self::Ignored("ignored, since rope-cpu writes no log");
}

/// The values that an option accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// No value.
    No,
    /// Any value.
    Any,
    /// One of these values; the option is rejected with another one.
    OneOf(&'static [&'static str]),
    /// One of these values, or none.
    Optional(&'static [&'static str]),
}

impl Value {
    /// Returns whether the option takes the word after it, `next`, or `Err` with the supported
    /// values if another is given. `inline` is the value after an equals sign.
    fn takes_next(
        self,
        inline: Option<&str>,
        next: Option<&OsStr>,
    ) -> Result<bool, &'static [&'static str]> {
        let list = match self {
            Value::No => return Ok(false),
            Value::Any => return Ok(inline.is_none()),
            Value::OneOf(list) | Value::Optional(list) => list,
        };
        let Some(value) = inline.map(OsStr::new).or(next) else { return Ok(false) };
        if list.iter().any(|listed| value == *listed) {
            return Ok(inline.is_none());
        }
        let is_option = inline.is_none() && value.as_encoded_bytes().starts_with(b"-");
        let needs_none = matches!(self, Value::Optional(_));
        if needs_none && is_option { Ok(false) } else { Err(list) }
    }
}

impl Program {
    /// The program with most options.
    pub const CLI: Program = Program { name: "llama-cli", tables: &[cli::OPTIONS] };

    /// Returns the program with the command lines that a command of rope-cpu accepts.
    pub fn of(command: &str) -> Self {
        let (name, tables): (_, &[&[Entry]]) = match command {
            "embed" => ("llama-embedding", &[cli::OPTIONS]),
            "bench" => ("llama-bench", &[bench::OPTIONS]),
            "perplexity" => ("llama-perplexity", &[cli::OPTIONS]),
            "imatrix" => ("llama-imatrix", &[cli::OPTIONS]),
            "serve" | "open" | "launch" => ("llama-server", &[server::OPTIONS, cli::OPTIONS]),
            "rope-cpu" | "run" | "read" | "sweep" | "passkey" => return Self::CLI,
            _ => ("", &[]),
        };
        Program { name, tables }
    }

    /// Returns the values and the treatment of an option, if it is listed.
    pub fn find(&self, name: &str) -> Option<(Value, Treatment)> {
        let mut entries = self.tables.iter().copied().flatten();
        let entry = entries.find(|(names, ..)| names.split_whitespace().any(|n| n == name));
        entry.map(|&(_, value, treatment)| (value, treatment))
    }

    /// Returns the treatment of an option that is ignored, and whether it takes the word after it,
    /// `next`. `None` if the option is not listed. `inline` is the value after an equals sign.
    ///
    /// # Errors
    /// If the option or its value is not supported.
    pub fn ignored(
        &self,
        name: &str,
        inline: Option<&str>,
        next: Option<&OsStr>,
    ) -> Result<Option<(Treatment, bool)>, Error> {
        let Some((value, treatment)) = self.find(name) else { return Ok(None) };
        let refused = |hint: &str| {
            let program = self.name;
            let colon = if hint.is_empty() { "" } else { ": " };
            Error::usage(format_args!(
                "{name} is a {program} option that rope-cpu does not support{colon}{hint}"
            ))
        };
        match treatment {
            Treatment::Unsupported(hint) => Err(refused(hint)),
            Treatment::Ignored(_) => match value.takes_next(inline, next) {
                Ok(takes_next) => Ok(Some((treatment, takes_next))),
                Err(list) => {
                    Err(refused(&format!("only {name} {} is supported", list.join(" or "))))
                }
            },
        }
    }
}

/// Returns one note for each reason for which options were ignored.
pub fn notes(left_out: &[(String, Treatment)]) -> Vec<String> {
    let mut reasons: IndexMap<_, IndexSet<&str>> = IndexMap::new();
    for (name, treatment) in left_out {
        let reason = match treatment {
            Treatment::Ignored(reason) => *reason,
            Treatment::Unsupported(_) => "ignored, since rope-cpu does not support them",
        };
        reasons.entry(reason).or_default().insert(name);
    }
    let sentence = |(reason, names): (_, IndexSet<_>)| {
        format!("{reason}: {}", names.into_iter().collect::<Vec<_>>().join(", "))
    };
    reasons.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Treatment::Unsupported, Value::*, *};

    #[test]
    fn every_name_is_listed_once() {
        for table in [cli::OPTIONS, server::OPTIONS, bench::OPTIONS] {
            let mut seen = HashSet::new();
            for name in table.iter().flat_map(|(names, ..)| names.split_whitespace()) {
                assert!(name.starts_with('-') && seen.insert(name), "{name}");
            }
        }
    }

    #[test]
    fn names_are_found_whole() {
        assert_eq!(Program::CLI.find("-ngl"), Some((Any, Treatment::GPU)));
        assert_eq!(Program::CLI.find("-ng"), None);
        assert!(matches!(Program::CLI.find("--image"), Some((No, Unsupported(_)))));
        assert_eq!(Program::of("inspect").find("-ngl"), None);
    }

    #[test]
    fn a_value_is_taken_if_the_option_accepts_it() {
        let list = &["on", "1"][..];
        let cases = [
            (No, None, Some("on"), Ok(false)),
            (Any, None, Some("-x"), Ok(true)),
            (Any, Some("x"), Some("y"), Ok(false)),
            (OneOf(list), None, Some("on"), Ok(true)),
            (OneOf(list), None, Some("-x"), Err(list)),
            (OneOf(list), Some("1"), Some("on"), Ok(false)),
            (OneOf(list), None, None, Ok(false)),
            (Optional(list), None, Some("1"), Ok(true)),
            (Optional(list), None, Some("-x"), Ok(false)),
            (Optional(list), None, Some("off"), Err(list)),
            (Optional(list), Some("-x"), None, Err(list)),
        ];
        for (value, inline, next, expected) in cases {
            assert_eq!(value.takes_next(inline, next.map(OsStr::new)), expected, "{value:?}");
        }
    }
}
