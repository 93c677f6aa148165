//! A sequence: its tokens, their keys and values, and what a full context has evicted.

use std::sync::Arc;

use super::Error;
use crate::{
    Token,
    kv_cache::{POSITIONS, PageTable},
    rope::Plan,
};

/// The state of one sequence of tokens, which an [`Engine`](super::Engine) extends.
///
/// A clone shares the keys and values of its tokens with the original until either is extended.
#[derive(Clone)]
pub struct Sequence {
    pub(super) tokens: Vec<Token>,
    pub(super) table: PageTable,
    /// The scale of each of the model's adapters.
    scales: Arc<[f32]>,
    /// The number of positions of the context.
    context: usize,
    /// The number of first tokens whose keys and values are computed: all, unless they are being
    /// recomputed.
    pub(super) computed: usize,
    /// The number of first tokens that stay in the context when it shifts.
    kept: usize,
    /// The number of tokens after the kept ones that shifts have evicted from the context.
    pub(super) evicted: usize,
    /// The effective length whose RoPE frequencies the last token was computed with.
    pub(super) effective_length: usize,
    /// Keeps the cos/sin rows of the effective length.
    pub(super) rows: Option<Arc<()>>,
    /// The position from which sliding windows retain all keys; see [`Sequence::retain_from`].
    pub(super) retained_from: usize,
    /// The number of tokens recomputed since the last [`Sequence::take_recomputed`].
    pub(super) recomputed: Option<usize>,
    /// The number of tokens evicted since the last [`Sequence::take_evicted`].
    pub(super) newly_evicted: Option<usize>,
}

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
            recomputed: None,
            newly_evicted: None,
        }
    }

    /// Returns the tokens, those that shifts have evicted included.
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

    /// Continues from `tokens`, whose keys and values are in the table.
    pub(super) fn resume(&mut self, tokens: Vec<Token>, plan: &Plan) {
        self.effective_length = plan.effective_length(tokens.len());
        self.computed = tokens.len();
        self.tokens = tokens;
    }

    /// Returns the number of positions in use.
    pub fn positions(&self) -> usize {
        self.computed - self.evicted
    }

    /// Returns the number of tokens that were read and must be recomputed before others are read,
    /// as a longer sequence has other RoPE frequencies.
    pub fn to_recompute(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Removes all but the first `len` tokens. Returns the number of tokens that remain: fewer than
    /// `len` if shifts have evicted some of them or if they are being recomputed, and 0 if a sliding
    /// window has already dropped keys that the next token would attend to.
    pub fn truncate(&mut self, len: usize) -> usize {
        let mut len = len.min(self.computed);
        if len < self.kept + self.evicted {
            len = len.min(self.uninterrupted_prefix());
            self.evicted = 0;
        }
        let remaining = match self.table.truncate(len - self.evicted) {
            0 => 0,
            positions => positions + self.evicted,
        };
        if remaining == 0 {
            self.evicted = 0;
        }
        self.tokens.truncate(remaining);
        self.computed = remaining;
        remaining
    }

    /// Returns how many of the first `len` tokens need not be computed again: see
    /// [`Engine::reusable`](super::Engine::reusable).
    pub(super) fn reusable(&self, plan: &Plan, len: usize, total: usize) -> usize {
        let len = len.min(self.uninterrupted_prefix());
        let rotated_alike =
            plan.by_position() || plan.effective_length(total) == self.effective_length;
        if rotated_alike && self.table.holds(len) { len } else { 0 }
    }

    /// Returns the number of first tokens of which none has been evicted.
    pub(super) fn uninterrupted_prefix(&self) -> usize {
        if self.evicted > 0 { self.kept } else { self.computed }
    }

    /// Keeps the first `tokens` when the context shifts, from now on. If a sliding window has
    /// dropped keys of these tokens, the sequence is emptied, so that they are read again.
    ///
    /// # Errors
    /// If the context is too small to keep them and to shift.
    pub fn keep(&mut self, tokens: usize) -> Result<(), Error> {
        let (needed, context) = (tokens.saturating_add(POSITIONS + 1), self.context);
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

    /// Returns the number of pages by which a full context shifts: the older half of the tokens that
    /// are not kept, like llama.cpp, but in whole pages.
    pub(super) fn pages_to_shift(&self) -> usize {
        let half = (self.context - self.kept) / 2;
        ((half + POSITIONS / 2) / POSITIONS).max(1)
    }

    /// Records that the oldest `tokens` tokens after the kept ones were evicted.
    pub(super) fn evict(&mut self, tokens: usize) {
        self.evicted += tokens;
        *self.newly_evicted.get_or_insert(0) += tokens;
        self.retained_from = usize::MAX;
    }

    /// Returns the length of the sequence up to `position`. After a shift this is the full context,
    /// because later tokens have been computed from all evicted ones, too.
    pub(super) fn length_at(&self, position: usize) -> usize {
        if self.evicted > 0 { self.context } else { position + 1 }
    }

    /// Makes layers with a sliding window retain all keys that the token at `position` and later
    /// ones attend to, from now on, so that the sequence can be truncated to `position` repeatedly.
    /// Layers with a window then need memory for all tokens that are read after `position`.
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
}
