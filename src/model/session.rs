//! A session: the state of one conversation with a model. It reads tokens and returns logits.

use std::ops::{ControlFlow, Range};

use rope_cpu_kernels::Cpu;

use super::{
    Error, Model,
    attention::Schedule,
    batch::{Role, Row, tiles},
    forward::Forward,
    state::{LOGIT_ROWS, State},
};
use crate::{
    Token,
    kv_cache::{CacheType, KvCache, POSITIONS, Shape},
    platform::processors::default_threads,
    rope::{Rope, Visibility},
    threads::Threads,
};

/// The options of a session.
#[derive(Clone, Debug)]
pub struct Options {
    /// The context: the number of positions that the KV cache can hold.
    pub context: usize,
    /// The number of tokens computed in one pass while a prompt is read.
    pub micro_batch: usize,
    /// The type that keys are stored in.
    pub keys: CacheType,
    /// The type that values are stored in.
    pub values: CacheType,
    /// The number of worker threads.
    pub threads: usize,
    /// The instruction set to use.
    pub cpu: Cpu,
}

impl Options {
    /// Returns the options for a context of `context` positions: micro-batches of 512 tokens, an f16
    /// cache, one thread per performance core, the best instruction set.
    pub fn new(context: usize) -> Self {
        Options {
            context,
            micro_batch: 512,
            keys: CacheType::F16,
            values: CacheType::F16,
            threads: default_threads().count,
            cpu: Cpu::best(),
        }
    }
}

/// The state of one conversation: the tokens read so far and their keys and values.
pub struct Session<'m> {
    model: &'m Model<'m>,
    rope: Rope,
    pub(super) options: Options,
    pub(super) team: Threads,
    state: State,
    pub(super) cache: KvCache,
    tokens: Vec<Token>,
    /// The number of first tokens that stay in the context when it shifts.
    kept: usize,
    /// The number of tokens after the kept ones that shifts have evicted from the context.
    evicted: usize,
    /// The effective length whose RoPE frequencies `tokens` were computed with.
    pub(super) effective_length: usize,
    rows: Vec<Row>,
    /// The position from which sliding windows retain all keys; see [`Session::retain_from`].
    retained_from: usize,
    /// The number of tokens recomputed since the last [`Session::take_recomputed`].
    recomputed: Option<usize>,
    /// The number of tokens evicted since the last [`Session::take_evicted`].
    newly_evicted: Option<usize>,
}

/// The progress of reading tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The number of new tokens that are read.
    Read(usize),
    /// The earlier tokens are recomputed, before new ones are read, because a longer sequence has
    /// other RoPE frequencies.
    Recomputed {
        /// The number of tokens recomputed so far.
        done: usize,
        /// The number of tokens to recompute.
        total: usize,
    },
}

/// A predicate on indices of the tokens being read: whether the token's logits are computed.
type Wanted<'w> = &'w dyn Fn(usize) -> bool;

/// The only sequence of a session's cache.
pub(super) const SEQUENCE: usize = 0;

impl<'m> Session<'m> {
    /// Creates an empty session.
    ///
    /// # Errors
    /// If the worker threads cannot be started, or the context is too small to shift.
    pub fn new(model: &'m Model<'m>, rope: Rope, options: Options) -> Result<Self, Error> {
        let config = &model.config;
        let team = Threads::new(options.threads)?;
        let shape = Shape {
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            keys: options.keys,
            values: options.values,
        };
        let global = rope.plan().visibility;
        let visibility = |layer| config.layer_window(layer).map_or(global, Visibility::window);
        let visibilities = (0..config.layers).map(visibility).collect();
        let rows = options.micro_batch.clamp(1, options.context.max(1));
        let options = Options { micro_batch: rows, ..options };
        let (context, cpu) = (options.context, options.cpu);
        let state = State::new(&team, cpu, config, &model.weights, shape, rows, context);
        let cache = KvCache::new(shape, visibilities, 1);
        let mut session = Session {
            model,
            rope,
            options,
            team,
            state,
            cache,
            tokens: Vec::new(),
            kept: 0,
            evicted: 0,
            effective_length: 0,
            rows: Vec::with_capacity(rows),
            retained_from: usize::MAX,
            recomputed: None,
            newly_evicted: None,
        };
        if session.rope.plan().shifts {
            session.keep(0)?;
        }
        Ok(session)
    }

