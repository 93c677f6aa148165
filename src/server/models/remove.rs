//! Removal of a model that a request names.

use rope_cpu::shelf::Removed;
use serde_json::Value;

use super::{Models, Status};
use crate::server::error::ApiError;

impl Models {
    /// Removes a model that rope-cpu downloaded, or a preset.
    ///
    /// # Errors
    /// If no model has exactly this name, it is in use, or its files belong to another program.
    pub fn remove(&self, name: &str) -> Result<Removed, ApiError> {
        let shelf = self.shelf()?;
        let listed = self.listed(name, &[])?;
        if listed.name != name {
            return Err(ApiError::not_found(format_args!(
                "no model is named {name:?}: give the whole name, such as {:?}",
                listed.name
            )));
        }
        if listed.status == Status::Loading
            || listed.app.is_some_and(|app| app.scheduler.status().busy())
        {
            return Err(ApiError::unavailable(format_args!(
                "the model {name:?} is in use: try again later"
            )));
        }
        self.unload(name);
        let removed = shelf.remove(name).map_err(ApiError::invalid);
        self.refresh();
        let removed = removed?;
        self.tell("model_remove", name, Value::Null);
        Ok(removed)
    }
}
