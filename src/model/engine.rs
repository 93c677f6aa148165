//! The engine: the threads, buffers and pages of a model, and steps over tokens of any sequences.

use std::{ops::Range, sync::Arc};

use rope_cpu_kernels::Cpu;

use super::{
    Adapter, Error, Model, Rotation, Sequence,
    allocator::Allocator,
    attention::Schedule,
    batch::{Batch, Role, Row},
    finite::{Fault, Place, are_finite},
    forward::Forward,
    state::{LOGIT_ROWS, State},
};
use crate::{
    Token,
    kv_cache::{CacheType, POSITIONS, PageTable, Pool, Shape},
    platform::processors::default_threads,
    rope::{Rope, Visibility},
    threads::Threads,
};

/// The most answer tokens of a sequence that one step can append such that they can be removed again: see
/// [`Engine::room`].
pub const ANSWER_ROWS_MAX: usize = LOGIT_ROWS;

/// The options of an engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// The context: the number of positions of a sequence.
    pub context: usize,
    /// The most tokens computed in one step, of all sequences.
    pub micro_batch: usize,
    /// The type that keys are stored in.
    pub keys: CacheType,
    /// The type that values are stored in.
    pub values: CacheType,
    /// The most bytes of keys and values of all sequences.
    pub cache_bytes: usize,
    /// The number of worker threads.
    pub threads: usize,
    /// The instruction set to use.
    pub cpu: Cpu,
}

impl Options {
    /// Returns the options for a context of `context` positions: micro-batches of 512 tokens, an f16
    /// cache without a limit, one thread per performance core, the best instruction set.
    pub fn new(context: usize) -> Self {
        Options {
            context,
            micro_batch: 512,
            keys: CacheType::F16,
            values: CacheType::F16,
            cache_bytes: usize::MAX,
            threads: default_threads().count,
            cpu: Cpu::best(),
        }
    }
}

/// Computes tokens of any number of sequences with one model, in one pass over the weights.
pub struct Engine {
    model: Model,
    rope: Rope,
    options: Options,
    team: Arc<Threads>,
    state: State,
    pool: Pool,
    batch: Batch,
    /// The scales of the model's adapters in a new sequence.
    adapter_scales: Arc<[f32]>,
    /// The most tokens of a step: [`Options::micro_batch`] or fewer.
    step_tokens: usize,
}

