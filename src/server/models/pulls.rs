//! Downloads of models that requests start. Each runs once, however many clients follow it, and ends
//! when the last of them leaves.

use std::{
    collections::BTreeMap,
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use rope_cpu::hub::{Error, Event, Hub, Options, Wanted};
use tokio::sync::watch;
use tracing::{info, warn};

use super::Models;
use crate::server::error::ApiError;

/// Maximum downloads at a time.
const PULLS_MAX: usize = 2;

/// The downloads in progress, by the name of the model.
#[derive(Default)]
pub struct Pulls(Mutex<BTreeMap<String, Arc<Following>>>);

/// The progress of a download. Its receivers are the clients that follow the download.
type Following = watch::Sender<Progress>;

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
    /// Downloads a model from the hub, or joins its download, which ends when all receivers of its
    /// progress are dropped.
    ///
    /// # Errors
    /// If too many downloads run, or a thread cannot be started.
    pub fn pull(
        self: &Arc<Self>,
        wanted: Wanted,
        name: &str,
    ) -> Result<watch::Receiver<Progress>, ApiError> {
        let mut pulls = self.pulls.lock();
        if let Some(following) = pulls.get(name) {
            return Ok(following.subscribe());
        }
        if pulls.len() >= PULLS_MAX {
            let names = pulls.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(ApiError::busy(format_args!(
                "{PULLS_MAX} downloads run already: try again once one of {names} is complete"
            )));
        }
        let (following, progress) = watch::channel(Progress::default());
        let following = Arc::new(following);
        pulls.insert(name.into(), following.clone());
        let (models, key) = (self.clone(), name.to_string());
        let download = move || {
            let end = models.download(&wanted, &key, &following);
            following.send_modify(|progress| progress.end = Some(end));
        };
        let started = thread::Builder::new().name("pull".into()).spawn(download);
        if let Err(error) = started {
            pulls.remove(name);
            return Err(ApiError::internal(error));
        }
        Ok(progress)
    }

    /// Downloads a model until its end, or until no client follows.
    fn download(
        &self,
        wanted: &Wanted,
        name: &str,
        following: &Arc<Following>,
    ) -> Result<(), String> {
        loop {
            info!(target: "models", model = name, "downloading");
            let end = catch_unwind(AssertUnwindSafe(|| fetch(wanted, following)));
            // Before the end is known, so that the next list has the model.
            self.refresh();
            let mut pulls = self.pulls.lock();
            let end = match end {
                // A client that came meanwhile follows the same download.
                Ok(Err(Error::Cancelled { .. })) if following.receiver_count() > 0 => continue,
                Ok(Err(error)) => Err(error.to_string()),
                Ok(Ok(())) => Ok(()),
                Err(_) => Err("a bug, please report it".into()),
            };
            pulls.remove(name);
            if let Err(message) = &end {
                warn!(target: "models", model = name, message, "cannot be downloaded");
            }
            return end;
        }
    }
}

impl Pulls {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Following>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Downloads a model while clients follow, and reports its progress to them.
fn fetch(wanted: &Wanted, following: &Arc<Following>) -> Result<(), Error> {
    let show = &mut |event: Event<'_>| {
        following.send_modify(|progress| match event {
            Event::Started { file, done, bytes, .. } => {
                *progress = Progress { file: file.into(), total: bytes, done, end: None };
            }
            Event::Received { done } => progress.done = done,
            _ => {}
        });
    };
    let left = following.clone();
    let hub = Hub::new(Options::from_variables(|name| env::var(name).ok())?)?;
    hub.cancelled_by(move || left.is_closed()).model(wanted, show).map(drop)
}
