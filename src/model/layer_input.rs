//! Computes the additional inputs of layers: small embeddings of the token, one for each layer
//! (Gemma 4).

use rope_cpu_kernels::vector::{Activation, gate, rms_norm};

use super::{
    finite::Place,
    forward::{At, Forward, Step},
    weights::{Branch, LayerInput, LayerInputs},
};
use crate::threads::Phased;

impl Step<'_, '_> {
    /// Computes the inputs of all layers from the embeddings, which `normed` holds; then `normed`, the
    /// input of the `next` branch.
    pub fn layer_inputs(&mut self, inputs: &LayerInputs<'_>, next: Option<&Branch<'_>>) {
        let Forward { config, state, cpu, batch, .. } = *self.pass;
        self.product(&inputs.projection, batch.roles, &state.normed, &state.layer_inputs);

        let [embedding_scale, row_scale] =
            [1.0 / (config.embedding as f32).sqrt(), (config.layer_input as f32).sqrt()];
        let half = std::f32::consts::FRAC_1_SQRT_2;
        let Some(phase) = self.worker.phase(batch.rows.len()) else { return };
        let hidden = state.hidden.read(&phase);
        phase.for_each(|claim| {
            let at = At { place: self.place, row: claim.task() };
            let row = &mut self.buffers.row[..inputs.tokens.columns()];
            inputs.tokens.decode_row(batch.rows[at.row].token as usize, row);
            let projected = state.layer_inputs.write(claim, state.layer_inputs.width());
            let layers = projected.chunks_exact_mut(config.layer_input);
            for (x, row) in layers.zip(row.chunks_exact(config.layer_input)) {
                x.iter_mut().for_each(|x| *x *= embedding_scale);
                rms_norm(cpu, x, inputs.norm, config.epsilon);
                x.iter_mut().zip(row).for_each(|(x, row)| *x = (*x + row * row_scale) * half);
            }
            self.pass.check(&projected[..inputs.tokens.columns()], at);
            if let Some(next) = next {
                let x = self.pass.hidden(self.buffers, hidden, at.row);
                self.pass.put_normed(claim, x, next, at);
            }
        });
    }

    /// Computes `out = W_down (gelu(W_gate x) * input)` for `x = normed` and the layer's input.
    pub fn layer_input(&mut self, mixer: &LayerInput<'_>, out: &Phased<f32>) {
        let Forward { state, cpu, batch, .. } = *self.pass;
        let &LayerInput { len, layer, .. } = mixer;
        self.product(&mixer.gate, batch.roles, &state.normed, &state.gate_up);

        if let Some(phase) = self.worker.phase(batch.rows.len()) {
            let [gates, inputs] = [&state.gate_up, &state.layer_inputs].map(|all| all.read(&phase));
            phase.for_each(|claim| {
                let at = At { place: Place::LayerInput { layer }, row: claim.task() };
                let x = &mut self.buffers.row[..len];
                x.copy_from_slice(&gates[at.row * state.gate_up.width()..][..len]);
                self.pass.check(x, at);
                let input = &inputs[at.row * state.layer_inputs.width() + layer * len..][..len];
                gate(cpu, Activation::GeluTanh, x, input);
                self.pass.put(claim, x, &state.gated, at);
            });
        }

        self.product(&mixer.down, batch.roles, &state.gated, out);
    }
}
