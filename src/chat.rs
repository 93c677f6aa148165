//! Chat templates and answer parsing. This is the crate [`rope_cpu_chat`], with the template of a
//! model.

pub use rope_cpu_chat::*;

use crate::tokenizer::Tokenizer;

/// Compiles a template with the BOS and EOS texts of a tokenizer.
///
/// # Errors
/// If the source is invalid. The error names the line.
///
/// ```no_run
/// use rope_cpu::{chat::{self, Message, Role}, model::Model};
///
/// let model = Model::open("model.gguf")?;
/// let template = chat::template(chat::builtin("llama3")?, model.tokenizer()?)?;
/// let prompt = template.render(&[Message::new(Role::User, "Hello!")], &[], true)?;
/// let tokens = model.tokenizer()?.encode_chat(&prompt);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn template(source: &str, tokenizer: &Tokenizer<'_>) -> Result<Template, Error> {
    let text = |token: Option<_>| token.and_then(|t| tokenizer.text(t)).unwrap_or_default();
    Template::new(source, text(tokenizer.bos()), text(tokenizer.eos()))
}
