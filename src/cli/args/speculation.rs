//! Options of speculative decoding, named as in llama.cpp.

use super::parameters::{Group, Options};
use crate::cli::error::Error;
use rope_cpu::{
    runtime::{Drafts, parameters},
    settings::Parameter,
};

/// The options of speculative decoding.
pub type SpeculationArgs = Options<Speculation>;

/// The group of the settings of drafts.
#[derive(Clone, Debug, Default)]
pub struct Speculation;

impl Group for Speculation {
    const HEADING: Option<&'static str> = Some("Speculative decoding");

    fn parameters() -> impl Iterator<Item = &'static Parameter> {
        parameters::DRAFTS.into_iter()
    }
}

impl SpeculationArgs {
    /// Returns the settings of these options; see [`Drafts::of`].
    ///
    /// # Errors
    /// If options contradict each other.
    pub fn settings(&self, documents: bool) -> Result<Drafts, Error> {
        Ok(Drafts::of(&self.values, documents)?)
    }
}

/// The options of speculative prefill, for commands that show what it costs.
pub type PrefillArgs = Options<Prefill>;

/// The group of the settings of speculative prefill.
#[derive(Clone, Debug, Default)]
pub struct Prefill;

impl Group for Prefill {
    const HEADING: Option<&'static str> = Some("Speculative decoding");

    fn parameters() -> impl Iterator<Item = &'static Parameter> {
        [&parameters::SPEC_DRAFT_MODEL, &parameters::PREFILL_SHARE].into_iter()
    }
}

impl PrefillArgs {
    /// Returns the settings of these options.
    ///
    /// # Errors
    /// If the draft model is missing.
    pub fn settings(&self) -> Result<Drafts, Error> {
        match self.values.path(&parameters::SPEC_DRAFT_MODEL) {
            None if self.values.number(&parameters::PREFILL_SHARE).is_none() => {
                Ok(Drafts::default())
            }
            _ => Ok(Drafts::of(&self.values, false)?),
        }
    }

    /// Returns the share and the name of the draft model, in one line for logs of results.
    pub fn identity(&self) -> Option<String> {
        let share = self.values.number(&parameters::PREFILL_SHARE)?;
        let model = self.values.path(&parameters::SPEC_DRAFT_MODEL)?;
        Some(format!("{share} by {}", model.file_name().unwrap_or_default().display()))
    }
}
