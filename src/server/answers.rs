//! Answers from the scheduler: collected, or as a stream of JSON values.

use std::{convert::Infallible, future::pending, time::Instant};

use axum::{
    body::Body,
    http::header::CONTENT_TYPE,
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use rope_cpu::{
    batch::{Outcome, Update},
    {Token, sample::Probabilities},
};
use serde_json::Value;
use tokio::{sync::mpsc, time::sleep_until};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};

use super::{error::ApiError, updates::Updates, work};

/// Maximum values buffered for a slow client.
const BUFFERED: usize = 64;

/// A whole answer.
#[derive(Debug, Default)]
pub struct Collected {
    /// Generated text.
    pub text: String,
    /// Generated tokens.
    pub tokens: Vec<Token>,
    /// The probabilities of the prompt's tokens from the second one on, if requested.
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

/// Waits until `count` answers are complete.
///
/// # Errors
/// If one of them fails.
pub async fn collect(mut updates: Updates, count: usize) -> Result<Vec<Collected>, ApiError> {
    let mut answers: Vec<_> = (0..count).map(|_| Collected::default()).collect();
    while answers.iter().any(|answer| answer.outcome.is_none()) {
        let stopped = || ApiError::unavailable("the scheduler has stopped");
        let (index, update) = updates.next().await.ok_or_else(stopped)?;
        let Some(answer) = answers.get_mut(index) else { continue };
        match update {
            Update::Started { seed } => answer.seed = seed,
            Update::Read(_) => {}
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
    Ok(answers)
}

/// Waits for the only answer, and returns its text and its end.
///
/// # Errors
/// If it fails.
pub async fn collect_one(updates: Updates) -> Result<(String, Outcome), ApiError> {
    let answer = collect(updates, 1).await?.pop().unwrap_or_default();
    let outcome = answer.outcome.ok_or_else(|| ApiError::internal("the answer has no end"))?;
    Ok((answer.text, outcome))
}

/// The form of a stream: which values each update sends.
pub trait Form: Send + 'static {
    /// Returns the values before the first update.
    fn begin(&mut self) -> Vec<Value> {
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

/// How the values of a stream are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events.
    Events,
    /// Server-sent events, and `[DONE]` after the last one unless it is an error.
    EventsUntilDone,
    /// Server-sent events, named by field `type` of the value.
    NamedEvents,
    /// One line per value.
    Lines,
}

/// Returns a response that streams `count` answers. Closing the connection cancels them.
pub fn stream(updates: Updates, count: usize, form: impl Form, framing: Framing) -> Response {
    let (values, receiver) = mpsc::channel(BUFFERED);
    let connections = work::connections();
    connections.spawn(send(updates, count, form, values));
    let _timers = connections.enter();
    let values = ReceiverStream::new(receiver);
    if framing == Framing::Lines {
        let values = values.filter_map(|value| value.filter(|value| !value.is_null()));
        let lines = values.map(|value| Ok::<_, Infallible>(format!("{value}\n")));
        return ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines))
            .into_response();
    }
    let events = values.filter_map(move |value| event(value, framing).map(Ok::<_, Infallible>));
    Sse::new(events).into_response()
}

/// Returns the event of a value; `None` for the end of all answers.
fn event(value: Option<Value>, framing: Framing) -> Option<Event> {
    let Some(value) = value else {
        return (framing == Framing::EventsUntilDone).then(|| Event::default().data("[DONE]"));
    };
    if value.is_null() {
        return Some(Event::default().comment(""));
    }
    let event = match value["type"].as_str() {
        Some(name) if framing == Framing::NamedEvents => Event::default().event(name),
        _ => Event::default(),
    };
    Some(event.data(value.to_string()))
}

/// Sends the values of all updates, then `None` after all answers.
async fn send(
    mut updates: Updates,
    count: usize,
    mut form: impl Form,
    values: mpsc::Sender<Option<Value>>,
) {
    let mut open = count;
    let mut next = form.begin();
    let mut spoken = Instant::now();
    loop {
        if !next.is_empty() {
            spoken = Instant::now();
        }
        for value in next {
            if values.send(Some(value)).await.is_err() {
                return;
            }
        }
        if open == 0 {
            // An error means that the client is gone.
            let _ = values.send(None).await;
            return;
        }
        let silence_end = updates.keep_alive.and_then(|interval| spoken.checked_add(interval));
        let silence = async {
            match silence_end {
                Some(end) => sleep_until(end.into()).await,
                None => pending().await,
            }
        };
        let update = tokio::select! {
            () = values.closed() => return,
            update = updates.next() => update,
            () = silence => {
                next = vec![form.alive()];
                continue;
            }
        };
        let stopped = || ApiError::unavailable("the scheduler has stopped");
        let error = match update {
            None => stopped(),
            Some((_, Update::Failed(error))) => error.into(),
            Some((index, update)) => {
                open -= usize::from(matches!(update, Update::Ended(_)));
                next = form.update(index, update);
                if open == 0 {
                    next.extend(form.end());
                }
                continue;
            }
        };
        let _ = values.send(Some(form.error(&error))).await;
        return;
    }
}
