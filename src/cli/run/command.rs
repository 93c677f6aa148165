//! The commands of a conversation: lines that start with a slash.

use std::{env, path::PathBuf};

use rope_cpu::platform;
use rustyline::completion::unescape;

/// A command with its argument.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Answer the last question again.
    Regenerate,
    /// Change the last question.
    Edit,
    /// Remove the last turns.
    Undo(usize),
    /// Remove the oldest turns.
    Drop(usize),
    /// Remove all turns.
    Clear,
    /// Put the text of a file before the next question.
    Read(PathBuf),
    /// Go on with another model; without a name list them.
    Model(String),
    /// Set the system message; without a text show it.
    System(String),
    /// Set a value; without one show it, and without a name show all.
    Set(String),
    /// Show the model, the context, the RoPE plan, the speed and the memory.
    Stats,
    /// Write the conversation to a file.
    Save(PathBuf),
    /// Continue the conversation in a file.
    Load(PathBuf),
    /// Show the commands.
    Help,
    /// Exit.
    Exit,
}

/// A command with its names and its description.
struct Description {
    /// The name, then other names.
    names: &'static [&'static str],
    argument: Argument,
    help: &'static str,
}

/// The argument of a command.
enum Argument {
    /// Nothing.
    Nothing(fn() -> Command),
    /// A number of turns, 1 if it is omitted.
    Turns(fn(usize) -> Command),
    /// The path of a file.
    File(fn(PathBuf) -> Command),
    /// A text that may be empty.
    Text(fn(String) -> Command),
    /// The name of a setting and a value, or less.
    Setting(fn(String) -> Command),
    /// The optional name of a model.
    Model(fn(String) -> Command),
}

const COMMANDS: [Description; 14] = [
    Description {
        names: &["regen"],
        argument: Argument::Nothing(|| Command::Regenerate),
        help: "answer the last question again",
    },
    Description {
        names: &["edit"],
        argument: Argument::Nothing(|| Command::Edit),
        help: "change the last question and answer it again",
    },
    Description {
        names: &["undo"],
        argument: Argument::Turns(Command::Undo),
        help: "remove the last N questions with their answers",
    },
    Description {
        names: &["drop"],
        argument: Argument::Turns(Command::Drop),
        help: "remove the N oldest questions with their answers",
    },
    Description {
        names: &["clear"],
        argument: Argument::Nothing(|| Command::Clear),
        help: "remove all questions and answers",
    },
    Description {
        names: &["read"],
        argument: Argument::File(Command::Read),
        help: "put the text of a file before the next question",
    },
    Description {
        names: &["model"],
        argument: Argument::Model(Command::Model),
        help: "list the models, or go on with another one",
    },
    Description {
        names: &["system"],
        argument: Argument::Text(Command::System),
        help: "show or set the system message; none: remove it",
    },
    Description {
        names: &["set"],
        argument: Argument::Setting(Command::Set),
        help: "show the settings of answers, or set one",
    },
    Description {
        names: &["stats"],
        argument: Argument::Nothing(|| Command::Stats),
        help: "show the context, the RoPE plan, speed and memory",
    },
    Description {
        names: &["save"],
        argument: Argument::File(Command::Save),
        help: "write the conversation to a JSON file",
    },
    Description {
        names: &["load"],
        argument: Argument::File(Command::Load),
        help: "continue the conversation in a file",
    },
    Description {
        names: &["help", "?"],
        argument: Argument::Nothing(|| Command::Help),
        help: "show this list",
    },
    Description {
        names: &["exit", "quit", "bye"],
        argument: Argument::Nothing(|| Command::Exit),
        help: "exit, as Ctrl-D",
    },
];

/// The kind of words that complete an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The path of a file.
    File,
    /// The name of a setting.
    Setting,
    /// The name of a model.
    Model,
    /// Nothing.
    Nothing,
}

/// Returns the commands, one on each line, with their descriptions.
pub fn list() -> String {
    let synopses = COMMANDS.each_ref().map(Description::synopsis);
    let width = synopses.iter().map(String::len).max().unwrap_or_default();
    let lines = COMMANDS.iter().zip(synopses);
    let lines = lines.map(|(command, synopsis)| format!("{synopsis:width$}  {}", command.help));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the text of `/help`.
pub fn help() -> String {
    list()
        + "\nN is 1 if omitted. Ctrl-C stops the answer or drops the line; twice at an empty line it exits.\n\
           A line that ends with \\ continues on the next; pasted lines are one question.\n\
           Tab completes commands and names, and arrow keys recall earlier lines.\n\
           To ask something that begins with /, type a space before it."
}

/// Parses a line as a command, or returns why it is not one. `None` for a question.
pub fn parse(line: &str) -> Option<Result<Command, String>> {
    let rest = line.strip_prefix('/')?;
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphabetic() || c == '?') {
        return None; // such as the path of a file
    }
    Some(match find(name) {
        Some(command) => command.with(argument.trim()),
        None => Err(unknown(name)),
    })
}

/// Returns the names that start with `prefix`, each with a space if an argument follows.
pub fn completions(prefix: &str) -> Vec<String> {
    let candidate = |command: &Description| {
        let space = if matches!(command.argument, Argument::Nothing(_)) { "" } else { " " };
        format!("/{}{space}", command.names[0])
    };
    COMMANDS.iter().map(candidate).filter(|name| name.starts_with(prefix)).collect()
}

