//! Chooses the model of a request, and waits until it is open.
//!
//! A stream gets signs of life meanwhile, so that its client does not give up.

use std::{fmt, sync::Arc};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{FromRequestParts, Query, Request, State},
    http::{Method, Uri, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, json};
use tokio::{runtime::Handle, sync::mpsc, task::JoinSet};
use tokio_stream::StreamExt;

use super::{KeepAlive, Lease, Waiting};
use crate::server::{
    app::App,
    error::ApiError,
    framing::{Framing, after, until},
    http,
    log::Record,
    manage, ollama,
    owner::Owner,
    state::Server,
    work,
};

/// Extractor of a request's model for handlers. Without a chosen one it is the default model, and
/// fails if that is not open.
#[derive(Clone)]
pub struct Loaded(pub Arc<App>);

impl FromRequestParts<Arc<Server>> for Loaded {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, server: &Arc<Server>) -> Result<Self, ApiError> {
        match parts.extensions.get::<Loaded>() {
            Some(loaded) => Ok(loaded.clone()),
            None => server.models.loaded(None).map(Loaded),
        }
    }
}

/// The fields of any request that choose a model. Handlers read the whole body.
#[derive(Default, Deserialize)]
struct Asked {
    #[serde(default)]
    model: Value,
    #[serde(default)]
    stream: Value,
    #[serde(default)]
    keep_alive: Value,
    #[serde(default)]
    messages: Filled,
    #[serde(default)]
    prompt: Filled,
}

/// Whether a field has a text, messages or another value. The value itself is skipped, since it may be
/// large.
#[derive(Default)]
struct Filled(bool);

impl<'de> Deserialize<'de> for Filled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Filled)
    }
}

/// Reads any value as whether it is not empty.
struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(!text.is_empty())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        let mut filled = false;
        while list.next_element::<IgnoredAny>()?.is_some() {
            filled = true;
        }
        Ok(filled)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<bool, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(true)
    }
}

/// Chooses the model of a request: its field `model`, or `?model=` of a GET request. A GET request
/// never opens a model.
pub async fn choose(
    State(server): State<Arc<Server>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if request.method() != Method::POST {
        return shown(&server, request, next).await;
    }
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.map_err(ApiError::invalid)?;
    let models = &server.models;
    // The body has no effect with `-m`, unless the request waits.
    let asked = models.is_shelf().then(|| Asked::of(&body)).transpose()?;
    let in_query = model_in_query(&parts.uri);
    let named = asked.as_ref().map(Asked::name).transpose()?.flatten();
    let chosen = named.or(in_query.as_deref());
    let (name, entry) = models.resolve(chosen, &server.options.listen.alias)?;
    let keep_alive = asked.as_ref().map(Asked::keep_alive).transpose()?.flatten();
    let path = parts.uri.path().to_string();
    if keep_alive.is_some_and(KeepAlive::is_zero)
        && asked.as_ref().is_some_and(|asked| asked.is_empty(&path))
    {
        manage::check(&parts)?;
        models.unload(&name);
        return Ok(ollama::unloaded(&path, &name));
    }
    let mut waiting = models.wait(&name, entry, keep_alive)?;
    let lease = match waiting.ready() {
        Some(lease) => lease?,
        None => {
            let asked = asked.map_or_else(|| Asked::of(&body), Ok)?;
            if asked.streams(&path) {
                let speaks = Speaks { framing: framing(&path), name, path };
                let request = Request::from_parts(parts, Body::from(body));
                return Ok(speaks.while_waiting(&server, waiting, request, next).await);
            }
            waiting.lease().await?
        }
    };
    drop(waiting);
    parts.extensions.insert(Loaded(lease.app.clone()));
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    Ok(lease.until_sent(response))
}

/// Answers a request that shows a model.
async fn shown(server: &Server, mut request: Request, next: Next) -> Result<Response, ApiError> {
    if let Some(name) = model_in_query(request.uri()) {
        let app = server.models.loaded(Some(&name))?;
        request.extensions_mut().insert(Loaded(app));
    }
    Ok(next.run(request).await)
}

/// Returns the model of `?model=`.
fn model_in_query(uri: &Uri) -> Option<String> {
    #[derive(Deserialize)]
    struct Model {
        model: Option<String>,
    }
    Query::<Model>::try_from_uri(uri).ok()?.0.model
}

