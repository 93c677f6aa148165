//! `/infill`: fills the gap in a text, mostly code.

use axum::{body::Bytes, response::Response};
use rope_cpu::{
    Token,
    tokenizer::{Ends, FillInMiddle, Special, Tokenizer},
};

use super::completion::complete;
use crate::server::{
    app::Loaded,
    error::ApiError,
    fields::{COUNT_MAX, Fields},
};

/// Why a model cannot fill a gap.
const NO_MARKS: &str = "Infill is not supported by this model: its vocabulary has no tokens for a \
                            prefix, a suffix and a middle";

/// The names of the repository and of the file with the gap, which requests do not give. They are
/// llama-server's.
const REPOSITORY: &str = "myproject";
const FILE: &str = "filename";

/// The text before a further text, for models without a token for files. It is llama-server's.
const SNIPPET: &str = "\n\n--- snippet ---\n\n";

/// Answers `POST /infill`.
pub async fn infill(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let fields = Fields::parse(&body)?;
    let tokenizer = app.tokenizer()?;
    let marks = tokenizer.fill_in_middle().ok_or_else(|| ApiError::unsupported(NO_MARKS))?;
    let prefix = fields.required_text("input_prefix")?;
    let suffix = fields.required_text("input_suffix")?;
    let prompt = fields.text("prompt")?.unwrap_or_default();
    let gap = gap(tokenizer, marks, prefix, prompt, suffix);
    let mut prompt = further_texts(&fields, tokenizer, marks)?;
    // Of further texts, those that fit are read; the last ones are the most important.
    let answer = fields.whole("n_predict", -1, COUNT_MAX)?;
    let answer = answer.and_then(|max| usize::try_from(max).ok());
    let room = app.context.saturating_sub(gap.len().saturating_add(answer.unwrap_or(0)) + 1);
    prompt.drain(..prompt.len().saturating_sub(room));
    prompt.extend(gap);
    complete(app.clone(), &fields, vec![prompt]).await
}

fn encode(tokenizer: &Tokenizer<'_>, text: &str) -> Vec<Token> {
    tokenizer.encode(text, Special::AsText, Ends::Omit)
}

/// Returns the tokens of a prompt with a gap between `prefix` and `suffix`, the field of other interfaces.
///
/// # Errors
/// If the model has no tokens for a gap.
pub fn before_suffix(
    fields: &Fields,
    tokenizer: &Tokenizer<'_>,
    prefix: &str,
    suffix: &str,
) -> Result<Vec<Token>, ApiError> {
    let marks = tokenizer.fill_in_middle();
    let marks = marks.ok_or_else(|| fields.invalid_field("suffix", NO_MARKS))?;
    Ok(gap(tokenizer, marks, prefix, "", suffix))
}

/// Returns the text with the gap between `prefix` with `prompt` and `suffix`, up to where its middle
/// begins.
fn gap(
    tokenizer: &Tokenizer<'_>,
    marks: FillInMiddle,
    prefix: &str,
    prompt: &str,
    suffix: &str,
) -> Vec<Token> {
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let mut tokens: Vec<_> = bos.into_iter().chain([marks.prefix]).collect();
    tokens.extend(encode(tokenizer, prefix));
    tokens.extend(tokenizer.encode(prompt, Special::Parse, Ends::Omit));
    tokens.push(marks.suffix);
    tokens.extend(encode(tokenizer, suffix));
    tokens.push(marks.middle);
    tokens
}

/// Returns the further texts of a request, each after the name of its file.
fn further_texts(
    fields: &Fields,
    tokenizer: &Tokenizer<'_>,
    marks: FillInMiddle,
) -> Result<Vec<Token>, ApiError> {
    let line = |mark: Token, name: &str| {
        let name = encode(tokenizer, &format!("{name}\n"));
        [mark].into_iter().chain(name)
    };
    let mut tokens = Vec::new();
    if let Some(repository) = marks.repository {
        tokens.extend(line(repository, REPOSITORY));
    }
    for extra in fields.objects("input_extra")?.unwrap_or_default() {
        let text = extra.required_text("text")?;
        let name = extra.text("filename")?.unwrap_or("tmp");
        match marks.file {
            Some(file) => tokens.extend(line(file, name)),
            None => tokens.extend(encode(tokenizer, SNIPPET)),
        }
        tokens.extend(encode(tokenizer, text));
    }
    if let Some(file) = marks.file {
        tokens.extend(line(file, FILE));
    }
    Ok(tokens)
}
