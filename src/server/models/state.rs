//! The state of each model, and which one the loader opens or closes next.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use rope_cpu::shelf::Entry;

use super::keep_alive::KeepAlive;
use crate::server::{app::Opened, error::ApiError, options::Shelved};

/// How often the loader checks whether a busy model has become idle.
const BUSY_STEP: Duration = Duration::from_millis(50);

/// The states of all models that have been used.
#[derive(Default)]
pub struct State {
    /// Models by their unique name.
    pub models: BTreeMap<String, Model>,
    /// Models to open, in the order of their first requests.
    pub queue: VecDeque<String>,
    /// Whether the server stops.
    pub stopping: bool,
    /// The states that the clients that watch know, without unloaded models.
    pub told: BTreeMap<String, Status>,
}

/// A model that has been used.
pub struct Model {
    /// Its entry on the shelf; `None` for the model of `-m`.
    pub entry: Option<Entry>,
    /// Its name in answers, once it has been open.
    pub alias: String,
    pub phase: Phase,
    /// The number of requests that wait for it.
    pub waiting: usize,
    /// The number of requests that use it.
    pub leases: usize,
    /// When it was used last.
    pub used: Instant,
    /// When it was opened.
    pub opened: Instant,
    /// How long it stays open without use.
    pub keep_alive: KeepAlive,
    /// Whether to open it, though no request waits.
    pub wanted: bool,
    /// Whether to close it once it is idle.
    pub closes: bool,
}

pub enum Phase {
    /// The model of `-m`, before it is open for the first time.
    Starting,
    Unloaded,
    /// In the queue.
    Waiting,
    Loading,
    Loaded(Box<Opened>),
    Closing,
    /// Closed after some idle time.
    Sleeping,
    Failed(ApiError),
}

/// Whether a model is open, under llama-server's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Unloaded,
    Loading,
    Loaded,
    Sleeping,
}

impl Status {
    /// Returns the name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Status::Unloaded => "unloaded",
            Status::Loading => "loading",
            Status::Loaded => "loaded",
            Status::Sleeping => "sleeping",
        }
    }
}

/// What the loader does next.
pub enum Next {
    Open(String),
    /// Closes a model. It sleeps then, or is unloaded.
    Close {
        name: String,
        sleeps: bool,
    },
    /// Waits for a change, at most this long.
    Wait(Option<Duration>),
}

impl Model {
    /// Creates a model that is not open.
    pub fn new(entry: Option<Entry>, keep_alive: KeepAlive) -> Self {
        let now = Instant::now();
        Model {
            entry,
            alias: String::new(),
            phase: Phase::Unloaded,
            waiting: 0,
            leases: 0,
            used: now,
            opened: now,
            keep_alive,
            wanted: false,
            closes: false,
        }
    }

    /// Returns the model, if it is open and its scheduler has not panicked.
    pub fn opened(&self) -> Option<&Opened> {
        match &self.phase {
            Phase::Loaded(opened) if !has_ended(opened) => Some(opened),
            _ => None,
        }
    }

    /// Returns whether its scheduler has panicked, so that it must be opened again.
    pub fn is_broken(&self) -> bool {
        matches!(&self.phase, Phase::Loaded(opened) if has_ended(opened))
    }

    /// Sets the model, which is open now.
    pub fn set(&mut self, opened: Opened) {
        let now = Instant::now();
        self.alias.clone_from(&opened.app.alias);
        (self.phase, self.wanted, self.opened, self.used) =
            (Phase::Loaded(Box::new(opened)), false, now, now);
    }