/// Tokens to append to a sequence.
pub struct Feed<'s, 't> {
    /// The sequence.
    pub sequence: &'s mut Sequence,
    /// The tokens. [`Engine::step`] removes those that it has computed from the front.
    pub tokens: &'t [Token],
    /// The role of the tokens, which determines the order of sums: the bits of a token's logits
    /// depend on the sequence and on the roles of its tokens, and on nothing else.
    pub role: Role,
    /// The tokens whose output is computed: indices into the sequence.
    pub wanted: Range<usize>,
    /// The results of wanted tokens.
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
    /// If the worker threads cannot be started, the system has no memory for the buffers, or the
    /// context is too small to shift.
    pub fn new(model: &Model, rope: Rope, options: Options) -> Result<Self, Error> {
        let config = model.config();
        let team = Arc::new(Threads::new(options.threads)?);
        let shape = Shape {
            kv_heads: config.attention().kv_heads,
            head_dim: config.attention().head_dim,
            keys: options.keys,
            values: options.values,
        };
        let global = rope.plan().visibility;
        let windows = config.layers.iter().map(|layer| layer.attention.window);
        let visibilities =
            windows.map(|window| window.map_or(global, Visibility::window)).collect();
        let micro_batch = options.micro_batch.max(1);
        let options = Options { micro_batch, ..options };
        let mut allocator = Allocator::new(&team, micro_batch);
        let state = State::new(&mut allocator, config, model.weights(), shape.padded_dim());
        allocator.check()?;
        let pool = Pool::new(shape, visibilities, options.cache_bytes);
        let engine = Engine {
            model: model.clone(),
            rope,
            options,
            team,
            state,
            pool,
            batch: Batch::default(),
            adapter_scales: model.adapters().iter().map(Adapter::scale).collect(),
            step_tokens: micro_batch,
        };
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

    /// Returns the number of tokens in the vocabulary, which is the number of logits of a token.
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

    /// Returns how many of a sequence's first `len` tokens need not be computed again in a sequence of
    /// `total` tokens that begins with them: none if a sliding window has dropped keys that are needed
    /// to continue from there, or if that length has other RoPE frequencies; and only the kept ones if
    /// the context has shifted.
    pub fn reusable(&self, sequence: &Sequence, len: usize, total: usize) -> usize {
        sequence.reusable(self.rope.plan(), len, total)
    }

    /// Limits the tokens of a step, from now on: to at least 1 and at most [`Options::micro_batch`].
    /// Short steps keep the time between the tokens of answers short while a prompt is read.
    pub fn limit_step(&mut self, tokens: usize) {
        self.step_tokens = tokens.clamp(1, self.options.micro_batch);
    }

    /// Returns the worker threads.
    pub(super) fn team(&self) -> &Arc<Threads> {
        &self.team
    }

    /// Returns the first `rows` logits that the last step computed, which are at most
    /// [`ANSWER_ROWS_MAX`].
    pub(super) fn logits(&mut self, rows: usize) -> impl Iterator<Item = &[f32]> {
        let (vocabulary, width) = (self.vocabulary(), self.state.logits.width());
        self.state.logits.all().chunks(width).take(rows).map(move |logits| &logits[..vocabulary])
    }

    /// Returns the number of answer tokens that one step can add to a sequence such that all but the
    /// first can be removed again, by [`Sequence::truncate`], with the same result as if they had not
    /// been added: at least 1.
    ///
    /// It ends where the context is full or shifts, and where the RoPE frequencies of all tokens change.
    /// If the pool is nearly full, a step with so many tokens can fail where one with a single token
    /// does not.
    pub fn room(&self, sequence: &Sequence) -> usize {
        let (plan, used) = (self.rope.plan(), sequence.tokens.len());
        let left = match plan.shifts {
            true => self.options.context - sequence.positions(),
            false => self.capacity().saturating_sub(used),
        };
        let most = left.min(self.options.micro_batch).min(ANSWER_ROWS_MAX);
        let frequencies = |tokens| plan.effective_length(sequence.length_at(used + tokens - 1));
        let alike = |&tokens: &usize| plan.by_position() || frequencies(tokens) == frequencies(1);
        (2..=most).rfind(alike).unwrap_or(1)
    }

    /// Computes the next tokens of some sequences, at most [`Options::micro_batch`] in all or the
    /// number of [`Engine::limit_step`]: first those with [`Role::Answer`], then prompts, each in the
    /// order of `feeds`. Removes the computed tokens from the feeds, and calls `each` with the index of
    /// the feed, the index of the token in its sequence, and the [`Output`] of each wanted token.
    ///
    /// If a sequence has other RoPE frequencies at its new length, its earlier tokens are recomputed
    /// in the following steps before new ones are read: see [`Sequence::to_recompute`]. The new length
    /// is that with all tokens of the feed.
    ///
    /// # Errors
    /// Before anything is computed: if a token is not in the vocabulary, or a sequence does not fit
    /// in the context or the pool, is of another engine, or has other
    /// [`adapter_scales`](Sequence::adapter_scales) than the first one. After it, if a value is not
    /// finite: [`Error::NotFinite`], or the system has no memory left: [`Error::Memory`]. The sequences then have the tokens that they had.
    pub fn step(
        &mut self,
        feeds: &mut [Feed<'_, '_>],
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), Error> {
        self.prepare(feeds)?;
        self.advance(feeds, each)
    }

    /// Computes the next tokens of feeds like [`Engine::step`], after [`Engine::prepare`].
    pub(super) fn advance(
        &mut self,
        feeds: &mut [Feed<'_, '_>],
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), Error> {
        self.batch.clear();
        for role in Role::ALL {
            for (index, feed) in feeds.iter_mut().enumerate() {
                self.gather(index, feed, role)?;
            }
            let attention = self.model.config().attention();
            self.batch.end_role(role, |rows| Schedule::tile_rows(attention, rows));
        }
        if self.batch.rows.is_empty() {
            return Ok(());
        }
        self.prepare_rope()?;
        self.compute(feeds, each)?;
        for part in &self.batch.parts {
            let Feed { sequence, tokens, role, .. } = &mut feeds[part.feed];
            let count = part.rows.len();
            if part.recomputing {
                *sequence.recomputed.get_or_insert(0) += count;
            } else {
                let (computed, rest) = tokens.split_at(count);
                sequence.tokens.extend_from_slice(computed);
                *tokens = rest;
            }
            sequence.computed += count;
            sequence.effective_length = self.batch.rows[part.rows.end - 1].effective_length;
            sequence.rows = Some(self.rope.keep(sequence.effective_length));
            // Answer tokens after the first may be removed again.
            let removable = match role {
                Role::Answer if !part.recomputing => count - 1,
                _ => 0,
            };
            let end = (sequence.positions() - removable).min(sequence.retained_from);
            sequence.table.release(end);
        }
        self.rope.release_unused();
        Ok(())
    }

    /// Checks that all feeds can be computed, and discards keys and values that must be recomputed.
    pub(super) fn prepare(&self, feeds: &mut [Feed<'_, '_>]) -> Result<(), Error> {
        for (index, feed) in feeds.iter().enumerate() {
            self.check(index, feed, feeds[0].sequence.adapter_scales())?;
        }
        feeds.iter_mut().for_each(|feed| self.set_frequencies(feed));
        Ok(())
    }

    /// Checks that a feed can be computed in a step with these scales of adapters.
    fn check(&self, index: usize, feed: &Feed<'_, '_>, scales: &[f32]) -> Result<(), Error> {
        let Feed { sequence, tokens, .. } = feed;
        if !sequence.table.is_of(&self.pool) {
            return Err(Error::ForeignSequence { feed: index });
        }
        if sequence.adapter_scales() != scales {
            return Err(Error::AdapterScales { feed: index });
        }
        let vocabulary = self.vocabulary();
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
            return Err(Error::Token { token, vocabulary });
        }
        let (used, more, context) = (sequence.tokens.len(), tokens.len(), self.options.context);
        if !self.rope.plan().shifts && used + more > self.capacity() {
            return Err(Error::ContextFull { context, used, more });
        }
        Ok(())
    }

