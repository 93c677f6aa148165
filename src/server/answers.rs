//! Answers from the scheduler: collected, or streamed as JSON values.

use std::{mem::size_of, sync::Arc, time::Instant};

use axum::response::Response;
use rope_cpu::{
    Token,
    batch::{Outcome, Update},
    model::Pooling,
    sample::{Likelihood, Probabilities},
};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{
    app::App,
    error::ApiError,
    framing::{Framing, until},
    memory::{self, Held},
    parameters::Parameters,
    updates::Updates,
};

/// The step in bytes by which the reservation of an answer grows.
const GROWTH: usize = 64 << 10;

/// A whole answer.
#[derive(Debug, Default)]
pub struct Collected {
    /// Generated text.
    pub text: String,
    /// Generated tokens.
    pub tokens: Vec<Token>,
    /// The probabilities of the prompt's tokens, from the second token on, if requested.
    pub of_prompt: Vec<Probabilities>,
    /// The probabilities of the tokens, if requested.
    pub probabilities: Vec<Probabilities>,
    /// The embedding of the text, or one for each token.
    pub embeddings: Vec<Vec<f32>>,
    /// The seed of the sampler.
    pub seed: u32,
    /// How the answer ended.
    pub outcome: Option<Outcome>,
}

/// Reserves memory for the answers to some prompts, but not for texts: [`collect`] adds these.
///
/// # Errors
/// 400 if no server with these limits has enough memory, 503 if this server lacks it now.
pub fn reserve(
    held: &mut Held,
    app: &App,
    prompts: &[Vec<Token>],
    parameters: &Parameters,
) -> Result<(), ApiError> {
    let bytes = prompts.iter().map(|prompt| bytes(prompt.len(), app, parameters));
    let bytes = bytes.fold(0, usize::saturating_add);
    if bytes > held.max() {
        return Err(ApiError::invalid(format_args!(
            "the answers could take {} MiB, and at most {} MiB are permitted: request fewer answers, \
             tokens (n_predict, max_tokens) or probabilities, divide the texts, or stream the answers",
            bytes >> 20,
            held.max() >> 20
        )));
    }
    held.add(bytes)?;
    match memory::system_has(bytes) {
        true => Ok(()),
        false => Err(ApiError::unavailable(format_args!(
            "the system refused {bytes} bytes of memory for the answers: divide the request, or raise \
             the server's limit of memory"
        ))),
    }
}

/// Returns the memory of an answer to a prompt of `tokens` tokens, without its text.
fn bytes(tokens: usize, app: &App, parameters: &Parameters) -> usize {
    if let Some(pooling) = parameters.request.pooling {
        let count = if pooling == Pooling::None { tokens } else { 1 };
        let numbers = size_of::<f32>() * app.model.config().embedding;
        return count.saturating_mul(size_of::<Vec<f32>>() + numbers);
    }
    let Some(wanted) = parameters.request.probabilities else { return 0 };
    // A context shift has no end, so its tokens are counted when they arrive.
    let room = if app.plan.shifts { app.capacity } else { app.capacity.saturating_sub(tokens) };
    let generated = parameters.request.limits.tokens_max.map_or(room, |max| max.min(room));
    let reported = generated.saturating_add(if wanted.of_prompt { tokens } else { 0 });
    reported.saturating_mul(probabilities_bytes(wanted.top))
}

/// Returns the memory of a token's probabilities. Lists grow to twice their length.
fn probabilities_bytes(top: usize) -> usize {
    3 * size_of::<Probabilities>() + size_of::<Likelihood>() * top
}

/// Waits until `count` answers are complete. If they take more memory than `held`, adds the rest to
/// it.
///
/// # Errors
/// If one of them fails, or takes too much memory.
pub async fn collect(
    mut updates: Updates,
    count: usize,
    mut held: Held,
) -> Result<(Vec<Arc<Collected>>, Held), ApiError> {
    let mut answers: Vec<_> = (0..count).map(|_| Collected::default()).collect();
    let mut used = 0;
    while answers.iter().any(|answer| answer.outcome.is_none()) {
        let stopped = || ApiError::unavailable("the scheduler has stopped");
        let (index, update) = updates.next().await.ok_or_else(stopped)?;
        let Some(answer) = answers.get_mut(index) else { continue };
        used += size(&update);
        if used > held.bytes() {
            held.add((used - held.bytes()).max(GROWTH)).map_err(|error| ApiError {
                message: format!("{}; or set a maximum of tokens, or stream", error.message),
                ..error
            })?;
        }
        match update {
            Update::Started { seed } => answer.seed = seed,
            Update::Read(_) | Update::Recomputing { .. } => {}
            Update::Prompt(probabilities) => answer.of_prompt.push(probabilities),
            Update::Generated(generated) => {
                answer.text += &generated.text;
                answer.tokens.extend(generated.token);
                answer.probabilities.extend(generated.probabilities);
            }
            Update::Embedded(embeddings) => answer.embeddings = embeddings,
            Update::Ended(outcome) => answer.outcome = Some(outcome),
            Update::Failed(error) => return Err(error.into()),
        }
    }
    Ok((answers.into_iter().map(Arc::new).collect(), held))
}

