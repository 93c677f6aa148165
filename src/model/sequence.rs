//! A sequence: its tokens, their keys, values and states, and the number of evicted tokens.

use std::{ops::Range, sync::Arc};

use super::{Error, Role};
use crate::{
    Token,
    kv_cache::{PAGE, PageTable, Points},
    rope::Plan,
};

/// The state of one sequence of tokens, which an [`Engine`](super::Engine) extends.
///
/// A clone shares the memory of its tokens with the original until either is extended.
///
/// ```no_run
/// # use rope_cpu::{model::{Engine, Model, Options}, rope::{Flags, Rope}};
/// # let model = Model::open("model.gguf")?;
/// # let rope = Rope::new(model.rope_plan(&Flags::default(), 4096)?);
/// # let engine = Engine::new(&model, rope, Options::new(4096))?;
/// let mut sequence = engine.sequence();
/// let branch = sequence.clone(); // shares what was computed
/// let kept = sequence.truncate(100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Sequence {
    pub(super) tokens: Vec<Token>,
    pub(super) table: PageTable,
    /// The scale of each of the model's adapters.
    scales: Arc<[f32]>,
    /// The number of positions of the context.
    context: usize,
    /// The number of first tokens with computed keys and values: all, unless they are being
    /// recomputed.
    pub(super) computed: usize,
    /// The number of first tokens that stay in the context when it shifts.
    kept: usize,
    /// The number of tokens after the kept ones that shifts have evicted from the context.
    pub(super) evicted: usize,
    /// The effective length for the RoPE frequencies of the last token.
    pub(super) effective_length: usize,
    /// Keeps the cos/sin rows of the effective length.
    pub(super) rows: Option<Arc<()>>,
    /// The position from which sliding windows retain all keys; see [`Sequence::retain_from`].
    pub(super) retained_from: usize,
    /// The role of the last token.
    pub(super) role: Role,
    /// The requested length of the last truncation, if it was not a rewind point.
    departed: Option<usize>,
    /// The number of tokens recomputed since the last [`Sequence::take_recomputed`].
    pub(super) recomputed: Option<usize>,
    /// The number of tokens evicted since the last [`Sequence::take_evicted`].
    pub(super) newly_evicted: Option<usize>,
    /// The index of the first token with keys and values of another text; see
    /// [`Engine::place`](super::Engine::place).
    pub(super) placed: Option<usize>,
    /// The outputs for the last tokens, which an assistant drafts from.
    pub(super) outputs: Outputs,
}

/// The outputs of the model's last layer for the tokens of the last step, as many as can be removed
/// again and one more. They are empty without an assistant.
#[derive(Clone, Default)]
pub(super) struct Outputs {
    /// The index of the first token.
    first: usize,
    rows: Vec<f32>, // (tokens, embedding)
}

impl Outputs {
    /// Sets the outputs, for the last of the first `len` tokens.
    pub fn set(&mut self, len: usize, rows: &[f32], embedding: usize) {
        self.first = len.saturating_sub(rows.len() / embedding);
        self.rows.clear();
        self.rows.extend_from_slice(rows);
    }

    /// Returns the output for the last of the first `len` tokens, if it is there.
    pub fn of(&self, len: usize, embedding: usize) -> Option<&[f32]> {
        let row = len.checked_sub(self.first + 1)?;
        self.rows.chunks_exact(embedding).nth(row)
    }
}

/// The positions between snapshots within a prompt or an answer.
const SNAPSHOT_STEP: usize = 2 * PAGE;

/// The tokens between a snapshot and the end of a prompt. A later prompt often differs in these tokens:
/// they start an answer, and templates may change them once the answer is complete.
const BEFORE_END: usize = 16;

impl Sequence {
    /// Creates an empty sequence in a context of `context` positions, with these scales of adapters.
    pub(super) fn new(table: PageTable, context: usize, scales: Arc<[f32]>) -> Self {
        Sequence {
            tokens: Vec::new(),
            table,
            scales,
            context,
            computed: 0,
            kept: 0,
            evicted: 0,
            effective_length: 0,
            rows: None,
            retained_from: usize::MAX,
            role: Role::Prompt,
            departed: None,
            recomputed: None,
            newly_evicted: None,
            placed: None,
            outputs: Outputs::default(),
        }
    }