/// Returns what the argument of the command `name` is completed with.
pub fn completion(name: &str) -> Completion {
    match find(name).map(|command| &command.argument) {
        Some(Argument::File(_)) => Completion::File,
        Some(Argument::Setting(_)) => Completion::Setting,
        Some(Argument::Model(_)) => Completion::Model,
        _ => Completion::Nothing,
    }
}

fn find(name: &str) -> Option<&'static Description> {
    COMMANDS.iter().find(|command| command.names.contains(&name))
}

fn unknown(name: &str) -> String {
    let names = COMMANDS.iter().flat_map(|command| command.names).copied();
    match nearest(name, names) {
        Some(near) => format!("/{name} is not a command: /{near} is; /help lists all commands"),
        None => format!("/{name} is not a command: /help lists the commands"),
    }
}

/// Returns the probable name for `typed`: one with this prefix, or at most two letters different.
pub fn nearest<'n>(typed: &str, names: impl Iterator<Item = &'n str> + Clone) -> Option<&'n str> {
    let begins = names.clone().find(|name| name.starts_with(typed));
    begins.or_else(|| {
        let distances = names.map(|name| (strsim::damerau_levenshtein(typed, name), name));
        let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
        (distance <= 2).then_some(name)
    })
}

impl Description {
    fn synopsis(&self) -> String {
        let name = self.names[0];
        match self.argument {
            Argument::Nothing(_) => format!("/{name}"),
            Argument::Turns(_) => format!("/{name} [N]"),
            Argument::File(_) => format!("/{name} FILE"),
            Argument::Text(_) => format!("/{name} [TEXT]"),
            Argument::Setting(_) => format!("/{name} [NAME [VALUE]]"),
            Argument::Model(_) => format!("/{name} [NAME]"),
        }
    }

    fn with(&self, argument: &str) -> Result<Command, String> {
        let name = self.names[0];
        match &self.argument {
            Argument::Nothing(_) if !argument.is_empty() => Err(format!(
                "/{name} {argument}: nothing follows /{name}; a question that begins with / is typed \
                 with a space before it"
            )),
            Argument::Nothing(make) => Ok(make()),
            Argument::Turns(make) if argument.is_empty() => Ok(make(1)),
            Argument::Turns(make) => match argument.parse() {
                Ok(turns @ 1..) => Ok(make(turns)),
                _ => Err(format!("/{name} {argument}: must be a whole number of at least 1")),
            },
            Argument::File(_) if argument.is_empty() => {
                Err(format!("/{name} needs a file: /{name} FILE"))
            }
            Argument::File(make) => Ok(make(path(argument))),
            Argument::Text(make) | Argument::Setting(make) | Argument::Model(make) => {
                Ok(make(argument.into()))
            }
        }
    }
}

/// Parses a path with a shell's quotes, escapes and ~ for the home directory. Terminals quote the
/// paths of files that you drop on them.
fn path(argument: &str) -> PathBuf {
    let quoted = |mark| argument.strip_prefix(mark)?.strip_suffix(mark);
    let plain = match quoted('"').or_else(|| quoted('\'')) {
        Some(inner) => inner.into(),
        None => unescape(argument, platform::PATH_ESCAPE),
    };
    match plain.strip_prefix("~/").zip(env::home_dir()) {
        Some((rest, home)) => home.join(rest),
        None => PathBuf::from(&*plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_words_after_a_slash() {
        let some = |line| parse(line).unwrap().unwrap();
        assert_eq!(some("/clear"), Command::Clear);
        assert_eq!(some("/?"), Command::Help);
        assert_eq!(some("/drop"), Command::Drop(1));
        assert_eq!(some("/undo  12 "), Command::Undo(12));
        assert_eq!(
            some("/system Be brief.\nAlways."),
            Command::System("Be brief.\nAlways.".into())
        );
        assert_eq!(some("/set"), Command::Set(String::new()));
        for wrong in
            ["/drop 0", "/drop -1", "/undo it", "/drop 1 2", "/read", "/stats 1", "/usr is"]
        {
            let message = parse(wrong).unwrap().unwrap_err();
            assert!(message.starts_with(wrong.split(' ').next().unwrap()), "{message}");
        }
        for text in ["drop 1", "/", "/etc/passwd is a file", " /clear", "what is /clear?", "a"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_unknown_command_has_the_nearest_name() {
        for (typed, near) in [("/regn", "/regen is"), ("/sta", "/stats is"), ("/lod x", "/load is")]
        {
            let message = parse(typed).unwrap().unwrap_err();
            assert!(message.contains(near), "{message}");
        }
        let message = parse("/nonsense").unwrap().unwrap_err();
        assert_eq!(message, "/nonsense is not a command: /help lists the commands");
    }

    #[test]
    fn paths_may_be_quoted() {
        for written in ["a b.txt", "'a b.txt'", "\"a b.txt\""] {
            assert_eq!(path(written), PathBuf::from("a b.txt"), "{written}");
        }
        // In Windows a backslash separates folders.
        let escaped = if platform::PATH_ESCAPE.is_some() { "a b.txt" } else { r"a\ b.txt" };
        assert_eq!(path(r"a\ b.txt"), PathBuf::from(escaped));
        assert_eq!(path("~/a"), env::home_dir().unwrap().join("a"));
    }

    #[test]
    fn names_are_completed() {
        assert_eq!(completions("/s"), ["/system ", "/set ", "/stats", "/save "]);
        assert_eq!(completion("read"), Completion::File);
        assert_eq!(completion("set"), Completion::Setting);
        assert_eq!(completion("model"), Completion::Model);
        assert_eq!(completion("clear"), Completion::Nothing);
    }
}
