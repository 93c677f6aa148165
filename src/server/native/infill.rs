//! `/infill`: fills a gap in a text, usually code.

use axum::{body::Bytes, response::Response};
use rope_cpu::{
    Token,
    tokenizer::{Ends, FillInMiddle, Special, Tokenizer},
};

use super::completion::{CompletionFields, complete};
use crate::server::{
    error::ApiError,
    models::Loaded,
    read::{Failure, Whole, parse},
};

/// Why a model cannot fill a gap.
const NO_MARKS: &str = "Infill is not supported by this model: its vocabulary has no tokens for a \
                            prefix, a suffix and a middle";

/// Names of the repository and of the file with the gap, as in llama-server. Requests do not give
/// them.
const REPOSITORY: &str = "myproject";
const FILE: &str = "filename";

/// The text before an additional text, for models without a token for files. From llama-server.
const SNIPPET: &str = "\n\n--- snippet ---\n\n";

crate::object! {
    /// A request of `/infill`.
    pub struct Infill {
        /// Additional texts, such as other files.
        input_extra: Vec<Extra>,
        /// The text before the gap.
        input_prefix: Option<String>,
        /// The text after the gap.
        input_suffix: Option<String>,
        /// The start of the text in the gap.
        prompt: Option<String>,
        ..completion: CompletionFields,
    }
}

crate::object! {
    /// An additional text.
    pub struct Extra {
        /// The name of its file.
        filename: Option<String>,
        /// The text.
        text: Option<String>,
    }
}

/// Answers `POST /infill`.
pub async fn infill(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let fields: Infill = parse(&body)?;
    let tokenizer = app.tokenizer()?;
    let marks = tokenizer.fill_in_middle().ok_or_else(|| ApiError::unsupported(NO_MARKS))?;
    let missing = |name: &'static str| move || Failure::missing(name, "a string");
    let prefix = fields.input_prefix.as_deref().ok_or_else(missing("input_prefix"))?;
    let suffix = fields.input_suffix.as_deref().ok_or_else(missing("input_suffix"))?;
    let prompt = fields.prompt.as_deref().unwrap_or_default();
    let gap = gap(tokenizer, marks, prefix, prompt, suffix);
    let mut prompt = further_texts(&fields.input_extra, tokenizer, marks)?;
    // If additional texts do not fit, cut their start: the last ones are most relevant.
    let answer = fields.completion.shared.n_predict.and_then(Whole::count);
    let room = app.context.saturating_sub(gap.len().saturating_add(answer.unwrap_or(0)) + 1);
    prompt.drain(..prompt.len().saturating_sub(room));
    prompt.extend(gap);
    complete(app.clone(), &fields.completion, vec![prompt]).await
}

fn encode(tokenizer: &Tokenizer<'_>, text: &str) -> Vec<Token> {
    tokenizer.encode(text, Special::AsText, Ends::Omit)
}

/// Returns the tokens of a prompt with a gap between `prefix` and `suffix`, for the field `suffix`
/// of other interfaces.
///
/// # Errors
/// If the model has no tokens for a gap.
pub fn before_suffix(
    tokenizer: &Tokenizer<'_>,
    prefix: &str,
    suffix: &str,
) -> Result<Vec<Token>, Failure> {
    let marks = tokenizer.fill_in_middle();
    let marks = marks.ok_or_else(|| Failure::of("suffix", NO_MARKS))?;
    Ok(gap(tokenizer, marks, prefix, "", suffix))
}

/// Returns the text with a gap: after `prefix` and `prompt`, and before `suffix`.
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

/// Returns the additional texts of a request, each after the name of its file.
fn further_texts(
    extra: &[Extra],
    tokenizer: &Tokenizer<'_>,
    marks: FillInMiddle,
) -> Result<Vec<Token>, Failure> {
    let line = |mark: Token, name: &str| {
        let name = encode(tokenizer, &format!("{name}\n"));
        [mark].into_iter().chain(name)
    };
    let mut tokens = Vec::new();
    if let Some(repository) = marks.repository {
        tokens.extend(line(repository, REPOSITORY));
    }
    for (index, extra) in extra.iter().enumerate() {
        let missing = || Failure::missing(&format!("input_extra[{index}].text"), "a string");
        let text = extra.text.as_deref().ok_or_else(missing)?;
        let name = extra.filename.as_deref().unwrap_or("tmp");
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
