//! The log: one line per request.
//!
//! The log has no prompts and answers unless you enable them. It also has no error messages, since
//! they may quote the request.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode},
    middleware::Next,
    response::Response,
};
use rope_cpu::{
    batch::Update,
    generate::{End, Timings},
};
use tracing::{debug, info};

use super::{error::ApiError, identifier, state::Server, timings::while_reading};

/// The header with the identifier of a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum characters of a client's request identifier.
const ID_MAX: usize = 64;

/// Paths that clients poll. They are logged only at a higher level.
const POLLED: [&str; 6] = ["/health", "/v1/health", "/livez", "/readyz", "/metrics", "/slots"];

/// Status in the log when the client closed the connection before a response, as in nginx.
const CLIENT_CLOSED: u16 = 499;

tokio::task_local! {
    static RECORD: Arc<Record>;
}

/// The log record of a request. Its line is written when the last reference is dropped: after the
/// response's head and all answers.
pub struct Record {
    id: String,
    method: Method,
    path: String,
    /// Whether the log may contain the request's text.
    quotes: bool,
    started: Instant,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    status: Option<StatusCode>,
    error: Option<ApiError>,
    /// The timings of each answer so far.
    answers: Vec<Timings>,
    /// Number of unfinished answers.
    open: usize,
    /// Time until the first answer had a slot.
    queued: Option<Duration>,
    /// Time to the first token.
    first_token: Option<Duration>,
    /// Source of the last answer's reused tokens.
    source: Option<&'static str>,
    /// How the last answer ended.
    end: Option<&'static str>,
}

/// Logs a request, and adds its identifier to the response.
pub async fn log(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let id = given_id(request.headers()).unwrap_or_else(|| identifier("req-"));
    // Cannot fail: identifiers have only characters that are valid in headers.
    let header = HeaderValue::from_str(&id);
    let record = Arc::new(Record {
        id,
        method: request.method().clone(),
        path: request.uri().path().into(),
        quotes: server.options.logs_prompts,
        started: Instant::now(),
        progress: Mutex::default(),
    });
    debug!(target: "request", id = record.id, method = %record.method, path = record.path, "arrived");
    let mut response = RECORD.scope(record.clone(), next.run(request)).await;
    record.answer_with(&response);
    response.headers_mut().extend(header.ok().map(|header| (REQUEST_ID, header)));
    response
}

/// Returns the client's request identifier, if it is short and plain.
fn given_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
    let valid = (1..=ID_MAX).contains(&id.len()) && id.bytes().all(plain);
    valid.then(|| id.into())
}

impl Record {
    /// Returns the record of the request that the current task handles.
    pub fn current() -> Option<Arc<Record>> {
        RECORD.try_with(Arc::clone).ok()
    }

    /// Returns a task with the current task's record, for any thread.
    pub fn with_current<T>(task: impl Future<Output = T>) -> impl Future<Output = T> {
        let record = Self::current();
        async move {
            match record {
                Some(record) => RECORD.scope(record, task).await,
                None => task.await,
            }
        }
    }

    /// Returns a task with this record.
    pub fn scope<T>(self: Arc<Self>, task: impl Future<Output = T>) -> impl Future<Output = T> {
        RECORD.scope(self, task)
    }

    /// Returns when the request arrived.
    pub fn arrived(&self) -> Instant {
        self.started
    }

    /// Records that `count` answers were requested.
    pub fn expect(&self, count: usize) {
        let mut progress = self.progress();
        progress.answers = vec![Timings::default(); count];
        progress.open = count;
    }

    /// Logs the text of a prompt, if the server's options ask for it.
    pub fn prompt(&self, text: impl FnOnce() -> String) {
        if self.quotes {
            info!(target: "prompt", id = self.id, text = text());
        }
    }

    /// Records an update of the answer with this index.
    pub fn update(&self, index: usize, update: &Update) {
        let mut progress = self.progress();
        let timings = match update {
            Update::Started { .. } => {
                progress.queued.get_or_insert_with(|| self.started.elapsed());
                return;
            }
            Update::Read(reading) => while_reading(reading),
            Update::Generated(generated) => {
                progress.first_token.get_or_insert_with(|| self.started.elapsed());
                generated.timings
            }
            Update::Recomputing { .. } | Update::Prompt(_) | Update::Embedded(_) => return,
            Update::Ended(outcome) => {
                progress.open = progress.open.saturating_sub(1);
                progress.end = Some(name(&outcome.end));
                progress.source = Some(outcome.source);
                outcome.timings
            }
            Update::Failed(error) => {
                progress.error = Some(error.into());
                return;
            }
        };
        if let Some(answer) = progress.answers.get_mut(index) {
            *answer = timings;
        }
    }

    fn answer_with(&self, response: &Response) {
        let mut progress = self.progress();
        progress.status = Some(response.status());
        if let Some(error) = response.extensions().get::<ApiError>() {
            progress.error = Some(error.clone());
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Record { id, method, path, quotes, started, progress } = self;
        let progress = progress.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Progress { error, .. } = progress;
        let answers = Some(progress.answers.len()).filter(|answers| *answers > 0);
        let mut timings = Timings::default();
        progress.answers.iter().for_each(|answer| timings += *answer);
        let of_answers = |value: usize| answers.map(|_| value);
        let time = |time: Duration| time.as_micros() as f64 / 1e3;
        let end = match (&error, progress.open) {
            _ if answers.is_none() => None,
            (Some(_), _) => Some("error"),
            (None, 0) => progress.end,
            _ => Some("cancelled"),
        };
        macro_rules! line {
            ($level:ident) => {
                $level!(
                    target: "request",
                    id,
                    method = %method,
                    path,
                    status = progress.status.map_or(CLIENT_CLOSED, |status| status.as_u16()),
                    total_ms = time(started.elapsed()),
                    answers,
                    reused = of_answers(timings.reused),
                    source = progress.source,
                    omitted = of_answers(timings.omitted).filter(|omitted| *omitted > 0),
                    read = of_answers(timings.read),
                    generated = of_answers(timings.generated),
                    queued_ms = progress.queued.map(time),
                    first_token_ms = progress.first_token.map(time),
                    reading_ms = answers.map(|_| time(timings.reading)),
                    generating_ms = answers.map(|_| time(timings.generating)),
                    end,
                    error = error.as_ref().map(|error| error.kind),
                    message = error.as_ref().filter(|_| *quotes).map(|error| &error.message[..]),
                )
            };
        }
        match POLLED.contains(&&path[..]) {
            true => line!(debug),
            false => line!(info),
        }
    }
}

fn name(end: &End) -> &'static str {
    match end {
        End::Model => "model",
        End::Complete => "grammar",
        End::Stop(_) => "stop",
        End::Caller => "caller",
        End::TokensMax => "limit",
        End::ContextFull => "context",
    }
}