impl Asked {
    /// Reads the fields, whatever the types of the others.
    #[expect(
        clippy::disallowed_methods,
        reason = "it skips the other fields, and none is flattened"
    )]
    fn of(body: &Bytes) -> Result<Self, ApiError> {
        if body.is_empty() {
            return Ok(Asked::default());
        }
        match serde_json::from_slice(body) {
            // Its handler reports what is wrong.
            Err(e) if e.is_data() => Ok(Asked::default()),
            asked => asked
                .map_err(|e| ApiError::invalid(format_args!("the body is not valid JSON: {e}"))),
        }
    }

    fn name(&self) -> Result<Option<&str>, ApiError> {
        match &self.model {
            Value::Null => Ok(None),
            Value::String(name) => Ok(Some(name.as_str()).filter(|name| !name.is_empty())),
            other => Err(ApiError::field(
                "model",
                format_args!("a string, not {}", crate::server::fields::shown(other)),
            )),
        }
    }

    fn keep_alive(&self) -> Result<Option<KeepAlive>, ApiError> {
        match &self.keep_alive {
            Value::Null => Ok(None),
            value => Ok(Some(KeepAlive::of_value(value)?)),
        }
    }

    /// Returns whether the answer is a stream. ollama streams by default.
    fn streams(&self, path: &str) -> bool {
        self.stream.as_bool().unwrap_or(matches!(path, "/api/chat" | "/api/generate"))
    }

    /// Returns whether it is ollama's request without a prompt, which loads or unloads a model.
    fn is_empty(&self, path: &str) -> bool {
        match path {
            "/api/chat" => !self.messages.0,
            "/api/generate" => !self.prompt.0,
            _ => false,
        }
    }
}

/// Returns how a path frames its streams.
fn framing(path: &str) -> Framing {
    match path {
        path if path.starts_with("/api/") => Framing::Lines,
        path if path.starts_with("/v1/messages") || path.ends_with("/responses") => {
            Framing::NamedEvents
        }
        _ => Framing::Events,
    }
}

/// A stream that starts before its model is open.
struct Speaks {
    framing: Framing,
    name: String,
    path: String,
}

impl Speaks {
    /// Waits for the model, and then answers. If it takes longer than the interval of signs of
    /// life, the response starts before.
    async fn while_waiting(
        self,
        server: &Server,
        mut waiting: Waiting,
        request: Request,
        next: Next,
    ) -> Response {
        let answers = Answers {
            request,
            next,
            owner: Owner::current(),
            record: Record::current(),
            threads: Handle::current(),
            connections: work::connections(),
        };
        let interval = server.options.listen.sse_ping_interval;
        // Timers run on the threads of connections.
        let mut first = JoinSet::new();
        let soon = async move {
            tokio::select! {
                lease = waiting.lease() => Ok(lease),
                () = until(after(interval)) => Err(waiting),
            }
        };
        first.spawn_on(soon, &work::connections());
        let waiting = match first.join_next().await {
            Some(Ok(Ok(Ok(lease)))) => return answers.answer(lease).await,
            Some(Ok(Ok(Err(error)))) => return error.into_response(),
            Some(Ok(Err(waiting))) => waiting,
            _ => return ApiError::unavailable("the server is stopping").into_response(),
        };
        self.framing.respond(async move |parts| {
            // An error means that the client has closed its connection.
            let _ = self.speak(waiting, interval, answers, &parts).await;
        })
    }

    /// Sends signs of life until the model is open, and then the answer.
    async fn speak(
        &self,
        mut waiting: Waiting,
        interval: Option<std::time::Duration>,
        answers: Answers,
        parts: &mpsc::Sender<Bytes>,
    ) -> Result<(), mpsc::error::SendError<Bytes>> {
        let lease = loop {
            parts.send(self.framing.text(&self.alive()).into()).await?;
            tokio::select! {
                () = parts.closed() => return Ok(()),
                lease = waiting.lease() => break lease,
                () = until(after(interval)) => {}
            }
        };
        drop(waiting);
        let mut response = match lease {
            Ok(lease) => tokio::select! {
                () = parts.closed() => return Ok(()),
                response = answers.answer(lease) => response,
            },
            Err(error) => error.into_response(),
        };
        if let Some(error) = response.extensions_mut().remove::<ApiError>() {
            let mut body = http::error_body(&self.path, &error);
            if self.framing == Framing::NamedEvents {
                body["type"] = "error".into();
            }
            return parts.send(self.framing.text(&body).into()).await;
        }
        let mut data = response.into_body().into_data_stream();
        while let Some(Ok(part)) = data.next().await {
            parts.send(part).await?;
        }
        Ok(())
    }

    /// Returns the value of a sign of life, before the answer has started.
    fn alive(&self) -> Value {
        match &self.path[..] {
            "/v1/messages" => json!({ "type": "ping" }),
            path if path.starts_with("/api/") => ollama::waiting(path, &self.name),
            _ => Value::Null,
        }
    }
}

/// The rest of a request's way to its handler.
struct Answers {
    request: Request,
    next: Next,
    owner: Owner,
    record: Option<Arc<Record>>,
    threads: Handle,
    connections: Handle,
}

impl Answers {
    /// Handles the request on the threads for requests.
    async fn answer(self, lease: Lease) -> Response {
        let Answers { mut request, next, owner, record, threads, connections } = self;
        request.extensions_mut().insert(Loaded(lease.app.clone()));
        let handled = async move { lease.until_sent(next.run(request).await) };
        let mut running = JoinSet::new();
        let handled = work::on_connections(connections, owner.scope(handled));
        match record {
            Some(record) => running.spawn_on(record.scope(handled), &threads),
            None => running.spawn_on(handled, &threads),
        };
        match running.join_next().await {
            Some(Ok(response)) => response,
            _ => ApiError::internal("the request could not be handled").into_response(),
        }
    }
}
