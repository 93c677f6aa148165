//! Conversations in files: messages in JSON, as in the requests of OpenAI's interface.

use std::{
    fmt::Display,
    io::{self, Write},
    path::Path,
};

use serde_json::{Value, json};

use crate::cli::{error::Error, text};
use rope_cpu::{chat::Message, json::parse, whole_file::whole_file};

/// Writes messages to a file.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, messages: &[Message]) -> Result<(), Error> {
    let written = whole_file(path, |file| -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *file, &json!({ "messages": messages }))?;
        writeln!(file)
    });
    written.map_err(|e| Error::usage(format_args!("cannot write {}: {e}", path.display())))
}

/// Reads the messages in a file.
///
/// # Errors
/// If the file cannot be read, or contains something else.
pub fn read(path: &Path) -> Result<Vec<Message>, Error> {
    let named = |reason: &dyn Display| Error::usage(format_args!("{}: {reason}", path.display()));
    let value = parse(&text::file(path)?);
    // The form of a request, or a list alone.
    let messages = match value.map_err(|e| named(&format_args!("not JSON: {e}")))? {
        Value::Object(mut request) => request.remove("messages"),
        list => Some(list),
    };
    let Some(Value::Array(messages)) = messages else {
        return Err(named(&r#"no conversation: {"messages": [...]} or a list of messages is one"#));
    };
    let message = |(index, message)| {
        serde_json::from_value(message)
            .map_err(|e| named(&format_args!("message {}: {e}", index + 1)))
    };
    messages.into_iter().enumerate().map(message).collect()
}
