//! The models of a server: the one of `-m`, or all of the shelf.
//!
//! A request names its model and waits for it ([`Waiting`]) without blocking a thread. One thread
//! opens and closes models, one at a time (`loader`). A [`Lease`] keeps a model open until its
//! answer is sent, so a model that answers is never closed.

mod catalog;
mod choose;
mod events;
mod keep_alive;
mod lease;
mod loader;
mod pulls;
mod remove;
mod state;

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rope_cpu::shelf::{Entry, Shelf};
use serde_json::Value;
use tokio::{sync::watch, task::spawn_blocking};

pub use choose::{Loaded, choose};
pub use events::ALL as EVENT_OF_ALL;
pub use keep_alive::KeepAlive;
pub use lease::{Lease, Waiting};
pub use loader::{Unopened, Wanted};
pub use pulls::Progress;
pub use state::Status;

use self::{
    catalog::Catalog,
    events::Events,
    pulls::Pulls,
    state::{Model, Phase, State},
};
use super::{
    app::{App, Opened},
    error::ApiError,
    options::Shelved,
};

/// The name of the model of `-m`, which requests do not choose.
const ONLY: &str = "";

/// Context that bounds the size of a body before a model of the shelf is open.
const CONTEXT_ASSUMED: usize = 128 << 10;

/// How often a stopping server checks whether a model has closed.
const STOP_STEP: Duration = Duration::from_millis(20);

/// The models of a server.
pub struct Models {
    /// The models on the disk; `None` with `-m`.
    catalog: Option<Catalog>,
    options: Shelved,
    /// Maximum requests that wait for a model.
    waiting_max: usize,
    state: Mutex<State>,
    /// Wakes the loader.
    work: Condvar,
    /// Wakes requests that wait for a model.
    changes: watch::Sender<()>,
    pulls: Pulls,
    events: Events,
    /// The thread that opens and closes models, once it is started.
    loader: OnceLock<JoinHandle<()>>,
}

/// A model in a list.
pub struct Listed {
    /// Its name in requests.
    pub name: String,
    /// Its entry on the shelf; `None` for the model of `-m`.
    pub entry: Option<Entry>,
    /// Whether it is open.
    pub status: Status,
    /// Why it could not be opened, if it could not.
    pub failure: Option<String>,
    /// The model, if it is open.
    pub app: Option<Arc<App>>,
    /// When it closes if no request uses it; `None` for not at a set time.
    pub expires: Option<Duration>,
}

impl Models {
    /// Creates the models of a shelf, or one model without a shelf. None is open.
    pub fn new(shelf: Option<Shelf>, options: Shelved, waiting_max: usize) -> Self {
        let mut state = State::default();
        if shelf.is_none() {
            let only = Model { phase: Phase::Starting, ..Model::new(None, options.keep_alive) };
            state.models.insert(ONLY.into(), only);
        }
        Models {
            catalog: shelf.map(Catalog::new),
            options,
            waiting_max,
            state: Mutex::new(state),
            work: Condvar::new(),
            changes: watch::Sender::new(()),
            pulls: Pulls::default(),
            events: Events::default(),
            loader: OnceLock::new(),
        }
    }

    /// Returns the options.
    pub fn options(&self) -> &Shelved {
        &self.options
    }

    /// Returns whether requests choose a model of the shelf.
    pub fn is_shelf(&self) -> bool {
        self.catalog.is_some()
    }

    /// Sets the model of `-m`, once it is open.
    pub fn install(&self, opened: Opened) {
        let mut state = self.lock();
        let keep_alive = self.options.keep_alive;
        let model = state.models.entry(ONLY.into()).or_insert_with(|| Model::new(None, keep_alive));
        model.set(opened);
        self.changed(state);
    }

    /// Returns whether answers are waiting or being generated.
    pub fn busy(&self) -> bool {
        self.lock().opened().any(|opened| opened.app.scheduler.status().busy())
    }

