//! Assistants: small models that draft tokens for another one (Gemma 4).

#![allow(clippy::disallowed_methods, reason = "the sound transmute is within self_cell's macro")]

use std::{fmt, path::Path, sync::Arc};

use self_cell::self_cell;

use super::{
    Config, Error, Model,
    allocator::Allocator,
    config::AssistantConfig,
    state::State,
    weights::{self, SplitKeys},
};
use crate::gguf::File;

/// The frequencies that an assistant and its model have in common.
const BASES: [&str; 2] = ["rope.freq_base", "rope.freq_base_swa"];

/// An assistant: a small model that drafts tokens for the model it was trained with, from the keys,
/// values and outputs of that model. Files have the architecture `gemma4-assistant`. Clones are cheap.
///
/// Give it to an [`Engine`](super::Engine) as
/// [`Options::assistant`](super::Options), and let
/// [`speculation::Predictor`](crate::generate::speculation::Predictor) draft:
///
/// ```no_run
/// use rope_cpu::{
///     generate::speculation::{Count, Predictor, Speculation},
///     model::{Assistant, Model, Options, Session},
///     rope::{Flags, Rope},
/// };
///
/// let model = Model::open("gemma-4-E4B-it.gguf")?;
/// let assistant = Assistant::open("gemma-4-E4B-it-assistant.gguf", &model)?;
/// let rope = Rope::new(model.rope_plan(&Flags::default(), 4096)?);
/// let session = Session::new(&model, rope, Options { assistant, ..Options::new(4096) })?;
/// let speculation = Speculation::new(vec![Box::new(Predictor::default())], Count::UpTo(4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Assistant(Arc<Loaded>);

self_cell! {
    struct Loaded {
        owner: Files,
        #[covariant]
        dependent: Contents,
    }
}

struct Files {
    file: File,
    /// None: an assistant has no latents.
    split: SplitKeys,
}

struct Contents<'a> {
    config: AssistantConfig,
    weights: weights::Assistant<'a>,
    bytes: u64,
}

impl Assistant {
    /// Opens the assistant of `model` at `path`; `None` if the file is no assistant, but a whole model.
    ///
    /// # Errors
    /// If the file cannot be read, is invalid, or is the assistant of another model. The error names
    /// both files.
    pub fn open(path: impl AsRef<Path>, model: &Model) -> Result<Option<Self>, Error> {
        Self::load(File::open(path)?, model)
    }

    /// Loads the assistant of `model` from an open file, like [`Assistant::open`].
    ///
    /// # Errors
    /// As for [`Assistant::open`].
    pub fn load(file: File, model: &Model) -> Result<Option<Self>, Error> {
        if !Self::is_in(&file)? {
            return Ok(None);
        }
        let files = Files { file, split: SplitKeys::default() };
        let loaded = Loaded::try_new(files, |files| Contents::read(files, model))?;
        Ok(Some(Assistant(Arc::new(loaded))))
    }

    fn is_in(file: &File) -> Result<bool, Error> {
        let gguf = file.parse(&[])?;
        let config = AssistantConfig::from_metadata(&gguf).map_err(|e| e.of(file.path()))?;
        Ok(config.is_some())
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.0.borrow_owner().file.path()
    }

    /// Returns the size of the assistant's tensors in bytes.
    pub fn weights_bytes(&self) -> u64 {
        self.0.borrow_dependent().bytes
    }

    /// Checks that this is the assistant of `model`.
    pub(super) fn check(&self, model: &Model) -> Result<(), Error> {
        let mut config = self.0.borrow_dependent().config.clone();
        let fits = config.attend_to(model.config());
        let fits = fits.and_then(|()| match config.own.layers == self.config().layers {
            true => Ok(()),
            false => Err("the model has another number of layers".into()),
        });
        fits.map_err(|reason| other(self.path(), model, reason))
    }

    /// Returns its own dimensions and layers.
    pub(super) fn config(&self) -> &Config {
        &self.0.borrow_dependent().config.own
    }

    pub(super) fn weights(&self) -> &weights::Assistant<'_> {
        &self.0.borrow_dependent().weights
    }

    /// Creates its buffers.
    pub(super) fn state(&self, allocator: &mut Allocator<'_>) -> State {
        let inputs = 2 * self.0.borrow_dependent().config.of_model;
        State::new(allocator, self.config(), &self.weights().own, inputs)
    }
}

impl<'a> Contents<'a> {
    fn read(Files { file, split }: &'a Files, model: &Model) -> Result<Self, Error> {
        let named = |error: Error| error.of(file.path());
        let gguf = file.parse(&[])?;
        let config = AssistantConfig::from_metadata(&gguf).map_err(named)?;
        let mut config = config.ok_or_else(|| named(Error::Assistant))?;
        let misfit = |reason| other(file.path(), model, reason);
        config.attend_to(model.config()).map_err(misfit)?;
        let architectures = [&config.own, model.config()].map(|one| one.architecture.name);
        for key in BASES {
            let names = architectures.map(|name| format!("{name}.{key}"));
            let own = gguf.metadata().f32(&names[0]).map_err(|e| named(e.into()))?;
            let of_model = model.metadata().f32(&names[1])?;
            if let (Some(own), Some(of_model)) = (own, of_model)
                && own != of_model
            {
                let [own_name, name] = names;
                return Err(misfit(format!("{own_name} is {own}, and {name} is {of_model}")));
            }
        }
        let weights = weights::Assistant::load(&gguf, &config, split).map_err(named)?;
        let bytes = gguf.tensors().iter().map(|tensor| tensor.bytes.len() as u64).sum();
        Ok(Contents { config, weights, bytes })
    }
}

/// Returns the error for the assistant of another model.
fn other(assistant: &Path, model: &Model, reason: String) -> Error {
    Error::OtherAssistant { assistant: assistant.into(), model: model.path().into(), reason }
}

impl fmt::Debug for Assistant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assistant").field("path", &self.path()).finish_non_exhaustive()
    }
}