/// Returns the memory of an update until it is sent.
pub fn size(update: &Update) -> usize {
    let of = |probabilities: &Probabilities| probabilities_bytes(probabilities.top.len());
    match update {
        Update::Prompt(probabilities) => of(probabilities),
        Update::Generated(generated) => {
            let probabilities = generated.probabilities.as_ref().map_or(0, of);
            2 * (generated.text.len() + size_of::<Token>()) + probabilities
        }
        // Embeddings are reserved before they are computed.
        _ => 0,
    }
}

/// The values that a stream sends for each update.
pub trait Form: Send + 'static {
    /// Returns the values before the first update of an answer.
    fn begin(&mut self, _index: usize) -> Vec<Value> {
        Vec::new()
    }

    /// Returns the values for an update of an answer.
    fn update(&mut self, index: usize, update: Update) -> Vec<Value>;

    /// Returns the values after all answers.
    fn end(&mut self) -> Vec<Value> {
        Vec::new()
    }

    /// Returns the value that keeps a silent stream alive during prompt processing. Null sends a
    /// comment: proxies count it as traffic, but some clients do not.
    fn alive(&mut self) -> Value {
        Value::Null
    }

    /// Returns the value for an error.
    fn error(&mut self, error: &ApiError) -> Value {
        error.to_json()
    }
}

/// Returns a response that streams `count` answers. Closing the connection cancels them.
pub fn stream(updates: Updates, count: usize, form: impl Form, framing: Framing) -> Response {
    framing.respond(async move |texts| {
        let texts = Texts { texts, framing, spoken: Instant::now() };
        // An error means that the client has closed its connection.
        let _ = send(updates, count, form, texts).await;
    })
}

/// Sends texts of a stream as soon as the client has room.
struct Texts {
    texts: mpsc::Sender<String>,
    framing: Framing,
    /// The time of the last text.
    spoken: Instant,
}

/// The client has closed its connection.
struct Gone;

impl Texts {
    async fn send(&mut self, values: Vec<Value>) -> Result<(), Gone> {
        for value in values {
            self.spoken = Instant::now();
            // The values of a token take fifty times the memory of their text, so keep only the
            // text.
            self.text(self.framing.text(&value)).await?;
        }
        Ok(())
    }

    async fn text(&self, text: String) -> Result<(), Gone> {
        match text.is_empty() {
            true => Ok(()),
            false => self.texts.send(text).await.map_err(|_| Gone),
        }
    }
}

/// Sends the values of all updates.
async fn send(
    mut updates: Updates,
    count: usize,
    mut form: impl Form,
    mut texts: Texts,
) -> Result<(), Gone> {
    for index in 0..count {
        texts.send(form.begin(index)).await?;
    }
    let mut open = count;
    while open > 0 {
        let silence_end =
            updates.keep_alive.and_then(|interval| texts.spoken.checked_add(interval));
        let update = tokio::select! {
            () = texts.texts.closed() => return Err(Gone),
            update = updates.next() => update,
            () = until(silence_end) => {
                texts.send(vec![form.alive()]).await?;
                continue;
            }
        };
        let error = match update {
            None => ApiError::unavailable("the scheduler has stopped"),
            Some((_, Update::Failed(error))) => error.into(),
            Some((index, update)) => {
                open -= usize::from(matches!(update, Update::Ended(_)));
                texts.send(form.update(index, update)).await?;
                continue;
            }
        };
        return texts.send(vec![form.error(&error)]).await;
    }
    texts.send(form.end()).await?;
    texts.text(texts.framing.end().into()).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_framed() {
        let value = json!({ "type": "a", "text": "b\nc" });
        let data = r#"data: {"type":"a","text":"b\nc"}"#;
        assert_eq!(Framing::Events.text(&value), format!("{data}\n\n"));
        assert_eq!(Framing::NamedEvents.text(&value), format!("event: a\n{data}\n\n"));
        assert_eq!(Framing::Lines.text(&value), format!("{}\n", &data[6..]));
        assert_eq!(Framing::Events.text(&Value::Null), ":\n\n");
        assert_eq!(Framing::Lines.text(&Value::Null), "");
    }
}
