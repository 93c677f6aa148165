//! The forward pass: the work of one step, phase by phase, as every worker runs it.

use std::sync::PoisonError;

use rope_cpu_kernels::{
    Input, Output,
    activations::{quantize, spans_for},
    multiply,
    vector::{add, gate, rms_norm, soft_cap},
};

use super::{
    Config,
    attention::Schedule,
    batch::{Batch, Role, RoleRows},
    heads::Heads,
    state::{Activations, State, WorkerBuffers},
    weights::{FeedForward, Gated, Layer, Linear, Weights},
};
use crate::{
    kv_cache::{BLOCKS, PageTable},
    rope::Rope,
    threads::{Claim, Columns, Phased, Threads, Worker},
};

/// The inputs and buffers of one forward pass: a model, a batch of tokens, and their cache.
pub struct Forward<'a> {
    pub config: &'a Config,
    pub weights: &'a Weights<'a>,
    pub state: &'a State,
    /// The keys and values of each sequence of the batch.
    pub tables: &'a [&'a PageTable],
    pub rope: &'a Rope,
    pub batch: &'a Batch,
}

impl Forward<'_> {
    /// Computes all layers for all rows. Stores keys and values in the KV cache, and the output of
    /// the last layer in `hidden`.
    pub fn layers(&self, team: &Threads, schedules: &[Schedule<'_>; 2]) {
        team.step(|worker| {
            let mut buffers =
                self.state.workers[worker.index()].lock().unwrap_or_else(PoisonError::into_inner);
            self.embed(worker, &mut buffers);
            for (index, layer) in self.weights.layers.iter().enumerate() {
                self.attention(worker, &mut buffers, schedules, index, layer);
                self.feed_forward(worker, &mut buffers, index, layer);
            }
        });
    }

    fn embed(&self, worker: &mut Worker<'_>, buffers: &mut WorkerBuffers) {
        let embedding = self.config.embedding;
        worker.phase(self.batch.rows.len()).for_each(|claim| {
            let row = self.batch.rows[claim.task()];
            let x = &mut buffers.row[..embedding];
            let token = row.token as usize;
            self.weights.tokens.decode_row(token, x);
            for addition in &self.weights.token_additions {
                let input = buffers.low_rank.look_up(self.state.cpu, addition, token);
                let mut to = Scaled { to: x, scale: addition.scale };
                let all = 0..embedding;
                multiply(self.state.cpu, &addition.up, all, input, &mut buffers.product, &mut to);
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
        buffers: &mut WorkerBuffers,
        schedules: &[Schedule<'_>; 2],
        index: usize,
        layer: &Layer<'_>,
    ) {
        let (state, cpu) = (self.state, self.state.cpu);
        let Forward { config, rope, batch, .. } = *self;
        let attention = &config.layers[index].attention;
        let heads = Heads { cpu, config, layer, index, rope };

        let (normed, query_key_value) = (&state.normed, &state.query_key_value);
        self.product(worker, buffers, &layer.query_key_value, batch.roles, normed, query_key_value);

        let phase = worker.phase(attention.kv_heads * BLOCKS);
        let query_key_value = state.query_key_value.read(&phase);
        phase.for_each(|claim| {
            heads.store(self.tables, claim, &batch.rows, query_key_value, &mut buffers.head)
        });
        drop(phase);

        for (role, rows) in batch.roles.ranges() {
            let schedule = &schedules[role as usize];
            if rows.is_empty() {
                continue;
            }
            let phase = worker.phase(schedule.tasks());
            let query_key_value = state.query_key_value.read(&phase);
            let query_key_value = &query_key_value[rows.start * layer.query_key_value.width..];
            phase.for_each(|claim| {
                let task = claim.task();
                let partials = state.partials[role as usize].write(claim, schedule.unit());
                heads.attend(
                    schedule,
                    self.tables,
                    &phase,
                    task,
                    &batch.rows[rows.clone()],
                    query_key_value,
                    buffers,
                    partials,
                );
            });
        }

        let width = attention.query_width();
        let phase = worker.phase(batch.rows.len());
        let partials = state.partials.each_ref().map(|partials| partials.read(&phase));
        phase.for_each(|claim| {
            let out = &mut buffers.row[..width];
            let row = claim.task();
            let (role, row) = match row.checked_sub(batch.roles.answers) {
                None => (Role::Answer, row),
                Some(row) => (Role::Prompt, row),
            };
            let schedule = &schedules[role as usize];
            schedule.gather(cpu, partials[role as usize], row, attention.head_dim, out);
            self.put(claim, out, &state.attended);
        });
        drop(phase);

        let (attended, projected) = (&state.attended, &state.projected);
        self.product(worker, buffers, &layer.attention_output, batch.roles, attended, projected);
        let next = Some(layer.feed_forward_norm);
        self.add_projected(worker, buffers, layer.post_attention_norm, next);
    }

    fn feed_forward(
        &self,
        worker: &mut Worker<'_>,
        buffers: &mut WorkerBuffers,
        index: usize,
        layer: &Layer<'_>,
    ) {
        match &layer.feed_forward {
            FeedForward::Dense(network) => self.gated(worker, buffers, network),
            FeedForward::Experts(mixture) => self.experts(worker, buffers, mixture),
        }
        let next = self.weights.layers.get(index + 1).map(|next| next.attention_norm);
        self.add_projected(worker, buffers, layer.post_feed_forward_norm, next);
    }

    /// Computes `projected = network(normed)`.
    fn gated(&self, worker: &mut Worker<'_>, buffers: &mut WorkerBuffers, network: &Gated<'_>) {
        let (state, rows) = (self.state, self.batch.roles);
        self.product(worker, buffers, &network.gate_up, rows, &state.normed, &state.gate_up);
        self.activate(worker, buffers, network, rows.total(), &state.gate_up, &state.gated);
        self.product(worker, buffers, &network.down, rows, &state.gated, &state.projected);
    }

    /// Computes `gated = activation(gate) * up` for rows of `gate_up`, the output of the network's
    /// first product.
    pub fn activate(
        &self,
        worker: &mut Worker<'_>,
        buffers: &mut WorkerBuffers,
        network: &Gated<'_>,
        rows: usize,
        gate_up: &Phased<f32>,
        gated: &Activations,
    ) {
        let ([gates, ups], width) = (network.gate_up.columns(), gate_up.width());
        let (state, feed_forward) = (self.state, network.down.segments[0].matrix.columns());
        let phase = worker.phase(rows);
        let gate_up = gate_up.read(&phase);
        phase.for_each(|claim| {
            let x = &gate_up[claim.task() * width..][..width];
            let out = &mut buffers.row[..feed_forward];
            out.copy_from_slice(&x[gates..][..feed_forward]);
            gate(state.cpu, self.config.architecture.activation, out, &x[ups..][..feed_forward]);
            self.put(claim, out, gated);
        });
    }

    /// Computes `hidden += projected`, with `projected` normalized before by `norm` if it is set;
    /// then `normed = norm(hidden)` by the weights of the `next` norm, if there is one.
    fn add_projected(
        &self,
        worker: &mut Worker<'_>,
        buffers: &mut WorkerBuffers,
        norm: Option<&[f32]>,
        next: Option<&[f32]>,
    ) {
        let (state, embedding) = (self.state, self.config.embedding);
        let phase = worker.phase(self.batch.rows.len());
        let projected = state.projected.read(&phase);
        phase.for_each(|claim| {
            let x = &mut buffers.row[..embedding];
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

    /// Normalizes a row of `hidden` and writes it to `normed`.
    fn norm(&self, claim: &mut Claim<'_>, x: &mut [f32], weight: &[f32]) {
        rms_norm(self.state.cpu, x, weight, self.config.epsilon);
        self.put(claim, x, &self.state.normed);
    }

    /// Writes a row to the inputs of the next phase's products, as floats and quantized.
    pub fn put(&self, claim: &mut Claim<'_>, x: &[f32], to: &Activations) {
        to.floats.write(claim, x.len()).copy_from_slice(x);
        quantize(self.state.cpu, x, to.spans.write(claim, spans_for(x.len())));
    }

    /// Computes `out = weights x` for the first rows of `x`. The weights of a task are read from
    /// memory once, and then for the second role from the CPU cache.
    pub fn product(
        &self,
        worker: &mut Worker<'_>,
        buffers: &mut WorkerBuffers,
        weights: &Linear<'_>,
        rows: RoleRows,
        x: &Activations,
        out: &Phased<f32>,
    ) {
        if let Some(down) = &weights.adapter_down {
            self.product(worker, buffers, down, rows, x, &self.state.low_rank);
        }
        let unit = Linear::unit(rows.total());
        let phase = worker.phase(weights.width.div_ceil(unit));
        let (floats, spans) = (x.floats.read(&phase), x.spans.read(&phase));
        let all_low_rank = &self.state.low_rank;
        let low_rank = weights.adapter_down.as_ref().map_or(&[][..], |_| all_low_rank.read(&phase));
        while let Some(mut claim) = phase.claim() {
            let mut to = SegmentOutput::new(out.columns(&mut claim, unit));
            for (role, rows) in rows.ranges() {
                if rows.is_empty() {
                    continue;
                }
                let input = Input {
                    regime: role.regime(),
                    tokens: rows.len(),
                    floats: &floats[rows.start * x.floats.width()..],
                    spans: &spans[rows.start * x.spans.width()..],
                };
                let low_rank = low_rank.get(rows.start * all_low_rank.width()..);
                to.first_row = rows.start;
                self.multiply_segments(buffers, weights, input, low_rank.unwrap_or(&[]), &mut to);
            }
        }
    }

    /// Computes the products with all weights whose outputs are among the columns of `to`, and adds
    /// the terms of adapters, whose inputs are `low_rank`: (tokens, low-rank width).
    pub fn multiply_segments<'w>(
        &self,
        buffers: &mut WorkerBuffers,
        weights: &Linear<'w>,
        input: Input<'_>,
        low_rank: &[f32],
        to: &mut SegmentOutput<'_, 'w>,
    ) {
        let cpu = self.state.cpu;
        let range = to.columns.range();
        for segment in &weights.segments {
            let end = segment.column + segment.matrix.rows();
            let (start, end) = (range.start.max(segment.column), range.end.min(end));
            if start < end {
                to.shift = segment.column as isize - range.start as isize;
                to.bias = segment.bias.filter(|_| !weights.bias_later);
                (to.adds, to.scale) = (false, segment.scale);
                let rows = start - segment.column..end - segment.column;
                multiply(cpu, &segment.matrix, rows.clone(), input, &mut buffers.product, to);
                for addition in &segment.additions {
                    (to.adds, to.scale) = (true, addition.scale);
                    let input = buffers.low_rank.read(cpu, addition, low_rank, input);
                    multiply(cpu, &addition.up, rows.clone(), input, &mut buffers.product, to);
                }
            }
        }
    }

    /// Computes the logits of some rows in ascending order, at most [`super::state::LOGIT_ROWS`], into
    /// `state.logits`.
    pub fn logits(&self, team: &Threads, wanted: &[usize]) {
        let answers = wanted.partition_point(|&row| row < self.batch.roles.answers);
        let rows = RoleRows { answers, prompts: wanted.len() - answers };
        let (state, embedding) = (self.state, self.config.embedding);
        team.step(|worker| {
            let mut buffers =
                state.workers[worker.index()].lock().unwrap_or_else(PoisonError::into_inner);
            let phase = worker.phase(wanted.len());
            let hidden = state.hidden.read(&phase);
            phase.for_each(|claim| {
                let x = &mut buffers.row[..embedding];
                x.copy_from_slice(&hidden[wanted[claim.task()] * embedding..][..embedding]);
                self.norm(claim, x, self.weights.output_norm);
            });
            drop(phase);
            let output = &self.weights.output;
            self.product(worker, &mut buffers, output, rows, &state.normed, &state.logits);
            if let Some(cap) = self.config.logit_soft_cap {
                worker.phase(wanted.len()).for_each(|claim| {
                    soft_cap(state.cpu, state.logits.write(claim, state.logits.width()), cap);
                });
            }
        });
    }
}

/// An output that adds the products, multiplied by `scale`, to a row.
struct Scaled<'a> {
    to: &'a mut [f32],
    scale: f32,
}

impl Output for Scaled<'_> {
    fn put(&mut self, _: usize, row: usize, values: &[f32]) {
        self.to[row..].iter_mut().zip(values).for_each(|(to, x)| *to += self.scale * x);
    }
}

/// An output that writes to the columns of the tasks of one claim. The settings besides the columns
/// are those of the current segment of a [`Linear`].
pub struct SegmentOutput<'p, 'b> {
    columns: Columns<'p, f32>,
    /// The row of the buffer that belongs to the first token.
    pub first_row: usize,
    /// The difference from rows of the segment to columns of the claim.
    shift: isize,
    bias: Option<&'b [f32]>,
    /// Whether products are added to the columns instead of replacing them.
    adds: bool,
    /// The factor of the products.
    scale: f32,
}

impl<'p> SegmentOutput<'p, '_> {
    /// Creates an output whose first token has row 0.
    pub fn new(columns: Columns<'p, f32>) -> Self {
        SegmentOutput { columns, first_row: 0, shift: 0, bias: None, adds: false, scale: 1.0 }
    }
}

impl Output for SegmentOutput<'_, '_> {
    fn put(&mut self, token: usize, row: usize, values: &[f32]) {
        let column = row.wrapping_add_signed(self.shift);
        let out = &mut self.columns.row(self.first_row + token)[column..column + values.len()];
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
