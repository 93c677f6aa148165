//! Chat templates: render a conversation as the text format that the model was trained on.
//!
//! A model file has its template as Jinja source for Hugging Face's `transformers`. This crate runs
//! it with the same functions, filters and white-space rules. If a template fails, that is an
//! error. A substitute would be worse: the model would not know its format, and you would not see
//! why the answers are bad.
//!
//! An answer consists of text, reasoning and tool calls. The template's [`Format`] describes how a
//! model writes them. Its [`Parser`] parses an answer during generation, and its grammar makes
//! calls valid.

mod arguments;
mod budget;
mod builtin;
mod capabilities;
mod cursor;
mod dialect;
mod engine;
mod error;
mod format;
mod generation;
mod grammar;
mod message;
mod parser;
mod reasoning;
mod template;
mod tools;
mod value;

pub use budget::Budget;
pub use builtin::names;
pub use error::Error;
pub use format::Format;
pub use message::{Message, Role, ToolCall, call_id};
pub use parser::{Event, Parser};
pub use template::{Template, builtin};
pub use tools::{Tool, ToolChoice, Tools};
