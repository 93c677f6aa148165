//! Answers as they come from the scheduler: collected, or as a stream of server-sent events.

use std::{convert::Infallible, time::Duration};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use rope_cpu::Token;
use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio_stream::wrappers::ReceiverStream;

use super::{
    error::ApiError,
    job::{Outcome, Update},
    probabilities::Probabilities,
};

/// The updates of all answers to a request, with the index of the answer.
pub type Updates = UnboundedReceiver<(usize, Update)>;

/// The time after which an idle connection gets a comment, so that proxies do not close it.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The events that wait for a slow client.
const BUFFERED: usize = 64;

/// A whole answer.
#[derive(Debug, Default)]
pub struct Collected {
    /// The text.
    pub text: String,
    /// The tokens.
    pub tokens: Vec<Token>,
    /// The probabilities of the tokens, if they are wanted.
    pub probabilities: Vec<Probabilities>,
    /// The seed of the sampler.
    pub seed: u32,
    /// The end.
    pub outcome: Option<Outcome>,
}

/// Waits for the ends of `count` answers.
///
/// # Errors
/// If one of them fails.
pub async fn collect(mut updates: Updates, count: usize) -> Result<Vec<Collected>, ApiError> {
    let mut answers: Vec<_> = (0..count).map(|_| Collected::default()).collect();
    while answers.iter().any(|answer| answer.outcome.is_none()) {
        let stopped = || ApiError::unavailable("the scheduler has stopped");
        let (index, update) = updates.recv().await.ok_or_else(stopped)?;
        let Some(answer) = answers.get_mut(index) else { continue };
        match update {
            Update::Started { seed } => answer.seed = seed,
            Update::Read(_) => {}
            Update::Generated(generated) => {
                answer.text += &generated.text;
                answer.tokens.extend(generated.token);
                answer.probabilities.extend(generated.probabilities);
            }
            Update::Ended(outcome) => answer.outcome = Some(outcome),
            Update::Failed(error) => return Err(error),
        }
    }
    Ok(answers)
}

/// The form of a stream of events.
pub trait Form: Send + 'static {
    /// Returns the events before the first update.
    fn begin(&mut self) -> Vec<Event> {
        Vec::new()
    }

    /// Returns the events for an update of an answer.
    fn update(&mut self, index: usize, update: Update) -> Vec<Event>;

    /// Returns the events after the ends of all answers.
    fn end(&mut self) -> Vec<Event> {
        Vec::new()
    }

    /// Returns the event for an error.
    fn error(&mut self, error: &ApiError) -> Event {
        json_event(&error.to_json())
    }
}

/// Returns a response that streams `count` answers. When the client closes it, they are abandoned.
pub fn stream(mut updates: Updates, count: usize, mut form: impl Form) -> Response {
    let (events, receiver) = mpsc::channel::<Result<Event, Infallible>>(BUFFERED);
    tokio::spawn(async move {
        let mut open = count;
        let mut send = form.begin();
        loop {
            for event in send.drain(..) {
                if events.send(Ok(event)).await.is_err() {
                    return;
                }
            }
            if open == 0 {
                return;
            }
            let update = tokio::select! {
                () = events.closed() => return,
                update = updates.recv() => update,
            };
            send = match update {
                Some((_, Update::Failed(error))) => {
                    open = 0;
                    vec![form.error(&error)]
                }
                None => {
                    open = 0;
                    vec![form.error(&ApiError::unavailable("the scheduler has stopped"))]
                }
                Some((index, update)) => {
                    open -= usize::from(matches!(update, Update::Ended(_)));
                    let mut send = form.update(index, update);
                    if open == 0 {
                        send.extend(form.end());
                    }
                    send
                }
            };
        }
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Sse::new(ReceiverStream::new(receiver)).keep_alive(keep_alive).into_response()
}

/// Returns an event with JSON as its data.
pub fn json_event(data: &Value) -> Event {
    Event::default().data(data.to_string())
}
