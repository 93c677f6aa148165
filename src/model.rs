//! Opens models and computes them: the configuration, the weights, and the forward pass.
//!
//! [`Model::open`] returns a value that owns the file. Use a [`Session`] for one conversation, and
//! an [`Engine`] for many sequences. Inside, [`Config`] has the metadata and `weights` the borrowed
//! tensors; `state` has the buffers of a step, and `forward` computes it.

mod adapter;
mod allocator;
#[doc(hidden)]
pub mod architecture;
mod assistance;
mod assistant;
mod attention;
mod batch;
mod config;
mod embed;
mod engine;
mod error;
mod experts;
mod finite;
mod forward;
mod heads;
mod inputs;
mod latent;
mod layer_input;
#[doc(hidden)]
pub mod memory;
mod observer;
mod open;
mod pair;
mod pooling;
mod predictor;
mod probe;
mod products;
mod recurrence;
mod runs;
pub mod saved;
mod sequence;
mod session;
mod sparse;
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
    assistant::Assistant,
    batch::Role,
    config::{
        Attention, Config, Convolution, FeedForward, Gating, Latent, Layer, Mixture, Pairing,
        Recurrence, Rotation, Routing, Scales, Scan,
    },
    embed::TEXTS_TOGETHER,
    engine::{Engine, Feed, Options, Output},
    error::Error,
    finite::Place,
    open::OpenOptions,
    pooling::{Pooler, Pooling, normalized},
    sequence::Sequence,
    session::{Progress, Session},
    sparse::SparseAttention,
};
pub(crate) use self::{
    engine::ANSWER_ROWS_MAX, inputs::Sums as InputsOfMatrix, observer::Observed,
};
use self::{
    open::{Loaded, LoadedTokenizer},
    weights::{SplitKeys, Weights},
};
use crate::{
    chat::{self, Template},
    gguf::{Gguf, Metadata, Tensor},
    rope::{self, Flags, ModelInfo, Plan, Rope, Sourced},
    tokenizer::Tokenizer,
};

/// The name of the tensor of the tokens' embeddings.
pub(crate) const EMBEDDINGS: &str = "token_embd.weight";

/// The name of the matrix of a predictor's inputs, in its layer.
pub(crate) const PREDICTOR_INPUT: &str = "nextn.eh_proj";

/// The name of the table with an input of each layer for each token.
pub(crate) const LAYER_EMBEDDINGS: &str = "per_layer_token_embd.weight";

/// A model: its checked files, with the weights borrowed from them. Clones are cheap and share
/// them.
///
/// ```no_run
/// use rope_cpu::{model::Model, rope::Flags};
///
/// # fn main() -> Result<(), rope_cpu::model::Error> {
/// let model = Model::open("model.gguf")?;
/// let session = model.session(&Flags::default(), model.config().context_train)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Model {
    loaded: Arc<Loaded>,
    tokenizer: Arc<OnceLock<LoadedTokenizer>>,
    fingerprint: Arc<OnceLock<u128>>,
}

