//! A model with its settings: the class behind `rope_cpu.Model`.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

use pyo3::{prelude::*, types::PyDict};
use rope_cpu::{
    Token,
    gguf::Value,
    model,
    rope::Sourced,
    runtime::{self, Scheduling, Settings},
    tokenizer::{Ends, Special, Tokenizer},
};

use crate::{
    errors::{invalid, of_model, of_plan},
    loaded::Loaded,
    options::Options,
    rope::{Method, Plan, flags},
};

/// An open model.
#[pyclass(frozen, module = "rope_cpu._native")]
pub struct Model {
    loaded: RwLock<Option<Arc<Loaded>>>,
}

#[pymethods]
impl Model {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, options: Options) -> PyResult<Self> {
        let (open, settings, scheduling) = options.parts()?;
        let model = py.detach(|| open.open(path)).map_err(of_model)?;
        Model::planned(model, settings, scheduling)
    }

    /// Returns the model with another context or other RoPE settings, and with a new cache. An argument
    /// that is `None` keeps the setting that the model was opened with.
    fn with_context(&self, ctx: Option<usize>, rope: Option<Method>) -> PyResult<Self> {
        let loaded = self.loaded()?;
        let mut settings = loaded.settings.clone();
        if let Some((rope, given)) = rope {
            settings.rope = flags(rope.as_deref(), &given, settings.rope.context_shift)?;
        }
        if let Some(ctx) = ctx {
            settings.context = Some(Sourced::given(ctx, "ctx"));
        }
        Model::planned(loaded.model.clone(), settings, loaded.scheduling().clone())
    }

    /// Frees the model once no stream uses it.
    fn close(&self) {
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Sizes and names: of the context, the vocabulary, the embeddings, the threads, the file.
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Loaded { model, plan, settings, .. } = &*self.loaded()?;
        let config = model.config();
        let properties = PyDict::new(py);
        properties.set_item("path", model.path())?;
        properties.set_item("architecture", config.architecture.name)?;
        properties.set_item("ctx", plan.context.value)?;
        properties.set_item("trained_ctx", config.context_train)?;
        properties.set_item("vocabulary", config.vocabulary)?;
        properties.set_item("embedding", config.embedding)?;
        properties.set_item("threads", settings.threads.workers.answers)?;
        properties.set_item("memory", plan.need().total())?;
        let tokenizer = model.tokenizer().ok();
        properties.set_item("bos", tokenizer.and_then(Tokenizer::bos))?;
        properties.set_item("eos", tokenizer.and_then(Tokenizer::eos))?;
        Ok(properties)
    }

    /// The metadata of the file, without its lists.
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let metadata = PyDict::new(py);
        for (key, value) in self.loaded()?.model.metadata().iter() {
            match value {
                Value::String(text) => metadata.set_item(key, String::from_utf8_lossy(text))?,
                Value::Bool(value) => metadata.set_item(key, value)?,
                Value::F32(value) => metadata.set_item(key, value)?,
                Value::F64(value) => metadata.set_item(key, value)?,
                Value::Array(_) => {}
                value => metadata.set_item(key, value.integer())?,
            }
        }
        Ok(metadata)
    }

    /// The RoPE plan.
    fn plan(&self) -> PyResult<Plan> {
        Ok(Plan(self.loaded()?.plan.rope.clone()))
    }

    /// The tokens of a text.
    fn tokenize(
        &self,
        py: Python<'_>,
        text: &[u8],
        add_special: bool,
        parse_special: bool,
    ) -> PyResult<Vec<Token>> {
        let loaded = self.loaded()?;
        let tokenizer = loaded.tokenizer()?;
        let special = if parse_special { Special::Parse } else { Special::AsText };
        let ends = if add_special { Ends::Add } else { Ends::Omit };
        Ok(py.detach(|| tokenizer.encode(text, special, ends)))
    }

    /// The text of tokens, as bytes: it may be cut within a character.
    fn detokenize(&self, tokens: Vec<Token>, special: bool) -> PyResult<Vec<u8>> {
        let loaded = self.loaded()?;
        let tokenizer = loaded.tokenizer()?;
        if let Some(token) = tokens.iter().find(|token| **token as usize >= tokenizer.len()) {
            let last = tokenizer.len().saturating_sub(1);
            return Err(invalid(format_args!("token {token}: must be from 0 to {last}")));
        }
        Ok(tokenizer.decode(&tokens, special))
    }
}

impl Model {
    /// Plans the memory and RoPE, and checks that the model fits.
    fn planned(model: model::Model, settings: Settings, scheduling: Scheduling) -> PyResult<Self> {
        let plan = runtime::Plan::new(&model, &settings).map_err(of_plan)?;
        plan.check().map_err(of_plan)?;
        let loaded = Arc::new(Loaded::new(model, plan, settings, scheduling));
        Ok(Model { loaded: RwLock::new(Some(loaded)) })
    }

    /// Returns the model.
    pub fn loaded(&self) -> PyResult<Arc<Loaded>> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone();
        loaded.ok_or_else(|| invalid("the model is closed: open it again"))
    }
}
