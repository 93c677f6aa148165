//! The memory, threads and instruction set of a run, planned before anything is allocated.

use std::{fmt, io::Write};

use rope_cpu_kernels::Cpu;

use super::{
    args::{EngineArgs, MemoryArgs, SparseArgs, SpeculationArgs},
    environment,
    error::Error,
    flags, note, warn,
};
use rope_cpu::{
    kv_cache::CacheType,
    model::{
        Assistant, Model, Options, SparseAttention,
        memory::{Bytes, Need, Request, Shape},
    },
    platform::{self, memory::Available, priority, processors::Threads},
    rope::{Flags, Origin, Plan, Rope, Sourced},
    settings::{Setting, renamed},
    threads::Power,
};

const SPARSE_TWICE: &str = "--spec-type draft-sparse drafts for dense attention: answers with \
                            --sparse-attention are as fast as these drafts; omit one of the two";

/// Memory, threads and instruction set of a run.
#[derive(Clone)]
pub struct Resources {
    /// The context in tokens, with its origin.
    pub context: Sourced<usize>,
    model: String,
    shape: Shape,
    request: Request,
    available: Option<Available>,
    must_fit: bool,
    dry_run: bool,
    threads: Threads,
    cpu: Cpu,
    power: Power,
    sparse: SparseArgs,
    predict: bool,
    assistant: Option<Assistant>,
}

/// The memory of a run with another context.
pub struct Fit {
    /// The memory that it needs, in bytes.
    pub bytes: u64,
    /// Cache types that make it fit, if those of the run do not.
    pub types: Option<(CacheType, CacheType)>,
    /// The available memory in bytes, if no cache types make it fit.
    pub lacking: Option<u64>,
}

/// Plans the resources of a run, with defaults for the flags that are not given.
pub fn plan(memory: &MemoryArgs, machine: &EngineArgs, model: &Model, rolling: bool) -> Resources {
    let config = model.config();
    if let Some(nice) = machine.nice
        && let Err(e) = priority::lower(nice)
    {
        note(format_args!("warning: --nice {nice}: {e}"));
    }
    let threads = machine.threads();
    let shape = shape(model, &threads, false);
    let available = platform::memory::available();
    let MemoryArgs { cache_type_k, cache_type_v, ubatch_size, batch_size, .. } = *memory;
    let chosen = ![CacheType::F16, cache_type_k].contains(&cache_type_v);
    if chosen && config.attention().all(|attention| attention.latent.is_some()) {
        note(format_args!(
            "warning: --cache-type-v {} has no effect: in {} models, values are a part of keys \
             (--cache-type-k {})",
            cache_type_v.name(),
            config.architecture.name,
            cache_type_k.name()
        ));
    }

    let micro_batch = ubatch_size.min(batch_size);
    let wanted = if memory.context == 0 { config.context_train } else { memory.context };
    let mut request = Request {
        context: config.context_train,
        sequences: 1,
        shared: 0,
        rolling,
        // An encoder reads a text in one pass.
        micro_batch: if config.causal { micro_batch } else { micro_batch.max(wanted) },
        keys: cache_type_k,
        values: cache_type_v,
        sparse: false,
    };
    let context = match (memory.context, available) {
        (0, Some(available)) => {
            let trained = trained(model);
            match shape.default_context(&request, trained.value, available.bytes) {
                value if value < trained.value => {
                    Sourced { value, origin: Origin::Computed("the largest that fits in memory") }
                }
                _ => trained,
            }
        }
        (0, None) => trained(model),
        (context, _) => Sourced::given(context, environment::origin("ctx", context)),
    };
    request.context = context.value;
    Resources {
        context,
        model: describe(model),
        shape,
        request,
        available,
        must_fit: !memory.no_memory_check,
        dry_run: memory.dry_run,
        threads,
        cpu: machine.machine.cpu(),
        power: machine.power,
        sparse: SparseArgs::default(),
        predict: false,
        assistant: None,
    }
}

/// Returns the shape of a model's memory; with its predictor if that `predicts`.
fn shape(model: &Model, threads: &Threads, predicts: bool) -> Shape {
    let weights_bytes = model.resident_bytes() + model.adapters_bytes();
    Shape::of(model, weights_bytes, threads.workers.most(), predicts)
}

