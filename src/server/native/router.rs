//! The models as llama-server's router has them: loads, downloads, removals, and events of them.

use std::{collections::HashMap, convert::Infallible, future::pending, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::{Query, State},
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::sync::{broadcast::error::RecvError, mpsc};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};

use crate::server::{
    error::ApiError,
    manage::{Managed, Manager, Named},
    models::EVENT_OF_ALL,
    state::Server,
    work,
};

/// Maximum events that wait for the connection.
const BUFFERED: usize = 16;

/// Answers `POST /models/load`: starts to open a model, and does not wait.
pub async fn load(
    State(server): State<Arc<Server>>,
    Managed(named): Managed<Named>,
) -> Result<Json<Value>, ApiError> {
    let name = named.required()?;
    let (name, entry) = server.models.resolve(Some(&name), &[])?;
    server.models.load(&name, entry);
    Ok(success())
}

/// Answers `POST /models/unload`: closes a model once no request uses it, or ends a download of
/// `POST /models`. Does not wait.
pub async fn unload(
    State(server): State<Arc<Server>>,
    Managed(named): Managed<Named>,
) -> Result<Json<Value>, ApiError> {
    let name = named.required()?;
    if server.models.release(&name) {
        return Ok(success());
    }
    let (name, _) = server.models.resolve(Some(&name), &[])?;
    match server.models.unload(&name) {
        true => Ok(success()),
        false => Err(ApiError::invalid(format_args!("the model {name:?} is not loaded"))),
    }
}

/// Answers `POST /models`: starts to download a model, and does not wait.
pub async fn download(
    State(server): State<Arc<Server>>,
    Managed(named): Managed<Named>,
) -> Result<Json<Value>, ApiError> {
    let name = named.required()?;
    if server.models.listed(&name, &[]).is_ok_and(|listed| listed.name == name) {
        return Err(ApiError::invalid(format_args!(
            "the model {name:?} exists already: DELETE /models?model=NAME removes it"
        )));
    }
    server.models.pull_unattended(&name)?;
    Ok(success())
}

/// Answers `DELETE /models?model=NAME`: removes a model, or ends its download.
pub async fn remove(
    _: Manager,
    State(server): State<Arc<Server>>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, ApiError> {
    let name = query.get("model").ok_or_else(|| ApiError::field("model", "given"))?;
    if !server.models.release(name) {
        server.models.remove(name)?;
    }
    Ok(success())
}

fn success() -> Json<Value> {
    Json(json!({ "success": true }))
}

/// Answers `GET /models/sse`: a stream of events. A client that is too slow for them gets
/// `models_reload`: it should read the list.
pub async fn watch(State(server): State<Arc<Server>>) -> Result<Response, ApiError> {
    let stopping = || ApiError::unavailable("the server is stopping");
    let mut events = server.models.watch().ok_or_else(stopping)?;
    let interval = server.options.listen.sse_ping_interval;
    let (parts, receiver) = mpsc::channel(BUFFERED);
    work::connections().spawn(async move {
        let mut part = String::from(":\n\n");
        // An error means that the client has closed its connection.
        while parts.send(part).await.is_ok() {
            let silence = async {
                match interval {
                    Some(interval) => tokio::time::sleep(interval).await,
                    None => pending().await,
                }
            };
            let event = tokio::select! {
                () = parts.closed() => return,
                () = silence => None,
                event = events.recv() => match event {
                    Ok(event) => Some(event),
                    Err(RecvError::Lagged(_)) => {
                        Some(json!({ "model": EVENT_OF_ALL, "event": "models_reload" }))
                    }
                    Err(RecvError::Closed) => return,
                },
            };
            part = event.map_or_else(|| ":\n\n".into(), |event| format!("data: {event}\n\n"));
        }
    });
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>));
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    Ok((headers, body).into_response())
}
