//! Questions with an answer in words.

use serde::Deserialize;

use crate::eval::scores;

/// A question with an answer in words.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Generation {
    /// A text before the prompt.
    #[serde(default)]
    context: String,
    #[serde(alias = "input")]
    prompt: String,
    #[serde(alias = "outputs", alias = "output", alias = "target", alias = "summary")]
    answers: Texts,
    /// Maximum tokens of the answer.
    #[serde(default = "answer_tokens")]
    pub tokens: usize,
    /// Texts that end the answer.
    #[serde(default)]
    until: Option<Texts>,
}

fn answer_tokens() -> usize {
    128
}

/// One text, or several.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Texts {
    fn all(&self) -> &[String] {
        match self {
            Texts::One(text) => std::slice::from_ref(text),
            Texts::Many(texts) => texts,
        }
    }
}

impl Generation {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.answers().is_empty() { Err("answers is empty".into()) } else { Ok(()) }
    }

    /// Returns the context and the prompt.
    pub fn text(&self) -> String {
        match &self.context[..] {
            "" => self.prompt.clone(),
            context => format!("{context}\n\n{}", self.prompt),
        }
    }

    /// Returns the correct answers.
    pub fn answers(&self) -> &[String] {
        self.answers.all()
    }

    /// Returns the texts that end an answer.
    pub fn until(&self) -> &[String] {
        self.until.as_ref().map_or(&[], Texts::all)
    }

    /// Returns the scores of an answer, in the order of [`Format::metrics`].
    pub fn scores(&self, answer: &str) -> Vec<f64> {
        [scores::exact_match, scores::f1, scores::rouge_l]
            .map(|score| score(answer, self.answers()))
            .into()
    }
}
