//! The engine computes steps over tokens of any sequences. It owns the threads, the buffers and the
//! KV cache of a model.

mod assist;
mod draft;
mod omit;
mod output;
mod place;
mod predict;
mod step;

use std::{collections::HashMap, ops::Range, sync::Arc};

use rope_cpu_kernels::Cpu;

use self::assist::Assistance;
use super::{
    Adapter, Assistant, Attention, Config, Error, Model, Recurrence, Sequence,
    allocator::Allocator,
    attention::Schedules,
    batch::{Batch, Role},
    experts::OnDisk,
    inputs::{InputSums, Sums},
    memory,
    observer::{Observed, Observer},
    probe::Probe,
    sparse::{SparseAttention, serves},
    state::{LOGIT_ROWS, State},
};
use crate::{
    Token,
    kv_cache::{CacheType, LayerPages, PageTable, Pool, Shape, removable_max},
    platform::processors::default_threads,
    rope::{Plan, Rope, Visibility},
    threads::{Power, Threads, Workers},
};

/// Maximum answer tokens that one step can append to a sequence and that can be removed again: see
/// [`Engine::room`].
pub const ANSWER_ROWS_MAX: usize = LOGIT_ROWS;

/// The options of an engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// The context: the number of positions of a sequence.
    pub context: usize,
    /// Maximum tokens per step, of all sequences; and of a text that an encoder reads.
    pub micro_batch: usize,
    /// The type that keys are stored in.
    pub keys: CacheType,
    /// The type that values are stored in. It has no effect if values are a part of keys
    /// ([`Attention::latent`]).
    pub values: CacheType,
    /// Maximum bytes of keys and values of all sequences.
    pub cache_bytes: usize,
    /// Maximum bytes of a mixture's experts in memory; by default the available memory minus one
    /// sequence. Other experts are read from the file when tokens choose them.
    pub expert_bytes: Option<u64>,
    /// Lets the model's predictor ([`Config::predictor`](super::Config)) follow sequences, so that
    /// [`Engine::predict`] can draft. No effect without a predictor.
    pub predict: bool,
    /// The assistant of the model, with which [`Engine::predict`] drafts instead.
    pub assistant: Option<Assistant>,
    /// Lets answer tokens of long sequences attend to a part of the keys, or only drafts of these
    /// ([`Engine::draft`]); `None` for dense attention.
    pub sparse_attention: Option<SparseAttention>,
    /// Lets prompt tokens of long sequences attend to a part of the keys; `None` for dense attention.
    ///
    /// Errors remain in the keys and values of the following layers, so they affect all later tokens.
    /// Neighbouring tokens of a step choose keys together: up to 128, between multiples of that
    /// number in the sequence. Steps are cut there, so the bits do not depend on the size of
    /// micro-batches or on other sequences. They do depend on where the tokens of a
    /// [`Feed`] start and end, if that is within such a group, and on steps that have no room for one
    /// ([`Engine::limit_step`]).
    pub sparse_prompt: Option<SparseAttention>,
    /// The numbers of worker threads.
    pub threads: Workers,
    /// The share of the processors' time that the threads may use.
    pub power: Power,
    /// The instruction set to use.
    pub cpu: Cpu,
}

impl Options {
    /// Returns the options for a context of `context` positions: micro-batches of 512 tokens, an f16
    /// cache without a limit, one thread per performance core and for prompts per core, the best
    /// instruction set.
    pub fn new(context: usize) -> Self {
        Options {
            context,
            micro_batch: 512,
            keys: CacheType::F16,
            values: CacheType::F16,
            cache_bytes: usize::MAX,
            expert_bytes: None,
            predict: false,
            assistant: None,
            sparse_attention: None,
            sparse_prompt: None,
            threads: default_threads().workers,
            power: Power::FULL,
            cpu: Cpu::best(),
        }
    }

    /// Checks that a model with this RoPE plan can have sparse attention, as [`Engine::new`] does.
    ///
    /// ```no_run
    /// use rope_cpu::{model::{Model, Options, SparseAttention}, rope::Flags};
    ///
    /// let model = Model::open("model.gguf")?;
    /// let plan = model.rope_plan(&Flags::default(), 32_768)?;
    /// let sparse_attention = Some(SparseAttention::new(0.98));
    /// let options = Options { sparse_attention, ..Options::new(32_768) };
    /// options.check_sparse(model.config(), &plan)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If settings are out of range, no layer can be sparse, or the RoPE method moves keys.
    pub fn check_sparse(&self, config: &Config, plan: &Plan) -> Result<(), Error> {
        let mut of_roles = Role::ALL.into_iter().zip(self.sparse());
        of_roles.try_for_each(|(role, sparse)| match sparse {
            Some(sparse) => sparse.check(role, config, plan),
            None => Ok(()),
        })
    }

