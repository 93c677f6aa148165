//! The plan of a run: what it computes with, and the memory that it needs.

use std::fmt;

use rope_cpu_kernels::Cpu;

use super::{Draft, Drafts, Error, Sequences, Settings, Sparse, memory::reserved};
use crate::{
    generate::speculation::Speculation,
    kv_cache::CacheType,
    model::{
        self, Assistant, Engine, Model, Options, Session, SparseAttention,
        memory::{Bytes, Need, Request, Shape},
    },
    platform::{self, memory::Available, processors::Threads},
    rope::{self, Origin, Rope, Sourced},
    settings::{Setting, renamed},
    threads::Power,
};

/// The plan of a run of a model, resolved from [`Settings`].
#[derive(Clone, Debug)]
pub struct Plan {
    /// The context in tokens.
    pub context: Sourced<usize>,
    /// The RoPE plan.
    pub rope: rope::Plan,
    /// Settings that have no effect, each as a sentence.
    pub warnings: Vec<String>,
    /// The draft model.
    pub draft: Option<Box<Draft>>,
    pub(super) model: String,
    shape: Shape,
    pub(super) request: Request,
    pub(super) available: Option<Available>,
    must_fit: bool,
    pub(super) threads: Threads,
    pub(super) cpu: Cpu,
    power: Power,
    pub(super) sparse: Sparse,
    pub(super) drafts: Drafts,
    pub(super) predict: bool,
    pub(super) assistant: Option<Assistant>,
}

/// The memory of a run with another context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The memory that it needs, in bytes.
    pub bytes: u64,
    /// Cache types that make it fit, if those of the run do not.
    pub types: Option<(CacheType, CacheType)>,
    /// The available memory in bytes, if no cache types make it fit.
    pub lacking: Option<u64>,
}

impl Plan {
    /// Plans a run. Nothing is allocated yet, and the memory is not checked: see [`Plan::check`].
    ///
    /// # Errors
    /// If settings or metadata are invalid or contradict each other, or the draft model cannot be
    /// opened.
    pub fn new(model: &Model, settings: &Settings) -> Result<Self, Error> {
        Self::with_rope(model, settings, |context| {
            Ok(model.rope_plan(&settings.rope, context.clone())?)
        })
    }

    /// Plans a run with the RoPE plan that `rope` returns for the context.
    ///
    /// # Errors
    /// As for [`Plan::new`], and the errors of `rope`.
    pub fn with_rope<E: From<Error>>(
        model: &Model,
        settings: &Settings,
        rope: impl FnOnce(&Sourced<usize>) -> Result<rope::Plan, E>,
    ) -> Result<Self, E> {
        let most = settings.threads.workers.most();
        let mut shape = shape(model, most, false);
        let taken = settings.taken.saturating_add(reserved(model));
        let available = platform::memory::available().map(|available| Available {
            bytes: available.bytes.saturating_sub(taken),
            ..available
        });
        let mut request = request(model, settings);
        let context = match &settings.context {
            Some(context) => context.clone(),
            None => default_context(model, &shape, &request, available),
        };
        request.context = context.value;

        let (drafts, mut sparse) = (&settings.drafts, settings.sparse);
        if drafts.sources.own && sparse.answers.is_some() {
            return Err(Error::SparseTwice.into());
        }
        if drafts.sources.own {
            sparse.answers = Some(SparseAttention::for_drafts());
        }
        request.sparse = sparse.lines().next().is_some();
        let assistant = drafts.assistant(model)?;
        let of_file = model.config().predictor.is_some();
        let mut predict = drafts.sources.predictor && assistant.is_none();
        if predict && !of_file {
            return Err(Error::NoPredictor.into());
        }
        if drafts.sources.predictor_if_fitting && of_file {
            let need = self::shape(model, most, true).need(&request).total();
            predict |= available.is_none_or(|available| need <= available.bytes);
        }
        if predict {
            shape = self::shape(model, most, true);
        }
        if let Some(assistant) = &assistant {
            shape = shape.assisted(assistant, most);
        }
        if settings.retains_all && !request.rolling {
            shape = shape.retaining(usize::MAX);
        }

        let rope = rope(&context)?;
        let mut plan = Plan {
            warnings: values_without_effect(model, settings).into_iter().collect(),
            context,
            rope,
            draft: None,
            model: describe(model),
            shape,
            request,
            available,
            must_fit: settings.must_fit,
            threads: settings.threads.clone(),
            cpu: settings.cpu,
            power: settings.power,
            sparse,
            drafts: drafts.clone(),
            predict,
            assistant,
        };
        plan.make_room(settings.sequences);
        plan.check_sparse(model)?;
        plan.draft = Draft::open(&plan, settings)?.map(Box::new);
        match plan.draft {
            None if plan.drafts.prefill.is_some() => Err(Error::PrefillDraftModel.into()),
            _ => Ok(plan),
        }
    }