    /// Returns whether models can still be opened and closed.
    pub fn alive(&self) -> bool {
        self.lock().stopping || self.loader.get().is_none_or(|loader| !loader.is_finished())
    }

    /// Checks that requests can be answered.
    ///
    /// # Errors
    /// While the model of `-m` is opened for the first time.
    pub fn ready(&self) -> Result<(), ApiError> {
        match self.lock().models.get(ONLY).map(|model| &model.phase) {
            Some(Phase::Starting) => Err(ApiError::unavailable("Loading model")),
            _ => Ok(()),
        }
    }

    /// Returns the largest context of the open models, or one that bounds models of the shelf.
    pub fn context(&self) -> usize {
        let open = self.lock().opened().map(|opened| opened.app.context).max().unwrap_or(0);
        if self.is_shelf() { open.max(CONTEXT_ASSUMED) } else { open }
    }

    /// Returns the open models.
    pub fn apps(&self) -> Vec<Arc<App>> {
        self.lock().opened().map(|opened| opened.app.clone()).collect()
    }

    /// Returns the open model with this name, or the default one. It does not open a model.
    ///
    /// # Errors
    /// If the model does not exist or is not open.
    pub fn loaded(&self, name: Option<&str>) -> Result<Arc<App>, ApiError> {
        let name = match (&self.catalog, name) {
            (None, _) => ONLY.to_string(),
            (Some(catalog), Some(name)) => catalog.find(name)?.name,
            (Some(_), None) => self.lock().default_name().ok_or_else(|| {
                ApiError::unavailable(
                    "no model is loaded: send a request with \"model\", or POST /models/load",
                )
            })?,
        };
        let state = self.lock();
        let model = state.models.get(&name);
        if let Some(opened) = model.and_then(Model::opened) {
            return Ok(opened.app.clone());
        }
        match model.map(|model| &model.phase) {
            Some(Phase::Starting | Phase::Loading) => Err(ApiError::unavailable("Loading model")),
            _ if name == ONLY => {
                Err(ApiError::unavailable("the model sleeps until the next request for an answer"))
            }
            _ => Err(ApiError::unavailable(format_args!(
                "the model {name:?} is not loaded: send it a request, or POST /models/load"
            ))),
        }
    }

    /// Returns the name and entry of the model that a request chooses. Without a name it is the
    /// default: the one of `--alias`, the one that has been open longest, or the only one.
    ///
    /// # Errors
    /// If no model or several match.
    pub fn resolve(
        &self,
        name: Option<&str>,
        aliases: &[String],
    ) -> Result<(String, Option<Entry>), ApiError> {
        let Some(catalog) = &self.catalog else { return Ok((ONLY.into(), None)) };
        let open = || self.lock().default_name();
        let entry = match name.or(aliases.first().map(String::as_str)) {
            Some(name) => catalog.find(name)?,
            None => match open() {
                Some(name) => catalog.find(&name)?,
                None => catalog.only()?,
            },
        };
        Ok((entry.name.clone(), Some(entry)))
    }

    /// Starts to open a model that no request waits for.
    pub fn load(&self, name: &str, entry: Option<Entry>) {
        let mut state = self.lock();
        let model = state.model(name, entry, self.options.keep_alive);
        model.wanted = model.closes || model.opened().is_none();
        state.enqueue(name);
        self.changed(state);
    }

    /// Closes a model once no request uses it. Returns whether it was open or about to be.
    pub fn unload(&self, name: &str) -> bool {
        let mut state = self.lock();
        let Some(model) = state.models.get_mut(name) else { return false };
        model.wanted = false;
        let open = matches!(model.phase, Phase::Loaded(_) | Phase::Loading | Phase::Waiting);
        model.closes = open;
        if matches!(model.phase, Phase::Sleeping | Phase::Failed(_)) {
            model.phase = Phase::Unloaded;
        }
        self.changed(state);
        open
    }

