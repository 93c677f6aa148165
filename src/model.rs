//! A model: its configuration, its weights, and the forward pass.
//!
//! [`Config`] holds the metadata, `weights` the borrowed tensors, `state` the buffers of a step,
//! and `forward` computes it. Callers use a [`Session`].

pub mod adapter;
mod architecture;
mod attention;
mod batch;
mod config;
mod engine;
mod error;
mod experts;
mod forward;
mod heads;
pub mod memory;
pub mod saved;
mod sequence;
mod session;
mod state;
mod weights;

use rope_cpu_kernels::DType;

use self::weights::Weights;
pub use self::{
    adapter::Adapter,
    architecture::Architecture,
    batch::Role,
    config::{Config, Mixture, Pairing},
    engine::{Engine, Feed, Options},
    error::Error,
    sequence::Sequence,
    session::{Progress, Session},
};
use crate::{
    gguf::{Gguf, Metadata, Tensor},
    rope::{self, Factors, Flags, ModelInfo, Plan, Sourced},
};

/// The name of the tensor whose rows are the tokens' embeddings.
pub(crate) const EMBEDDINGS: &str = "token_embd.weight";

/// A model whose weights are borrowed from a file's bytes.
pub struct Model<'a> {
    /// The configuration.
    pub config: Config,
    weights: Weights<'a>,
    adapters_bytes: u64,
    rope_factors: Factors,
}

impl<'a> Model<'a> {
    /// Checks that a file holds a supported model, and borrows its weights.
    ///
    /// # Errors
    /// If metadata or a tensor is missing, invalid or not supported.
    pub fn load(gguf: &Gguf<'a>) -> Result<Self, Error> {
        Self::adapted(gguf, &[])
    }

    /// Loads a model like [`Model::load`], with adapters that were read for this file.
    ///
    /// # Errors
    /// As for [`Model::load`].
    pub fn adapted(gguf: &Gguf<'a>, adapters: &[Adapter<'a>]) -> Result<Self, Error> {
        let config = Config::from_metadata(gguf)?;
        let weights = Weights::load(gguf, &config, adapters)?;
        let rope_factors = Factors::read(gguf)?;
        let adapters_bytes = adapters.iter().map(Adapter::bytes).sum();
        Ok(Model { config, weights, adapters_bytes, rope_factors })
    }

    /// Resolves the RoPE plan of the model from its file's metadata, its divisors and `flags`.
    /// `context` is the requested context in tokens.
    ///
    /// # Errors
    /// If flags or metadata are invalid or contradict each other.
    pub fn rope_plan(
        &self,
        metadata: &Metadata<'_>,
        flags: &Flags,
        context: Sourced<usize>,
    ) -> Result<Plan, rope::Error> {
        let config = &self.config;
        let info = ModelInfo {
            architecture: config.architecture.name,
            n_rot: config.n_rot,
            context_train: config.context_train,
            window_rope: config.window.is_some() && config.window_rope,
        };
        Plan::resolve(&info, metadata, self.rope_factors(), flags, context)
    }

    /// Returns the bytes of the adapters' tensors.
    pub fn adapters_bytes(&self) -> u64 {
        self.adapters_bytes
    }

    /// Returns the divisors of RoPE frequencies that the file contains.
    pub fn rope_factors(&self) -> Factors {
        self.rope_factors.clone()
    }
}

/// Returns the format of a tensor's weights, if the kernels support products with it.
fn dtype(tensor: &Tensor<'_>) -> Result<DType, Error> {
    DType::named(tensor.ggml_type.name).ok_or_else(|| Error::Format {
        tensor: tensor.name.into(),
        found: tensor.ggml_type.name.into(),
    })
}
