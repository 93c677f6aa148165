//! Opens a model: its files, and everything that is borrowed from them.

#![allow(clippy::disallowed_methods, reason = "the sound transmute is within self_cell's macro")]

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use self_cell::self_cell;

use super::{
    Adapter, Config, Error, Model,
    weights::{SplitKeys, Weights},
};
use crate::{
    gguf::{File, Gguf, Override},
    rope::Factors,
    tokenizer::Tokenizer,
};

/// Opens a model with overridden metadata or adapters.
///
/// ```no_run
/// # use rope_cpu::model::{Error, OpenOptions};
/// # fn main() -> Result<(), Error> {
/// let model = OpenOptions::new().adapter("style.gguf", 0.5).open("model.gguf")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    overrides: Vec<Override>,
    adapters: Vec<(PathBuf, f32)>,
}

impl OpenOptions {
    /// Returns options that change nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces or adds metadata keys.
    pub fn overrides(mut self, overrides: impl IntoIterator<Item = Override>) -> Self {
        self.overrides.extend(overrides);
        self
    }

    /// Adds an adapter, which must be made for the model. `scale` multiplies its effect, in
    /// sequences without another scale.
    pub fn adapter(mut self, path: impl Into<PathBuf>, scale: f32) -> Self {
        self.adapters.push((path.into(), scale));
        self
    }

    /// Opens the model at `path`.
    ///
    /// # Errors
    /// If a file cannot be read, is invalid or not supported, or an adapter is for another model.
    /// The error starts with the path of the file.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Model, Error> {
        self.load(File::open(path)?)
    }

    /// Loads the model from an open file.
    ///
    /// # Errors
    /// As for [`OpenOptions::open`].
    pub fn load(self, model: File) -> Result<Model, Error> {
        let open = |(path, scale): (PathBuf, f32)| Ok((File::open(path)?, scale));
        let adapters = self.adapters.into_iter().map(open).collect::<Result<_, Error>>()?;
        let split = OnceLock::new();
        let files = Files { model, overrides: self.overrides, adapters, split };
        Loaded::try_new(files, |files| Contents::read(files)).map(Model::new)
    }
}

self_cell! {
    /// The files of a model, with everything that is borrowed from them.
    pub(super) struct Loaded {
        owner: Files,
        #[covariant]
        dependent: Contents,
    }
}

self_cell! {
    /// The tokenizer of a model, which borrows from the model's file.
    pub(super) struct LoadedTokenizer {
        owner: Arc<Loaded>,
        #[covariant]
        dependent: Tokenizer,
    }
}

/// The files that a model consists of, and the metadata that is overridden.
pub(super) struct Files {
    pub model: File,
    overrides: Vec<Override>,
    /// The files of adapters, with their scales.
    adapters: Vec<(File, f32)>,
    /// The keys' matrices of files that join them with the values'.
    pub split: OnceLock<SplitKeys>,
}

/// The checked contents of [`Files`].
pub(super) struct Contents<'a> {
    pub gguf: Gguf<'a>,
    pub config: Config,
    pub weights: Weights<'a>,
    pub adapters: Vec<Adapter<'a>>,
    pub rope_factors: Factors,
}

impl<'a> Contents<'a> {
    fn read(files: &'a Files) -> Result<Self, Error> {
        let gguf = files.model.parse(&files.overrides)?;
        let adapters = files.adapters.iter().enumerate();
        let adapters = adapters.map(|(i, (file, scale))| Adapter::read(file, &gguf, i, *scale));
        let adapters = adapters.collect::<Result<Vec<_>, _>>()?;
        let named = |error: Error| error.of(files.model.path());
        let config = Config::from_metadata(&gguf).map_err(named)?;
        let split = SplitKeys::read(&gguf, &config).map_err(named)?;
        let split = files.split.get_or_init(|| split);
        let weights = Weights::load(&gguf, &config, &adapters, split).map_err(named)?;
        let rope_factors = Factors::read(&gguf).map_err(|e| named(e.into()))?;
        Ok(Contents { gguf, config, weights, adapters, rope_factors })
    }
}
