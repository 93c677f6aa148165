//! A model: its configuration, its weights, and the forward pass.
//!
//! [`Config`] says what the metadata says, `weights` borrows the tensors, `state` holds every
//! buffer of a step, and `forward` reads as prose. A [`Session`] is what
//! callers use.

pub mod adapter;
mod architecture;
mod attention;
mod batch;
mod config;
mod error;
mod experts;
mod forward;
mod heads;
pub mod memory;
pub mod saved;
mod session;
mod state;
mod weights;

use rope_cpu_kernels::DType;

use self::weights::Weights;
pub use self::{
    adapter::Adapter,
    architecture::Architecture,
    config::{Config, Mixture, Pairing},
    error::Error,
    session::{Options, Progress, Session},
};
use crate::{
    gguf::{Gguf, Tensor},
    rope::Factors,
};

/// The tensor whose rows are the tokens' embeddings.
pub(crate) const EMBEDDINGS: &str = "token_embd.weight";

/// A model whose weights are borrowed from a file's bytes.
pub struct Model<'a> {
    /// What it is made like.
    pub config: Config,
    weights: Weights<'a>,
    adapters_bytes: u64,
    rope_factors: Factors,
}

impl<'a> Model<'a> {
    /// Checks that a file holds a model that runs here, and borrows its weights.
    pub fn load(gguf: &Gguf<'a>) -> Result<Self, Error> {
        Self::adapted(gguf, &[])
    }

    /// The same, with adapters that were read for this file.
    pub fn adapted(gguf: &Gguf<'a>, adapters: &[Adapter<'a>]) -> Result<Self, Error> {
        let config = Config::from_metadata(gguf)?;
        let weights = Weights::load(gguf, &config, adapters)?;
        let rope_factors = Factors::read(gguf)?;
        let adapters_bytes = adapters.iter().map(Adapter::bytes).sum();
        Ok(Model { config, weights, adapters_bytes, rope_factors })
    }

    /// Bytes of the adapters.
    pub fn adapters_bytes(&self) -> u64 {
        self.adapters_bytes
    }

    /// The divisors of RoPE frequencies that the file brings along.
    pub fn rope_factors(&self) -> Factors {
        self.rope_factors.clone()
    }
}

/// The format of a tensor's weights, if products with it run here.
fn dtype(tensor: &Tensor<'_>) -> Result<DType, Error> {
    DType::named(tensor.ggml_type.name).ok_or_else(|| Error::Format {
        tensor: tensor.name.into(),
        found: tensor.ggml_type.name.into(),
    })
}