    /// Plans memory for sequences, for as many as fit if that is allowed.
    fn make_room(&mut self, sequences: Sequences) {
        let (count, least) = match sequences {
            Sequences::UpTo(count) => (count, 1),
            Sequences::SideBySide(count) | Sequences::All(count) => (count, count),
        };
        let tokens = self.request.context.saturating_mul(count);
        self.request.sequences = count;
        self.request.micro_batch = self.request.micro_batch.min(tokens);
        let exceeds = |request: &Request| {
            let need = self.shape.need(request).total();
            self.available.is_some_and(|available| need > available.bytes)
        };
        while self.request.sequences > least && exceeds(&self.request) {
            self.request.sequences -= 1;
        }
    }

    /// Checks that attention can be sparse, if it is to be. The error names the setting that asked for
    /// it.
    fn check_sparse(&self, model: &Model) -> Result<(), Error> {
        let checked = self.options().check_sparse(model.config(), &self.rope);
        checked.map_err(|error| match self.drafts.sources.own {
            true => Error::SparseDrafts(
                renamed(&error.to_string(), |name| {
                    let answers = name == Setting::SPARSE_ATTENTION.0;
                    answers.then(|| format!("{} draft-sparse", Setting::SPEC_TYPE))
                })
                .into_owned(),
            ),
            false => error.into(),
        })
    }

    /// Checks that enough memory is available, if that is known.
    ///
    /// # Errors
    /// If there is too little, with the sizes and the settings that would fit.
    pub fn check(&self) -> Result<(), Error> {
        if let Some(available) = self.available.filter(|_| self.must_fit) {
            self.shape.check(&self.request, available)?;
        }
        match &self.draft {
            Some(draft) => draft.check(),
            None => Ok(()),
        }
    }

    /// Returns a warning if the experts of a mixture do not all fit in memory.
    pub fn experts_warning(&self) -> Option<String> {
        experts_warning(&self.shape, &self.request, self.available?)
    }

    /// Returns the options of a session or an engine.
    pub fn options(&self) -> Options {
        let Request { context, micro_batch, keys, values, .. } = self.request;
        let expert_bytes =
            |available: Available| self.shape.expert_bytes(&self.request, available.bytes);
        Options {
            micro_batch,
            keys,
            values,
            threads: self.threads.workers,
            cpu: self.cpu,
            power: self.power,
            sparse_attention: self.sparse.answers,
            sparse_prompt: self.sparse.prompts,
            expert_bytes: self.available.map(expert_bytes),
            predict: self.predict,
            assistant: self.assistant.clone(),
            ..Options::new(context)
        }
    }

