//! Requests that wait for a model, and requests that use one.

use std::{sync::Arc, time::Instant};

use axum::{
    body::{Body, HttpBody},
    response::Response,
};
use rope_cpu::shelf::Entry;
use tokio::sync::watch;
use tokio_stream::StreamExt;

use super::{KeepAlive, Models, ONLY, state::Phase};
use crate::server::{app::App, error::ApiError};

/// A request that waits for a model. If it is dropped, the model still opens for other requests.
pub struct Waiting {
    models: Arc<Models>,
    name: String,
    keep_alive: Option<KeepAlive>,
    changes: watch::Receiver<()>,
}

/// Keeps a model open while a request uses it.
pub struct Lease {
    models: Arc<Models>,
    name: String,
    /// The model.
    pub app: Arc<App>,
}

impl Models {
    /// Starts to wait for a model, and opens it if necessary. `keep_alive` is how long it stays open
    /// after the request, if the request sets it.
    ///
    /// # Errors
    /// If too many requests wait, or requests may not open models.
    pub fn wait(
        self: &Arc<Self>,
        name: &str,
        entry: Option<Entry>,
        keep_alive: Option<KeepAlive>,
    ) -> Result<Waiting, ApiError> {
        let changes = self.changes.subscribe();
        let mut state = self.lock();
        if state.stopping {
            return Err(ApiError::unavailable("the server is stopping"));
        }
        let model = state.model(name, entry, self.options.keep_alive);
        let is_closed = model.closes
            || matches!(model.phase, Phase::Unloaded | Phase::Failed(_) | Phase::Closing);
        match model.phase {
            Phase::Starting => return Err(ApiError::unavailable("Loading model")),
            _ if is_closed && self.options.no_models_autoload && name != ONLY && !model.wanted => {
                return Err(ApiError::invalid(format_args!(
                    "the model {name:?} is not loaded, and the server was started with \
                     --no-models-autoload: POST /models/load first"
                )));
            }
            Phase::Loaded(_) if !model.closes => {}
            _ if model.waiting >= self.waiting_max => {
                return Err(ApiError::busy(format_args!(
                    "{} requests wait for the model {name:?} already: try again later",
                    model.waiting
                )));
            }
            _ => {}
        }
        model.waiting += 1;
        state.enqueue(name);
        self.changed(state);
        Ok(Waiting { models: self.clone(), name: name.into(), keep_alive, changes })
    }
}

impl Waiting {
    /// Waits until the model is open.
    ///
    /// # Errors
    /// If it cannot be opened, or the server stops.
    pub async fn lease(&mut self) -> Result<Lease, ApiError> {
        loop {
            self.changes.borrow_and_update();
            if let Some(lease) = self.ready() {
                return lease;
            }
            if self.changes.changed().await.is_err() {
                return Err(ApiError::unavailable("the server is stopping"));
            }
        }
    }

    /// Returns the model if it is open, or why it cannot be opened; `None` while it is opened.
    pub fn ready(&self) -> Option<Result<Lease, ApiError>> {
        let mut state = self.models.lock();
        if state.stopping {
            return Some(Err(ApiError::unavailable("the server is stopping")));
        }
        let model = state.models.get_mut(&self.name)?;
        if let Phase::Failed(error) = &model.phase {
            return Some(Err(error.clone()));
        }
        // Otherwise its options may be earlier ones.
        let app = model.opened().filter(|_| !model.closes)?.app.clone();
        model.leases += 1;
        model.keep_alive = self.keep_alive.unwrap_or(model.keep_alive);
        Some(Ok(Lease { models: self.models.clone(), name: self.name.clone(), app }))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.models.lock();
        if let Some(model) = state.models.get_mut(&self.name) {
            model.waiting -= 1;
        }
        drop(state);
        self.models.work.notify_all();
    }
}

impl Lease {
    /// Returns a response that keeps the model open until it is sent or dropped, if it is a stream.
    pub fn until_sent(self, response: Response) -> Response {
        response.map(|body| match body.size_hint().exact() {
            Some(_) => body,
            None => Body::from_stream(body.into_data_stream().map(move |part| {
                let _kept = &self;
                part
            })),
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.models.lock();
        if let Some(model) = state.models.get_mut(&self.name) {
            (model.leases, model.used) = (model.leases - 1, Instant::now());
        }
        drop(state);
        self.models.work.notify_all();
    }
}
