//! Copies parts of a text that another sequence has computed at other positions.
//!
//! Keys before their rotation, and values, do not depend on the position, so they can be copied to any
//! place. But they were computed after another text, so later logits differ from those of a computed
//! prompt. The largest error comes from the missing attention to the first tokens of the new text. A
//! few computed tokens at the start of each part restore some of it: EPIC (Hu and others 2024,
//! arXiv 2410.15332).

use std::ops::Range;

use super::Engine;
use crate::{
    model::{Error, Sequence, sequence::Outputs},
    rope::Visibility,
};

impl Engine {
    /// Checks that [`Engine::place`] can serve this model with this RoPE plan.
    ///
    /// # Errors
    /// If the cache has rotated keys, or frequencies depend on the length of all tokens. Also if a layer
    /// has a sliding window or a recurrent state, as a text in another place then lacks some of it.
    pub fn check_place(&self) -> Result<(), Error> {
        let (plan, config) = (self.rope.plan(), self.model.config());
        let fixed = plan.effective_length(1) == plan.effective_length(self.options.context);
        if !plan.raw_keys() || !(fixed || plan.by_position()) || plan.visibility != Visibility::ALL
        {
            return Err(Error::PlacedMethod);
        }
        let whole = config.causal && config.attention().all(|one| one.window.is_none());
        match whole && !self.pool.has_states() {
            true => Ok(()),
            false => Err(Error::PlacedLayers { architecture: config.architecture.name }),
        }
    }

    /// Continues a sequence with tokens of another one of this engine, which keep their keys and values.
    /// Nothing is computed, so these tokens have no logits. Returns `false` without a change if the context
    /// or the pool has no room, or if one of the sequences has evicted tokens or recomputes some.
    ///
    /// [`Engine::save`] writes no tokens from there on.
    ///
    /// # Errors
    /// If the engine cannot move tokens ([`Engine::check_place`]), or one of the sequences is of another
    /// engine or has other scales of adapters.
    pub fn place(
        &self,
        sequence: &mut Sequence,
        source: &Sequence,
        tokens: Range<usize>,
    ) -> Result<bool, Error> {
        self.check_place()?;
        for (feed, one) in [&*sequence, source].into_iter().enumerate() {
            if !one.table.is_of(&self.pool) {
                return Err(Error::ForeignSequence { feed });
            }
            if one.adapter_scales() != sequence.adapter_scales() {
                return Err(Error::AdapterScales { feed });
            }
        }
        let whole = |one: &Sequence| one.positions() == one.tokens.len();
        let tokens = tokens.start.min(source.tokens.len())..tokens.end.min(source.tokens.len());
        let start = sequence.tokens.len();
        let end = start + tokens.len();
        let fits = end <= self.options.context && whole(sequence) && whole(source);
        if !fits || sequence.table.reserve(&self.team, start, end).is_err() {
            return Ok(false);
        }
        sequence.table.copy(&self.team, &source.table, tokens.clone(), start);
        sequence.tokens.extend_from_slice(&source.tokens[tokens]);
        sequence.computed = end;
        sequence.placed.get_or_insert(start);
        sequence.outputs = Outputs::default();
        Ok(true)
    }
}
