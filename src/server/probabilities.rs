//! Probabilities of tokens in llama-server's form.

use std::sync::Arc;

use rope_cpu::sample::{Likelihood, Probabilities};
use serde_json::{Value, json};

use super::{answers::Collected, app::App, lazy::Lazy};

/// Returns the probabilities of all tokens of an answer.
pub fn list(answer: Arc<Collected>, app: Arc<App>) -> Lazy {
    let tokens = 0..answer.probabilities.len();
    Lazy::list(tokens.map(move |token| to_json(&answer.probabilities[token], &app).into()))
}

/// Returns the probabilities reported with a token.
pub fn to_json(probabilities: &Probabilities, app: &App) -> Value {
    let (name, list) = match probabilities.after_sampling {
        true => ("prob", "top_probs"),
        false => ("logprob", "top_logprobs"),
    };
    let one = |likelihood: &Likelihood| {
        let bytes = app.tokenizer().map(|t| t.piece(likelihood.token, true)).unwrap_or_default();
        let mut one = json!({
            "id": likelihood.token,
            "token": String::from_utf8_lossy(&bytes),
            "bytes": &bytes[..],
        });
        one[name] = json!(likelihood.value);
        one
    };
    let mut chosen = one(&probabilities.chosen);
    chosen[list] = probabilities.top.iter().map(one).collect();
    chosen
}
