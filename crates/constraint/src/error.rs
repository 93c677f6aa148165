//! Errors in grammars, with their positions.

use std::fmt;

use thiserror::Error;

/// A position in a grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// A character of a text; both numbers start at 1.
    Character {
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
    },
    /// A part of a JSON schema, as a JSON Pointer such as `/properties/name`; empty for the whole
    /// schema.
    Pointer(String),
}

impl Position {
    /// Returns the position of a byte of a text.
    pub(super) fn of(text: &str, byte: usize) -> Self {
        let before = &text[..byte];
        let line = before.rsplit('\n').next().unwrap_or_default();
        let lines = before.bytes().filter(|byte| *byte == b'\n').count();
        Position::Character { line: lines + 1, column: line.chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Character { line, column } => write!(f, "line {line}, column {column}"),
            Position::Pointer(pointer) if pointer.is_empty() => f.write_str("the schema"),
            Position::Pointer(pointer) => f.write_str(pointer),
        }
    }
}

/// An error in a grammar, or while it constrains an answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The grammar is invalid, or needs an unsupported feature.
    #[error("{}{message}", position.as_ref().map(|p| format!("{p}: ")).unwrap_or_default())]
    Invalid {
        /// The position in the grammar; `None` if unknown.
        position: Option<Position>,
        /// The message, without the position.
        message: String,
    },
    /// The grammar is too large, or takes too long to compile, or must wait for others to compile.
    #[error("{0}")]
    Limit(String),
    /// The vocabulary cannot be used with grammars.
    #[error("this vocabulary cannot be used with a grammar: {0}")]
    Vocabulary(String),
    /// The grammar does not allow a token, or is too complex to find the allowed ones.
    #[error("the grammar cannot be followed: {0}")]
    Step(String),
}

impl Error {
    pub(super) fn invalid(position: Option<Position>, message: impl Into<String>) -> Self {
        Error::Invalid { position, message: message.into() }
    }

    /// Returns an error of llguidance. Its message may start with a position in a Lark grammar.
    pub(super) fn in_grammar(error: impl fmt::Display) -> Self {
        let text = format!("{error:#}");
        let text = text.strip_prefix("at ").unwrap_or(&text);
        let numbers = text.split_once("): ").and_then(|(position, message)| {
            let (line, column) = position.split_once('(')?;
            Some((line.parse().ok()?, column.parse().ok()?, message))
        });
        let (position, message) = match numbers {
            Some((line, column, message)) => (Some(Position::Character { line, column }), message),
            None => (None, text),
        };
        // A regular expression's error has several lines; the last line has the cause.
        let cause = message
            .split_once("regex parse error:")
            .and_then(|(_, lines)| lines.lines().find_map(|line| line.strip_prefix("error: ")));
        match cause {
            Some(cause) => Error::invalid(position, format!("regular expression: {cause}")),
            None if message.starts_with("oneOf constraints are not supported") => Error::invalid(
                position,
                "the schemas of oneOf must exclude each other: use anyOf, or a property with \
                 another const in each",
            ),
            None => Error::invalid(position, message.lines().next().unwrap_or_default()),
        }
    }

    /// Returns an error of llguidance between two tokens.
    pub(super) fn in_step(error: impl fmt::Display) -> Self {
        let reason = error.to_string();
        Error::Step(match reason.lines().next().unwrap_or_default() {
            "NoExtensionBias" => "no token is permitted".into(),
            reason => reason.into(),
        })
    }
}
