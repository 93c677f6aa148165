//! A model: its configuration, its weights, and the forward pass.
//!
//! [`Model::open`] gives a value that owns the file. [`Config`] holds the metadata, `weights` the
//! borrowed tensors, `state` the buffers of a step, and `forward` computes it. Callers use a
//! [`Session`].

mod adapter;
mod allocator;
mod architecture;
mod attention;
mod batch;
mod config;
mod engine;
mod error;
mod experts;
mod finite;
mod forward;
mod heads;
pub mod memory;
mod open;
mod pooling;
mod products;
pub mod saved;
mod sequence;
mod session;
mod state;
mod weights;

use std::{
    fmt,
    path::Path,
    sync::{Arc, OnceLock},
};

use rope_cpu_kernels::DType;

pub use self::{
    adapter::{Adapter, Error as AdapterError},
    architecture::Architecture,
    batch::Role,
    config::{Attention, Config, FeedForward, Layer, Mixture, Pairing, Rotation},
    engine::{ANSWER_ROWS_MAX, Engine, Feed, Options, Output},
    error::Error,
    finite::Place,
    open::OpenOptions,
    pooling::{Pooler, Pooling, normalized},
    sequence::Sequence,
    session::{Progress, Session},
};
use self::{
    open::{Loaded, LoadedTokenizer},
    weights::Weights,
};
use crate::{
    chat::Template,
    gguf::{Gguf, Metadata, Tensor},
    rope::{self, Flags, ModelInfo, Plan, Rope, Sourced},
    tokenizer::Tokenizer,
};

/// The name of the tensor whose rows are the tokens' embeddings.
pub(crate) const EMBEDDINGS: &str = "token_embd.weight";

/// A model: its files, checked, with the weights borrowed from them. A clone shares them.
#[derive(Clone)]
pub struct Model {
    loaded: Arc<Loaded>,
    tokenizer: Arc<OnceLock<LoadedTokenizer>>,
}

impl Model {
    /// Opens the model at `path`; [`OpenOptions`] also override metadata and add adapters.
    ///
    /// # Errors
    /// If the file cannot be read, is invalid, or is not a supported model. The error begins with
    /// the path.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        OpenOptions::new().open(path)
    }

    fn new(loaded: Loaded) -> Self {
        Model { loaded: Arc::new(loaded), tokenizer: Arc::default() }
    }

    /// Returns the path of the file; of a split model, the first file.
    pub fn path(&self) -> &Path {
        self.loaded.borrow_owner().model.path()
    }

    /// Returns the contents of the file.
    pub fn gguf(&self) -> &Gguf<'_> {
        &self.loaded.borrow_dependent().gguf
    }

    /// Returns the metadata of the file, with the overrides applied.
    pub fn metadata(&self) -> &Metadata<'_> {
        self.gguf().metadata()
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.loaded.borrow_dependent().config
    }

    /// Returns the adapters in force.
    pub fn adapters(&self) -> &[Adapter<'_>] {
        &self.loaded.borrow_dependent().adapters
    }

    fn weights(&self) -> &Weights<'_> {
        &self.loaded.borrow_dependent().weights
    }

    /// Returns the size of the model's tensors in bytes.
    pub fn weights_bytes(&self) -> u64 {
        self.gguf().tensors().iter().map(|tensor| tensor.bytes.len() as u64).sum()
    }

    /// Returns the size of the adapters' tensors in bytes.
    pub fn adapters_bytes(&self) -> u64 {
        self.adapters().iter().map(Adapter::bytes).sum()
    }

    /// Returns the tokenizer, which is created by the first call.
    ///
    /// # Errors
    /// If the file has no tokenizer, or one that is not supported. The error begins with the path.
    pub fn tokenizer(&self) -> Result<&Tokenizer<'_>, Error> {
        let tokenizer = match self.tokenizer.get() {
            Some(tokenizer) => tokenizer,
            None => {
                let tokenizer = LoadedTokenizer::try_new(self.loaded.clone(), |loaded| {
                    Tokenizer::from_metadata(loaded.borrow_dependent().gguf.metadata())
                });
                let tokenizer = tokenizer.map_err(|e| Error::from(e).of(self.path()))?;
                self.tokenizer.get_or_init(|| tokenizer)
            }
        };
        Ok(tokenizer.borrow_dependent())
    }

    /// Returns the chat template of the file; `None` if it has none.
    ///
    /// # Errors
    /// If the template is invalid, or as for [`Model::tokenizer`]. The error begins with the path.
    pub fn chat_template(&self) -> Result<Option<Template>, Error> {
        Template::from_metadata(self.metadata(), self.tokenizer()?)
            .map_err(|e| Error::from(e).of(self.path()))
    }

    /// Resolves the RoPE plan of the model from its file's metadata, its divisors and `flags`.
    /// `context` is the requested context in tokens.
    ///
    /// # Errors
    /// If flags or metadata are invalid or contradict each other.
    pub fn rope_plan(
        &self,
        flags: &Flags,
        context: impl Into<Sourced<usize>>,
    ) -> Result<Plan, rope::Error> {
        let config = self.config();
        let info = ModelInfo {
            architecture: config.architecture.name,
            family: config.architecture.rope,
            n_rot: config.attention().n_rot,
            context_train: config.context_train,
            window_rope: config.has_rotation(Rotation::Window),
        };
        let factors = self.loaded.borrow_dependent().rope_factors.clone();
        Plan::resolve(&info, self.metadata(), factors, flags, context.into())
    }

    /// Creates a session with a context of `context` positions, the RoPE settings `flags`, and
    /// otherwise default [`Options`].
    ///
    /// # Errors
    /// As for [`Model::rope_plan`] and [`Session::new`].
    pub fn session(&self, flags: &Flags, context: usize) -> Result<Session, Error> {
        let plan = self.rope_plan(flags, context)?;
        Session::new(self, Rope::new(plan), Options::new(context))
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("path", &self.path()).finish_non_exhaustive()
    }
}

/// Returns the format of a tensor's weights, if the kernels support products with it.
fn dtype(tensor: &Tensor<'_>) -> Result<DType, Error> {
    DType::named(tensor.ggml_type.name).ok_or_else(|| Error::Format {
        tensor: tensor.name.into(),
        found: tensor.ggml_type.name.into(),
    })
}
