//! Drafts with the model itself: computes its next tokens with sparse attention.
//!
//! ```text
//! reserve the pages of the drafts         pages that other sequences share are copied
//! for each draft:
//!     compute the last token              with sparse attention; keys go beyond the sequence's end
//!     choose the next one
//! put the states of recurrent layers back
//! ```
//! The next step computes the same positions, and overwrites their keys, values and summaries before it
//! reads them. So drafts do not affect later steps.

use super::{Engine, Sequence};
use crate::{Token, kv_cache::Points, model::Error};

impl Engine {
    /// Drafts the tokens after `token`, the next token of a sequence, with sparse attention
    /// ([`Options::sparse_attention`](super::Options)). The sequence does not change. A draft takes the
    /// time of a step minus that for the keys that it does not read.
    ///
    /// `choose` receives the logits of each drafted token, at most `count` times, and returns the
    /// token to go on from; `None` ends it. It is called less often where the context, the pool or
    /// [`Engine::room`] ends. It is never called in sequences shorter than
    /// [`SparseAttention::length_min`](crate::model::SparseAttention), or without sparse attention.
    ///
    /// ```no_run
    /// # use rope_cpu::{Token, model::{Engine, Error, Sequence}};
    /// # fn likeliest(_: &[f32]) -> Token { 0 }
    /// # fn drafts(engine: &mut Engine, sequence: &mut Sequence, next: Token) -> Result<(), Error> {
    /// let mut drafts = Vec::new();
    /// engine.draft(sequence, next, 4, &mut |logits| {
    ///     drafts.push(likeliest(logits));
    ///     drafts.last().copied()
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a token is not in the vocabulary, the sequence is of another engine, or a value is not
    /// finite.
    pub fn draft(
        &mut self,
        sequence: &mut Sequence,
        token: Token,
        count: usize,
        choose: &mut dyn FnMut(&[f32]) -> Option<Token>,
    ) -> Result<(), Error> {
        if !sequence.table.is_of(&self.pool) {
            return Err(Error::ForeignSequence { feed: 0 });
        }
        let start = sequence.positions();
        let sparse = self.options.sparse_attention.filter(|sparse| sparse.applies(start));
        let most = if sparse.is_some() { self.draftable(sequence) } else { 0 };
        let end = start + count.min(most);
        if end == start || sequence.table.reserve(&self.team, start, end).is_err() {
            return Ok(());
        }
        let states = sequence.table.states().clone();
        let mut next = Some(token);
        let drafted = (start..end).try_for_each(|position| {
            let Some(token) = next else { return Ok(()) };
            next = self.draft_one(sequence, token, position)?.and_then(&mut *choose);
            Ok(())
        });
        sequence.table.set_states(states);
        drafted
    }

    /// Returns the logits of the token after `token`; `None` if the pool has no room for its states.
    fn draft_one(
        &mut self,
        sequence: &mut Sequence,
        token: Token,
        position: usize,
    ) -> Result<Option<&[f32]>, Error> {
        let points = Points { all: true, ..Points::default() };
        let positions = position..position + 1;
        if sequence.table.reserve_states(&self.team, positions, &points).is_err() {
            return Ok(None);
        }
        self.fill(sequence, token, position)?;
        self.prepare_rope()?;
        self.divide([true; 2])?;
        let tables = [&sequence.table];
        let forward = self.forward(&tables, sequence.adapter_scales());
        forward.layers(&self.team);
        self.check_fault()?;
        let forward = self.forward(&tables, sequence.adapter_scales());
        forward.logits(&self.team, &[0]);
        sequence.table.commit(sequence.retained_from);
        self.only_logits().map(Some)
    }
}
