//! The feed-forward network of a layer, phase by phase.

use rope_cpu_kernels::{
    format::SPAN,
    vector::{Activation, activate, gate},
};

use super::{At, Step};
use crate::{
    model::{config::Function, state::Activations, weights::Network},
    threads::{Phase, Phased},
};

/// The number of activations of a task in a step of few rows: whole spans, so that a part is rounded as
/// the whole row is.
const PART: usize = SPAN;
/// The number of rows from which a task has a whole row.
const MANY_ROWS: usize = 32;

/// The factors of an activation without a gate. Products with them are exact.
static ONES: [f32; 256] = [1.0; 256];

impl Step<'_, '_> {
    /// Computes `out = W_down (activation(W_gate x) * W_up x)` for `x = normed`; without the first
    /// factor if the network has no gate, and times `sigmoid(w x)` if the whole output has one, and
    /// times the factor of the network.
    pub(super) fn network(&mut self, network: &Network<'_>, out: &Phased<f32>) {
        let (state, rows) = (self.pass.state, self.pass.batch.roles);
        self.product(&network.gate_up, rows, &state.normed, &state.gate_up);
        self.activate(network, rows.total(), &state.gate_up, &state.gated, |_, row| row);
        self.product(&network.down, rows, &state.gated, out);
    }

    /// Computes the function of a network's inner activations for rows of `gate_up`, the output of
    /// the network's first product. `batch_row` returns the row of the batch that one of these
    /// belongs to.
    pub fn activate(
        &mut self,
        network: &Network<'_>,
        rows: usize,
        gate_up: &Phased<f32>,
        gated: &Activations,
        batch_row: impl Fn(&Phase<'_>, usize) -> usize,
    ) {
        let (pass, feed_forward, width) = (self.pass, network.feed_forward, gate_up.width());
        let parts = match rows < MANY_ROWS && feed_forward.is_multiple_of(PART) {
            true => (feed_forward / PART).max(1),
            false => 1,
        };
        let len = feed_forward / parts;
        let Some(phase) = self.worker.phase(rows * parts) else { return };
        let gate_up = gate_up.read(&phase);
        phase.for_each(|claim| {
            let (row, first) = (claim.task() / parts, claim.task() % parts * len);
            let at = At { place: self.place, row: batch_row(&phase, row) };
            let x = &gate_up[row * width..][..width];
            // A squared ReLU, and gates with limits, turn values that are not numbers into numbers.
            let check = |column: usize, len| pass.check(&x[column..][..len], at);
            check(first, len);
            let out = &mut self.buffers.row[..len];
            out.copy_from_slice(&x[first..][..len]);
            match network.function {
                Function::Gated(activation) => {
                    let [_, ups] = network.gate_up.columns();
                    check(ups + first, len);
                    gate(pass.cpu, activation, out, &x[ups + first..][..len]);
                }
                Function::Ungated(function) => activate(pass.cpu, function, out),
                Function::Alone(activation) => {
                    for out in out.chunks_mut(ONES.len()) {
                        let ones = &ONES[..out.len()];
                        gate(pass.cpu, activation, out, ones);
                    }
                }
            }
            if network.gated
                && let Some(score) = network.gate_up.segments.last()
            {
                check(score.column, 1);
                let mut share = [x[score.column]];
                gate(pass.cpu, Activation::Sigmoid, &mut share, &[1.0]);
                out.iter_mut().for_each(|out| *out *= share[0]);
            }
            if network.factor != 1.0 {
                out.iter_mut().for_each(|out| *out *= network.factor);
            }
            pass.put(claim, out, gated, at);
        });
    }
}