    /// Takes the model to close it, if it is open.
    pub fn take(&mut self) -> Option<Opened> {
        match std::mem::replace(&mut self.phase, Phase::Closing) {
            Phase::Loaded(opened) => Some(*opened),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Returns whether it can be closed: it is open, and no request uses it or waits for it. Requests
    /// that wait for a model to be closed and opened again do not count.
    fn is_idle(&self) -> bool {
        let unused = self.leases == 0 && (self.waiting == 0 || self.closes);
        // A client that closed its connection has no lease, and its answer ends after the step.
        unused && self.opened().is_some_and(|opened| !opened.app.scheduler.status().busy())
    }

    /// Returns the state for lists.
    pub fn status(&self) -> Status {
        match self.phase {
            Phase::Unloaded | Phase::Failed(_) | Phase::Closing => Status::Unloaded,
            Phase::Starting | Phase::Waiting | Phase::Loading => Status::Loading,
            Phase::Loaded(_) if self.is_broken() => Status::Unloaded,
            Phase::Loaded(_) => Status::Loaded,
            Phase::Sleeping => Status::Sleeping,
        }
    }

    /// Returns why it could not be opened.
    pub fn failure(&self) -> Option<String> {
        match &self.phase {
            Phase::Failed(error) => Some(error.message.clone()),
            _ => None,
        }
    }

    /// Returns when it closes, if no request uses it until then.
    pub fn expires(&self, options: &Shelved) -> Option<Instant> {
        self.opened()?;
        [self.keep_alive.time(), options.sleep_idle_seconds]
            .into_iter()
            .flatten()
            .min()
            .and_then(|time| self.used.checked_add(time))
    }

    /// Returns whether it closes because of `--sleep-idle-seconds`.
    fn sleeps(&self, options: &Shelved) -> bool {
        options
            .sleep_idle_seconds
            .is_some_and(|time| self.keep_alive.time().is_none_or(|keep| time <= keep))
    }
}

fn has_ended(opened: &Opened) -> bool {
    opened.app.scheduler.status().ended.load(Relaxed)
}

impl State {
    /// Returns the open models.
    pub fn opened(&self) -> impl Iterator<Item = &Opened> {
        self.models.values().filter_map(Model::opened)
    }

    /// Returns the model of requests that name none: the one that has been open longest.
    pub fn default_name(&self) -> Option<String> {
        let open = self.models.iter().filter(|(_, model)| model.opened().is_some());
        open.min_by_key(|(_, model)| model.opened).map(|(name, _)| name.clone())
    }

    /// Returns a model, after adding it if it has not been used yet.
    pub fn model(&mut self, name: &str, entry: Option<Entry>, keep_alive: KeepAlive) -> &mut Model {
        let model = self.models.entry(name.into()).or_insert_with(|| Model::new(None, keep_alive));
        if entry.is_some() {
            model.entry = entry;
        }
        model
    }

    /// Puts a closed model into the queue.
    pub fn enqueue(&mut self, name: &str) {
        if let Some(model) = self.models.get_mut(name)
            && matches!(model.phase, Phase::Unloaded | Phase::Sleeping | Phase::Failed(_))
        {
            (model.phase, model.closes) = (Phase::Waiting, false);
            self.queue.push_back(name.into());
        }
    }

    /// Returns whether a model is being closed.
    pub fn closing(&self) -> bool {
        self.models.values().any(|model| matches!(model.phase, Phase::Closing))
    }

    /// Returns the idle model that was used least recently.
    pub fn least_recent(&self) -> Option<String> {
        let idle = self.models.iter().filter(|(_, model)| model.is_idle());
        idle.min_by_key(|(_, model)| model.used).map(|(name, _)| name.clone())
    }

    /// Returns what to do next.
    pub fn next(&mut self, options: &Shelved) -> Next {
        self.drop_abandoned();
        if let Some((name, _)) = self.models.iter().find(|(_, model)| model.is_broken()) {
            return Next::Close { name: name.clone(), sleeps: false };
        }
        let now = Instant::now();
        let expired = |model: &Model| model.expires(options).is_some_and(|end| end <= now);
        let mut idle = self.models.iter().filter(|(_, model)| model.is_idle());
        if let Some((name, model)) = idle.find(|(_, model)| model.closes || expired(model)) {
            let sleeps = !model.closes && model.sleeps(options);
            return Next::Close { name: name.clone(), sleeps };
        }
        if let Some(name) = self.queue.front() {
            let max = options.models_max;
            if max == 0 || self.opened().count() < max {
                return Next::Open(name.clone());
            }
            if let Some(name) = self.least_recent() {
                return Next::Close { name, sleeps: false };
            }
            return Next::Wait(Some(BUSY_STEP));
        }
        let ends = self.models.values().filter_map(|model| match model.closes {
            true => model.opened().map(|_| BUSY_STEP),
            false => model.expires(options).map(|end| (end - now).max(BUSY_STEP)),
        });
        Next::Wait(ends.min())
    }

    /// Removes models from the queue that no request waits for any more.
    fn drop_abandoned(&mut self) {
        let State { models, queue, .. } = self;
        queue.retain(|name| match models.get_mut(name) {
            Some(model) if model.waiting > 0 || model.wanted => true,
            Some(model) => {
                model.phase = Phase::Unloaded;
                false
            }
            None => false,
        });
        // Only these have a state to keep.
        models.retain(|_, model| {
            let unused = model.waiting == 0 && model.leases == 0;
            !(matches!(model.phase, Phase::Unloaded) && unused && model.entry.is_some())
        });
    }
}
