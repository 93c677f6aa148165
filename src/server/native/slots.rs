//! `/slots`: shows, saves, restores and erases slots.

use std::{collections::HashMap, path::PathBuf};

use axum::{
    Json,
    body::Bytes,
    extract::{Path, Query},
};
use rope_cpu::{batch::SlotState, platform::create_private_directory};
use serde_json::{Value, json};

use crate::server::{
    app::App,
    error::ApiError,
    models::Loaded,
    owner::Owner,
    read::{Failure, parse},
    slot_action::SlotAction,
    timings::timings,
};

/// Answers `GET /slots`. Never shows texts. For slots of other keys, shows only whether they are in
/// use.
pub async fn slots(
    Loaded(app): Loaded,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, ApiError> {
    if app.options.listen.no_slots {
        return Err(ApiError::unsupported("start the server with --slots to see its slots"));
    }
    let state = app.scheduler.status().state();
    if query.contains_key("fail_on_no_slot") && state.slots.iter().all(|slot| slot.busy) {
        return Err(ApiError::unavailable("no slot available"));
    }
    let owner = Owner::current();
    let slots = state.slots.into_iter().enumerate().map(|(id, slot)| {
        // Other keys may know whether the slot is in use.
        let slot = match slot.owner == owner.0 {
            true => slot,
            false => SlotState { busy: slot.busy, ..SlotState::default() },
        };
        json!({
            "id": id,
            "n_ctx": app.context,
            "speculative": false,
            "is_processing": slot.busy,
            "is_reading": slot.reading,
            "n_tokens": slot.tokens,
            "n_prompt_tokens": slot.prompt,
            "timings": timings(&slot.timings),
        })
    });
    Ok(Json(slots.collect()))
}

/// Answers `POST /slots/ID?action=save|restore|erase`.
pub async fn act(
    Loaded(app): Loaded,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let id = id.parse().map_err(|_| ApiError::invalid("Invalid slot ID"))?;
    let action = query.get("action").map(String::as_str).unwrap_or_default();
    match action {
        "save" | "restore" => {
            let (name, path) = file(&app, parse::<File>(&body)?)?;
            let Some(model) = app.fingerprint else { return Err(without_folder()) };
            let save = action == "save";
            let action = match save {
                true => SlotAction::Save { path, model },
                false => SlotAction::Restore { path, model, scales: app.adapter_scales() },
            };
            let done = app.act(id, action).await?;
            let milliseconds = done.time.as_secs_f64() * 1e3;
            Ok(Json(match save {
                true => json!({
                    "id_slot": id, "filename": name, "n_saved": done.tokens,
                    "n_written": done.bytes, "timings": { "save_ms": milliseconds },
                }),
                false => json!({
                    "id_slot": id, "filename": name, "n_restored": done.tokens,
                    "n_read": done.bytes, "timings": { "restore_ms": milliseconds },
                }),
            }))
        }
        "erase" => {
            let done = app.act(id, SlotAction::Erase).await?;
            Ok(Json(json!({ "id_slot": id, "n_erased": done.tokens })))
        }
        _ => Err(ApiError::invalid("Invalid action: must be save, restore or erase")),
    }
}

crate::object! {
    struct File {
        /// The name of the file, without a folder.
        filename: Option<String>,
    }
}

/// Returns the name of the file in the folder of saved slots, with its path.
fn file(app: &App, File { filename }: File) -> Result<(String, PathBuf), ApiError> {
    let folder = app.options.listen.slot_save_path.as_ref().ok_or_else(without_folder)?;
    let name = filename.as_deref().unwrap_or_default();
    let plain = !name.is_empty()
        && !name.starts_with('.')
        && name.chars().all(|c| c.is_alphanumeric() || "._-".contains(c));
    if !plain {
        let expected = "the name of a file without a folder: letters, digits, and any of . _ - after the first";
        return Err(Failure::unless_one_of("filename", expected, filename.as_deref()).into());
    }
    let Some(own) = Owner::current().folder() else { return Ok((name.into(), folder.join(name))) };
    let folder = folder.join(own);
    create_private_directory(&folder).map_err(ApiError::internal)?;
    Ok((name.into(), folder.join(name)))
}

fn without_folder() -> ApiError {
    ApiError::unsupported("start the server with --slot-save-path to save and restore slots")
}