    /// Discards the keys and values of a feed's sequence if its new length has other frequencies, and
    /// tokens do not keep those that they were computed with.
    fn set_frequencies(&self, feed: &mut Feed<'_, '_>) {
        let Feed { sequence, tokens, .. } = feed;
        let plan = self.rope.plan();
        let length = (sequence.tokens.len() + tokens.len()).min(self.capacity());
        if plan.by_position() || tokens.is_empty() {
            return;
        }
        let effective_length = plan.effective_length(sequence.length_at(length - 1));
        if sequence.effective_length != effective_length {
            sequence.effective_length = effective_length;
            sequence.table.truncate(0);
            sequence.computed = 0;
        }
    }

    /// Adds the next rows of a role that a feed has to the batch.
    fn gather(&mut self, index: usize, feed: &mut Feed<'_, '_>, role: Role) -> Result<(), Error> {
        let Feed { sequence, tokens, .. } = feed;
        let recomputing = sequence.to_recompute() > 0;
        let (next_role, more) = match recomputing {
            true => (Role::Prompt, sequence.to_recompute()),
            false => (feed.role, tokens.len()),
        };
        if role != next_role {
            return Ok(());
        }
        let plan = self.rope.plan();
        let full = |full| Error::PoolFull { feed: index, full };
        let mut count = more.min(self.step_tokens.saturating_sub(self.batch.rows.len()));
        if plan.shifts && count > 0 {
            if sequence.positions() == self.options.context {
                let pages = sequence.pages_to_shift();
                sequence.table.shift(&self.team, pages).map_err(full)?;
                sequence.evict(pages * POSITIONS);
            }
            count = count.min(self.options.context - sequence.positions());
        }
        let start = sequence.positions();
        sequence.table.reserve(&self.team, start, start + count).map_err(full)?;
        let tokens = if recomputing { &sequence.tokens[sequence.computed..] } else { tokens };
        let rows = tokens[..count].iter().zip(start..).map(|(&token, position)| Row {
            token,
            position,
            sequence: index,
            effective_length: match plan.by_position() {
                true => plan.effective_length(sequence.length_at(position)),
                false => sequence.effective_length,
            },
        });
        self.batch.push(index, sequence.computed, recomputing, rows);
        Ok(())
    }

