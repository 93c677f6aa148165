//! Downloads of models that requests start. Each runs once, however many clients follow it.

use std::{
    collections::BTreeMap,
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use rope_cpu::hub::{Event, Hub, Options, Wanted};
use tokio::sync::watch;
use tracing::{info, warn};

use super::Models;
use crate::server::error::ApiError;

/// Maximum downloads at a time.
const PULLS_MAX: usize = 2;

/// The downloads in progress, by the name of the model.
#[derive(Default)]
pub struct Pulls(Mutex<BTreeMap<String, watch::Receiver<Progress>>>);

/// How far a download is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The file; empty before the first one.
    pub file: String,
    /// The size of the file in bytes.
    pub total: u64,
    /// The bytes that have arrived.
    pub done: u64,
    /// The end of the download: why it failed, if it did.
    pub end: Option<Result<(), String>>,
}

impl Models {
    /// Downloads a model from the hub, or joins its download.
    ///
    /// # Errors
    /// If too many downloads run, or a thread cannot be started.
    pub fn pull(
        self: &Arc<Self>,
        wanted: Wanted,
        name: &str,
    ) -> Result<watch::Receiver<Progress>, ApiError> {
        let mut pulls = self.pulls.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(progress) = pulls.get(name) {
            return Ok(progress.clone());
        }
        if pulls.len() >= PULLS_MAX {
            let names = pulls.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(ApiError::busy(format_args!(
                "{PULLS_MAX} downloads run already: try again once one of {names} is complete"
            )));
        }
        let (sender, progress) = watch::channel(Progress::default());
        let (models, key) = (self.clone(), name.to_string());
        let download = move || {
            info!(target: "models", model = key, "downloading");
            let end = catch_unwind(AssertUnwindSafe(|| fetch(&wanted, &sender)));
            let end = end.unwrap_or_else(|_| Err("a bug, please report it".into()));
            if let Err(message) = &end {
                warn!(target: "models", model = key, message, "cannot be downloaded");
            }
            // Before its end is known, so that the next list has the model.
            models.refresh();
            models.pulls.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            sender.send_modify(|progress| progress.end = Some(end));
        };
        thread::Builder::new().name("pull".into()).spawn(download).map_err(ApiError::internal)?;
        pulls.insert(name.into(), progress.clone());
        Ok(progress)
    }
}

/// Downloads a model, and reports its progress.
fn fetch(wanted: &Wanted, progress: &watch::Sender<Progress>) -> Result<(), String> {
    let options = Options::from_variables(|name| env::var(name).ok()).map_err(|e| e.to_string())?;
    let hub = Hub::new(options).map_err(|e| e.to_string())?;
    let show = &mut |event: Event<'_>| {
        progress.send_modify(|progress| match event {
            Event::Started { file, done, bytes, .. } => {
                *progress = Progress { file: file.into(), total: bytes, done, end: None };
            }
            Event::Received { done } => progress.done = done,
            _ => {}
        });
    };
    hub.model(wanted, show).map(drop).map_err(|e| e.to_string())
}
