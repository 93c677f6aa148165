//! The memory that other runtimes of this process are going to use.
//!
//! A runtime allocates keys and values as its sequences grow, and the system counts mapped weights
//! as available. So what the system reports does not yet lack what was planned.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::Plan;
use crate::{batch::Status, model::Model};

static RESERVED: Mutex<Vec<Arc<Entry>>> = Mutex::new(Vec::new());

/// The memory of a run, which later plans in this process leave to it until this is dropped.
#[derive(Clone)]
pub struct Reserved {
    /// Removes the entry with the last clone.
    entry: Arc<Registered>,
}

struct Registered(Arc<Entry>);

struct Entry {
    model: PathBuf,
    weights: u64,
    rest: u64,
    status: Arc<Status>,
}

impl Plan {
    /// Reserves the planned memory: plans that are made meanwhile in this process see less available
    /// memory.
    ///
    /// ```no_run
    /// use rope_cpu::{model::Model, runtime::{Plan, Settings}};
    ///
    /// let (chat, embeddings) = (Model::open("chat.gguf")?, Model::open("embed.gguf")?);
    /// let plan = Plan::new(&chat, &Settings::default())?;
    /// let _reserved = plan.reserve(&chat);
    /// let rest = Plan::new(&embeddings, &Settings::default())?;
    /// rest.check()?; // that both fit
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(&self, model: &Model) -> Reserved {
        let needs = [Some(self), self.draft.as_deref().map(|draft| &draft.plan)];
        let total: u64 = needs.into_iter().flatten().map(|plan| plan.need().total()).sum();
        let weights = self.need().weights;
        let entry = Arc::new(Entry {
            model: model.path().into(),
            weights,
            rest: total - weights,
            status: Arc::default(),
        });
        entries().push(entry.clone());
        Reserved { entry: Arc::new(Registered(entry)) }
    }
}

impl Reserved {
    /// Returns the state of the scheduler that uses the memory.
    pub(super) fn status(&self) -> &Arc<Status> {
        &self.entry.0.status
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        entries().retain(|entry| !Arc::ptr_eq(entry, &self.0));
    }
}

impl fmt::Debug for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { weights, rest, .. } = &*self.entry.0;
        f.debug_struct("Reserved").field("weights", weights).field("rest", rest).finish()
    }
}

/// Returns the available bytes that runs in this process are going to use, without the weights of
/// `model`, which are in memory once.
pub(super) fn reserved(model: &Model) -> u64 {
    let of = |entry: &Arc<Entry>| {
        let weights = if entry.model == model.path() { 0 } else { entry.weights };
        let used = entry.status.state().cache_bytes as u64;
        weights + entry.rest.saturating_sub(used)
    };
    entries().iter().map(of).fold(0, u64::saturating_add)
}

fn entries() -> MutexGuard<'static, Vec<Arc<Entry>>> {
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner)
}
