//! Parses a prompt: a text, tokens, a mixture of both, or a list of these.

use rope_cpu::{
    Token,
    tokenizer::{Ends, Special, Tokenizer},
};
use serde_json::Value;

use super::{
    error::ApiError,
    fields::{shown, whole_number},
};

/// Maximum answers of a request.
pub const ANSWERS_MAX: usize = 1024;

/// Maximum prompt tokens of all answers of a request.
const TOKENS_MAX: usize = 1 << 24;

/// Returns the tokens of each prompt, for at most `most` prompts.
///
/// # Errors
/// If the value has another form or too many prompts, or a token is not in the vocabulary.
pub fn prompts(
    name: &str,
    value: &Value,
    most: usize,
    tokenizer: &Tokenizer<'_>,
) -> Result<Vec<Vec<Token>>, ApiError> {
    match value {
        Value::Array(list) if list.is_empty() => Err(ApiError::field(name, "not empty")),
        // A list of numbers, or of numbers and texts, is one prompt.
        Value::Array(list) if list.iter().any(Value::is_number) => {
            Ok(vec![mixture(name, list, tokenizer)?])
        }
        Value::Array(list) if list.len() > most => {
            Err(ApiError::field(name, format_args!("at most {most} prompts, not {}", list.len())))
        }
        Value::Array(list) => list.iter().map(|value| prompt(name, value, tokenizer)).collect(),
        value => Ok(vec![prompt(name, value, tokenizer)?]),
    }
}

/// Returns the prompt of each answer: each prompt `copies` times, the value of field `name`.
///
/// # Errors
/// If there are too many.
pub fn copies(
    name: &str,
    prompts: Vec<Vec<Token>>,
    copies: usize,
) -> Result<Vec<Vec<Token>>, ApiError> {
    let answers = prompts.len().saturating_mul(copies);
    if answers > ANSWERS_MAX {
        return Err(ApiError::invalid(format_args!(
            "\"{name}\": {copies} answers to each of {} prompts are {answers}; a request has at most \
             {ANSWERS_MAX}: divide it",
            prompts.len()
        )));
    }
    let tokens = prompts.iter().map(Vec::len).sum::<usize>().saturating_mul(copies);
    if tokens > TOKENS_MAX {
        return Err(ApiError::invalid(format_args!(
            "\"{name}\": the prompts of {answers} answers have {tokens} tokens; those of a request have at \
             most {TOKENS_MAX}: divide it"
        )));
    }
    Ok(prompts.into_iter().flat_map(|prompt| vec![prompt; copies]).collect())
}

fn prompt(name: &str, value: &Value, tokenizer: &Tokenizer<'_>) -> Result<Vec<Token>, ApiError> {
    match value {
        Value::String(text) => Ok(tokenizer.encode(text, Special::Parse, Ends::Add)),
        Value::Array(list) => mixture(name, list, tokenizer),
        Value::Object(object) if object.contains_key("multimodal_data") => Err(ApiError::invalid(
            format_args!("\"{name}\": the model reads only text, no images or sound"),
        )),
        Value::Object(object) => match object.get("prompt_string") {
            Some(Value::String(text)) => Ok(tokenizer.encode(text, Special::Parse, Ends::Add)),
            _ => Err(form(name, value, tokenizer)),
        },
        _ => Err(form(name, value, tokenizer)),
    }
}

/// Returns the tokens of a list of tokens and texts. Only a text at the start gets a BOS token.
fn mixture(name: &str, list: &[Value], tokenizer: &Tokenizer<'_>) -> Result<Vec<Token>, ApiError> {
    let mut tokens = Vec::new();
    for (index, value) in list.iter().enumerate() {
        let ends = if index == 0 { Ends::Add } else { Ends::Omit };
        match (value, whole_number(value)) {
            (Value::String(text), _) => {
                tokens.extend(tokenizer.encode(text, Special::Parse, ends));
            }
            (_, Some(token)) => {
                let known = usize::try_from(token).is_ok_and(|token| token < tokenizer.len());
                let token =
                    known.then_some(token as Token).ok_or_else(|| form(name, value, tokenizer))?;
                tokens.push(token);
            }
            _ => return Err(form(name, value, tokenizer)),
        }
    }
    Ok(tokens)
}

/// Returns an error for a value that is neither a prompt nor part of one.
fn form(name: &str, value: &Value, tokenizer: &Tokenizer<'_>) -> ApiError {
    let last = tokenizer.len().saturating_sub(1);
    ApiError::field(
        name,
        format_args!(
            "a string, a list of tokens (from 0 to {last}) and strings, or a list of these, not {}",
            shown(value)
        ),
    )
}
