//! Drafts with the model's predictor, or with an assistant.

use super::{Engine, Sequence};
use crate::{
    Token,
    model::{
        Error,
        batch::{Role, Row},
        finite::{Place, are_finite},
        predictor::Before,
        weights::Predictor,
    },
};

impl Engine {
    /// Returns the layer that predicts the token after the next one, if it follows sequences.
    pub(in crate::model) fn predictor(&self) -> Option<&Predictor<'_>> {
        self.model.weights().predictor.as_ref().filter(|_| self.options.predict)
    }

    /// Drafts the tokens after `token`, the next token of a sequence, with the assistant
    /// ([`Options::assistant`](super::Options)), or else with the model's predictor
    /// ([`Config::predictor`](crate::model::Config)). The sequence does not change.
    ///
    /// `choose` receives the logits of each predicted token, at most `count` times, and returns the
    /// token to go on from; `None` ends it. It is called less often where the context, the pool or
    /// [`Engine::room`] ends, and never without an assistant or [`Options::predict`](super::Options).
    ///
    /// # Errors
    /// If a token is not in the vocabulary, the sequence is of another engine, or a value is not
    /// finite.
    pub fn predict(
        &mut self,
        sequence: &mut Sequence,
        token: Token,
        count: usize,
        choose: &mut dyn FnMut(&[f32]) -> Option<Token>,
    ) -> Result<(), Error> {
        if !sequence.table.is_of(&self.pool) {
            return Err(Error::ForeignSequence { feed: 0 });
        }
        let predicts = self.predictor().is_some() || self.assistance.is_some();
        let most = if predicts { self.draftable(sequence) } else { 0 };
        let (start, count) = (sequence.positions(), count.min(most));
        if count > 0 && self.assistance.is_some() {
            return self.assist(sequence, token, count, choose);
        }
        if count == 0 || sequence.table.reserve(&self.team, start, start + count).is_err() {
            return Ok(());
        }
        let (mut next, mut before) = (Some(token), Before::Computed);
        for position in start..start + count {
            let Some(token) = next else { break };
            next = choose(self.predict_one(sequence, token, position, before)?);
            before = Before::Predicted;
        }
        Ok(())
    }

    /// Returns the number of tokens that can be drafted after a sequence: what [`Engine::room`] has, or
    /// 0 where the next step changes earlier tokens.
    pub(super) fn draftable(&self, sequence: &Sequence) -> usize {
        let (plan, context) = (self.rope.plan(), self.options.context);
        let (used, next) = (sequence.tokens().len(), sequence.positions());
        let full = match plan.shifts {
            true => next == context,
            false => used >= self.capacity(),
        };
        let frequencies = plan.by_position()
            || plan.effective_length(sequence.length_at(used)) == sequence.effective_length;
        match !full && frequencies && sequence.to_recompute() == 0 {
            true => self.room(sequence),
            false => 0,
        }
    }

    /// Returns the logits of the token after `token`.
    fn predict_one(
        &mut self,
        sequence: &Sequence,
        token: Token,
        position: usize,
        before: Before,
    ) -> Result<&[f32], Error> {
        self.fill(sequence, token, position)?;
        self.prepare_rope()?;
        self.divide([false; 2])?;
        let tables = [&sequence.table];
        let forward = self.forward(&tables, sequence.adapter_scales());
        let Some(predictor) = forward.predictor else { return Ok(&[]) };
        forward.run(&self.team, |mut step| step.predict(predictor, before));
        self.check_fault()?;
        self.only_logits()
    }

    /// Returns the logits of the only row of the batch.
    ///
    /// # Errors
    /// If one of them is not finite.
    pub(super) fn only_logits(&mut self) -> Result<&[f32], Error> {
        let vocabulary = self.vocabulary();
        let logits = &self.state.logits.all()[..vocabulary];
        match are_finite(logits) {
            true => Ok(logits),
            false => Err(Error::NotFinite { feed: 0, place: Place::Output }),
        }
    }

    /// Makes a token that follows a sequence the only row of the batch.
    pub(super) fn fill(
        &mut self,
        sequence: &Sequence,
        token: Token,
        position: usize,
    ) -> Result<(), Error> {
        let (plan, vocabulary) = (self.rope.plan(), self.vocabulary());
        if token as usize >= vocabulary {
            return Err(Error::Token { token, vocabulary });
        }
        let effective_length = match plan.by_position() {
            true => plan.effective_length(sequence.length_at(position)),
            false => sequence.effective_length,
        };
        self.batch.clear();
        let row = Row { token, position, sequence: 0, effective_length };
        self.batch.push(0, sequence.tokens().len(), false, [row].into_iter());
        self.batch.end_role(Role::Answer);
        Ok(())
    }
}
