//! The models on the disk, as requests see them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rope_cpu::shelf::{Entry, Error, Shelf};

use crate::server::error::ApiError;

/// How long a list is used before the stores are read again.
const AGE_MAX: Duration = Duration::from_secs(5);

/// Maximum names in an error.
const NAMES_MAX: usize = 8;

/// A shelf with the list that was read last.
pub struct Catalog {
    shelf: Shelf,
    read: Mutex<Option<(Instant, Arc<Vec<Entry>>)>>,
}

impl Catalog {
    /// Creates a catalog. Nothing is read yet.
    pub fn new(shelf: Shelf) -> Self {
        Catalog { shelf, read: Mutex::new(None) }
    }

    /// Returns the shelf.
    pub fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// Returns the models, sorted by name.
    ///
    /// # Errors
    /// If the folder of models cannot be read.
    pub fn entries(&self) -> Result<Arc<Vec<Entry>>, ApiError> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((time, entries)) = &*read
            && time.elapsed() < AGE_MAX
        {
            return Ok(entries.clone());
        }
        let entries = Arc::new(self.shelf.entries().map_err(ApiError::internal)?);
        *read = Some((Instant::now(), entries.clone()));
        Ok(entries)
    }

    /// Reads the stores again for the next list.
    pub fn refresh(&self) {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Finds a model by its name, or a part of it that no other name has.
    ///
    /// # Errors
    /// If no model or several match.
    pub fn find(&self, name: &str) -> Result<Entry, ApiError> {
        let known = self.entries()?.iter().find(|entry| entry.name == name).cloned();
        match known {
            Some(entry) => Ok(entry),
            None => self.shelf.find(name).map_err(|error| self.not_found(&error)),
        }
    }

    fn not_found(&self, error: &Error) -> ApiError {
        let error = match error {
            Error::None { .. } => ApiError::not_found(format_args!("{error}")),
            Error::Name { .. } | Error::Several { .. } => ApiError::invalid(error),
            error => return ApiError::internal(error),
        };
        ApiError { field: Some("model".into()), ..error }
    }

    /// Returns the model of requests that name none.
    ///
    /// # Errors
    /// If there are none or several.
    pub fn only(&self) -> Result<Entry, ApiError> {
        let entries = self.entries()?;
        let message = match &entries[..] {
            [entry] => return Ok(entry.clone()),
            [] => {
                "there is no model on this machine: rope-cpu pull USER/MODEL downloads one".into()
            }
            several => {
                let names = several.iter().take(NAMES_MAX).map(|entry| format!("{:?}", entry.name));
                let names = names.collect::<Vec<_>>().join(", ");
                let more = if several.len() > NAMES_MAX { ", ..." } else { "" };
                format!("\"model\": must name one of {names}{more}")
            }
        };
        Err(ApiError { field: Some("model".into()), ..ApiError::invalid(message) })
    }
}
