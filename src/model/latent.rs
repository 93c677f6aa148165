//! Attention to latents (multi-head latent attention; DeepSeek-V2, arXiv:2405.04434, section 2.1).
//!
//! The keys and values of all heads are products of one latent `c`, which is shorter than all of them
//! together. All heads also share a part `r` of the key, which rotates:
//!
//! ```text
//! key_h   = [K_h c, rotated r]          query_h = [q_h, rotated p_h]
//! value_h = V_h c
//! score   = q_h . K_h c + p_h . r  =  [p_h, K_h^T q_h] . [r, c]
//! output  = sum of w V_h c         =  V_h (sum of w c)
//! ```
//! So the cache holds `[r, c]` as the key of a single head. Its value is `c`, a part of the same row. No
//! key or value of a head is ever computed: queries are multiplied by `K_h^T` before attention, and sums
//! of latents by `V_h` after it. The part that rotates comes first, as in every head.

use rope_cpu_kernels::{
    activations::{quantize, spans_for},
    vector::rms_norm,
};

use super::{
    config,
    forward::{At, Forward, Step},
    heads::Heads,
    weights::{Attention, Latent},
};

impl Step<'_, '_> {
    /// Computes queries and the key of each row into `query_key_value`: `[p_h, K_h^T q_h]` for each
    /// head, then `[r, c]`.
    pub fn latent_queries(&mut self, attention: &Attention<'_>, latent: &Latent<'_>) {
        let Forward { state, cpu, batch, config, .. } = *self.pass;
        let Some(buffers) = &state.latent else { return };
        let config::Attention { heads, head_dim, n_rot, latent: Some(dims), .. } = attention.config
        else {
            return;
        };
        let (unrotated, rows) = (dims.unrotated, batch.rows.len());
        let [_, latents] = latent.input.columns();
        self.product(&latent.input, batch.roles, &state.normed, &buffers.input);
        if let Some((norm, second)) = &latent.queries {
            if let Some(phase) = self.worker.phase(rows) {
                let input = buffers.input.read(&phase);
                phase.for_each(|claim| {
                    let at = At { place: self.place, row: claim.task() };
                    let x = &mut self.buffers.row[..norm.len()];
                    x.copy_from_slice(&input[at.row * buffers.input.width()..][..norm.len()]);
                    rms_norm(cpu, x, norm, config.epsilon);
                    self.pass.put(claim, x, &buffers.low, at);
                });
            }
            self.product(second, batch.roles, &buffers.low, &buffers.queries);
        }

        // A task is a head of queries, or the keys.
        if let Some(phase) = self.worker.phase(heads + 1) {
            let input = buffers.input.read(&phase);
            let (queries, width) = match latent.queries {
                Some(_) => (buffers.queries.read(&phase), buffers.queries.width()),
                None => (input, buffers.input.width()),
            };
            phase.for_each(|claim| {
                let head = claim.task();
                if head == heads {
                    let mut out = state.query_key_value.columns(claim, head_dim);
                    for row in 0..rows {
                        let x = &input[row * buffers.input.width() + latents..][..head_dim];
                        let (latent_in, rotating) = x.split_at(head_dim - n_rot);
                        let (rotating_out, latent_out) = out.row(row).split_at_mut(n_rot);
                        rotating_out.copy_from_slice(rotating);
                        latent_out.copy_from_slice(latent_in);
                        rms_norm(cpu, latent_out, latent.norm, config.epsilon);
                    }
                    return;
                }
                let query = |row: usize| {
                    let query = &queries[row * width + head * (unrotated + n_rot)..];
                    query[..unrotated + n_rot].split_at(unrotated)
                };
                let floats = buffers.unrotated.floats.write(claim, rows * unrotated);
                for (row, to) in floats.chunks_exact_mut(unrotated).enumerate() {
                    to.copy_from_slice(query(row).0);
                }
                let spans = buffers.unrotated.spans.write(claim, rows * spans_for(unrotated));
                for (row, to) in spans.chunks_exact_mut(spans_for(unrotated)).enumerate() {
                    let x = query(row).0;
                    self.pass.check(x, At { place: self.place, row });
                    quantize(cpu, x, to);
                }
                let mut out = state.query_key_value.columns(claim, head_dim);
                for row in 0..rows {
                    out.row(row)[..n_rot].copy_from_slice(query(row).1);
                }
            });
        }
        let (x, out) = (&buffers.unrotated, &state.query_key_value);
        self.product(&attention.query_key_value, batch.roles, x, out);
    }

    /// Computes the values of all heads, `V_h (sum of w c)`, into `attended`.
    pub fn latent_values(&mut self, heads: &Heads<'_>, latent: &Latent<'_>) {
        let Forward { state, batch, .. } = *self.pass;
        let Some(buffers) = &state.latent else { return };
        let (config, rows) = (&heads.attention.config, batch.rows.len());

        if let Some(phase) = self.worker.phase(config.heads * rows) {
            let partials = state.partials.each_ref().map(|partials| partials.read(&phase));
            let query_key_value = state.query_key_value.read(&phase);
            phase.for_each(|claim| {
                let (head, row) = (claim.task() / rows, claim.task() % rows);
                let at = At { place: self.place, row };
                // The softmax may turn scores that are not finite into ordinary numbers.
                let inputs = &query_key_value[row * state.query_key_value.width()..];
                for head in [head, config.heads] {
                    self.pass.check(&inputs[head * config.head_dim..][..config.head_dim], at);
                }
                let (role, row) = batch.roles.place(row);
                let out = &mut self.buffers.row[..config.value_dim()];
                let from = heads.partials(role, partials[role as usize]);
                heads.schedules[role as usize].gather(&from, row, head..head + 1, out);
                self.pass.put(claim, out, &buffers.attended, at);
            });
        }
        self.product(&latent.values, batch.roles, &buffers.attended, &buffers.values);

        let width = config.output_width();
        let Some(phase) = self.worker.phase(rows) else { return };
        let values = buffers.values.read(&phase);
        phase.for_each(|claim| {
            let at = At { place: self.place, row: claim.task() };
            let all = &values[at.row * buffers.values.width()..][..latent.values.width];
            let row = &mut self.buffers.row[..width];
            let stride = latent.values.width / config.heads;
            for (to, from) in row.chunks_exact_mut(width / config.heads).zip(all.chunks(stride)) {
                to.copy_from_slice(&from[..to.len()]);
            }
            self.pass.put(claim, row, &state.attended, at);
        });
    }
}
