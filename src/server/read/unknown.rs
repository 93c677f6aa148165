//! Logs unknown fields.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use tracing::info;

/// Maximum names to remember. After that, no more names are logged.
const NAMES_MAX: usize = 256;

/// Maximum bytes of a logged name.
const BYTES_MAX: usize = 64;

/// The names in the log.
static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Logs that a field has no effect, once for each name.
pub fn log(name: &str) {
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    if name.len() <= BYTES_MAX && logged.len() < NAMES_MAX && logged.insert(name.into()) {
        info!(target: "fields", field = ?name, "a field of a request is not known and has no effect");
    }
}
