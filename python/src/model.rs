//! A model with its settings: the class behind `rope_cpu.Model`.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

use pyo3::{prelude::*, types::PyDict};
use rope_cpu::{
    Token,
    gguf::{Override, Value},
    kv_cache::CacheType,
    model::{self, OpenOptions},
    platform::processors::{Threads, default_threads},
    rope::Sourced,
    runtime::{self, Scheduling, Sequences, Settings},
    tokenizer::{Ends, Special, Tokenizer},
};

use crate::{
    errors::{invalid, of_model, of_plan},
    loaded::Loaded,
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
    #[pyo3(signature = (path, *, ctx, rope, settings, context_shift, cache_type_k, cache_type_v, threads, ubatch_size, memory_check, override_kv, lora, parallel, cache_disk))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments, which the package checks")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        ctx: Option<usize>,
        rope: Option<String>,
        settings: Vec<(String, String)>,
        context_shift: bool,
        cache_type_k: &str,
        cache_type_v: &str,
        threads: Option<usize>,
        ubatch_size: usize,
        memory_check: bool,
        override_kv: Vec<String>,
        lora: Vec<(PathBuf, f32)>,
        parallel: usize,
        cache_disk: Option<PathBuf>,
    ) -> PyResult<Self> {
        let rope = flags(rope.as_deref(), &settings, context_shift)?;
        let cache_type = |name: &str| name.parse::<CacheType>().map_err(invalid);
        let (keys, values) = (cache_type(cache_type_k)?, cache_type(cache_type_v)?);
        let overrides = override_kv.iter().map(|text| text.parse::<Override>());
        let overrides = overrides.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
        let options = OpenOptions::new().overrides(overrides);
        let options = lora.into_iter().fold(options, |o, (path, scale)| o.adapter(path, scale));
        let model = py.detach(|| options.open(path)).map_err(of_model)?;

        let given =
            |count: usize| Threads { workers: count.into(), reason: format!("threads={count}") };
        let settings = Settings {
            context: ctx.map(|ctx| Sourced::given(ctx, "ctx")),
            rope,
            keys,
            values,
            micro_batch: ubatch_size,
            sequences: Sequences::UpTo(parallel),
            threads: threads.map_or_else(default_threads, given),
            must_fit: memory_check,
            ..Settings::default()
        };
        let disk = cache_disk.map(|folder| (folder, u64::MAX));
        Model::planned(
            model,
            settings,
            Scheduling { slots: parallel, disk, ..Scheduling::default() },
        )
    }

    /// Returns the model with another context or other RoPE settings, and with a cache of its own. An
    /// argument that is `None` keeps the setting that the model was opened with.
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
