//! The grammar of answers, from the command line.

use super::Args;
use crate::cli::{error::Error, text};
use rope_cpu::{
    constraint::{self, Constraint, Grammar},
    tokenizer::Tokenizer,
};

/// Returns the constraint of every answer, if the options give one.
///
/// # Errors
/// If a file cannot be read, or the grammar is invalid.
pub fn constraint(args: &Args, tokenizer: &Tokenizer) -> Result<Option<Constraint>, Error> {
    let typed = &args.constraint;
    let (origin, grammar) = if let Some(text) = &typed.grammar {
        ("--grammar".to_string(), Grammar::from_text(text))
    } else if let Some(path) = &typed.grammar_file {
        (path.display().to_string(), Grammar::from_text(text::file(path)?))
    } else if let Some(text) = &typed.json_schema {
        ("--json-schema".to_string(), Grammar::JsonSchema(text.clone()))
    } else if let Some(path) = &typed.json_schema_file {
        (path.display().to_string(), Grammar::JsonSchema(text::file(path)?))
    } else {
        return Ok(None);
    };
    let vocabulary = constraint::vocabulary(tokenizer).map_err(|e| args.model.named(e))?;
    let constraint = Constraint::new(&vocabulary, &grammar);
    constraint.map(Some).map_err(|e| Error::usage(format_args!("{origin}: {e}")))
}
