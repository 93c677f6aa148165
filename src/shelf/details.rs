//! The header of a model file, and whether the model fits in memory.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Mutex,
    time::SystemTime,
};

use super::Error;
use crate::{
    gguf::{File, Gguf},
    model::Model,
    quantize::Target,
    runtime::{Plan, Settings},
};

/// The facts about a model that the header of its file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// The format of most weights: `Q4_K_M`, or `unknown`.
    pub format: String,
    /// The architecture: `llama`, `qwen3`.
    pub architecture: String,
    /// The name that the file gives the model.
    pub title: Option<String>,
    /// The number of parameters.
    pub parameters: u64,
    /// The context that the model was trained for, in tokens.
    pub context: Option<u64>,
    /// The chat template.
    pub template: Option<String>,
    /// Whether the model computes embeddings, and generates no text.
    pub embedding: bool,
}

impl Details {
    /// Reads them from a parsed file.
    fn of(gguf: &Gguf) -> Self {
        let metadata = gguf.metadata();
        // A key of another type is as good as none: opening the model reports it.
        let string = |key: &str| metadata.string(key).ok().flatten().map(String::from);
        let architecture = string("general.architecture").unwrap_or_default();
        let of_architecture = |key: &str| {
            let value = metadata.get(&format!("{architecture}.{key}"));
            value.and_then(|value| u64::try_from(value.integer()?).ok())
        };
        let causal = metadata.bool(&format!("{architecture}.attention.causal")).ok().flatten();
        let pools = of_architecture("pooling_type").is_some_and(|kind| kind > 0);
        let template = string("tokenizer.chat_template");
        Details {
            format: format(gguf),
            title: string("general.name"),
            parameters: gguf.tensors().iter().map(|tensor| tensor.elements()).sum(),
            context: of_architecture("context_length"),
            embedding: causal == Some(false) || (pools && template.is_none()),
            template,
            architecture,
        }
    }
}

/// Returns the name of the file's type, or else the type of most weights.
fn format(gguf: &Gguf) -> String {
    let of_file = gguf.metadata().u32("general.file_type").ok().flatten();
    if let Some(target) = of_file.and_then(|number| Target::named(&number.to_string())) {
        return target.name().into();
    }
    let mut types: HashMap<&str, u64> = HashMap::new();
    for tensor in gguf.tensors() {
        *types.entry(tensor.ggml_type.name).or_default() += tensor.elements();
    }
    let most = types.into_iter().max_by_key(|(name, elements)| (*elements, *name));
    most.map_or("unknown", |(name, _)| name).into()
}

/// The size and the time of a file, which tell whether it has changed.
type Version = (u64, Option<SystemTime>);

/// Headers that were read, by file.
#[derive(Debug, Default)]
pub struct Headers(Mutex<HashMap<PathBuf, (Version, Details)>>);

/// How many headers are kept: some have templates of many kilobytes.
const HEADERS_MAX: usize = 1000;

impl Headers {
    /// Reads the header of the file at `path`, unless the same file was read before.
    ///
    /// # Errors
    /// If the file cannot be read or is invalid.
    pub fn details(&self, path: &Path, bytes: u64) -> Result<Details, Error> {
        let modified = path.metadata().and_then(|metadata| metadata.modified()).ok();
        // A poisoned map still has whole entries.
        let lock = || self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((version, details)) = lock().get(path)
            && *version == (bytes, modified)
        {
            return Ok(details.clone());
        }
        let file = File::open(path)?;
        let details = Details::of(&file.parse(&[])?);
        let mut known = lock();
        if known.len() >= HEADERS_MAX {
            known.clear();
        }
        known.insert(path.into(), ((bytes, modified), details.clone()));
        Ok(details)
    }
}

/// Whether a model fits in the available memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Whether it fits with [`Fit::context`].
    pub fits: bool,
    /// The context without other settings: the trained one, or the largest that fits.
    pub context: usize,
    /// The memory that it needs with this context, in bytes.
    pub bytes: u64,
}

impl Fit {
    /// Plans a run of the model at `path`, without allocating its memory.
    ///
    /// # Errors
    /// If the model cannot be opened.
    pub(super) fn of(path: &Path) -> Result<Self, Error> {
        let model = Model::open(path)?;
        let plan = Plan::new(&model, &Settings::default());
        let plan = plan.map_err(|error| Error::Plan { reason: error.to_string() })?;
        Ok(Fit {
            fits: plan.check().is_ok(),
            context: plan.context.value,
            bytes: plan.need().total(),
        })
    }
}
