//! Tokens in, logits out: one conversation's state over a model.

use std::ops::{ControlFlow, Range};

use rope_cpu_kernels::Cpu;

use super::{
    Error, Model,
    attention::Plan,
    batch::{Role, Row, tiles},
    forward::Forward,
    state::{LOGIT_ROWS, State},
};
use crate::{
    Token,
    kv_cache::{CacheType, KvCache, POSITIONS, Shape},
    rope::{Rope, Sight},
    threads::Threads,
};

/// What a session is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Positions that the session can hold.
    pub context: usize,
    /// Tokens computed together while reading a prompt.
    pub micro_batch: usize,
    /// How keys are stored.
    pub keys: CacheType,
    /// How values are stored.
    pub values: CacheType,
    /// Worker threads.
    pub threads: usize,
    /// The instruction set to use.
    pub cpu: Cpu,
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
    /// How many of them a full context keeps where it shifts, and how many behind those it has lost.
    kept: usize,
    lost: usize,
    /// The effective length whose RoPE frequencies `tokens` were computed with.
    pub(super) effective_length: usize,
    rows: Vec<Row>,
    /// Where sliding windows stop dropping keys.
    held: usize,
    /// How many tokens were computed again because the frequencies changed, since last asked.
    recomputed: Option<usize>,
    /// How many tokens were lost since last asked.
    lost_now: Option<usize>,
}

/// How far reading has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many of the new tokens are read.
    Read(usize),
    /// Before that, so many of those that were there are read again, since in a longer sequence they
    /// have other RoPE frequencies.
    Again {
        /// Tokens read again so far.
        done: usize,
        /// All that are to be.
        total: usize,
    },
}

/// Which rows of what is read have their logits computed.
type Wanted<'w> = &'w dyn Fn(usize) -> bool;

/// The only sequence of a session's cache.
pub(super) const SEQUENCE: usize = 0;

impl<'m> Session<'m> {
    /// A session that has read nothing.
    pub fn new(model: &'m Model<'m>, rope: Rope, options: Options) -> Result<Self, Error> {
        let config = &model.config;
        let team = Threads::new(options.threads)?;
        let shape = Shape {
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            keys: options.keys,
            values: options.values,
        };
        let global = rope.plan().sight;
        let sight = |layer| config.layer_window(layer).map_or(global, Sight::window);
        let sights = (0..config.layers).map(sight).collect();
        let rows = options.micro_batch.clamp(1, options.context.max(1));
        let options = Options { micro_batch: rows, ..options };
        let (context, cpu) = (options.context, options.cpu);
        let state = State::new(&team, cpu, config, &model.weights, shape, rows, context);
        let cache = KvCache::new(shape, sights, 1);
        let mut session = Session {
            model,
            rope,
            options,
            team,
            state,
            cache,
            tokens: Vec::new(),
            kept: 0,
            lost: 0,
            effective_length: 0,
            rows: Vec::with_capacity(rows),
            held: usize::MAX,
            recomputed: None,
            lost_now: None,
        };
        if session.rope.plan().shifts {
            session.keep(0)?;
        }
        Ok(session)
    }

    /// Positions that the session can hold.
    pub fn context(&self) -> usize {
        self.options.context
    }

    /// Tokens that can be read at once: as many as there are positions, or without end where the
    /// context rolls.
    pub fn room(&self) -> usize {
        if self.rope.plan().rolls() { usize::MAX } else { self.options.context }
    }

    /// Whether no more tokens can be read.
    pub fn full(&self) -> bool {
        !self.rope.plan().shifts && self.tokens.len() == self.room()
    }

    /// Tokens that the model knows, which is how many logits follow a token.
    pub fn vocabulary(&self) -> usize {
        self.model.config.vocabulary
    }

    /// The tokens that were read, also those that the context has lost since.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// RoPE as in force.
    pub fn rope(&self) -> &Rope {
        &self.rope
    }

