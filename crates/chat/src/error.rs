//! Errors of templates, calls and tools.

use thiserror::Error;

use super::builtin::names;

/// Why a conversation could not be rendered.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    #[error("{name:?} is not a built-in chat template: choose one of {}", names())]
    Name { name: String },
    #[error("the chat template is not valid: {reason}")]
    Syntax { reason: String },
    #[error("the chat template refuses this conversation: {message}")]
    Refused { message: String },
    #[error("the chat template fails: {reason}")]
    Render { reason: String },
    #[error("the arguments for the chat template are not a JSON object: {0}")]
    Arguments(serde_json::Error),
    #[error("the arguments of the call of {name} are not a JSON object: {reason}")]
    CallArguments { name: String, reason: serde_json::Error },
    #[error("{name:?} is not a tool name: use 1 to 128 letters (a to z), digits and `_-.:/`")]
    ToolName { name: String },
    #[error("duplicate tool name {name:?}: give each tool its own name")]
    ToolTwice { name: String },
    #[error("a tool must be called, but there are none: pass tools, or make calls optional")]
    ToolsMissing,
    #[error("the tool {name:?} that must be called does not exist: the tools are {known}")]
    ToolUnknown { name: String, known: String },
}
