//! Downloads of models that requests start. Each runs once, however many clients follow it, and ends
//! when the last of them leaves.

use std::{
    collections::BTreeMap,
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rope_cpu::hub::{Error, Event, Hub, Options, Wanted, without_hub};
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{info, warn};

use super::Models;
use crate::server::{error::ApiError, read::Failure};

/// Maximum downloads at a time.
const PULLS_MAX: usize = 2;

/// The shortest time between two events about the progress of a download.
const TOLD: Duration = Duration::from_millis(100);

/// The downloads in progress, by the name of the model.
#[derive(Default)]
pub struct Pulls(Mutex<BTreeMap<String, Pull>>);

/// A download in progress.
struct Pull {
    following: Arc<Following>,
    /// Keeps a download that no client waits for.
    unattended: Option<watch::Receiver<Progress>>,
}

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
    /// If it is not the name of a repository, too many downloads run, or a thread cannot be started.
    pub fn pull(self: &Arc<Self>, name: &str) -> Result<watch::Receiver<Progress>, ApiError> {
        let name = without_hub(name);
        let wanted: Wanted = name.parse().map_err(|_| {
            let expected = "USER/MODEL[:QUANT], a repository of the Hugging Face Hub";
            Failure::unless_one_of("model", expected, Some(name))
        })?;
        let mut pulls = self.pulls.lock();
        if let Some(pull) = pulls.get(name) {
            return Ok(pull.following.subscribe());
        }
        if pulls.len() >= PULLS_MAX {
            let names = pulls.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(ApiError::busy(format_args!(
                "{PULLS_MAX} downloads run already: try again once one of {names} is complete"
            )));
        }
        let (following, progress) = watch::channel(Progress::default());
        let following = Arc::new(following);
        let (models, key, of_thread) = (self.clone(), name.to_string(), following.clone());
        let download = move || {
            let end = models.download(&wanted, &key, &of_thread);
            of_thread.send_modify(|progress| progress.end = Some(end));
        };
        thread::Builder::new().name("pull".into()).spawn(download).map_err(ApiError::internal)?;
        // The thread looks for it only at its end, and waits for this lock then.
        pulls.insert(name.into(), Pull { following, unattended: None });
        Ok(progress)
    }

    /// Starts a download that goes on without clients.
    ///
    /// # Errors
    /// As for [`Models::pull`].
    pub fn pull_unattended(self: &Arc<Self>, name: &str) -> Result<(), ApiError> {
        let progress = self.pull(name)?;
        if let Some(pull) = self.pulls.lock().get_mut(without_hub(name)) {
            pull.unattended = Some(progress);
        }
        Ok(())
    }

    /// Ends a download unless clients follow it. Returns whether it went on without clients.
    pub fn release(&self, name: &str) -> bool {
        let mut pulls = self.pulls.lock();
        let pull = pulls.get_mut(without_hub(name));
        pull.is_some_and(|pull| pull.unattended.take().is_some())
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
            let show = || self.fetch(wanted, name, following);
            let end = catch_unwind(AssertUnwindSafe(show));
            // Before the end is known, so that the next list has the model.
            self.refresh();
            let mut pulls = self.pulls.lock();
            let end = match end {
                // A client that came meanwhile follows the same download.
                Ok(Err(Error::Cancelled { .. })) if !following.is_closed() => continue,
                Ok(Err(error)) => Err(error.to_string()),
                Ok(Ok(())) => Ok(()),
                Err(_) => Err("a bug, please report it".into()),
            };
            pulls.remove(name);
            match &end {
                Ok(()) => self.tell("download_finished", name, Value::Null),
                Err(message) => {
                    warn!(target: "models", model = name, message, "cannot be downloaded");
                    self.tell("download_failed", name, json!({ "message": message }));
                }
            }
            return end;
        }
    }

    /// Downloads a model while clients follow, and reports its progress to them.
    fn fetch(&self, wanted: &Wanted, name: &str, following: &Arc<Following>) -> Result<(), Error> {
        let mut told: Option<Instant> = None;
        let show = &mut |event: Event<'_>| {
            following.send_modify(|progress| match event {
                Event::Started { file, done, bytes, .. } => {
                    *progress = Progress { file: file.into(), total: bytes, done, end: None };
                }
                Event::Received { done } => progress.done = done,
                _ => {}
            });
            if told.is_none_or(|told| told.elapsed() >= TOLD) {
                let Progress { file, total, done, .. } = following.borrow().clone();
                let data = json!({ "progress": { file: { "done": done, "total": total } } });
                self.tell("download_progress", name, data);
                told = Some(Instant::now());
            }
        };
        let left = following.clone();
        let hub = Hub::new(Options::from_variables(|name| env::var(name).ok())?)?;
        hub.cancelled_by(move || left.is_closed()).model(wanted, show).map(drop)
    }
}

impl Pulls {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Pull>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