    /// Bytes that the cache holds now.
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Reads the tokens of a prompt after those already there; returns the logits that follow the
    /// last of them. They are the same bits however a prompt is cut into calls and micro-batches.
    /// `progress` is called after each micro-batch, and may stop the reading (then `Ok(None)`; what
    /// was read stays).
    pub fn extend(
        &mut self,
        tokens: &[Token],
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Option<&[f32]>, Error> {
        self.last_logits(tokens, Role::Prompt, progress)
    }

    /// Reads one token of an answer after those already there; returns the logits that follow it. They
    /// differ by rounding from those of [`Session::extend`], which sums in another order.
    /// `progress` is called as there.
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

    /// Reads the tokens of a prompt and hands the logits that follow each of those in `wanted` (indices into
    /// `tokens`) to `each`, in order.
    pub fn evaluate(
        &mut self,
        tokens: &[Token],
        wanted: Range<usize>,
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        let go_on = &mut |_| ControlFlow::Continue(());
        self.read(tokens, Role::Prompt, &|i| wanted.contains(&i), go_on, each)?;
        Ok(())
    }

    /// Forgets all but the first `len` tokens; returns how many are kept, which is fewer where the
    /// context has lost some of them, and none where a sliding window has already dropped keys that
    /// would be needed again.
    pub fn truncate(&mut self, len: usize) -> usize {
        let mut len = len.min(self.tokens.len());
        if len < self.kept + self.lost {
            len = len.min(self.intact());
            self.lost = 0;
        }
        let kept = match self.cache.truncate(SEQUENCE, len - self.lost) {
            0 => 0,
            positions => positions + self.lost,
        };
        if kept == 0 {
            self.lost = 0;
        }
        self.tokens.truncate(kept);
        kept
    }

    /// How many of the first tokens are all there.
    pub(super) fn intact(&self) -> usize {
        if self.lost > 0 { self.kept } else { self.tokens.len() }
    }

    /// From now on the first `tokens` stay where the context shifts. What a sliding window has
    /// dropped of them is read again.
    ///
    /// # Errors
    /// If they leave no room to shift in.
    pub fn keep(&mut self, tokens: usize) -> Result<(), Error> {
        let (needed, context) = (tokens.saturating_add(POSITIONS + 1), self.options.context);
        if needed > context {
            return Err(Error::Keep { tokens, needed, context });
        }
        if self.lost > 0 {
            self.truncate(self.kept);
        }
        self.kept = tokens;
        if !self.cache.keep(SEQUENCE, tokens, self.positions()) {
            self.truncate(0);
        }
        Ok(())
    }

    /// Goes on from `tokens`, whose keys and values are in the cache.
    pub(super) fn resume(&mut self, tokens: Vec<Token>) {
        self.effective_length = self.rope.effective_length(tokens.len());
        self.rope.clear();
        self.tokens = tokens;
    }

    /// Positions in use.
    fn positions(&self) -> usize {
        self.tokens.len() - self.lost
    }

    /// From now on sliding windows keep what the token at `len` sees, however much is read after
    /// it, so that the session can be truncated to `len` again and again. That takes memory: their
    /// layers then hold all that is read beyond `len`.
    pub fn hold(&mut self, len: usize) {
        self.held = len;
    }

    /// How many tokens had to be computed again because a longer sequence has other RoPE
    /// frequencies, since this was last asked.
    pub fn take_recomputed(&mut self) -> Option<usize> {
        self.recomputed.take()
    }

    /// How many tokens a full context has lost since this was last asked.
    pub fn take_lost(&mut self) -> Option<usize> {
        self.lost_now.take()
    }

    /// Reads tokens in micro-batches. Returns whether all were read.
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
        if !shifts && end > self.room() {
            let more = tokens.len();
            return Err(Error::ContextFull { context, used, more });
        }
        let vocabulary = self.model.config.vocabulary;
        if let Some(&token) = tokens.iter().find(|&&t| t as usize >= vocabulary) {
            return Err(Error::Token { token, vocabulary });
        }
        // Once a context has been full, frequencies stay those of the full one.
        let end = if self.lost > 0 { context } else { end.min(self.room()) };
        let by_position = self.rope.plan().by_position();
        if !by_position && self.follow(end) && !self.recompute(progress) {
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
                self.follow(self.length_of(self.positions()));
                part = &part[..self.alike(part.len())];
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

    /// Takes the frequencies of sequences of `tokens`. Returns whether they are others.
    fn follow(&mut self, tokens: usize) -> bool {
        let effective_length = self.rope.effective_length(tokens);
        let changed = effective_length != self.effective_length;
        if changed {
            self.effective_length = effective_length;
            self.rope.clear();
        }
        changed
    }

    /// Makes room in a full context, as llama.cpp does: half of what is not kept is lost, the oldest,
    /// here in whole pages. Keys are stored before rotation, so what moves stays as it is.
    fn shift(&mut self) {
        let half = (self.options.context - self.kept) / 2;
        let pages = ((half + POSITIONS / 2) / POSITIONS).max(1);
        self.cache.shift(SEQUENCE, pages);
        self.lost += pages * POSITIONS;
        *self.lost_now.get_or_insert(0) += pages * POSITIONS;
        self.held = usize::MAX;
    }

    /// How many of the next `tokens` have the frequencies of the first of them.
    fn alike(&self, tokens: usize) -> usize {
        let alike = |position: &usize| {
            self.rope.effective_length(self.length_of(*position)) == self.effective_length
        };
        (self.positions()..).take(tokens).take_while(alike).count()
    }

    /// The length of the sequence up to `position`: once a context has been full it counts as full,
    /// since later tokens follow from all that it has held.
    fn length_of(&self, position: usize) -> usize {
        if self.lost > 0 { self.options.context } else { position + 1 }
    }

    /// Computes what is in the cache again, with other frequencies. Returns whether it did all;
    /// what it did not is forgotten.
    fn recompute(&mut self, progress: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> bool {
        let tokens = std::mem::take(&mut self.tokens);
        self.cache.truncate(SEQUENCE, 0);
        let mut done = 0;
        while done < tokens.len() {
            if progress(Progress::Again { done, total: tokens.len() }).is_break() {
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
        tiles(&self.rows, Plan::tile_rows(config, tokens.len()), &mut self.state.tiles);
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
        self.cache.release(SEQUENCE, end.min(self.held));
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