    /// Returns all tokens, with the ones that shifts have evicted.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Returns the scale of each of the model's adapters, in the order of
    /// [`Model::adapters`](super::Model::adapters).
    pub fn adapter_scales(&self) -> &[f32] {
        &self.scales
    }

    /// Sets the scale of each of the model's adapters. If they change, the sequence is emptied, since
    /// keys and values depend on them.
    ///
    /// # Errors
    /// If there is not one finite scale for each adapter; the sequence is then unchanged.
    pub fn set_adapter_scales(&mut self, scales: &[f32]) -> Result<(), Error> {
        let (found, adapters) = (scales.len(), self.scales.len());
        if found != adapters {
            return Err(Error::ScaleCount { found, adapters });
        }
        if let Some(adapter) = scales.iter().position(|scale| !scale.is_finite()) {
            return Err(Error::Scale { adapter, scale: scales[adapter] });
        }
        if *scales != *self.scales {
            self.truncate(0);
            self.scales = scales.into();
        }
        Ok(())
    }

    /// Continues from `tokens`. Their keys and values are in the table.
    pub(super) fn resume(&mut self, tokens: Vec<Token>, plan: &Plan) {
        self.effective_length = plan.effective_length(tokens.len());
        self.computed = tokens.len();
        self.tokens = tokens;
        self.placed = None;
        self.outputs = Outputs::default();
        // A file lacks first tokens that sliding windows dropped, also if a shift must keep them.
        if !self.table.keep(self.kept, self.computed) {
            self.truncate(0);
        }
    }

    /// Returns the number of positions in use.
    pub fn positions(&self) -> usize {
        self.computed - self.evicted
    }

