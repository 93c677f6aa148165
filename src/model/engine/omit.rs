//! Leaves tokens out of a sequence: they keep their positions, but are not computed, and no token
//! attends to them.
//!
//! ```text
//! tokens      a b c d e f g h i        omitted: c d e, g
//! positions   0 1         5   7 8
//! ```
//! The other tokens have the logits of a dense pass in which the scores of the omitted ones are minus
//! infinity. What a sequence computes after a gap is not the prefix of any other text. So
//! [`Engine::reusable`] and [`Engine::save`] stop at the first gap.

use std::ops::Range;

use super::{Engine, Sequence};
use crate::{kv_cache::Gaps, model::Error};

impl Engine {
    /// Checks that [`Engine::omit`] can serve this model with these options.
    ///
    /// # Errors
    /// If a layer has a recurrent state, or the model is an encoder. Also if the RoPE frequencies depend
    /// on the length of all tokens, or the context shifts or rolls, if attention is sparse, or if the
    /// model's predictor or an assistant drafts.
    pub fn check_omit(&self) -> Result<(), Error> {
        let (plan, config, options) = (self.rope.plan(), self.model.config(), &self.options);
        let whole = plan.effective_length(1) == plan.effective_length(options.context);
        let drafts = self.predictor().is_some() || self.assistance.is_some();
        if !config.causal || config.layers.iter().any(|layer| layer.recurrence.is_some()) {
            return Err(Error::OmittedLayers { architecture: config.architecture.name });
        }
        let reason = if drafts {
            "a layer or an assistant that predicts tokens follows all of them"
        } else if options.sparse().iter().any(Option::is_some) {
            "sparse attention estimates all keys"
        } else if plan.shifts || plan.rolls() {
            "the context shifts or rolls"
        } else if !whole && !plan.by_position() {
            "the RoPE frequencies follow the length of the text, and change for all of its tokens"
        } else {
            return Ok(());
        };
        Err(Error::Omitted { reason })
    }

    /// Leaves out the tokens at these indices of a sequence, which it does not have yet. From now on,
    /// [`Engine::step`] takes them over without computing them, and they have no output.
    ///
    /// The sequence forgets this when it is [truncated](Sequence::truncate) to a length before them.
    ///
    /// ```no_run
    /// # use rope_cpu::{Token, model::{Engine, Error, Feed, Output, Role}};
    /// # fn read(engine: &mut Engine, prompt: &[Token]) -> Result<(), Error> {
    /// let mut sequence = engine.sequence();
    /// engine.omit(&mut sequence, &[64..128, 256..512])?;
    /// let (role, wanted, output) = (Role::Prompt, 0..0, Output::Logits);
    /// let mut feeds = [Feed { sequence: &mut sequence, tokens: prompt, role, wanted, output }];
    /// while !feeds[0].tokens.is_empty() {
    ///     engine.step(&mut feeds, &mut |_, _, _| {})?;
    /// }
    /// assert_eq!((sequence.tokens(), sequence.first_omitted()), (prompt, Some(64)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Engine::check_omit`]; if the sequence is of another engine; and if a range is empty, starts
    /// before the end of the one before it or of the sequence, or ends after the context.
    pub fn omit(&self, sequence: &mut Sequence, tokens: &[Range<usize>]) -> Result<(), Error> {
        self.check_omit()?;
        if !sequence.table.is_of(&self.pool) {
            return Err(Error::ForeignSequence { feed: 0 });
        }
        let mut from = sequence.tokens.len();
        for range in tokens {
            let Range { start, end } = *range;
            if start < from || end <= start || end > self.options.context {
                return Err(Error::OmittedRange {
                    start,
                    end,
                    from,
                    context: self.options.context,
                });
            }
            from = end;
        }
        let before = sequence.table.gaps().until(sequence.tokens.len());
        let gaps = Gaps::new(before.chain(tokens.iter().cloned()).collect());
        sequence.table.set_gaps(gaps);
        Ok(())
    }
}
