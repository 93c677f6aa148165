//! Answers that follow a grammar. This is the crate [`rope_cpu_constraint`], with the vocabulary of
//! a tokenizer.

pub use rope_cpu_constraint::*;

use crate::{
    Token,
    tokenizer::{Kind, Tokenizer},
};

/// Prepares the tokens of a model for grammars. With hundreds of thousands of tokens, this takes up
/// to seconds.
///
/// # Errors
/// If the tokens are too many or too long.
///
/// ```no_run
/// use rope_cpu::{constraint::{self, Constraint, Grammar}, generate::Limits, model::Model};
///
/// let model = Model::open("model.gguf")?;
/// let vocabulary = constraint::vocabulary(model.tokenizer()?)?;
/// let constraint = Constraint::new(&vocabulary, &Grammar::JsonObject)?;
/// let limits = Limits { constraint: Some(constraint), ..Limits::default() };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn vocabulary(tokenizer: &Tokenizer<'_>) -> Result<Vocabulary, Error> {
    let word = |token| match tokenizer.kind(token) {
        Kind::Control => Word::Control(tokenizer.text(token).unwrap_or_default()),
        _ => Word::Text(tokenizer.piece(token, false)),
    };
    let ends: Vec<Token> = tokenizer.end_of_generation().collect();
    Vocabulary::new((0..tokenizer.len() as Token).map(word), &ends)
}
