//! The probabilities of `/v1/completions`: a list for each property of a token.

use rope_cpu::{
    Token,
    sample::{Likelihood, Probabilities},
};
use serde_json::{Map, Value, json};

use crate::server::{app::App, probabilities::to_json};

/// The probabilities of consecutive tokens.
#[derive(Debug, Default)]
pub struct Logprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Value>,
    top_logprobs: Vec<Value>,
    text_offset: Vec<usize>,
    /// The tokens in llama-server's form.
    content: Vec<Value>,
    /// The characters before the next token.
    offset: usize,
}

impl Logprobs {
    /// Continues after a text of `offset` characters.
    pub fn after(offset: usize) -> Self {
        Logprobs { offset, ..Logprobs::default() }
    }

    /// Adds the first token of a prompt, which nothing predicts.
    pub fn push_first(&mut self, token: Token, app: &App) {
        self.push_text(text(token, app));
        self.token_logprobs.push(Value::Null);
        self.top_logprobs.push(Value::Null);
    }

    /// Adds a token.
    pub fn push(&mut self, probabilities: &Probabilities, app: &App) {
        let Probabilities { chosen, top, .. } = probabilities;
        self.push_text(text(chosen.token, app));
        self.token_logprobs.push(json!(chosen.value));
        let mut all: Map<String, Value> = Map::new();
        // Of tokens with the same text, the likeliest has the entry.
        for Likelihood { token, value } in top {
            all.entry(text(*token, app)).or_insert(json!(value));
        }
        self.top_logprobs.push(all.into());
        self.content.push(to_json(probabilities, app));
    }

    fn push_text(&mut self, text: String) {
        self.text_offset.push(self.offset);
        self.offset += text.chars().count();
        self.tokens.push(text);
    }

    /// Returns the number of characters up to here.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the lists; null if there are no tokens.
    pub fn to_json(&self) -> Value {
        if self.tokens.is_empty() {
            return Value::Null;
        }
        json!({
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs,
            "text_offset": self.text_offset,
            "content": self.content,
        })
    }
}

/// Returns the text of a token.
pub fn text(token: Token, app: &App) -> String {
    let bytes = app.tokenizer().map(|tokenizer| tokenizer.piece(token, true)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
