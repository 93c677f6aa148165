//! The wording of clap's errors.

use std::{
    error::Error as _,
    ffi::OsString,
    num::{IntErrorKind, ParseFloatError, ParseIntError},
};

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use super::command;

/// Replaces the reasons of Rust's parsers in an error by reasons that name the allowed values, and says
/// what to do with a word that is taken for a command.
///
/// `argv` starts with the program's name, which is followed by a command or a file.
pub fn reworded(error: Error, argv: &[OsString]) -> Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (old, new) = match error.kind() {
        ErrorKind::ValueValidation => {
            let Some(reason) = reason(&error, text(ContextKind::InvalidValue)) else {
                return error;
            };
            (error.source().map(ToString::to_string).unwrap_or_default(), reason.to_string())
        }
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand);
            if argv.get(1).is_none_or(|first| first != word) {
                return error;
            }
            (
                format!("unrecognized subcommand '{word}'"),
                format!("no such command, file or model: '{word}'"),
            )
        }
        ErrorKind::ArgumentConflict => {
            let word = text(ContextKind::InvalidSubcommand);
            if word.is_empty() {
                return error;
            }
            let said = match command().find_subcommand(word) {
                Some(_) => format!("the options of a command follow it: rope-cpu {word} ..."),
                None => format!("'{word}' is not a command: give a prompt with -p"),
            };
            return Error::raw(error.kind(), said + "\n\nFor more information, try '--help'.\n");
        }
        _ => return error,
    };
    let message = error.to_string();
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    Error::raw(error.kind(), message.replacen(&old, &new, 1))
}

/// Returns the reason why `value` is not a number of the required kind, if that is the error.
fn reason(error: &Error, value: &str) -> Option<&'static str> {
    let source = error.source()?;
    if source.is::<ParseFloatError>() {
        return Some("not a number");
    }
    Some(match source.downcast_ref::<ParseIntError>()?.kind() {
        IntErrorKind::PosOverflow => "too large",
        IntErrorKind::NegOverflow => "too small",
        _ if value.parse::<i128>().is_ok() => "must be at least 0",
        _ => "not a whole number",
    })
}

/// Returns the first line of an error, without its `error: ` prefix.
pub fn first_line(error: &Error) -> String {
    let message = error.to_string();
    let first = message.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).into()
}
