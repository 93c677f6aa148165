//! The forward pass: what every worker does in one step, phase by phase.

use std::sync::PoisonError;

use rope_cpu_kernels::{
    Input, Output,
    activations::quantize,
    multiply,
    vector::{add, gate, rms_norm, soft_cap},
};

use super::{
    Config,
    attention::Plan,
    batch::{Role, Row},
    heads::Heads,
    state::{Activations, Private, State},
    weights::{FeedForward, Gated, Layer, Linear, Weights},
};
use crate::{
    kv_cache::{BLOCKS, KvCache},
    rope::Rope,
    threads::{Claim, Columns, Phased, Threads, Worker},
};

/// A model, and where a batch of tokens meets it.
pub struct Forward<'a> {
    pub config: &'a Config,
    pub weights: &'a Weights<'a>,
    pub state: &'a State,
    pub cache: &'a KvCache,
    pub rope: &'a Rope,
    pub effective_length: usize,
    pub rows: &'a [Row],
    pub role: Role,
}

impl Forward<'_> {
    /// Takes all rows through all layers; keys and values go to the cache, the rest to `hidden`.
    pub fn layers(&self, team: &Threads) {
        let state = self.state;
        let (shape, sight) = (self.cache.shape(), self.rope.plan().sight);
        let plan = Plan::new(self.config, shape, self.rows, &state.tiles, sight, self.role);
        team.step(|worker| {
            let mut private =
                state.private[worker.index()].lock().unwrap_or_else(PoisonError::into_inner);
            self.embed(worker, &mut private);
            for (index, layer) in self.weights.layers.iter().enumerate() {
                self.attention(worker, &mut private, &plan, index, layer);
                self.feed_forward(worker, &mut private, index, layer);
            }
        });
    }

    fn embed(&self, worker: &mut Worker<'_>, private: &mut Private) {
        let embedding = self.config.embedding;
        worker.phase(self.rows.len()).for_each(|claim| {
            let row = self.rows[claim.task()];
            let x = &mut private.row[..embedding];
            let token = row.token as usize;
            self.weights.tokens.decode_row(token, x);
            for addition in &self.weights.token_additions {
                let input = private.low.look_up(self.state.cpu, addition, token);
                let mut to = Scaled { to: x, scale: addition.scale };
                let all = 0..embedding;
                multiply(self.state.cpu, &addition.up, all, input, &mut private.product, &mut to);
            }
            if self.config.embedding_scale != 1.0 {
                x.iter_mut().for_each(|x| *x *= self.config.embedding_scale);
            }
            self.state.hidden.write(claim, embedding).copy_from_slice(x);
            self.norm(claim, x, self.weights.layers[0].attention_norm);
        });
    }

    fn attention(
        &self,
        worker: &mut Worker<'_>,
        private: &mut Private,
        plan: &Plan<'_>,
        index: usize,
        layer: &Layer<'_>,
    ) {
        let (state, cpu) = (self.state, self.state.cpu);
        let Forward { config, rope, effective_length, rows, .. } = *self;
        let heads = Heads { cpu, config, layer, index, rope, effective_length };

        let (normed, query_key_value) = (&state.normed, &state.query_key_value);
        self.product(worker, private, &layer.query_key_value, rows.len(), normed, query_key_value);

        let phase = worker.phase(config.kv_heads * BLOCKS);
        let query_key_value = state.query_key_value.read(&phase);
        phase.for_each(|claim| {
            heads.store(self.cache, claim, rows, query_key_value, &mut private.head)
        });
        drop(phase);

        let phase = worker.phase(plan.tasks());
        let query_key_value = state.query_key_value.read(&phase);
        phase.for_each(|claim| {
            let task = claim.task();
            let partials = state.partials.write(claim, plan.unit());
            heads.attend(plan, self.cache, &phase, task, rows, query_key_value, private, partials);
        });
        drop(phase);

        let width = config.heads * config.head_dim;
        let phase = worker.phase(rows.len());
        let partials = state.partials.read(&phase);
        phase.for_each(|claim| {
            let out = &mut private.row[..width];
            plan.gather(cpu, partials, claim.task(), config.head_dim, out);
            self.put(claim, out, &state.attended);
        });
        drop(phase);

        let (attended, projected) = (&state.attended, &state.projected);
        self.product(worker, private, &layer.attention_output, rows.len(), attended, projected);
        let next = Some(layer.feed_forward_norm);
        self.add_projected(worker, private, layer.post_attention_norm, next);
    }

    fn feed_forward(
        &self,
        worker: &mut Worker<'_>,
        private: &mut Private,
        index: usize,
        layer: &Layer<'_>,
    ) {
        match &layer.feed_forward {
            FeedForward::Dense(network) => self.gated(worker, private, network),
            FeedForward::Experts(mixture) => self.experts(worker, private, mixture),
        }
        let next = self.weights.layers.get(index + 1).map(|next| next.attention_norm);
        self.add_projected(worker, private, layer.post_feed_forward_norm, next);
    }

    /// `projected = network(normed)`.
    fn gated(&self, worker: &mut Worker<'_>, private: &mut Private, network: &Gated<'_>) {
        let (state, tokens) = (self.state, self.rows.len());
        self.product(worker, private, &network.gate_up, tokens, &state.normed, &state.gate_up);
        self.activate(worker, private, network, tokens, &state.gate_up, &state.gated);
        self.product(worker, private, &network.down, tokens, &state.gated, &state.projected);
    }

    /// `gated = activation(gate) * up`, for rows of what the network's first product gave.
    pub fn activate(
        &self,
        worker: &mut Worker<'_>,
        private: &mut Private,
        network: &Gated<'_>,
        rows: usize,
        gate_up: &Phased<f32>,
        gated: &Activations,
    ) {
        let ([gates, ups], width) = (network.gate_up.columns(), gate_up.width());
        let (state, config, feed_forward) = (self.state, self.config, self.config.feed_forward);
        let phase = worker.phase(rows);
        let gate_up = gate_up.read(&phase);
        phase.for_each(|claim| {
            let x = &gate_up[claim.task() * width..][..width];
            let out = &mut private.row[..feed_forward];
            out.copy_from_slice(&x[gates..][..feed_forward]);
            gate(state.cpu, config.activation, out, &x[ups..][..feed_forward]);
            self.put(claim, out, gated);
        });
    }

    /// `hidden += projected`, which may be normed first; `normed = norm(hidden)` for what is `next`.
    fn add_projected(
        &self,
        worker: &mut Worker<'_>,
        private: &mut Private,
        norm: Option<&[f32]>,
        next: Option<&[f32]>,
    ) {
        let (state, embedding) = (self.state, self.config.embedding);
        let phase = worker.phase(self.rows.len());
        let projected = state.projected.read(&phase);
        phase.for_each(|claim| {
            let x = &mut private.row[..embedding];
            x.copy_from_slice(&projected[claim.task() * state.projected.width()..][..embedding]);
            if let Some(norm) = norm {
                rms_norm(state.cpu, x, norm, self.config.epsilon);
            }
            let hidden = state.hidden.write(claim, embedding);
            add(state.cpu, hidden, x);
            x.copy_from_slice(hidden);
            if let Some(next) = next {
                self.norm(claim, x, next);
            }
        });
    }

    /// Norms a row of `hidden` and hands it on.
    fn norm(&self, claim: &mut Claim<'_>, x: &mut [f32], weight: &[f32]) {
        rms_norm(self.state.cpu, x, weight, self.config.epsilon);
        self.put(claim, x, &self.state.normed);
    }

    /// Hands a row on to the products of the next phase.
    pub fn put(&self, claim: &mut Claim<'_>, x: &[f32], to: &Activations) {
        to.floats.write(claim, x.len()).copy_from_slice(x);
        quantize(self.state.cpu, x, to.spans.write(claim, to.spans.width()));
    }

    /// `out = weights x`, for the first `tokens` rows of `x`.
    pub fn product(
        &self,
        worker: &mut Worker<'_>,
        private: &mut Private,
        weights: &Linear<'_>,
        tokens: usize,
        x: &Activations,
        out: &Phased<f32>,
    ) {
        if let Some(low) = &weights.low {
            self.product(worker, private, low, tokens, x, &self.state.low);
        }
        let unit = Linear::unit(tokens);
        let phase = worker.phase(weights.width.div_ceil(unit));
        let (floats, spans) = (x.floats.read(&phase), x.spans.read(&phase));
        let input = Input { regime: self.role.regime(), tokens, floats, spans };
        let low = weights.low.as_ref().map_or(&[][..], |_| self.state.low.read(&phase));
        while let Some(mut claim) = phase.claim() {
            let mut to = PartOutput::new(out.columns(&mut claim, unit));
            self.multiply_parts(private, weights, input, low, &mut to);
        }
    }

    /// The products with all weights whose outputs are among the columns of `to`. Adapters add to
    /// them from `low`: (tokens, low width).
    pub fn multiply_parts<'w>(
        &self,
        private: &mut Private,
        weights: &Linear<'w>,
        input: Input<'_>,
        low: &[f32],
        to: &mut PartOutput<'_, 'w>,
    ) {
        let cpu = self.state.cpu;
        let range = to.columns.range();
        for part in &weights.parts {
            let end = part.column + part.matrix.rows();
            let (start, end) = (range.start.max(part.column), range.end.min(end));
            if start < end {
                to.shift = part.column as isize - range.start as isize;
                to.bias = part.bias.filter(|_| !weights.bias_later);
                (to.adds, to.scale) = (false, part.scale);
                let rows = start - part.column..end - part.column;
                multiply(cpu, &part.matrix, rows.clone(), input, &mut private.product, to);
                for addition in &part.additions {
                    (to.adds, to.scale) = (true, addition.scale);
                    let input = private.low.take(cpu, addition, low, input);
                    multiply(cpu, &addition.up, rows.clone(), input, &mut private.product, to);
                }
            }
        }
    }

    /// The logits of some rows, at most [`super::state::LOGIT_ROWS`], into `state.logits`.
    pub fn logits(&self, team: &Threads, wanted: &[usize]) {
        let (state, embedding) = (self.state, self.config.embedding);
        team.step(|worker| {
            let mut private =
                state.private[worker.index()].lock().unwrap_or_else(PoisonError::into_inner);
            let phase = worker.phase(wanted.len());
            let hidden = state.hidden.read(&phase);
            phase.for_each(|claim| {
                let x = &mut private.row[..embedding];
                x.copy_from_slice(&hidden[wanted[claim.task()] * embedding..][..embedding]);
                self.norm(claim, x, self.weights.output_norm);
            });
            drop(phase);
            let (output, tokens) = (&self.weights.output, wanted.len());
            self.product(worker, &mut private, output, tokens, &state.normed, &state.logits);
            if let Some(cap) = self.config.logit_soft_cap {
                worker.phase(wanted.len()).for_each(|claim| {
                    soft_cap(state.cpu, state.logits.write(claim, state.logits.width()), cap);
                });
            }
        });
    }
}

