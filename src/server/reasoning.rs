//! Reasoning before an answer: whether there is any, and how long it may be.

use std::sync::Arc;

use rope_cpu::{
    Token,
    chat::{Budget, Parser},
    generate::Answer,
    tokenizer::{Ends, Special, Tokenizer},
};
use serde_json::{Map, Value};

use super::{
    chat::Rendered,
    error::ApiError,
    fields::{COUNT_MAX, Fields},
};

/// The field with the effort of reasoning, which is a parameter of some chat templates.
const EFFORT: &str = "reasoning_effort";

/// The fields with the most tokens of reasoning.
const NAMES_OF_MAX: [&str; 2] = ["reasoning_budget_tokens", "thinking_budget_tokens"];

/// The form and limit of an answer's reasoning, known before it begins.
#[derive(Clone, Debug)]
pub struct Reasoning {
    rendered: Arc<Rendered>,
    tokens_max: usize,
    /// The tokens that end it where it has taken `tokens_max` tokens.
    end: Vec<Token>,
    is_free: bool,
}

/// The reasoning of an answer while it is generated.
pub struct Following {
    parser: Parser,
    budget: Budget,
    end: Vec<Token>,
    is_free: bool,
}

impl Reasoning {
    /// Limits the reasoning of an answer to `tokens_max` tokens. If it `is_free`, the constraint of the
    /// answer begins after it.
    ///
    /// # Errors
    /// If the model does not reason, or cannot write the end of reasoning.
    pub fn new(
        rendered: Rendered,
        tokens_max: Option<usize>,
        is_free: bool,
        tokenizer: &Tokenizer<'_>,
    ) -> Result<Self, ApiError> {
        let text = rendered.format().reasoning_end().unwrap_or_default();
        let end = tokenizer.encode(text, Special::Parse, Ends::Omit);
        if tokens_max.is_some()
            && (end.is_empty() || tokenizer.decode(&end, true) != text.as_bytes())
        {
            let name = NAMES_OF_MAX[0];
            return Err(ApiError::unsupported(format_args!(
                "\"{name}\": the model has no tokens for {text:?}, which ends its reasoning: remove the \
                 limit"
            )));
        }
        let (rendered, tokens_max) = (Arc::new(rendered), tokens_max.unwrap_or(usize::MAX));
        Ok(Reasoning { rendered, tokens_max, end, is_free })
    }

    /// Begins an answer.
    pub fn follow(&self) -> Following {
        let parser = self.rendered.parser();
        let budget = Budget::new(self.tokens_max, &parser);
        Following { parser, budget, end: self.end.clone(), is_free: self.is_free }
    }
}

impl Following {
    /// Prepares the next token of the answer. Returns the tokens that must follow instead, if reasoning has
    /// taken its most tokens; none otherwise.
    pub fn prepare(&self, answer: &mut Answer) -> Vec<Token> {
        answer.set_free(self.is_free && self.parser.is_reasoning());
        let ends = self.budget.forced(&self.parser).is_some() && answer.is_whole();
        if ends { self.end.clone() } else { Vec::new() }
    }

    /// Adds a token, with the text that is certain after it.
    pub fn push(&mut self, text: &str) {
        self.parser.push(text);
        self.budget.count(&self.parser);
    }
}

/// Returns the most tokens of reasoning that a request permits, `default` if it gives none; `None` for no
/// limit.
///
/// # Errors
/// If a field is not a whole number, or out of range.
pub fn tokens_max(fields: &Fields, default: Option<usize>) -> Result<Option<usize>, ApiError> {
    let Some((name, _)) = fields.first(&NAMES_OF_MAX) else { return Ok(default) };
    // -1: as the server has it.
    let given = fields.whole(name, -1, COUNT_MAX)?;
    Ok(given.and_then(|given| usize::try_from(given).ok()).or(default))
}

/// Adds the effort of reasoning to the parameters of the chat template. The effort `none` switches
/// reasoning off.
///
/// # Errors
/// If the field is not a string.
pub fn add_effort(fields: &Fields, arguments: &mut Map<String, Value>) -> Result<(), ApiError> {
    match fields.text(EFFORT)? {
        None | Some("") => {}
        Some("none") => {
            arguments.insert("enable_thinking".into(), false.into());
        }
        Some(effort) => {
            arguments.entry(EFFORT).or_insert(effort.into());
        }
    }
    Ok(())
}