    /// Lists the models: all of the shelf, or the one of `-m`.
    ///
    /// # Errors
    /// If the shelf cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>, ApiError> {
        self.ready()?;
        let entries = match &self.catalog {
            Some(catalog) => catalog.entries()?.iter().cloned().map(Some).collect(),
            None => vec![None],
        };
        let (state, now) = (self.lock(), Instant::now());
        let listed = entries.into_iter().map(|entry| {
            let key = entry.as_ref().map_or(ONLY, |entry| &entry.name);
            let model = state.models.get(key);
            let app = model.and_then(Model::opened).map(|opened| opened.app.clone());
            Listed {
                name: match (&entry, model) {
                    (None, Some(model)) => model.alias.clone(),
                    _ => key.into(),
                },
                status: model.map_or(Status::Unloaded, Model::status),
                failure: model.and_then(Model::failure),
                expires: model.and_then(|model| model.expires(&self.options)).map(|at| at - now),
                entry,
                app,
            }
        });
        Ok(listed.collect())
    }

    /// Returns the model with this name as in a list. `aliases` are the names of the model of `-m`.
    ///
    /// # Errors
    /// If there is no such model.
    pub fn listed(&self, name: &str, aliases: &[String]) -> Result<Listed, ApiError> {
        let mut list = self.list()?.into_iter();
        let found = match &self.catalog {
            Some(catalog) => {
                let entry = catalog.find(name)?;
                list.find(|listed| listed.name == entry.name)
            }
            None => {
                self.ready()?;
                list.find(|listed| listed.name == name || aliases.iter().any(|alias| alias == name))
            }
        };
        found.ok_or_else(|| {
            let known = self.apps().first().map(|app| app.alias.clone()).unwrap_or_default();
            ApiError::not_found(format_args!(
                "the model {name:?} does not exist: this server has {known:?}"
            ))
        })
    }

    /// Reads the shelf again, for a list after a change.
    pub fn refresh(&self) {
        self.catalog.iter().for_each(Catalog::refresh);
        self.tell("models_reload", EVENT_OF_ALL, Value::Null);
    }

    /// Returns the shelf.
    ///
    /// # Errors
    /// With `-m`.
    pub fn shelf(&self) -> Result<&Shelf, ApiError> {
        self.catalog.as_ref().map(Catalog::shelf).ok_or_else(|| {
            ApiError::unsupported(
                "this server has one model, which requests cannot change: start rope-cpu serve without -m \
                 to serve all models on the disk",
            )
        })
    }

    /// Refuses requests that wait for a model: the server stops.
    pub fn refuse(&self) {
        let mut state = self.lock();
        state.stopping = true;
        self.changed(state);
        self.end_events();
    }

    /// Closes all models. Conversations that are not on disk by `saved_by` are lost.
    pub fn stop(&self, saved_by: Option<Instant>) {
        let mut state = self.lock();
        state.stopping = true;
        let take = |model: &mut Model| {
            let opened = model.take()?;
            model.phase = Phase::Unloaded;
            Some(opened)
        };
        let opened: Vec<_> = state.models.values_mut().filter_map(take).collect();
        self.changed(state);
        opened.into_iter().for_each(|Opened { app, runtime }| {
            drop(app);
            runtime.stop(saved_by);
        });
        // The loader may be writing conversations of a model that it closes.
        while self.lock().closing() && saved_by.is_none_or(|end| Instant::now() < end) {
            std::thread::sleep(STOP_STEP);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the loader, the requests and the clients that watch, after a change.
    fn changed(&self, mut state: MutexGuard<'_, State>) {
        self.tell_changes(&mut state);
        drop(state);
        self.work.notify_all();
        self.changes.send_replace(());
    }
}

/// Runs work that reads files, for a request that is handled on a connection's thread.
///
/// # Errors
/// The errors of the work.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    spawn_blocking(work).await.map_err(ApiError::internal)?
}
