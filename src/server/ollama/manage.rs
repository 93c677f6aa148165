//! `/api/pull`, `/api/delete`, `/api/copy` and `/api/create`: which models there are.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use rope_cpu::shelf::presets::OfOllama;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};

use crate::server::{
    error::ApiError,
    framing::Framing,
    manage::{Managed, Named},
    models::Progress,
    read::{Failure, Treatment},
    state::Server,
};

/// The shortest time between two lines about a download.
const PAUSE: Duration = Duration::from_millis(100);

crate::object! {
    /// A request of `/api/pull`.
    pub struct Pull {
        /// Whether to accept a hub without a valid certificate, which is refused.
        insecure: Option<bool>,
        /// Whether to report the progress; true by default.
        stream: Option<bool>,
        ..named: Named,
    }
}

/// Answers `POST /api/pull`: downloads a model from the hub. The download ends when all of its clients
/// have left.
pub async fn pull(
    State(server): State<Arc<Server>>,
    Managed(pull): Managed<Pull>,
) -> Result<Response, ApiError> {
    if pull.insecure == Some(true) {
        return Err(ApiError::field("insecure", "false"));
    }
    let mut progress = server.models.pull(&pull.named.required()?)?;
    if !pull.stream.unwrap_or(true) {
        let ended = progress.wait_for(|progress| progress.end.is_some()).await;
        return match ended.ok().and_then(|progress| progress.end.clone()) {
            Some(Ok(())) => Ok(Json(json!({ "status": "success" })).into_response()),
            Some(Err(message)) => Err(ApiError::internal(message)),
            None => Err(ApiError::internal("the download has stopped")),
        };
    }
    Ok(Framing::Lines.respond(async move |lines| {
        // An error means that the client has closed its connection.
        let _ = report(progress, &lines).await;
    }))
}

/// Sends the progress of a download until its end.
async fn report(
    mut progress: watch::Receiver<Progress>,
    lines: &mpsc::Sender<String>,
) -> Result<(), mpsc::error::SendError<String>> {
    let send = async |value: Value| lines.send(Framing::Lines.text(&value)).await;
    send(json!({ "status": "pulling manifest" })).await?;
    loop {
        let Progress { file, total, done, end } = progress.borrow_and_update().clone();
        if !file.is_empty() {
            let status = format!("pulling {file}");
            send(json!({ "status": status, "digest": file, "total": total, "completed": done }))
                .await?;
        }
        match end {
            Some(Ok(())) => {
                send(json!({ "status": "verifying sha256 digest" })).await?;
                return send(json!({ "status": "success" })).await;
            }
            Some(Err(message)) => return send(json!({ "error": message })).await,
            None => {}
        }
        tokio::time::sleep(PAUSE).await;
        tokio::select! {
            () = lines.closed() => return Ok(()),
            changed = progress.changed() => if changed.is_err() {
                return send(json!({ "error": "the download has stopped" })).await;
            }
        }
    }
}

/// Answers `DELETE /api/delete`: removes a model that rope-cpu downloaded, or an alias.
pub async fn delete(
    State(server): State<Arc<Server>>,
    Managed(named): Managed<Named>,
) -> Result<Json<Value>, ApiError> {
    let removed = server.models.remove(&named.required()?)?;
    Ok(Json(
        json!({ "removed": removed.name, "bytes": removed.bytes, "shared_with": removed.shared }),
    ))
}

crate::object! {
    /// A request of `/api/copy`.
    pub struct Copy {
        /// The new name.
        destination: Option<String>,
        /// The name of a model.
        source: Option<String>,
    }
}

/// Answers `POST /api/copy`: gives a model another name.
pub async fn copy(
    State(server): State<Arc<Server>>,
    Managed(Copy { source, destination }): Managed<Copy>,
) -> Result<Json<Value>, ApiError> {
    let source = source.ok_or_else(|| ApiError::field("source", "given"))?;
    let destination = destination.ok_or_else(|| ApiError::field("destination", "given"))?;
    let copied = server.models.shelf()?.copy(&source, &destination);
    server.models.refresh();
    copied.map_err(ApiError::invalid)?;
    Ok(Json(json!({ "status": "success" })))
}

crate::object! {
    /// A request of `/api/create`.
    pub struct Create {
        /// The name of a model.
        from: Option<String>,
        /// Its options, such as `{"temperature": 0.2}`, under ollama's names.
        parameters: Option<Map<String, Value>>,
        /// Whether the answer comes in lines; true by default.
        stream: Option<bool>,
        /// The system message of conversations that have none.
        system: Option<String>,
        ..named: Named,
    }
    others {
        "adapters": Treatment::Refused("give a preset the option lora", &[]),
        "files": Treatment::Refused("give \"from\", the name of a model", &[]),
        "license": Treatment::Ignored("the license is in the model file"),
        "messages": Treatment::Refused("send them with each request", &[]),
        "modelfile": Treatment::Refused("use rope-cpu import", &[]),
        "path": Treatment::Refused("use rope-cpu import", &[]),
        "quantization": Treatment::Refused("use rope-cpu quantize", &[]),
        "quantize": Treatment::Refused("use rope-cpu quantize", &[]),
        "template": Treatment::Refused("the template in the model file is used", &[]),
    }
}

/// Answers `POST /api/create`: makes a preset of a model.
pub async fn create(
    State(server): State<Arc<Server>>,
    Managed(Create { from, parameters, stream, system, named }): Managed<Create>,
) -> Result<Response, ApiError> {
    let from = from.ok_or_else(|| ApiError::field("from", "the name of a model"))?;
    let name = named.required()?;
    let parameters = Value::from(parameters.unwrap_or_default()).to_string();
    let wrong = |reason: String| Failure::of("parameters", reason);
    let mut options = OfOllama::parameters(&parameters).map_err(wrong)?;
    if !options.unknown.is_empty() {
        let reason = format!("no option has the effect of {}", options.unknown.join(", "));
        return Err(wrong(reason).into());
    }
    options.add_system(&system.unwrap_or_default());
    let shelf = server.models.shelf()?;
    let draft = shelf.draft(&from, &name, options.choices).map_err(ApiError::invalid)?;
    (server.check)(&draft).map_err(ApiError::invalid)?;
    shelf.write(&draft).map_err(ApiError::invalid)?;
    server.models.refresh();
    // If it is open, with earlier options.
    server.models.unload(&name);
    if stream == Some(false) {
        return Ok(Json(json!({ "status": "success" })).into_response());
    }
    let layer = draft.digest.map(|digest| format!("using existing layer sha256:{digest}"));
    let steps = layer.into_iter().chain(["writing manifest".into(), "success".into()]);
    let lines: String =
        steps.map(|status| Framing::Lines.text(&json!({ "status": status }))).collect();
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], lines).into_response())
}