impl Model {
    /// Opens the model at `path`; [`OpenOptions`] also override metadata and add adapters.
    ///
    /// # Errors
    /// If the file cannot be read, is invalid, or is not a supported model. The error starts with
    /// the path.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        OpenOptions::new().open(path)
    }

    fn new(loaded: Loaded) -> Self {
        Model { loaded: Arc::new(loaded), tokenizer: Arc::default(), fingerprint: Arc::default() }
    }

    /// Returns the path of the file; of a split model, the first file.
    pub fn path(&self) -> &Path {
        self.loaded.borrow_owner().model.path()
    }

    /// Returns the paths of all files: several if the model is split.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.loaded.borrow_owner().model.parts().map(|part| part.path())
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

    /// Returns the number of positions that the model has learned, which is its longest context; `None`
    /// if a RoPE method can extend it.
    pub fn positions_max(&self) -> Option<usize> {
        let positions = self.weights().terms.as_ref()?.positions?;
        Some(positions.rows())
    }

    /// Returns the first layer whose feed-forward network is computed only for tokens with an output.
    pub(crate) fn tail(&self) -> usize {
        let weights = self.weights();
        let first = weights.branches().rev().take(weights.tail()).last();
        first.map_or(self.config().layers.len(), |(layer, _)| layer)
    }

    /// Returns the number of tokens without an output from which they are computed in a separate step,
    /// before the tokens with an output. It is small if that step skips many layers, as in Gemma 4,
    /// whose last layers share the keys and values of earlier ones.
    pub(crate) fn apart_from(&self) -> Option<usize> {
        // The number of tokens that may be computed in the time of a further step with one token.
        const WORTH_A_STEP: usize = 16;
        let weights = self.weights();
        let left_out = weights.storeless() - weights.tail();
        (WORTH_A_STEP * weights.branches().count()).checked_div(left_out)
    }

    /// Returns the last layer that stores something for later tokens.
    pub(crate) fn last_stored(&self) -> usize {
        let weights = self.weights();
        weights.branches().rev().nth(weights.storeless()).map_or(0, |(layer, _)| layer)
    }

    /// Returns the size of the model's tensors in bytes.
    pub fn weights_bytes(&self) -> u64 {
        self.gguf().tensors().iter().map(|tensor| tensor.bytes.len() as u64).sum()
    }

    /// Returns the bytes of the tensors that all tokens use, without layers that predict further tokens.
    /// Tokens also read single rows of a table, which the system need not keep in memory.
    pub fn resident_bytes(&self) -> u64 {
        let table = self.gguf().tensor(LAYER_EMBEDDINGS);
        let split = self.loaded.borrow_owner().split.get().map_or(0, SplitKeys::bytes);
        let table = table.map_or(0, |table| table.bytes.len() as u64);
        let skipped = table + self.predictor_bytes() + self.media_bytes();
        self.weights_bytes() + split as u64 - skipped
    }

    /// Returns the bytes of the tensors of a vision or audio part, which are not read: the model
    /// processes text only. 0 if the file has no such part.
    pub fn media_bytes(&self) -> u64 {
        let tensors = self.gguf().tensors().iter();
        let media = tensors.filter(|tensor| weights::is_media(tensor.name));
        media.map(|tensor| tensor.bytes.len() as u64).sum()
    }

    /// Returns the bytes of the tensors of layers that predict further tokens.
    pub(crate) fn predictor_bytes(&self) -> u64 {
        let tensors = self.gguf().tensors().iter();
        let own = tensors.filter(|tensor| self.config().skips(tensor.name));
        own.map(|tensor| tensor.bytes.len() as u64).sum()
    }

    /// Returns the size of the adapters' tensors in bytes.
    pub fn adapters_bytes(&self) -> u64 {
        self.adapters().iter().map(Adapter::bytes).sum()
    }

    /// Returns the tokenizer. The first call creates it.
    ///
    /// # Errors
    /// If the file has no tokenizer, or an unsupported one. The error starts with the path.
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
    /// If the template is invalid, or as for [`Model::tokenizer`]. The error starts with the path.
    ///
    /// ```no_run
    /// # use rope_cpu::{chat::{Message, Role}, model::Model};
    /// # let model = Model::open("model.gguf")?;
    /// if let Some(template) = model.chat_template()? {
    ///     println!("{}", template.render(&[Message::new(Role::User, "Hello!")], &[], true)?);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn chat_template(&self) -> Result<Option<Template>, Error> {
        let in_file = |e: Error| e.of(self.path());
        let source = self.metadata().string("tokenizer.chat_template");
        let Some(source) = source.map_err(|e| in_file(e.into()))? else { return Ok(None) };
        let template = chat::template(source, self.tokenizer()?);
        template.map(Some).map_err(|e| in_file(e.into()))
    }

    /// Resolves the RoPE plan of the model from its file's metadata, its divisors and `flags`.
    /// `context` is the requested context in tokens.
    ///
    /// # Errors
    /// If flags or metadata are invalid or contradict each other.
    ///
    /// ```no_run
    /// # use rope_cpu::{model::Model, rope::Flags};
    /// # let model = Model::open("model.gguf")?;
    /// let plan = model.rope_plan(&Flags::method("yarn"), 16384)?;
    /// println!("{plan}");
    /// for warning in &plan.warnings {
    ///     eprintln!("{warning}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rope_plan(
        &self,
        flags: &Flags,
        context: impl Into<Sourced<usize>>,
    ) -> Result<Plan, rope::Error> {
        let config = self.config();
        // Layers without rotation also have a number of rotated dimensions.
        let n_rot = config.attention_max(|attention| attention.n_rot);
        let info = ModelInfo {
            architecture: config.architecture.name,
            family: config.architecture.rope,
            causal: config.causal,
            n_rot: config.n_rot(Rotation::Global).unwrap_or(n_rot),
            window_n_rot: config.n_rot(Rotation::Window),
            context_train: config.context_train,
            // Encoders with positions in their embeddings have no such layer, either.
            rotates: config.n_rot(Rotation::Global).is_some() || !config.causal,
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
