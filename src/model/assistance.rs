//! The step of an assistant: a small model that drafts tokens for another one.
//!
//! Let `hidden[i]` be the output of the model's last layer for token i, and `s E` its scaled embeddings.
//! An assistant predicts the token after the last one, number n, which the model has not computed yet:
//!
//! ```text
//! h = norm_model(hidden[n - 1])               the model's output norm
//! x = W_pre [s E[token n], h]
//! y = norm(layers(x))
//! logits of token n + 1 = W y
//! h = W_post y                                for the next token
//! ```
//!
//! Its layers compute only queries. They attend to the keys and values that the model has stored for
//! tokens before n, in its last layer with a sliding window or in its last layer without. All queries
//! are rotated to position n, even for further tokens, as in the assistant's training.
//!
//! Source: the Gemma 4 assistant of Hugging Face's transformers, as llama.cpp computes it.

use rope_cpu_kernels::Matrix;

use super::{
    finite::Place,
    forward::{At, Forward, Step},
    weights::Assistant,
};
use crate::threads::Phased;

/// The inputs of an assistant for a token.
pub struct Inputs<'i> {
    /// The model's embeddings, (vocabulary, embedding of the model).
    pub tokens: &'i Matrix<'i>,
    /// The factor of the embeddings.
    pub scale: f32,
    /// The output for the token before: the model's, or the assistant's own.
    pub before: &'i [f32],
}

impl Step<'_, '_> {
    /// Computes the logits after the only row with an assistant, whose pass this is, and the output
    /// for the next token into `output`.
    pub fn assist(&mut self, assistant: &Assistant<'_>, from: &Inputs<'_>, output: &Phased<f32>) {
        let Forward { weights, state, batch, config, .. } = *self.pass;
        let (Some(inputs), Some(logits)) = (&state.predictor_inputs, &weights.output) else {
            return;
        };
        let mut branches = weights.branches().peekable();
        let Some((_, first)) = branches.peek().copied() else { return };
        let at = At { place: Place::Embedding, row: 0 };
        if let Some(phase) = self.worker.phase(1) {
            phase.for_each(|claim| {
                let both = &mut self.buffers.row[..2 * from.before.len()];
                let (x, before) = both.split_at_mut(from.before.len());
                from.tokens.decode_row(batch.rows[at.row].token as usize, x);
                x.iter_mut().for_each(|x| *x *= from.scale);
                before.copy_from_slice(from.before);
                self.pass.put(claim, both, inputs, at);
            });
        }
        let projected = &state.projected[0];
        self.product(&assistant.input, batch.roles, inputs, projected);
        if let Some(phase) = self.worker.phase(1) {
            let projected = projected.read(&phase);
            phase.for_each(|claim| {
                let x = &mut self.buffers.row[..config.embedding];
                x.copy_from_slice(&projected[..x.len()]);
                state.hidden.write(claim, x.len()).copy_from_slice(x);
                self.pass.put_normed(claim, x, first, at);
            });
        }
        self.branches(branches, true);
        self.logits(&[at.row], weights.output_norm, logits);
        self.product(&assistant.output, batch.roles, &state.normed, output);
    }
}
