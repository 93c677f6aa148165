//! The layers of a step, and the outputs of its wanted tokens.

use std::mem;

use super::Engine;
use crate::{
    kv_cache::PageTable,
    model::{
        Error,
        batch::Batch,
        finite::{Fault, Place, are_finite},
        state::LOGIT_ROWS,
    },
};

/// A token with an output: the index of its feed, its index in the sequence, and its row.
pub(super) type Wanted = (usize, usize, usize);

impl Engine {
    /// Returns how many of the next `count` tokens of a prompt belong in one step if the first
    /// `unwanted` have no output: only those if many layers are left out without the others.
    pub(super) fn apart(&self, unwanted: usize, count: usize) -> usize {
        let least = self.model.apart_from().filter(|_| self.assistance.is_none());
        match unwanted < count && least.is_some_and(|least| unwanted >= least) {
            true => unwanted,
            false => count,
        }
    }

    /// Computes all layers. If no row is wanted, only what later tokens need is computed. If some are
    /// not, the networks after the last keys and values are computed for the wanted rows only. These
    /// then become the batch, and the whole batch is returned.
    pub(super) fn layers(
        &mut self,
        tables: &[&PageTable],
        scales: &[f32],
        wanted: &mut [Wanted],
    ) -> Result<Option<Batch>, Error> {
        // Drafts follow from the outputs of all tokens, and observers see all tokens.
        let observed = self.observer.is_some() || self.inputs.is_some();
        let needs_all = self.assistance.is_some() || self.predictor().is_some() || observed;
        if needs_all || wanted.len() == self.batch.rows.len() {
            self.forward(tables, scales).layers(&self.team);
            return self.check_fault().map(|()| None);
        }
        if wanted.is_empty() {
            self.forward(tables, scales).store(&self.team);
            return self.check_fault().map(|()| None);
        }
        self.forward(tables, scales).body(&self.team);
        self.check_fault()?;
        let embedding = self.model.config().embedding;
        let hidden = self.state.hidden.all();
        let mut rows = vec![];
        for (to, (.., row)) in wanted.iter_mut().enumerate() {
            hidden.copy_within(*row * embedding..(*row + 1) * embedding, to * embedding);
            rows.push(mem::replace(row, to));
        }
        let only = self.batch.only(&rows);
        let all = mem::replace(&mut self.batch, only);
        self.forward(tables, scales).tail(&self.team);
        self.check_fault()?;
        Ok(Some(all))
    }

    /// Passes the normalized outputs of the last layer to `each`.
    pub(super) fn put_embeddings(
        &mut self,
        tables: &[&PageTable],
        scales: &[f32],
        wanted: &[Wanted],
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), Error> {
        for wanted in wanted.chunks(LOGIT_ROWS) {
            let rows: Vec<usize> = wanted.iter().map(|(.., row)| *row).collect();
            self.forward(tables, scales).output(&self.team, &rows);
            self.check_fault()?;
            let embedding = self.model.config().embedding;
            let embeddings = self.state.normed.floats.all().chunks(embedding);
            for ((feed, token, _), embedding) in wanted.iter().zip(embeddings) {
                each(*feed, *token, embedding);
            }
        }
        Ok(())
    }

    /// Passes the logits of the next token to `each`.
    pub(super) fn put_logits(
        &mut self,
        tables: &[&PageTable],
        scales: &[f32],
        wanted: &[Wanted],
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), Error> {
        for wanted in wanted.chunks(LOGIT_ROWS) {
            let rows: Vec<usize> = wanted.iter().map(|(.., row)| *row).collect();
            self.forward(tables, scales).logits(&self.team, &rows);
            let infinite = rows.iter().zip(self.logits(rows.len())).find(|(_, x)| !are_finite(x));
            if let Some((row, _)) = infinite {
                return Err(self.not_finite(Fault { place: Place::Output, row: *row }));
            }
            for ((feed, token, _), logits) in wanted.iter().zip(self.logits(rows.len())) {
                each(*feed, *token, logits);
            }
        }
        Ok(())
    }
}