    /// Returns the context: the number of positions that the KV cache can hold.
    pub fn context(&self) -> usize {
        self.options.context
    }

    /// Returns the number of tokens that the session can read without shifting: the context, or
    /// `usize::MAX` if the context rolls.
    pub fn capacity(&self) -> usize {
        if self.rope.plan().rolls() { usize::MAX } else { self.options.context }
    }

    /// Returns whether no more tokens can be read.
    pub fn full(&self) -> bool {
        !self.rope.plan().shifts && self.tokens.len() == self.capacity()
    }

    /// Returns the number of tokens in the vocabulary, which is the number of logits of a token.
    pub fn vocabulary(&self) -> usize {
        self.model.config.vocabulary
    }

    /// Returns the tokens of the sequence, those that shifts have evicted included.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Returns the RoPE plan and its tables.
    pub fn rope(&self) -> &Rope {
        &self.rope
    }

    /// Returns the bytes that the KV cache uses now.
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Reads prompt tokens after the earlier ones, and returns the logits of the last one. The bits
    /// of the logits do not depend on how a prompt is cut into calls and micro-batches.
    ///
    /// `progress` is called after each micro-batch. If it breaks before the last token is read, the
    /// tokens read so far stay and the result is `Ok(None)`. It is `Ok(None)` also if `tokens` is
    /// empty.
    ///
    /// # Errors
    /// If the context is too small for the tokens, or a token is not in the vocabulary.
    pub fn extend(
        &mut self,
        tokens: &[Token],
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Option<&[f32]>, Error> {
        self.last_logits(tokens, Role::Prompt, progress)
    }

    /// Reads one answer token after the earlier ones, and returns its logits. They differ by
    /// rounding from those of [`Session::extend`], which sums in another order.
    ///
    /// # Errors
    /// As for [`Session::extend`], which also describes `progress`.
    pub fn answer(
        &mut self,
        token: Token,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Option<&[f32]>, Error> {
        self.last_logits(&[token], Role::Answer, progress)
    }

    fn last_logits(
        &mut self,
        tokens: &[Token],
        role: Role,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Option<&[f32]>, Error> {
        let last = tokens.len().saturating_sub(1);
        let done = self.read(tokens, role, &|i| i == last, progress, &mut |_, _| {})?;
        let vocabulary = self.model.config.vocabulary;
        Ok((done && !tokens.is_empty()).then(|| &self.state.logits.all()[..vocabulary]))
    }

    /// Reads prompt tokens, and calls `each` with the index and the logits of each token in
    /// `wanted` (indices into `tokens`), in order.
    ///
    /// # Errors
    /// As for [`Session::extend`].
    pub fn evaluate(
        &mut self,
        tokens: &[Token],
        wanted: Range<usize>,
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        let keep_going = &mut |_| ControlFlow::Continue(());
        self.read(tokens, Role::Prompt, &|i| wanted.contains(&i), keep_going, each)?;
        Ok(())
    }

    /// Removes all but the first `len` tokens. Returns the number of tokens that remain: fewer than
    /// `len` if shifts have evicted some of them, and 0 if a sliding window has already dropped
    /// keys that the next token would attend to.
    pub fn truncate(&mut self, len: usize) -> usize {
        let mut len = len.min(self.tokens.len());
        if len < self.kept + self.evicted {
            len = len.min(self.uninterrupted_prefix());
            self.evicted = 0;
        }
        let remaining = match self.cache.truncate(SEQUENCE, len - self.evicted) {
            0 => 0,
            positions => positions + self.evicted,
        };
        if remaining == 0 {
            self.evicted = 0;
        }
        self.tokens.truncate(remaining);
        remaining
    }

    /// Returns the number of first tokens of which none has been evicted.
    pub(super) fn uninterrupted_prefix(&self) -> usize {
        if self.evicted > 0 { self.kept } else { self.tokens.len() }
    }

    /// Keeps the first `tokens` when the context shifts, from now on. If a sliding window has
    /// dropped keys of these tokens, the session is emptied, so that they are read again.
    ///
    /// # Errors
    /// If the context is too small to keep them and to shift.
    pub fn keep(&mut self, tokens: usize) -> Result<(), Error> {
        let (needed, context) = (tokens.saturating_add(POSITIONS + 1), self.options.context);
        if needed > context {
            return Err(Error::Keep { tokens, needed, context });
        }
        if self.evicted > 0 {
            self.truncate(self.kept);
        }
        self.kept = tokens;
        if !self.cache.keep(SEQUENCE, tokens, self.positions()) {
            self.truncate(0);
        }
        Ok(())
    }

    /// Continues from `tokens`, whose keys and values are in the KV cache.
    pub(super) fn resume(&mut self, tokens: Vec<Token>) {
        self.effective_length = self.rope.effective_length(tokens.len());
        self.rope.clear();
        self.tokens = tokens;
    }

    /// Returns the number of positions in use.
    fn positions(&self) -> usize {
        self.tokens.len() - self.evicted
    }

    /// Makes layers with a sliding window retain all keys that the token at `position` and later
    /// ones attend to, from now on, so that the session can be truncated to `position` repeatedly.
    /// These layers then need memory for all tokens that are read after `position`.
    pub fn retain_from(&mut self, position: usize) {
        self.retained_from = position;
    }

    /// Returns the number of tokens recomputed since the last call because a longer sequence has
    /// other RoPE frequencies; `None` if none were.
    pub fn take_recomputed(&mut self) -> Option<usize> {
        self.recomputed.take()
    }

    /// Returns the number of tokens evicted from a full context since the last call; `None` if none
    /// were.
    pub fn take_evicted(&mut self) -> Option<usize> {
        self.newly_evicted.take()
    }

    /// Reads tokens in micro-batches. Returns false if `progress` stopped it before the end.
    fn read(
        &mut self,
        tokens: &[Token],
        role: Role,
        wanted: Wanted<'_>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<bool, Error> {
        let used = self.tokens.len();
        let (shifts, context) = (self.rope.plan().shifts, self.options.context);
        let end = used + tokens.len();
        if !shifts && end > self.capacity() {
            let more = tokens.len();
            return Err(Error::ContextFull { context, used, more });
        }
        let vocabulary = self.model.config.vocabulary;
        if let Some(&token) = tokens.iter().find(|&&t| t as usize >= vocabulary) {
            return Err(Error::Token { token, vocabulary });
        }
        // After a shift, frequencies stay those of a full context.
        let end = if self.evicted > 0 { context } else { end.min(self.capacity()) };
        let by_position = self.rope.plan().by_position();
        if !by_position && self.set_frequencies(end) && !self.recompute(progress) {
            return Ok(false);
        }
        let mut done = 0;
        while done < tokens.len() {
            let mut part = &tokens[done..];
            part = &part[..part.len().min(self.options.micro_batch)];
            if shifts {
                if self.positions() == context {
                    self.shift();
                }
                part = &part[..part.len().min(context - self.positions())];
            }
            if by_position {
                self.set_frequencies(self.sequence_length(self.positions()));
                part = &part[..self.same_frequencies(part.len())];
            }
            self.micro_batch(part, role, &|i| wanted(done + i), &mut |i, logits| {
                each(done + i, logits);
            });
            done += part.len();
            if progress(Progress::Read(done)).is_break() && done < tokens.len() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sets the RoPE frequencies to those of a sequence of `tokens`. Returns whether they changed.
    fn set_frequencies(&mut self, tokens: usize) -> bool {
        let effective_length = self.rope.effective_length(tokens);
        let changed = effective_length != self.effective_length;
        if changed {
            self.effective_length = effective_length;
            self.rope.clear();
        }
        changed
    }

    /// Frees positions of a full context: evicts the older half of the tokens that are not kept,
    /// like llama.cpp, but in whole pages. Keys are raw, so those that move to other positions do
    /// not change.
    fn shift(&mut self) {
        let half = (self.options.context - self.kept) / 2;
        let pages = ((half + POSITIONS / 2) / POSITIONS).max(1);
        self.cache.shift(SEQUENCE, pages);
        self.evicted += pages * POSITIONS;
        *self.newly_evicted.get_or_insert(0) += pages * POSITIONS;
        self.retained_from = usize::MAX;
    }

    /// Returns how many of the next `tokens` have the same frequencies as the first of them.
    fn same_frequencies(&self, tokens: usize) -> usize {
        let same = |position: &usize| {
            self.rope.effective_length(self.sequence_length(*position)) == self.effective_length
        };
        (self.positions()..).take(tokens).take_while(same).count()
    }

    /// Returns the length of the sequence up to `position`. After a shift this is the full context,
    /// because later tokens have been computed from all evicted ones, too.
    fn sequence_length(&self, position: usize) -> usize {
        if self.evicted > 0 { self.options.context } else { position + 1 }
    }

    /// Recomputes all tokens of the session with the current frequencies. Returns false if
    /// `progress` stopped it; the session then has only the tokens recomputed so far.
    fn recompute(&mut self, progress: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> bool {
        let tokens = std::mem::take(&mut self.tokens);
        self.cache.truncate(SEQUENCE, 0);
        let mut done = 0;
        while done < tokens.len() {
            if progress(Progress::Recomputed { done, total: tokens.len() }).is_break() {
                return false;
            }
            let part = &tokens[done..];
            let part = &part[..part.len().min(self.options.micro_batch)];
            self.micro_batch(part, Role::Prompt, &|_| false, &mut |_, _| {});
            done += part.len();
            *self.recomputed.get_or_insert(0) += part.len();
        }
        true
    }

    fn micro_batch(
        &mut self,
        tokens: &[Token],
        role: Role,
        wanted: Wanted<'_>,
        each: &mut dyn FnMut(usize, &[f32]),
    ) {
        let config = &self.model.config;
        let (start, end) = (self.positions(), self.positions() + tokens.len());
        self.rows.clear();
        let rows = tokens.iter().zip(start..);
        self.rows.extend(rows.map(|(&token, position)| Row {
            token,
            position,
            sequence: SEQUENCE,
        }));
        tiles(&self.rows, Schedule::tile_rows(config, tokens.len()), &mut self.state.tiles);
        self.cache.reserve(&self.team, SEQUENCE, start, end);
        let window = config.window.filter(|_| !config.window_rope);
        self.rope.prepare_for(self.effective_length, start..end, window);

        let rows: Vec<usize> = (0..tokens.len()).filter(|&i| wanted(i)).collect();
        self.forward(role).layers(&self.team);
        for rows in rows.chunks(LOGIT_ROWS) {
            self.forward(role).logits(&self.team, rows);
            let width = self.state.logits.width();
            let logits = self.state.logits.all();
            for (row, logits) in rows.iter().zip(logits.chunks(width)) {
                each(*row, &logits[..config.vocabulary]);
            }
        }
        self.tokens.extend_from_slice(tokens);
        self.cache.release(SEQUENCE, end.min(self.retained_from));
    }

    fn forward(&self, role: Role) -> Forward<'_> {
        Forward {
            config: &self.model.config,
            weights: &self.model.weights,
            state: &self.state,
            cache: &self.cache,
            rope: &self.rope,
            effective_length: self.effective_length,
            rows: &self.rows,
            role,
        }
    }
}
