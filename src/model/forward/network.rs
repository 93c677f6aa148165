//! The feed-forward network of a layer, phase by phase.

use rope_cpu_kernels::vector::{Activation, activate, gate};

use super::{At, Step};
use crate::{
    model::{config::Function, state::Activations, weights::Network},
    threads::{Phase, Phased},
};

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
        let Some(phase) = self.worker.phase(rows) else { return };
        let gate_up = gate_up.read(&phase);
        phase.for_each(|claim| {
            let at = At { place: self.place, row: batch_row(&phase, claim.task()) };
            let x = &gate_up[claim.task() * width..][..width];
            // A squared ReLU, and gates with limits, turn values that are not numbers into numbers.
            pass.check(&x[..network.gate_up.width], at);
            let out = &mut self.buffers.row[..feed_forward];
            out.copy_from_slice(&x[..feed_forward]);
            match network.function {
                Function::Gated(activation) => {
                    let [_, ups] = network.gate_up.columns();
                    gate(pass.cpu, activation, out, &x[ups..][..feed_forward]);
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
