//! The probabilities of `/v1/completions`: one list for each property of a token.

use std::sync::Arc;

use rope_cpu::{Token, sample::Probabilities};
use serde_json::{Map, Value, json};

use crate::server::{answers::Collected, app::App, lazy::Lazy, probabilities::to_json};

/// The probabilities of consecutive tokens.
#[derive(Clone)]
pub struct Logprobs {
    /// The first token of a prompt, which has no probability.
    pub first: Option<Token>,
    /// The answer with the other tokens, starting with the tokens of its prompt.
    pub answer: Arc<Collected>,
    /// The characters before the first token.
    pub offset: usize,
    /// The model.
    pub app: Arc<App>,
}

impl Logprobs {
    /// Returns the lists; null if there are no tokens.
    pub fn lists(self) -> Lazy {
        if self.len() == 0 {
            return Value::Null.into();
        }
        let value = |(_, one): (Token, Option<&Probabilities>)| match one {
            Some(one) => json!(one.chosen.value),
            None => Value::Null,
        };
        let content = Logprobs { first: None, ..self.clone() };
        let (of_tokens, of_top, of_offsets) = (self.clone(), self.clone(), self.clone());
        let mut offset = self.offset;
        let offsets = move |token: usize| {
            let before = offset;
            offset += of_offsets.text(of_offsets.entry(token).0).chars().count();
            before.into()
        };
        let (all, predicted) = (0..self.len(), 0..content.len());
        let tokens = all.clone().map(move |i| of_tokens.text(of_tokens.entry(i).0).into());
        let top = all.clone().map(move |i| of_top.top(of_top.entry(i).1).into());
        let content = predicted.map(move |i| match content.entry(i).1 {
            Some(one) => to_json(one, &content.app).into(),
            None => Value::Null.into(),
        });
        Lazy::object(
            json!({}),
            vec![
                ("tokens", Lazy::list(tokens)),
                (
                    "token_logprobs",
                    Lazy::list(all.clone().map(move |i| value(self.entry(i)).into())),
                ),
                ("top_logprobs", Lazy::list(top)),
                ("text_offset", Lazy::list(all.map(offsets))),
                ("content", Lazy::list(content)),
            ],
        )
    }

    /// Returns the number of characters up to the last token.
    pub fn end(&self) -> usize {
        let characters = |i| self.text(self.entry(i).0).chars().count();
        self.offset + (0..self.len()).map(characters).sum::<usize>()
    }

    fn len(&self) -> usize {
        let Collected { of_prompt, probabilities, .. } = &*self.answer;
        usize::from(self.first.is_some()) + of_prompt.len() + probabilities.len()
    }

    /// Returns a token with its probabilities; `None` for the first token of a prompt.
    fn entry(&self, index: usize) -> (Token, Option<&Probabilities>) {
        let Collected { of_prompt, probabilities, .. } = &*self.answer;
        let index = match (self.first, index) {
            (Some(first), 0) => return (first, None),
            (Some(_), index) => index - 1,
            (None, index) => index,
        };
        let one = of_prompt.get(index).unwrap_or_else(|| &probabilities[index - of_prompt.len()]);
        (one.chosen.token, Some(one))
    }

    fn top(&self, probabilities: Option<&Probabilities>) -> Value {
        let Some(probabilities) = probabilities else { return Value::Null };
        let mut all = Map::new();
        // If several tokens have the same text, the most likely one gets the entry.
        for likelihood in &probabilities.top {
            all.entry(self.text(likelihood.token)).or_insert(json!(likelihood.value));
        }
        all.into()
    }

    fn text(&self, token: Token) -> String {
        text(token, &self.app)
    }
}

/// Returns the text of a token.
pub fn text(token: Token, app: &App) -> String {
    let bytes = app.tokenizer().map(|tokenizer| tokenizer.piece(token, true)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
