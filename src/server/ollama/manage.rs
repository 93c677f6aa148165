//! `/api/pull`, `/api/delete`, `/api/copy` and `/api/create`: which models there are.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use rope_cpu::hub::Wanted;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};

use crate::server::{
    error::ApiError,
    manage::{Managed, Named},
    models::{Progress, Status},
    read::Failure,
    state::Server,
    work,
};

/// The shortest time between two lines about a download.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum lines that wait for a slow client.
const BUFFERED: usize = 16;

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
    let name = pull.named.required()?;
    let name = ["hf.co/", "huggingface.co/"]
        .iter()
        .find_map(|hub| name.strip_prefix(hub))
        .unwrap_or(&name);
    let wanted: Wanted = name.parse().map_err(|_| {
        let expected = "USER/MODEL[:QUANT], a repository of the Hugging Face Hub";
        Failure::unless_one_of("model", expected, Some(name))
    })?;
    let mut progress = server.models.pull(wanted, name)?;
    if !pull.stream.unwrap_or(true) {
        let ended = progress.wait_for(|progress| progress.end.is_some()).await;
        return match ended.ok().and_then(|progress| progress.end.clone()) {
            Some(Ok(())) => Ok(Json(json!({ "status": "success" })).into_response()),
            Some(Err(message)) => Err(ApiError::internal(message)),
            None => Err(ApiError::internal("the download has stopped")),
        };
    }
    let (lines, receiver) = mpsc::channel(BUFFERED);
    work::connections().spawn(async move {
        // An error means that the client has closed its connection.
        let _ = report(progress, &lines).await;
    });
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// Sends the progress of a download until its end.
async fn report(
    mut progress: watch::Receiver<Progress>,
    lines: &mpsc::Sender<String>,
) -> Result<(), mpsc::error::SendError<String>> {
    let send = async |value: Value| lines.send(format!("{value}\n")).await;
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
    let (shelf, models) = (server.models.shelf()?, &server.models);
    let name = named.required()?;
    let listed = models.listed(&name, &[])?;
    if listed.name != name {
        return Err(ApiError::not_found(format_args!(
            "no model is named {name:?}: give the whole name, such as {:?}",
            listed.name
        )));
    }
    if listed.status == Status::Loading
        || listed.app.is_some_and(|app| app.scheduler.status().busy())
    {
        return Err(ApiError::unavailable(format_args!(
            "the model {name:?} is in use: try again later"
        )));
    }
    models.unload(&name);
    let removed = shelf.remove(&name).map_err(ApiError::invalid)?;
    models.refresh();
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
    name_model(&server, &source, &destination)?;
    Ok(Json(json!({ "status": "success" })))
}

crate::object! {
    /// A request of `/api/create`.
    pub struct Create {
        /// The name of a model.
        from: Option<String>,
        /// Options, which are refused: presets have them.
        parameters: Option<Map<String, Value>>,
        /// A system message, which is refused.
        system: Option<String>,
        /// A chat template, which is refused.
        template: Option<String>,
        ..named: Named,
    }
}

/// Answers `POST /api/create`: gives a model another name. Options belong into the file of presets.
pub async fn create(
    State(server): State<Arc<Server>>,
    Managed(Create { from, parameters, system, template, named }): Managed<Create>,
) -> Result<Json<Value>, ApiError> {
    let given = [
        ("parameters", parameters.is_some_and(|parameters| !parameters.is_empty())),
        ("system", system.is_some_and(|system| !system.is_empty())),
        ("template", template.is_some_and(|template| !template.is_empty())),
    ];
    if let Some((field, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(ApiError::unsupported(format_args!(
            "\"{field}\" is not supported here: write a preset, or import a Modelfile with rope-cpu import"
        )));
    }
    let from = from.ok_or_else(|| ApiError::field("from", "the name of a model"))?;
    let name = named.required()?;
    name_model(&server, &from, &name)?;
    Ok(Json(json!({ "status": "success" })))
}

fn name_model(server: &Server, from: &str, to: &str) -> Result<(), ApiError> {
    let copied = server.models.shelf()?.copy(from, to);
    server.models.refresh();
    copied.map(drop).map_err(ApiError::invalid)
}
