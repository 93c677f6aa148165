//! The names of an option, all in its definition:
//!
//! ```text
//! /// Micro-batch size in tokens
//! #[arg(long, aliases = ["-ub", "LLAMA_ARG_UBATCH"], value_name = "N")]
//! pub ubatch_size: usize,
//! ```
//!
//! - An alias that starts with a dash is a short option of several letters.
//! - An alias that starts with `LLAMA_ARG_` is llama.cpp's environment variable.
//! - Any other alias is a long option, and only these reach clap ([`for_clap`]).
//!
//! Help texts, the rewriting of command lines ([`argv`](super::argv)) and the environment variables
//! follow from these names.

use clap::{
    Arg, Command,
    builder::{Resettable, Str},
};

/// The prefix of llama.cpp's environment variables.
pub const VARIABLE: &str = "LLAMA_ARG_";

fn aliases(option: &Arg) -> impl Iterator<Item = &str> {
    option.get_all_aliases().unwrap_or_default().into_iter()
}

fn is_long(alias: &str) -> bool {
    !alias.starts_with('-') && !alias.starts_with(VARIABLE)
}

/// Returns the long names, without dashes, the main one first.
pub fn longs(option: &Arg) -> impl Iterator<Item = &str> {
    option.get_long().into_iter().chain(aliases(option).filter(|alias| is_long(alias)))
}

/// Returns the short forms of several letters: `-ctk`.
pub fn several_letters(option: &Arg) -> impl Iterator<Item = &str> {
    aliases(option).filter(|alias| alias.starts_with('-'))
}

/// Returns llama.cpp's environment variable, if it has one for the option.
pub fn variable(option: &Arg) -> Option<&str> {
    aliases(option).find(|alias| alias.starts_with(VARIABLE))
}

/// Returns the option of a command that a word of the command line names.
pub fn find<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let mut letters = word.chars().skip(1);
    let letter = letters.next().filter(|_| letters.next().is_none());
    // -h is shorter than --help, so it is not replaced.
    let letter = letter.filter(|letter| *letter != 'h');
    command.get_arguments().find(|option| match word.strip_prefix("--") {
        Some(long) => longs(option).any(|name| name == long),
        None => {
            letter.is_some() && option.get_short() == letter
                || several_letters(option).any(|name| name == word)
        }
    })
}

/// Changes the options of a command and its subcommands. `change` also gets the command's name.
pub fn change(command: Command, change: &impl Fn(&str, Arg) -> Arg) -> Command {
    let name = command.get_name().to_string();
    command
        .mut_args(|option| change(&name, option))
        .mut_subcommands(|command| self::change(command, change))
}

/// Shows the first short form of several letters in the summary of an option, before the default.
pub fn shown(option: Arg) -> Arg {
    let Some(letters) = several_letters(&option).next().map(|name| format!(" [{name}]")) else {
        return option;
    };
    let with_letters = |help: String| {
        let end = help.find('\n').unwrap_or(help.len());
        let end = help[..end].find(" [default").unwrap_or(end);
        format!("{}{letters}{}", &help[..end], &help[end..])
    };
    let short = option.get_help().map(|help| with_letters(help.to_string()));
    let long = option.get_long_help().map(|help| with_letters(help.to_string()));
    let option = option.help(short.unwrap_or_default());
    match long {
        Some(long) => option.long_help(long),
        None => option,
    }
}

/// Removes names that are not long options, so that clap neither accepts nor proposes them.
pub fn for_clap(command: Command) -> Command {
    change(command, &|_, option| {
        let kept: Vec<Str> =
            longs(&option).skip(1).map(|name| Str::from(name.to_string())).collect();
        option.alias(Resettable::Reset).aliases(kept)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let option = Arg::new("k").short('k').long("cache-k");
        let option = option.aliases(["-ctk", "cache-type-k", "LLAMA_ARG_CACHE_K", "-ck"]);
        let help = ["Type of keys [default: f16]", "Type of keys\n\nMore [default: f16]"];
        let [short, long] = help.map(String::from);
        Command::new("program")
            .subcommand(Command::new("run").arg(shown(option.help(short).long_help(long))))
    }

    #[test]
    fn the_form_of_an_alias_tells_what_it_names() {
        let command = command();
        let run = command.find_subcommand("run").unwrap();
        for word in ["-k", "-ctk", "-ck", "--cache-k", "--cache-type-k"] {
            assert!(find(run, word).is_some(), "{word}");
        }
        for word in ["-c", "-ctkk", "--ctk", "---ctk", "--LLAMA_ARG_CACHE_K", "-cache-k", "-h"] {
            assert!(find(run, word).is_none(), "{word}");
        }
        assert_eq!(variable(find(run, "-k").unwrap()), Some("LLAMA_ARG_CACHE_K"));
    }

    #[test]
    fn the_first_short_form_of_several_letters_stands_in_the_summary() {
        let command = command();
        let option = find(command.find_subcommand("run").unwrap(), "-k").unwrap();
        let short = option.get_help().unwrap().to_string();
        assert_eq!(short, "Type of keys [-ctk] [default: f16]");
        let long = option.get_long_help().unwrap().to_string();
        assert_eq!(long, "Type of keys [-ctk]\n\nMore [default: f16]");
    }

    #[test]
    fn clap_gets_the_long_options() {
        let parses = |word: &str| {
            for_clap(command())
                .try_get_matches_from(["program", "run", &format!("{word}=x")])
                .is_ok()
        };
        assert!(parses("--cache-k") && parses("--cache-type-k") && parses("-k"));
        assert!(!parses("---ctk") && !parses("--LLAMA_ARG_CACHE_K"));
    }
}