    /// Returns the settings of sparse attention of each role, if it has any.
    pub(super) fn sparse(&self) -> [Option<SparseAttention>; 2] {
        Role::ALL.map(|role| match role {
            Role::Answer => self.sparse_attention,
            Role::Prompt => self.sparse_prompt,
        })
    }
}

/// Computes tokens of any number of sequences with one model, in one pass over the weights.
///
/// ```no_run
/// # use rope_cpu::model::{Engine, Feed, Model, Options, Output, Role};
/// # use rope_cpu::rope::{Flags, Rope};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let model = Model::open("model.gguf")?;
/// let plan = model.rope_plan(&Flags::default(), 4096)?;
/// let mut engine = Engine::new(&model, Rope::new(plan), Options::new(4096))?;
/// let (mut a, mut b) = (engine.sequence(), engine.sequence());
/// let feed = |sequence, tokens| Feed {
///     sequence,
///     tokens,
///     role: Role::Prompt,
///     wanted: 0..usize::MAX, // logits of all tokens
///     output: Output::Logits,
/// };
/// let mut feeds = [feed(&mut a, &[1, 2, 3][..]), feed(&mut b, &[4, 5][..])];
/// while feeds.iter().any(|feed| !feed.tokens.is_empty()) {
///     engine.step(&mut feeds, &mut |feed, token, logits| {
///         println!("feed {feed}, token {token}: {} logits", logits.len());
///     })?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Engine {
    model: Model,
    rope: Rope,
    options: Options,
    team: Arc<Threads>,
    state: State,
    pool: Pool,
    schedules: Schedules,
    batch: Batch,
    /// The scales of the model's adapters in a new sequence.
    adapter_scales: Arc<[f32]>,
    /// Maximum tokens per step: [`Options::micro_batch`] or fewer.
    step_tokens: usize,
    /// Whether the attention of each role is sparse where it can be.
    sparse: [bool; 2],
    /// How experts are read that do not fit in memory.
    on_disk: Option<OnDisk>,
    /// Captures queries and keys of some layers.
    observer: Option<Observer>,
    /// Measures the attention of some tokens.
    probe: Option<Probe>,
    /// Sums up the inputs of all matrices.
    inputs: Option<InputSums>,
    assistance: Option<Assistance>,
}

/// Tokens to append to a sequence.
pub struct Feed<'s, 't> {
    /// The sequence.
    pub sequence: &'s mut Sequence,
    /// The tokens. [`Engine::step`] removes the computed ones from the front.
    pub tokens: &'t [Token],
    /// The role of the tokens, which determines the order of sums. The bits of a token's logits
    /// depend on the sequence and on the roles of its tokens, and on nothing else, except with
    /// [`Options::sparse_prompt`].
    pub role: Role,
    /// The tokens with output: indices into the sequence. `0..usize::MAX` means all.
    pub wanted: Range<usize>,
    /// The output of wanted tokens.
    pub output: Output,
}

/// The result that is computed for a wanted token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The logits of the next token.
    Logits,
    /// The normalized output of the last layer, from which the logits follow.
    Embedding,
}