    /// Returns the options of an engine with sequences that share pages. Earlier sequences may use up to
    /// `more` bytes of keys, values and states, as far as memory allows.
    pub fn shared_options(&self, more: usize) -> Options {
        let need = self.shape.need(&self.request);
        let drafts = self.draft.as_ref().map_or(0, |draft| draft.plan.need().total());
        let left = self.available.map_or(u64::MAX, |available| available.bytes);
        let left = left.saturating_sub(drafts).saturating_sub(need.total());
        let bytes = need.cache().saturating_add(left.min(more as u64));
        Options { cache_bytes: usize::try_from(bytes).unwrap_or(usize::MAX), ..self.options() }
    }

    /// Creates a session.
    ///
    /// # Errors
    /// As for [`Session::new`].
    pub fn session(&self, model: &Model) -> Result<Session, model::Error> {
        Session::new(model, Rope::new(self.rope.clone()), self.options())
    }

    /// Creates an engine.
    ///
    /// # Errors
    /// As for [`Engine::new`].
    pub fn engine(&self, model: &Model) -> Result<Engine, model::Error> {
        Engine::new(model, Rope::new(self.rope.clone()), self.options())
    }

    /// Creates the sources of drafts for each of `count` sequences. They share a draft model.
    ///
    /// # Errors
    /// If the draft model has another vocabulary, or its threads cannot be started.
    pub fn speculations(&self, model: &Model, count: usize) -> Result<Vec<Speculation>, Error> {
        let predicts = self.predict || self.assistant.is_some();
        self.drafts.speculations(model, predicts, self.draft.as_deref(), count)
    }

    /// Returns the number of sequences that memory is reserved for.
    pub fn sequences(&self) -> usize {
        self.request.sequences
    }

    /// Returns the memory that the run needs.
    pub fn need(&self) -> Need {
        self.shape.need(&self.request)
    }

    /// Returns the memory for one full context.
    pub fn need_of_one(&self) -> Need {
        self.shape.need(&Request { sequences: 1, ..self.request })
    }

    /// Returns the memory of one sequence with another context.
    pub fn with_context(&self, context: usize) -> Fit {
        let request = Request { context, sequences: 1, ..self.request };
        let need = |request: &Request| self.shape.need(request).total();
        let whole = Fit { bytes: need(&request), types: None, lacking: None };
        let Some(available) = self.available else { return whole };
        let Err(too_large) = self.shape.check(&request, available) else { return whole };
        match too_large.types.first() {
            Some(&(keys, values)) => {
                let bytes = need(&Request { keys, values, ..request });
                Fit { bytes, types: Some((keys, values)), lacking: None }
            }
            None => Fit { lacking: Some(available.bytes), ..whole },
        }
    }

    /// Returns the model and the memory as one line, with a title.
    pub fn line(&self, title: &str) -> String {
        format!("{title}: {}; {}", self.model, self.need().parts(&self.request))
    }

    /// Returns two lines for the start of a conversation: the model, and the context with its memory.
    pub fn brief(&self) -> String {
        let (need, context) = (self.need().total(), self.context.value);
        let scaling = match (self.rope.effective_scaling().name, self.rope.factor.value) {
            ("none", _) => "no scaling".into(),
            (name, 1.0) => name.to_string(),
            (name, factor) => format!("{name} by {}", (factor * 1000.0).round() / 1000.0),
        };
        format!("{}\nRoPE: {scaling}, context {context} ({})", self.model, Bytes(need))
    }
}

