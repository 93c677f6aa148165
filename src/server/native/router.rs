//! The models as llama-server's router has them: loads, downloads, removals, and events of them.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Json,
    extract::{Query, State},
    response::Response,
};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use crate::server::{
    error::ApiError,
    framing::{Framing, after, until},
    manage::{Managed, Manager, Named},
    models::EVENT_OF_ALL,
    state::Server,
};

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
    Ok(Framing::Events.respond(async move |parts| {
        let mut event = Value::Null;
        // An error means that the client has closed its connection.
        while parts.send(Framing::Events.text(&event)).await.is_ok() {
            event = tokio::select! {
                () = parts.closed() => return,
                () = until(after(interval)) => Value::Null,
                event = events.recv() => match event {
                    Ok(event) => event,
                    Err(RecvError::Lagged(_)) => {
                        json!({ "model": EVENT_OF_ALL, "event": "models_reload" })
                    }
                    Err(RecvError::Closed) => return,
                },
            };
        }
    }))
}
