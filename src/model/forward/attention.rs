//! The attention of a layer, phase by phase.

use rope_cpu_kernels::{
    Cpu,
    vector::{Activation, gate},
};

use super::{At, Forward, Step};
use crate::{
    kv_cache::{SUMMARIES, TASKS},
    model::{
        config::{self, softplus},
        heads::Heads,
        weights::{Attention, GateFunction, Gates, NormWeights},
    },
    threads::Phased,
};

impl Step<'_, '_> {
    /// Computes `out = W_o softmax(q K / sqrt(d)) V` for `[q, k, v] = W_qkv normed`, head by
    /// head. `q` and `K` are rotated by their positions. `k` and `v` are added to `K` and `V`, the
    /// keys and values in the KV cache. A layer that shares these with an earlier one has only `q`.
    /// If the outputs have gates `g`, `W_o` multiplies `sigmoid(g)` or `softplus(g)` times the heads.
    pub(super) fn attention(&mut self, attention: &Attention<'_>, out: &Phased<f32>) {
        let Forward { weights, state, cpu, batch, .. } = *self.pass;
        let config = &attention.config;
        let Some(schedules) = self.pass.schedules.of_layer(attention.layer) else { return };
        let stored = weights.stored(attention);
        let heads = Heads { pass: self.pass, attention, stored, schedules };
        self.keys_and_values(&heads);
        if let Some(observer) = self.pass.observer.filter(|one| one.observes(attention.layer))
            && let Some(phase) = self.worker.phase(1)
        {
            let query_key_value = state.query_key_value.read(&phase);
            phase.for_each(|_| heads.observe(observer, query_key_value));
        }
        if let Some(probe) = self.pass.probe
            && let Some(phase) = self.worker.phase(config.kv_heads)
        {
            let query_key_value = state.query_key_value.read(&phase);
            phase.for_each(|claim| {
                heads.probe(probe, &phase, claim.task(), query_key_value, self.buffers);
            });
        }

        for (role, _) in batch.roles.ranges() {
            let schedule = &schedules[role as usize];
            if schedule.choices() > 0
                && let Some(phase) = self.worker.phase(schedule.choices())
            {
                let query_key_value = state.query_key_value.read(&phase);
                phase.for_each(|claim| {
                    heads.choose(role, &phase, claim, query_key_value, self.buffers)
                });
            }
            if let Some(phase) = self.worker.phase(schedule.tasks()) {
                let query_key_value = state.query_key_value.read(&phase);
                phase.for_each(|claim| {
                    let task = claim.task();
                    let partials = state.partials[role as usize].write(claim, schedule.unit());
                    heads.attend(role, &phase, task, query_key_value, self.buffers, partials);
                });
            }
        }

        if let Some(latent) = &attention.latent {
            self.latent_values(&heads, latent);
            self.product(&attention.output, batch.roles, &state.attended, out);
            return;
        }
        if let Some(phase) = self.worker.phase(batch.rows.len()) {
            let partials = state.partials.each_ref().map(|partials| partials.read(&phase));
            let query_key_value = state.query_key_value.read(&phase);
            phase.for_each(|claim| {
                let out = &mut self.buffers.row[..config.query_width()];
                let row = claim.task();
                let at = At { place: self.place, row };
                // The softmax may turn scores that are not finite into ordinary numbers.
                let inputs = &query_key_value[row * state.query_key_value.width()..];
                self.pass.check(&inputs[..attention.query_key_value.width], at);
                let (role, row) = batch.roles.place(row);
                let schedule = &schedules[role as usize];
                let from = heads.partials(role, partials[role as usize]);
                schedule.gather(&from, row, 0..config.heads, out);
                let dim = config.head_dim;
                let mut open_heads = |first: usize, stride: usize| {
                    let gates = inputs[first..].chunks(stride);
                    for (head, gates) in out.chunks_exact_mut(dim).zip(gates) {
                        let (gates, buffer) = (&gates[..dim], &mut self.buffers.head);
                        open(cpu, Activation::Sigmoid, head, gates, buffer);
                    }
                };
                match attention.gates {
                    None => {}
                    Some(Gates::WithQueries) => open_heads(dim, 2 * dim),
                    Some(Gates::Apart { column, outputs, function }) => match function {
                        GateFunction::Sigmoid => open_heads(column, dim),
                        GateFunction::Softplus => {
                            let outputs = out.chunks_exact_mut(outputs);
                            for (out, gate) in outputs.zip(&inputs[column..]) {
                                let gate = softplus(*gate);
                                out.iter_mut().for_each(|out| *out *= gate);
                            }
                        }
                    },
                }
                self.pass.put(claim, out, &state.attended, at);
            });
        }

        self.product(&attention.output, batch.roles, &state.attended, out);
    }

