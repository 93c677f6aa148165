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
