//! Limits the reasoning before an answer.

use rope_cpu::{generate::Reasoning, tokenizer::Tokenizer};

use super::{chat::Rendered, error::ApiError};

/// The field for the maximum tokens of reasoning.
const NAME_OF_MAX: &str = "reasoning_budget_tokens";

/// Limits the reasoning of an answer to `tokens_max` tokens. If `is_free`, the constraint of the
/// answer starts after it.
///
/// # Errors
/// If the model has no tokens for the end of reasoning.
pub fn limited(
    rendered: &Rendered,
    tokens_max: Option<usize>,
    is_free: bool,
    tokenizer: &Tokenizer<'_>,
) -> Result<Reasoning, ApiError> {
    let Rendered { text, format, tools, .. } = rendered;
    let reasoning = Reasoning::new(format.clone(), text, tools, tokens_max, is_free, tokenizer);
    reasoning.ok_or_else(|| {
        let (name, end) = (NAME_OF_MAX, format.reasoning_end().unwrap_or_default());
        ApiError::unsupported(format_args!(
            "\"{name}\": the model has no tokens for {end:?}, which ends its reasoning: remove the limit"
        ))
    })
}