    /// Computes `[q, k, v] = W_qkv normed`, and adds `k` and `v` to the KV cache.
    pub fn keys_and_values(&mut self, heads: &Heads<'_>) {
        let Forward { state, batch, .. } = *self.pass;
        let attention = heads.attention;
        match &attention.latent {
            Some(latent) => self.latent_queries(attention, latent),
            None => {
                let (x, out) = (&state.normed, &state.query_key_value);
                self.product(&attention.query_key_value, batch.roles, x, out);
            }
        }
        if let Some(norms) = attention.row_norms {
            self.row_norms(attention, norms);
        }

        let config = &attention.config;
        if config.shared_with.is_none()
            && let Some(phase) = self.worker.phase(config.kv_heads * TASKS)
        {
            let query_key_value = state.query_key_value.read(&phase);
            phase.for_each(|claim| heads.store(claim, query_key_value, &mut self.buffers.head));
        }

        if heads.has_new_blocks()
            && let Some(phase) = self.worker.phase(config.kv_heads * SUMMARIES)
        {
            phase.for_each(|claim| heads.summarize(&phase, claim, self.buffers));
        }
    }

    /// Normalizes all heads of queries together, and all heads of keys.
    fn row_norms(&mut self, attention: &Attention<'_>, norms: [NormWeights<'_>; 2]) {
        let Forward { state, cpu, batch, .. } = *self.pass;
        let Some(phase) = self.worker.phase(batch.rows.len()) else { return };
        phase.for_each(|claim| {
            let row = state.query_key_value.write(claim, state.query_key_value.width());
            for (segment, norm) in attention.query_key_value.segments.iter().zip(norms) {
                norm.apply(cpu, &mut row[segment.column..][..norm.len()]);
            }
        });
    }

    /// Adds the keys and values of `normed` to the KV cache.
    pub(super) fn store(&mut self, attention: &Attention<'_>) {
        let Forward { weights, state, batch, schedules, .. } = *self.pass;
        let Some(schedules) = schedules.of_layer(attention.layer) else { return };
        let stored = weights.stored(attention);
        self.keys_and_values(&Heads { pass: self.pass, attention, stored, schedules });
        let config::Attention { heads, head_dim, .. } = attention.config;
        let columns = match attention.latent {
            Some(_) => heads * head_dim..(heads + 1) * head_dim,
            None => 0..attention.query_key_value.width,
        };
        if let Some(phase) = self.worker.phase(batch.rows.len()) {
            let query_key_value = state.query_key_value.read(&phase);
            phase.for_each(|claim| {
                let at = At { place: self.place, row: claim.task() };
                let inputs = &query_key_value[at.row * state.query_key_value.width()..];
                self.pass.check(&inputs[columns.clone()], at);
            });
        }
    }
}

/// Computes `x = activation(gates) * x`. `buffer` is at least as long.
pub fn open(cpu: Cpu, activation: Activation, x: &mut [f32], gates: &[f32], buffer: &mut [f32]) {
    let buffer = &mut buffer[..x.len()];
    buffer.copy_from_slice(gates);
    gate(cpu, activation, buffer, x);
    x.copy_from_slice(buffer);
}