/// A row that so many times the outputs are added to.
struct Scaled<'a> {
    to: &'a mut [f32],
    scale: f32,
}

impl Output for Scaled<'_> {
    fn put(&mut self, _: usize, row: usize, values: &[f32]) {
        self.to[row..].iter_mut().zip(values).for_each(|(to, x)| *to += self.scale * x);
    }
}

/// The columns of one part of a [`Linear`] that one run computes.
pub struct PartOutput<'p, 'b> {
    columns: Columns<'p, f32>,
    /// The row of the buffer that the first token has.
    pub first_row: usize,
    /// From rows of the part to the run's columns.
    shift: isize,
    bias: Option<&'b [f32]>,
    /// Whether what is put is added to what is there.
    adds: bool,
    /// How many times.
    scale: f32,
}

impl<'p> PartOutput<'p, '_> {
    /// For tokens from the first row on.
    pub fn new(columns: Columns<'p, f32>) -> Self {
        PartOutput { columns, first_row: 0, shift: 0, bias: None, adds: false, scale: 1.0 }
    }
}

impl Output for PartOutput<'_, '_> {
    fn put(&mut self, token: usize, row: usize, values: &[f32]) {
        let at = row.wrapping_add_signed(self.shift);
        let out = &mut self.columns.row(self.first_row + token)[at..at + values.len()];
        if self.adds {
            out.iter_mut().zip(values).for_each(|(out, x)| *out += self.scale * x);
            return;
        }
        if self.scale == 1.0 {
            out.copy_from_slice(values);
        } else {
            out.iter_mut().zip(values).for_each(|(out, x)| *out = self.scale * x);
        }
        if let Some(bias) = self.bias {
            for (out, bias) in out.iter_mut().zip(&bias[row..]) {
                *out += bias;
            }
        }
    }
}