    /// Returns the number of tokens to recompute before new ones, because the longer sequence has
    /// other RoPE frequencies.
    pub fn to_recompute(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Returns the nearest length up to `len` that [`Sequence::truncate`] can return to.
    ///
    /// It is less than `len` if shifts have evicted some of these tokens or if they are being
    /// recomputed. It is 0 if a sliding window has already dropped keys that the next token would
    /// attend to. If the model has recurrent layers, it is a length with a snapshot of their state:
    /// these are taken at the ends of prompts and of answers, shortly before the ends of prompts, and
    /// every few pages.
    pub fn rewind_point(&self, len: usize) -> usize {
        let (mut len, mut evicted) = (len.min(self.computed), self.evicted);
        if self.is_before_evicted(len) {
            (len, evicted) = (len.min(self.uninterrupted_prefix()), 0);
        }
        match self.table.rewind_point(len - evicted) {
            positions if positions + evicted == len => len,
            // No shift has evicted tokens before these.
            positions if positions <= self.kept => positions,
            positions => positions + evicted,
        }
    }

    /// Removes all but the first `len` tokens. Returns the number of tokens that remain:
    /// [`Sequence::rewind_point`].
    pub fn truncate(&mut self, len: usize) -> usize {
        let wanted = len.min(self.computed);
        let len = self.rewind_point(wanted);
        self.departed = Some(wanted).filter(|wanted| *wanted > len);
        if self.is_before_evicted(len) {
            self.evicted = 0;
        }
        self.table.truncate(len - self.evicted);
        self.tokens.truncate(len);
        self.computed = len;
        self.placed = self.placed.filter(|placed| *placed < len);
        len
    }

    /// Returns whether the first `len` tokens include none after the evicted ones.
    fn is_before_evicted(&self, len: usize) -> bool {
        len < self.kept + self.evicted
    }

    /// Returns how many of the first `len` tokens can be reused: see
    /// [`Engine::reusable`](super::Engine::reusable).
    pub(super) fn reusable(&self, plan: &Plan, len: usize, total: usize) -> usize {
        match plan.by_position() || plan.effective_length(total) == self.effective_length {
            true => self.rewind_point(len.min(self.uninterrupted_prefix())),
            false => 0,
        }
    }

    /// Removes all but the tokens that [`Sequence::reusable`] counts. Returns their number.
    pub(super) fn reuse(&mut self, plan: &Plan, len: usize, total: usize) -> usize {
        let reusable = self.reusable(plan, len, total);
        // The nearest rewind point is the same, and the sequence learns where texts depart.
        self.truncate(if reusable > 0 { len.min(self.uninterrupted_prefix()) } else { 0 })
    }

    /// Returns the snapshots of a step over `positions` with tokens of a role, in a feed that ends at
    /// `end`.
    pub(super) fn points(&self, positions: &Range<usize>, end: usize, role: Role) -> Points {
        let prompt = role == Role::Prompt;
        let before_end = prompt.then(|| end.saturating_sub(BEFORE_END));
        let ends = before_end.into_iter().chain(prompt.then_some(end));
        let grid = (positions.start / SNAPSHOT_STEP + 1..=positions.end / SNAPSHOT_STEP)
            .map(|i| i * SNAPSHOT_STEP);
        let departed = self.departed.and_then(|len| len.checked_sub(self.evicted));
        Points {
            all: !prompt,
            first: prompt && self.role == Role::Answer,
            kept: ends.chain(grid).chain(departed).chain([self.retained_from]).collect(),
            before_end,
        }
    }

    /// Returns the number of first tokens that were computed in this sequence, before placed ones.
    pub(super) fn unplaced_prefix(&self) -> usize {
        self.placed.unwrap_or(self.computed)
    }

    /// Returns the number of first tokens without an evicted or omitted one.
    pub(super) fn uninterrupted_prefix(&self) -> usize {
        match self.evicted > 0 {
            true => self.kept,
            false => self.first_omitted().unwrap_or(self.computed).min(self.computed),
        }
    }

    /// Returns the index of the first token that was left out: see
    /// [`Engine::omit`](super::Engine::omit). `None` if there is none.
    ///
    /// Only the tokens before it are the prefix of another text.
    pub fn first_omitted(&self) -> Option<usize> {
        self.table.gaps().first()
    }

    /// Returns the number of tokens that were left out.
    pub fn omitted(&self) -> usize {
        self.positions() - self.table.gaps().count(0..self.positions())
    }

    /// Takes over the omitted tokens that come next. Returns the rest.
    pub(super) fn skip_gap<'t>(&mut self, tokens: &'t [Token]) -> &'t [Token] {
        let start = self.positions();
        let skipped = self.table.gaps().run(start..start + tokens.len()).start - start;
        let (omitted, rest) = tokens.split_at(skipped);
        self.tokens.extend_from_slice(omitted);
        self.computed += skipped;
        rest
    }

    /// Returns the number of first tokens that stay when the context shifts.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Keeps the first `tokens` when the context shifts, from now on. If a sliding window has
    /// dropped keys of these tokens, the sequence is emptied, so that they are computed again.
    ///
    /// # Errors
    /// If the context is too small to keep them and to shift.
    pub fn keep(&mut self, tokens: usize) -> Result<(), Error> {
        let (needed, context) = (tokens.saturating_add(PAGE + 1), self.context);
        if needed > context {
            return Err(Error::Keep { tokens, needed, context });
        }
        if self.evicted > 0 {
            self.truncate(self.kept);
        }
        self.kept = tokens;
        if !self.table.keep(tokens, self.positions()) {
            self.truncate(0);
        }
        Ok(())
    }

    /// Returns the number of pages that a full context evicts: the older half of the tokens that
    /// are not kept, like llama.cpp, but in whole pages.
    pub(super) fn pages_to_shift(&self) -> usize {
        let half = (self.context - self.kept) / 2;
        ((half + PAGE / 2) / PAGE).max(1)
    }

    /// Records that the oldest `tokens` tokens after the kept ones were evicted.
    pub(super) fn evict(&mut self, tokens: usize) {
        self.evicted += tokens;
        *self.newly_evicted.get_or_insert(0) += tokens;
        self.retained_from = usize::MAX;
    }

    /// Returns the length of the sequence up to `position`. After a shift this is the full context,
    /// because later tokens were also computed from evicted ones.
    pub(super) fn length_at(&self, position: usize) -> usize {
        if self.evicted > 0 { self.context } else { position + 1 }
    }

    /// Lets you truncate the sequence to `position` repeatedly. From now on, layers with a sliding
    /// window retain all keys that the token at `position` and later ones attend to. They need
    /// memory for all tokens after `position`. Recurrent layers keep their state of this length.
    pub fn retain_from(&mut self, position: usize) {
        self.retained_from = position;
    }

    /// Returns the number of tokens that were recomputed since the last
    /// [`take_recomputed`](Self::take_recomputed), and that are left to recompute; `None` if none
    /// were.
    pub(crate) fn recomputing(&self) -> Option<usize> {
        self.recomputed.map(|done| done + self.to_recompute())
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
}
