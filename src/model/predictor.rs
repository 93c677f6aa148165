//! The layer that predicts the token after the next one (multi-token prediction).
//!
//! Its input at a position is computed from the token there, and from the output of the model's last
//! layer for the token before:
//!
//! ```text
//! x[i] = W_i [norm_e(E[token i]), norm_h(norm(hidden[i - 1]))]    hidden[-1] = 0
//! logits of token i + 1 = W norm(layer(x[i]))
//! ```
//!
//! While a model computes tokens, the layer only stores its keys and values for them, and the state of
//! the sequence holds the last `hidden`. The rest of the layer is computed when it drafts. It predicts
//! one token from the next token of the sequence. To predict more, its output replaces `hidden`. The
//! next step overwrites the keys and values of the drafts.

use super::{
    finite::Place,
    forward::{At, Forward, Step},
    heads::Heads,
    weights::{Branch, Predictor},
};
use crate::threads::Phase;

/// The token before a row, from which the predictor's input is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// A token that the model has computed.
    Computed,
    /// A token that the predictor has computed, in the same row.
    Predicted,
}

impl Step<'_, '_> {
    /// Stores the predictor's keys and values of all rows, and the outputs of the model's last layer
    /// in the states.
    pub fn follow(&mut self, predictor: &Predictor<'_>) {
        let Some((branch, attention)) = predictor.attention() else { return };
        let Some(schedules) = self.pass.schedules.of_layer(predictor.layer) else { return };
        self.keep_outputs(predictor);
        self.inputs(predictor, Before::Computed, branch);
        let heads = Heads { pass: self.pass, attention, stored: attention, schedules };
        self.keys_and_values(&heads);
    }

    /// Computes the logits after the only row with the predictor, and its output into `hidden`.
    pub fn predict(&mut self, predictor: &Predictor<'_>, before: Before) {
        let Forward { weights, state, config, .. } = *self.pass;
        let branches = predictor.branches.iter().map(|branch| (predictor.layer, branch));
        let mut branches = branches.peekable();
        let Some((_, first)) = branches.peek().copied() else { return };
        self.inputs(predictor, before, first);
        if let Some(phase) = self.worker.phase(1) {
            let projected = state.projected[0].read(&phase);
            let x = &projected[..config.embedding];
            phase.for_each(|claim| state.hidden.write(claim, x.len()).copy_from_slice(x));
        }
        self.branches(branches, true);
        let norm = predictor.output_norm.or(weights.output_norm);
        if let Some(output) = predictor.output.as_ref().or(weights.output.as_ref()) {
            self.logits(&[0], norm, output);
        }
    }

    /// Writes the outputs of the model's last layer to the states of all sequences.
    fn keep_outputs(&mut self, predictor: &Predictor<'_>) {
        let Forward { state, batch, tables, config, .. } = *self.pass;
        let Some(phase) = self.worker.phase(1) else { return };
        let hidden = state.hidden.read(&phase);
        phase.for_each(|claim| {
            for part in &batch.parts {
                let table = tables[part.feed];
                for (tokens, target) in table.states().targets() {
                    let to = target.buffer(table.buffer_of(predictor.layer));
                    let row = part.rows.start + tokens - 1;
                    let row = &hidden[row * config.embedding..][..config.embedding];
                    to.write(claim, row.len()).copy_from_slice(row);
                }
            }
        });
    }

    /// Computes the inputs of the predictor into `projected`, then `normed`, the input of its `first`
    /// branch.
    fn inputs(&mut self, predictor: &Predictor<'_>, before: Before, first: &Branch<'_>) {
        let Forward { weights, state, batch, config, .. } = *self.pass;
        let Some(inputs) = &state.predictor_inputs else { return };
        self.place = Place::Prediction { layer: predictor.layer };
        let norm = match before {
            Before::Computed => weights.output_norm,
            Before::Predicted => predictor.output_norm.or(weights.output_norm),
        };
        if let Some(phase) = self.worker.phase(batch.rows.len()) {
            let hidden = state.hidden.read(&phase);
            phase.for_each(|claim| {
                let at = At { place: self.place, row: claim.task() };
                let both = &mut self.buffers.row[..2 * config.embedding];
                let (x, h) = both.split_at_mut(config.embedding);
                predictor.tokens.decode_row(batch.rows[at.row].token as usize, x);
                self.pass.norm(x, Some(predictor.embedding_norm));
                match before {
                    Before::Computed => match self.pass.before(&phase, predictor, hidden, at.row) {
                        Some(output) => h.copy_from_slice(output),
                        None => h.fill(0.0),
                    },
                    Before::Predicted => h.copy_from_slice(&hidden[at.row * h.len()..][..h.len()]),
                }
                self.pass.norm(h, norm);
                self.pass.norm(h, Some(predictor.hidden_norm));
                self.pass.put(claim, both, inputs, at);
            });
        }
        let out = &state.projected[0];
        self.product(&predictor.input, batch.roles, inputs, out);
        if let Some(phase) = self.worker.phase(batch.rows.len()) {
            let projected = out.read(&phase);
            phase.for_each(|claim| {
                let at = At { place: self.place, row: claim.task() };
                let x = &mut self.buffers.row[..config.embedding];
                x.copy_from_slice(&projected[at.row * out.width()..][..config.embedding]);
                self.pass.put_normed(claim, x, first, at);
            });
        }
    }
}

impl Forward<'_> {
    /// Returns the output of the model's last layer for the token before a row; `None` if it is the
    /// first of its sequence.
    fn before<'p>(
        &'p self,
        phase: &'p Phase<'_>,
        predictor: &Predictor<'_>,
        hidden: &'p [f32],
        row: usize,
    ) -> Option<&'p [f32]> {
        let (part, embedding) = (self.batch.part(row)?, self.config.embedding);
        if row > part.rows.start {
            return Some(&hidden[(row - 1) * embedding..][..embedding]);
        }
        let table = self.tables[part.feed];
        let state = table.states().at(self.batch.rows[row].position)?;
        Some(state.buffer(table.buffer_of(predictor.layer)).read(phase))
    }
}