/// Formats three lines: the model, the memory, the threads; and one each for drafts of the model's
/// layer or assistant, for each kind of sparse attention, and for speculative prefill.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let need = self.need();
        writeln!(f, "Model: {}", self.model)?;
        if let Some(assistant) = &self.assistant {
            let (path, bytes) = (assistant.path().display(), Bytes(assistant.weights_bytes()));
            writeln!(f, "Assistant: {path}, {bytes} of weights")?;
        } else if self.predict {
            writeln!(f, "Drafts: from the model's layer that predicts further tokens (draft-mtp)")?;
        }
        write!(f, "Memory: {} for ", Bytes(need.total()))?;
        match self.request.sequences {
            1 => write!(f, "a context of {}", self.context)?,
            sequences => write!(f, "{sequences} contexts of {}", self.context)?,
        }
        write!(f, ": {}; ", need.parts(&self.request))?;
        match self.available {
            Some(available) => writeln!(f, "{} available", Bytes(available.bytes))?,
            None => writeln!(f, "available memory unknown")?,
        }
        let (answers, reason) = (self.threads.workers.answers, &self.threads.reason);
        write!(f, "Threads: {answers} ({reason}), {}", self.cpu.name())?;
        let prefill = self.drafts.prefill.map(|prefill| prefill.line());
        self.sparse.lines().chain(prefill).try_for_each(|line| write!(f, "\n{line}"))
    }
}

/// Returns a warning if the experts of a mixture do not all fit in memory.
pub fn experts_warning(shape: &Shape, request: &Request, available: Available) -> Option<String> {
    let (bytes, all) = (shape.expert_bytes(request, available.bytes), shape.experts_bytes);
    (bytes < all).then(|| {
        format!(
            "memory holds {} of {} of experts: the others are read from the file when tokens choose \
             them, which is slow",
            Bytes(bytes),
            Bytes(all)
        )
    })
}

/// Returns the length that a model was trained for.
pub fn trained(model: &Model) -> Sourced<usize> {
    let config = model.config();
    let key = format!("{}.context_length", config.architecture.name);
    Sourced::key(config.context_train, model.metadata().origin(&key))
}

/// Returns the shape of a model's memory; with its predictor if that `predicts`.
fn shape(model: &Model, threads: usize, predicts: bool) -> Shape {
    Shape::of(model, model.resident_bytes() + model.adapters_bytes(), threads, predicts)
}

/// Returns the request of one sequence with the trained context.
fn request(model: &Model, settings: &Settings) -> Request {
    let config = model.config();
    let wanted = settings.context.as_ref().map_or(config.context_train, |context| context.value);
    Request {
        context: config.context_train,
        sequences: 1,
        shared: 0,
        rolling: settings.rope.rolls(),
        // An encoder reads a text in one pass.
        micro_batch: match config.causal {
            true => settings.micro_batch,
            false => settings.micro_batch.max(wanted),
        },
        keys: settings.keys,
        values: settings.values,
        sparse: false,
    }
}

/// Returns the trained length, or the largest context that fits in memory if that is less.
fn default_context(
    model: &Model,
    shape: &Shape,
    request: &Request,
    available: Option<Available>,
) -> Sourced<usize> {
    let trained = trained(model);
    let largest =
        |available: Available| shape.default_context(request, trained.value, available.bytes);
    match available.map(largest) {
        Some(value) if value < trained.value => {
            Sourced { value, origin: Origin::Computed("the largest that fits in memory") }
        }
        _ => trained,
    }
}

/// Returns a warning if the type of values has no effect.
fn values_without_effect(model: &Model, settings: &Settings) -> Option<String> {
    let (config, Settings { keys, values, .. }) = (model.config(), settings);
    let chosen = ![CacheType::F16, *keys].contains(values);
    let unused = chosen && config.attention().all(|attention| attention.latent.is_some());
    unused.then(|| {
        format!(
            "{} {} has no effect: in {} models, values are a part of keys ({} {})",
            Setting::CACHE_TYPE_V,
            values.name(),
            config.architecture.name,
            Setting::CACHE_TYPE_K,
            keys.name()
        )
    })
}

fn describe(model: &Model) -> String {
    // A name that is not a string is omitted here; `inspect` shows it.
    let name = model.metadata().string("general.name").ok().flatten().unwrap_or("unnamed");
    let name: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    format!(
        "{name} ({}{}), {} of weights, trained for {} tokens",
        model.config().architecture.name,
        if model.config().causal { "" } else { ", for embeddings" },
        Bytes(model.weights_bytes()),
        model.config().context_train
    )
}
