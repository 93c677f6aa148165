//! The options of sparse attention.

use super::parameters::{Group, Options};
use rope_cpu::{
    runtime::{Sparse, parameters},
    settings::Parameter,
};

/// The options of sparse attention.
pub type SparseArgs = Options<SparseAttention>;

/// The group of the settings of sparse attention.
#[derive(Clone, Debug, Default)]
pub struct SparseAttention;

impl Group for SparseAttention {
    const HEADING: Option<&'static str> = Some("Context and memory");

    fn parameters() -> impl Iterator<Item = &'static Parameter> {
        parameters::SPARSE.into_iter()
    }
}

impl SparseArgs {
    /// Returns the settings of these options.
    pub fn settings(&self) -> Sparse {
        Sparse::of(&self.values)
    }
}