/// Returns the length that a model was trained for.
pub fn trained(model: &Model) -> Sourced<usize> {
    let config = model.config();
    let key = format!("{}.context_length", config.architecture.name);
    Sourced::key(config.context_train, model.metadata().origin(&key))
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

impl Resources {
    /// Returns the options for the session.
    pub fn options(&self) -> Options {
        let Request { context, micro_batch, keys, values, .. } = self.request;
        let Resources { cpu, power, sparse, predict, .. } = *self;
        let SparseArgs { sparse_attention, sparse_prompt } = sparse;
        let threads = self.threads.workers;
        let expert_bytes = self.expert_bytes();
        Options {
            micro_batch,
            keys,
            values,
            threads,
            cpu,
            power,
            sparse_attention,
            sparse_prompt,
            expert_bytes,
            predict,
            assistant: self.assistant.clone(),
            ..Options::new(context)
        }
    }

    /// Returns the resources with the memory of sparse attention, if that is chosen.
    pub fn with_attention(mut self, args: SparseArgs) -> Self {
        self.sparse = args;
        self.request.sparse = args.lines().next().is_some();
        self
    }

    /// Returns the resources with the memory of the model's predictor or assistant, or of sparse
    /// attention, if that drafts. With `documents`, the predictor drafts only if it is named: they lack
    /// its keys.
    ///
    /// # Errors
    /// If the model has no predictor, the assistant is one of another model, or answers are as sparse as
    /// their drafts.
    pub fn with_drafts(
        mut self,
        model: &Model,
        args: &SpeculationArgs,
        documents: bool,
    ) -> Result<Self, Error> {
        if let Some(path) = args.draft_model()?.filter(|_| args.may_assist()) {
            self.assistant = Assistant::open(path, model).map_err(Error::usage)?;
        }
        if args.sparse() {
            if self.sparse.sparse_attention.is_some() {
                return Err(Error::usage(SPARSE_TWICE));
            }
            self.sparse.sparse_attention = Some(SparseAttention::for_drafts());
            self.request.sparse = true;
        }
        self.predict = args.predictor() && self.assistant.is_none();
        if self.predict && model.config().predictor.is_none() {
            let reason = "--spec-type draft-mtp needs a layer that predicts further tokens \
                          (nextn), which this model does not have, or its assistant as -md";
            return Err(Error::usage(reason));
        }
        if args.predictor_if_fitting() && model.config().predictor.is_some() && !documents {
            let shape = shape(model, &self.threads, true);
            let need = shape.need(&self.request).total();
            self.predict |= self.available.is_none_or(|available| need <= available.bytes);
        }
        self.shape = shape(model, &self.threads, self.predict);
        if let Some(assistant) = &self.assistant {
            self.shape = self.shape.assisted(assistant, self.threads.workers.most());
        }
        Ok(self)
    }

    /// Returns the model's assistant, if it drafts.
    pub fn assistant(&self) -> Option<&Assistant> {
        self.assistant.as_ref()
    }

    /// Returns whether the model's predictor or assistant drafts.
    pub fn predicts(&self) -> bool {
        self.predict || self.assistant.is_some()
    }

    /// Returns the resources for a session with sliding windows that retain all keys
    /// ([`Session::retain_from`]).
    ///
    /// [`Session::retain_from`]: rope_cpu::model::Session::retain_from
    pub fn retaining_all(mut self) -> Self {
        self.shape = self.shape.retaining(usize::MAX);
        self
    }

    /// Returns the resources of a second model, without the memory that the first one needs.
    pub fn beside(mut self, first: &Resources) -> Self {
        if let Some(available) = &mut self.available {
            let need = first.shape.need(&first.request).total();
            available.bytes = available.bytes.saturating_sub(need);
        }
        self
    }

    /// Returns the resources of a second engine of the same model, without the memory that the first
    /// one needs. They share the weights.
    pub fn beside_engine(mut self, first: &Resources) -> Self {
        if let Some(available) = &mut self.available {
            let need = first.shape.need(&first.request);
            available.bytes = available.bytes.saturating_sub(need.total() - need.weights);
        }
        self
    }

    /// Returns whether the context rolls.
    pub fn rolls(&self) -> bool {
        self.request.rolling
    }

    /// Returns the model and the memory as one line, with a title.
    pub fn line(&self, title: &str) -> String {
        let need = self.shape.need(&self.request);
        format!("{title}: {}; {}", self.model, need.parts(&self.request))
    }

    /// Returns two lines for the start of a conversation: the model, and the context with its memory.
    pub fn brief(&self, plan: &Plan) -> String {
        let (need, context) = (self.shape.need(&self.request).total(), self.context.value);
        let scaling = match (plan.effective_scaling().name, plan.factor.value) {
            ("none", _) => "no scaling".into(),
            (name, 1.0) => name.to_string(),
            (name, factor) => format!("{name} by {}", (factor * 1000.0).round() / 1000.0),
        };
        format!("{}\nRoPE: {scaling}, context {context} ({})", self.model, Bytes(need))
    }

    /// Returns the resources for `sequences` sequences side by side, with a context each.
    pub fn for_sequences(mut self, sequences: usize) -> Self {
        self.request.sequences = sequences;
        let tokens = self.request.context.saturating_mul(sequences);
        self.request.micro_batch = self.request.micro_batch.min(tokens);
        self
    }

    /// Returns the resources for up to `sequences` sequences that share pages. The memory must hold
    /// all of them if `all`, else one.
    pub fn for_server(self, sequences: usize, all: bool) -> Self {
        let mut resources = self.for_sequences(sequences);
        let least = if all { sequences } else { 1 };
        while resources.request.sequences > least && resources.exceeds() {
            resources.request.sequences -= 1;
        }
        resources
    }

    /// Returns the number of sequences side by side.
    pub fn sequences(&self) -> usize {
        self.request.sequences
    }

    /// Returns the memory for one full context.
    pub fn of_one_context(&self) -> Need {
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

    /// Returns the resources with a context of at least `needed` tokens, for a prompt of `tokens`.
    pub fn fitting(mut self, tokens: usize, needed: usize) -> Self {
        if needed > self.context.value {
            let origin = format!("--ctx auto: the prompt has {tokens}");
            self.request.context = needed.next_multiple_of(1024);
            self.context = Sourced::given(self.request.context, origin);
        }
        self
    }

    /// Returns the bytes of experts that memory holds, if it is known.
    fn expert_bytes(&self) -> Option<u64> {
        let Available { bytes, .. } = self.available?;
        Some(self.shape.expert_bytes(&self.request, bytes))
    }

    fn exceeds(&self) -> bool {
        let need = self.shape.need(&self.request).total();
        self.available.is_some_and(|available| need > available.bytes)
    }

    /// Returns the options for the engine of a server. Earlier conversations may use up to `more`
    /// bytes of keys, values and states, as far as memory allows.
    pub fn server_options(&self, more: usize) -> Options {
        let need = self.shape.need(&self.request);
        let left = self.available.map_or(u64::MAX, |available| available.bytes);
        let more = left.saturating_sub(need.total()).min(more as u64);
        let bytes = need.cache().saturating_add(more);
        Options { cache_bytes: usize::try_from(bytes).unwrap_or(usize::MAX), ..self.options() }
    }

    /// Resolves RoPE in the planned context, and checks that enough memory is available. With
    /// `--dry-run` it prints the plan instead, and returns `None`.
    ///
    /// # Errors
    /// If flags or metadata are invalid or contradict each other, or attention cannot be sparse; also
    /// see [`Resources::check`].
    pub fn rope(&self, model: &Model, flags: &Flags) -> Result<Option<Rope>, Error> {
        let plan = model.rope_plan(flags, self.context.clone()).map_err(Error::usage)?;
        let sparse = self.options().check_sparse(model.config(), &plan);
        sparse.map_err(|e| self.not_sparse(&e.to_string()))?;
        if self.dry_run {
            return self.show_and_stop(&plan).map(|()| None);
        }
        self.check()?;
        Ok(Some(Rope::new(plan)))
    }

    /// Returns the error for a model without sparse attention, with the name of the option that asked
    /// for it.
    fn not_sparse(&self, message: &str) -> Error {
        let drafts = self.sparse.sparse_attention.is_some_and(|sparse| sparse.drafts_only);
        Error::usage(renamed(message, |name| {
            let drafts = drafts && name == Setting::SPARSE_ATTENTION.0;
            drafts.then(|| "--spec-type draft-sparse".into())
        }))
    }

    /// Checks that enough memory is available, if that is known.
    ///
    /// # Errors
    /// If there is too little, with the sizes and the settings that would fit.
    pub fn check(&self) -> Result<(), Error> {
        match self.available {
            Some(available) if self.must_fit => {
                self.shape.check(&self.request, available).map_err(|e| {
                    Error::failed(format_args!("{e} To try anyway: --no-memory-check"))
                })?;
            }
            _ => {}
        }
        if let Some(available) = self.available {
            warn_of_experts(&self.shape, &self.request, available);
        }
        Ok(())
    }

    /// Prints the plan to stdout, for `--dry-run`.
    ///
    /// # Errors
    /// See [`Resources::check`]; the plan is printed before.
    pub fn show_and_stop(&self, plan: &Plan) -> Result<(), Error> {
        let shown = format!("{self}\n{plan}");
        writeln!(std::io::stdout(), "{}", flags::with_flags(&shown))?;
        warn(plan);
        self.check()
    }
}

/// Warns if the experts of a mixture do not all fit in memory.
pub fn warn_of_experts(shape: &Shape, request: &Request, available: Available) {
    let (bytes, all) = (shape.expert_bytes(request, available.bytes), shape.experts_bytes);
    if bytes < all {
        note(format_args!(
            "warning: memory holds {} of {} of experts: the others are read from the file when tokens \
             choose them, which is slow",
            Bytes(bytes),
            Bytes(all)
        ));
    }
}

/// Formats three lines: the model, the memory, the threads; and one each for drafts of the model's
/// layer or assistant, and for each kind of sparse attention.
impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let need = self.shape.need(&self.request);
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
        write!(
            f,
            "Threads: {} ({}), {}",
            self.threads.workers.answers,
            self.threads.reason,
            self.cpu.name()
        )?;
        self.sparse.lines().try_for_each(|line| write!(f, "\n{line}"))
    }
}