impl Engine {
    /// Creates an engine.
    ///
    /// # Errors
    /// If the worker threads cannot be started, the system has no memory for the buffers, the context
    /// is too small to shift, it is longer than the positions that the model has learned, or the
    /// assistant is one of another model.
    pub fn new(model: &Model, rope: Rope, options: Options) -> Result<Self, Error> {
        let config = model.config();
        if let Some(max) = model.positions_max().filter(|max| options.context > *max) {
            return Err(Error::LearnedPositions { context: options.context, max });
        }
        options.check_sparse(config, rope.plan())?;
        let sparse = options.sparse();
        let team = Arc::new(Threads::new(options.threads.most())?.with_power(options.power));
        let pages = |(layer, attention): (usize, &Attention)| {
            let summaries = sparse.iter().any(Option::is_some)
                && layer < config.layers.len()
                && serves(config, layer);
            let Attention { kv_heads, head_dim, window, .. } = *attention;
            let (keys, values) = (options.keys, Some(options.values));
            let values = values.filter(|_| attention.latent.is_none());
            let shape = Shape { kv_heads, head_dim, keys, values, summaries };
            (shape, window.map_or(rope.plan().visibility, Visibility::window))
        };
        let predictor = config.predictor.as_ref().filter(|_| options.predict);
        let layers = || config.layers.iter().chain(predictor).enumerate();
        let attending = layers().map(|(i, layer)| {
            layer.attention.as_ref().map(|attention| (attention, pages((i, attention))))
        });
        let schedules = Schedules::new(attending, sparse);
        let of_layers = layers().map(|(i, layer)| match &layer.attention {
            None => LayerPages::None,
            Some(Attention { shared_with: Some(layer), .. }) => LayerPages::SharedWith(*layer),
            Some(attention) => {
                let (shape, visibility) = pages((i, attention));
                LayerPages::Own(shape, visibility)
            }
        });
        let recurrences = config.layers.iter().map(|layer| layer.recurrence);
        let states = recurrences.map(|own| own.map_or([0; 2], Recurrence::state_floats));
        let states = states.chain(predictor.map(|_| [config.embedding, 0]));
        let pool = Pool::new(of_layers, states, options.cache_bytes);
        let micro_batch = options.micro_batch.max(1);
        let options = Options { micro_batch, ..options };
        let mut allocator = Allocator::new(&team, micro_batch);
        let inputs = predictor.map_or(0, |_| 2 * config.embedding);
        let state = State::new(&mut allocator, config, model.weights(), inputs);
        allocator.check()?;
        let assistant = options.assistant.as_ref();
        let assistance = assistant.map(|one| Assistance::new(one, model, &team, pages));
        let assistance = assistance.transpose()?;
        let expert_bytes = options.expert_bytes.or_else(|| memory::expert_bytes(model, &options));
        let on_disk = expert_bytes.map(|bytes| OnDisk::new(model, bytes)).transpose()?.flatten();
        let mut engine = Engine {
            model: model.clone(),
            rope,
            options,
            team,
            state,
            pool,
            schedules,
            batch: Batch::default(),
            adapter_scales: model.adapters().iter().map(Adapter::scale).collect(),
            step_tokens: micro_batch,
            sparse: [false; 2],
            on_disk,
            observer: None,
            probe: None,
            inputs: None,
            assistance,
        };
        engine.set_dense(false);
        if engine.rope.plan().shifts {
            engine.sequence().keep(0)?;
        }
        Ok(engine)
    }

