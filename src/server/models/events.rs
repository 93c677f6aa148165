//! Events for clients that watch the models, under the names of llama-server's router.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::{
    Models, Status,
    state::{Model, State},
};

/// Maximum events that wait for a slow client.
const BUFFERED: usize = 256;

/// The model of events that concern all.
pub const ALL: &str = "*";

/// The clients that watch; `None` once the server stops.
pub struct Events(Mutex<Option<broadcast::Sender<Value>>>);

impl Default for Events {
    fn default() -> Self {
        Events(Mutex::new(Some(broadcast::Sender::new(BUFFERED))))
    }
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, Option<broadcast::Sender<Value>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Models {
    /// Returns the events from now on; `None` once the server stops.
    pub fn watch(&self) -> Option<broadcast::Receiver<Value>> {
        self.events.lock().as_ref().map(broadcast::Sender::subscribe)
    }

    /// Tells the clients that watch of an event.
    pub fn tell(&self, event: &str, model: &str, data: Value) {
        if let Some(sender) = &*self.events.lock()
            && sender.receiver_count() > 0
        {
            let mut text = json!({ "model": model, "event": event });
            if !data.is_null() {
                text["data"] = data;
            }
            // The last client may have left meanwhile.
            let _ = sender.send(text);
        }
    }

    /// Tells which models have changed their states.
    pub(super) fn tell_changes(&self, state: &mut State) {
        let open = |(name, model): (&String, &Model)| {
            let status = model.status();
            (status != Status::Unloaded).then(|| (name.clone(), status))
        };
        let now: BTreeMap<_, _> = state.models.iter().filter_map(open).collect();
        let before = std::mem::replace(&mut state.told, now);
        let unloaded = before.keys().filter(|name| !state.told.contains_key(*name));
        for name in unloaded {
            self.tell_status(name, Status::Unloaded);
        }
        for (name, status) in &state.told {
            if before.get(name) != Some(status) {
                self.tell_status(name, *status);
            }
        }
    }

    fn tell_status(&self, name: &str, status: Status) {
        self.tell("status_change", name, json!({ "status": status.name() }));
    }

    /// Ends the streams of events.
    pub(super) fn end_events(&self) {
        self.events.lock().take();
    }
}