    /// Computes the cosines and sines that the batch needs.
    fn prepare_rope(&mut self) -> Result<(), Error> {
        let Engine { model, rope, batch, .. } = self;
        let window = model.config().window(Rotation::Global);
        if let Some(first) = batch.rows.iter().map(|row| row.position).min() {
            rope.release_before(first);
        }
        for rows in batch.rows.chunk_by(Row::precedes) {
            let Row { position, effective_length, .. } = rows[0];
            rope.prepare_for(effective_length, position..position + rows.len(), window)?;
        }
        Ok(())
    }

    /// Computes all rows of the batch, and passes the wanted logits to `each`.
    fn compute(
        &mut self,
        feeds: &[Feed<'_, '_>],
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), Error> {
        let tables: Vec<_> = feeds.iter().map(|feed| &feed.sequence.table).collect();
        let tables = &tables[..];
        let scales = feeds.first().map_or(&[][..], |feed| feed.sequence.adapter_scales());
        let Engine { model, rope, options, team, state, pool, batch, .. } = self;
        let cpu = options.cpu;
        let wanted = batch.parts.iter().filter(|part| !part.recomputing).flat_map(|part| {
            let tokens = part.first_token..part.first_token + part.rows.len();
            let wanted = &feeds[part.feed].wanted;
            let wanted = wanted.start.max(tokens.start)..wanted.end.min(tokens.end);
            wanted.map(move |token| (part.feed, token, part.rows.start + token - tokens.start))
        });
        let wanted: Vec<_> = wanted.collect();
        let (config, weights) = (model.config(), model.weights());
        let visibility = rope.plan().visibility;
        let schedules = Role::ALL.map(|role| {
            let (tiles, rows) = (&batch.tiles[role as usize], batch.roles.range(role));
            Schedule::new(
                config.attention(),
                pool.shape(),
                &batch.rows[rows],
                tiles,
                visibility,
                role,
            )
        });
        for (role, _) in batch.roles.ranges() {
            state.reserve_partials(team, role, schedules[role as usize].partials_len())?;
        }
        let schedules = &schedules;
        let checked = |fault: Option<Fault>| match fault {
            None => Ok(()),
            Some(Fault { place, row }) => {
                Err(Error::NotFinite { feed: batch.rows[row].sequence, place })
            }
        };
        state.fault.clear();
        let forward =
            Forward { config, weights, state, tables, rope, cpu, batch, scales, schedules };
        forward.layers(team);
        checked(state.fault.found())?;
        let (embeddings, wanted): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|(feed, ..)| feeds[*feed].output == Output::Embedding);
        for wanted in embeddings.chunks(LOGIT_ROWS) {
            let rows: Vec<usize> = wanted.iter().map(|(.., row)| *row).collect();
            Forward { config, weights, state, tables, rope, cpu, batch, scales, schedules }
                .output(team, &rows);
            checked(state.fault.found())?;
            let embeddings = state.normed.floats.all().chunks(config.embedding);
            for ((feed, token, _), embedding) in wanted.iter().zip(embeddings) {
                each(*feed, *token, embedding);
            }
        }
        for wanted in wanted.chunks(LOGIT_ROWS) {
            let rows: Vec<usize> = wanted.iter().map(|(.., row)| *row).collect();
            Forward { config, weights, state, tables, rope, cpu, batch, scales, schedules }
                .logits(team, &rows);
            let width = state.logits.width();
            let logits = state.logits.all().chunks(width).map(|row| &row[..config.vocabulary]);
            let infinite = |(row, logits): (&usize, &[f32])| {
                let fault = Fault { place: Place::Output, row: *row };
                (!are_finite(logits)).then_some(fault)
            };
            checked(rows.iter().zip(logits.clone()).find_map(infinite))?;
            for ((feed, token, _), logits) in wanted.iter().zip(logits) {
                each(*feed, *token, logits);
            }
        }
        Ok(())
    }
}