    /// Creates an empty sequence, with the adapters' scales that the model was opened with.
    pub fn sequence(&self) -> Sequence {
        let scales = self.adapter_scales.clone();
        Sequence::new(PageTable::new(&self.pool), self.options.context, scales)
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the number of tokens that a sequence can have without shifting: the context, or
    /// `usize::MAX` if the context rolls.
    pub fn capacity(&self) -> usize {
        if self.rope.plan().rolls() { usize::MAX } else { self.options.context }
    }

    /// Returns the number of tokens in the vocabulary: each token has as many logits.
    pub fn vocabulary(&self) -> usize {
        self.model.config().vocabulary
    }

    /// Returns the RoPE plan and its tables.
    pub fn rope(&self) -> &Rope {
        &self.rope
    }

    /// Returns the memory of keys and values.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns how many of a sequence's first `len` tokens can be reused in a sequence of `total`
    /// tokens that starts with them.
    ///
    /// It is 0 if a sliding window has dropped keys that are needed to continue from there, or if that
    /// length has other RoPE frequencies. If the context has shifted, only the kept tokens can be
    /// reused, and if layers are recurrent, those up to a [rewind point](Sequence::rewind_point).
    pub fn reusable(&self, sequence: &Sequence, len: usize, total: usize) -> usize {
        sequence.reusable(self.rope.plan(), len, total)
    }

    /// Removes all but the tokens that [`Engine::reusable`] counts. Returns their number.
    pub fn reuse(&self, sequence: &mut Sequence, len: usize, total: usize) -> usize {
        sequence.reuse(self.rope.plan(), len, total)
    }

    /// Limits the tokens of the following steps to `tokens`, from 1 to [`Options::micro_batch`].
    /// Short steps keep the time between the tokens of answers short during prompt processing.
    pub fn limit_step(&mut self, tokens: usize) {
        self.step_tokens = tokens.clamp(1, self.options.micro_batch);
    }

    /// Makes attention dense in the following steps, or sparse again where
    /// [`Options::sparse_attention`] and [`Options::sparse_prompt`] make it.
    pub fn set_dense(&mut self, dense: bool) {
        let sparse = |one: SparseAttention| !one.drafts_only && !dense;
        self.sparse = self.options.sparse().map(|one| one.is_some_and(sparse));
    }

    /// Returns the number of blocks of keys that sparse attention has chosen since the last call, and
    /// the number that it has chosen them from.
    pub fn take_blocks_read(&mut self) -> [u64; 2] {
        self.state.blocks_read.each_mut().map(|count| std::mem::take(count.get_mut()))
    }

    /// Captures the queries at `positions` and the keys of the first `length` positions in `layers`,
    /// of the first feed of all following steps. `positions` are in ascending order.
    ///
    /// # Errors
    /// If the system has no memory left.
    pub(crate) fn observe(
        &mut self,
        layers: &[usize],
        positions: &[usize],
        length: usize,
    ) -> Result<(), Error> {
        self.observer = Some(Observer::new(self.model.config(), layers, positions, length)?);
        Ok(())
    }

    /// Ends [`Engine::observe`] and returns the captured queries and keys, if any.
    pub(crate) fn take_observed(&mut self) -> Observed {
        self.observer.take().map(Observer::into_observed).unwrap_or_default()
    }

    /// Measures the attention of `tokens` tokens, from position `length - 1` of the first feed on, to
    /// its first `length` positions in the following steps.
    ///
    /// # Errors
    /// If the system has no memory left.
    pub(crate) fn probe(&mut self, length: usize, tokens: usize) -> Result<(), Error> {
        self.probe = Some(Probe::new(self.model.config(), length, tokens)?);
        Ok(())
    }

    /// Ends [`Engine::probe`] and returns the measured attention, if any.
    pub(crate) fn take_probe(&mut self) -> Option<Probe> {
        self.probe.take()
    }

    /// Sums up the squares of the inputs of all matrices in the following steps.
    pub(crate) fn observe_inputs(&mut self) {
        self.inputs = Some(InputSums::default());
    }

    /// Ends [`Engine::observe_inputs`]. Returns the sums, by the address of the matrix.
    pub(crate) fn take_inputs(&mut self) -> HashMap<usize, Sums> {
        self.inputs.take().map(InputSums::into_sums).unwrap_or_default()
    }

    /// Returns the worker threads.
    pub fn threads(&self) -> &Arc<Threads> {
        &self.team
    }

    /// Returns the logits of the first `rows` rows of the last step, at most [`ANSWER_ROWS_MAX`].
    pub(super) fn logits(&mut self, rows: usize) -> impl Iterator<Item = &[f32]> {
        let (vocabulary, width) = (self.vocabulary(), self.state.logits.width());
        self.state.logits.all().chunks(width).take(rows).map(move |logits| &logits[..vocabulary])
    }

    /// Returns the maximum number of answer tokens that one step can add to a sequence, at least 1.
    /// You can remove all but the first again, by [`Sequence::truncate`], as if they had not been
    /// added.
    ///
    /// The number does not reach beyond the point where the context is full or shifts, or where the
    /// RoPE frequencies of all tokens change. It is small if recurrent layers have large states,
    /// since each removable token needs one. If the pool is nearly full, a step with so many
    /// tokens can fail where one with a single token does not.
    pub fn room(&self, sequence: &Sequence) -> usize {
        let (plan, used) = (self.rope.plan(), sequence.tokens.len());
        let left = match plan.shifts {
            true => self.options.context - sequence.positions(),
            false => self.capacity().saturating_sub(used),
        };
        let removable = removable_max(self.pool.state_bytes());
        let most = left.min(self.options.micro_batch).min(ANSWER_ROWS_MAX).min(removable + 1);
        let frequencies = |tokens| plan.effective_length(sequence.length_at(used + tokens - 1));
        let alike = |&tokens: &usize| plan.by_position() || frequencies(tokens) == frequencies(1);
        (2..=most).rfind(alike).unwrap_or(1)
    }
}
