//! Responses that are sent in parts.

use std::{
    convert::Infallible,
    future::pending,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, Bytes},
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde_json::Value;
use tokio::{sync::mpsc, time::sleep_until};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};

use super::work;

/// Maximum parts buffered for a slow client.
const BUFFERED: usize = 16;

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

impl Framing {
    /// Returns the text of a value; null is a comment.
    pub fn text(self, value: &Value) -> String {
        if self == Framing::Lines {
            return if value.is_null() { String::new() } else { format!("{value}\n") };
        }
        match value["type"].as_str() {
            _ if value.is_null() => ":\n\n".into(),
            Some(name) if self == Framing::NamedEvents => {
                format!("event: {name}\ndata: {value}\n\n")
            }
            _ => format!("data: {value}\n\n"),
        }
    }

    /// Returns the text after all answers.
    pub fn end(self) -> &'static str {
        if self == Framing::EventsUntilDone { "data: [DONE]\n\n" } else { "" }
    }

    /// Returns a response with the parts that `send` sends to a channel. Sending fails once the client
    /// has closed its connection.
    pub fn respond<T, F>(self, send: impl FnOnce(mpsc::Sender<T>) -> F) -> Response
    where
        T: Into<Bytes> + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (parts, receiver) = mpsc::channel(BUFFERED);
        work::connections().spawn(send(parts));
        let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>));
        match self {
            Framing::Lines => ([(CONTENT_TYPE, "application/x-ndjson")], body).into_response(),
            _ => ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")], body)
                .into_response(),
        }
    }
}

/// Waits until a time; for ever if there is none.
pub async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => pending().await,
    }
}

/// Returns the time after an interval from now; `None` without one.
pub fn after(interval: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(interval?)
}
