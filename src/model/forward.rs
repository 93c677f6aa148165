//! The forward pass, phase by phase, as every worker runs it.
//!
//! Let `x` be a token's activations between layers, `hidden` in the code. A layer is a list of
//! branches, each of which adds to them:
//!
//! ```text
//! x = s E[token]                        the row of the embeddings, scaled
//! x = x + post_norm(mixer(norm(x)))     for each branch of each layer
//! logits = cap(W norm(x))
//! ```
//!
//! The phase that computes `x` computes the next branch's `norm(x)` as well, which is `normed` in the
//! code, and each mixer computes `projected` from it.

use std::sync::PoisonError;

use rope_cpu_kernels::{
    Cpu,
    activations::{quantize, spans_for},
    multiply,
    vector::{add, gate, rms_norm, soft_cap},
};

use super::{
    Config,
    attention::Schedule,
    batch::{Batch, Role, RoleRows},
    finite::Place,
    heads::Heads,
    products::Scaled,
    state::{Activations, State, WorkerBuffers},
    weights::{Attention, Gated, Mixer, Weights},
};
use crate::{
    kv_cache::{BLOCKS, PageTable},
    rope::Rope,
    threads::{Claim, Phased, Threads, Worker},
};

/// The inputs and buffers of one forward pass: a model, a batch of tokens, and their cache.
pub struct Forward<'a> {
    pub config: &'a Config,
    pub weights: &'a Weights<'a>,
    pub state: &'a State,
    /// The keys and values of each sequence of the batch.
    pub tables: &'a [&'a PageTable],
    pub rope: &'a Rope,
    pub cpu: Cpu,
    pub batch: &'a Batch,
    /// The scale of each adapter.
    pub scales: &'a [f32],
    /// The schedule of each role.
    pub schedules: &'a [Schedule<'a>; 2],
}

/// The place and the row of the batch that values belong to.
#[derive(Clone, Copy)]
pub struct At {
    pub place: Place,
    pub row: usize,
}

/// One worker's part of a forward pass.
pub struct Step<'s, 'w> {
    pub pass: &'s Forward<'s>,
    /// The place that is computed.
    pub place: Place,
    pub worker: &'s mut Worker<'w>,
    pub buffers: &'s mut WorkerBuffers,
}

impl Forward<'_> {
    /// Computes all layers for all rows. Stores keys and values in the KV cache, and the output of
    /// the last layer in `hidden`.
    pub fn layers(&self, team: &Threads) {
        self.run(team, |mut step| step.layers());
    }

    /// Computes the logits of some rows in ascending order, at most [`super::state::LOGIT_ROWS`], into
    /// `state.logits`.
    pub fn logits(&self, team: &Threads, wanted: &[usize]) {
        self.run(team, |mut step| step.logits(wanted));
    }

    /// Computes the output of the last layer of some rows, at most [`super::state::LOGIT_ROWS`],
    /// normalized, into `state.normed`.
    pub fn output(&self, team: &Threads, wanted: &[usize]) {
        self.run(team, |mut step| step.output(wanted));
    }

    fn run(&self, team: &Threads, work: impl Fn(Step<'_, '_>) + Sync) {
        team.step(|worker| {
            let buffers = self.state.workers[worker.index()].lock();
            let mut buffers = buffers.unwrap_or_else(PoisonError::into_inner);
            work(Step { pass: self, place: Place::Embedding, worker, buffers: &mut buffers });
        });
    }

    /// Normalizes a row of `hidden`, which `at` computed, and writes it to `normed`.
    fn norm(&self, claim: &mut Claim<'_>, x: &mut [f32], weight: &[f32], at: At) {
        rms_norm(self.cpu, x, weight, self.config.epsilon);
        self.put(claim, x, &self.state.normed, at);
    }

    /// Writes a row to the inputs of the next phase's products, as floats and quantized.
    fn put(&self, claim: &mut Claim<'_>, x: &[f32], to: &Activations, at: At) {
        self.check(x, at);
        to.floats.write(claim, x.len()).copy_from_slice(x);
        quantize(self.cpu, x, to.spans.write(claim, spans_for(x.len())));
    }

    /// Checks that values which belong to a row are finite, before they are rounded.
    pub fn check(&self, values: &[f32], At { place, row }: At) {
        self.state.fault.check(values, place, row);
    }
}

impl Step<'_, '_> {
    fn layers(&mut self) {
        let layers = self.pass.weights.layers.iter().enumerate();
        let branches = layers.flat_map(|(layer, all)| all.iter().map(move |one| (layer, one)));
        let mut branches = branches.peekable();
        self.embed(branches.peek().map(|(_, first)| first.norm));
        while let Some((layer, branch)) = branches.next() {
            self.place = match &branch.mixer {
                Mixer::Attention(_) => Place::Attention { layer },
                Mixer::Dense(_) | Mixer::Experts(_) => Place::FeedForward { layer },
            };
            match &branch.mixer {
                Mixer::Attention(attention) => self.attention(attention),
                Mixer::Dense(network) => self.gated(network),
                Mixer::Experts(mixture) => self.experts(mixture),
            }
            self.add_projected(branch.post_norm, branches.peek().map(|(_, next)| next.norm));
        }
    }

    /// Computes `hidden = s E[token]`, where `E` includes the adapters' terms; then `normed =
    /// norm(hidden)` by the weights of the `next` norm.
    fn embed(&mut self, next: Option<&[f32]>) {
        let Forward { config, weights, state, cpu, batch, scales, .. } = *self.pass;
        let phase = self.worker.phase(batch.rows.len());
        phase.for_each(|claim| {
            let x = &mut self.buffers.row[..config.embedding];
            let token = batch.rows[claim.task()].token as usize;
            weights.tokens.decode_row(token, x);
            for addition in &weights.token_additions {
                let scale = addition.factor.at(scales);
                if scale == 0.0 {
                    continue;
                }
                let input = self.buffers.low_rank.look_up(cpu, addition, token);
                let mut to = Scaled { to: x, scale };
                let (all, scratch) = (0..config.embedding, &mut self.buffers.product);
                multiply(cpu, &addition.up, all, input, scratch, &mut to);
            }
            if config.embedding_scale != 1.0 {
                x.iter_mut().for_each(|x| *x *= config.embedding_scale);
            }
            state.hidden.write(claim, config.embedding).copy_from_slice(x);
            if let Some(next) = next {
                let at = At { place: self.place, row: claim.task() };
                self.pass.norm(claim, x, next, at);
            }
        });
    }

    /// Computes `projected = W_o softmax(q K / sqrt(d)) V` for `[q, k, v] = W_qkv normed`, head by
    /// head, with `q` and `K` rotated by their positions. `k` and `v` are added to `K` and `V`, the
    /// keys and values in the KV cache.
    fn attention(&mut self, attention: &Attention<'_>) {
        let Forward { state, cpu, batch, schedules, .. } = *self.pass;
        let config = &attention.config;
        let heads = Heads { pass: self.pass, attention };
        self.product(
            &attention.query_key_value,
            batch.roles,
            &state.normed,
            &state.query_key_value,
        );

        let phase = self.worker.phase(config.kv_heads * BLOCKS);
        let query_key_value = state.query_key_value.read(&phase);
        phase.for_each(|claim| heads.store(claim, query_key_value, &mut self.buffers.head));
        drop(phase);

        for (role, _) in batch.roles.ranges() {
            let schedule = &schedules[role as usize];
            let phase = self.worker.phase(schedule.tasks());
            let query_key_value = state.query_key_value.read(&phase);
            phase.for_each(|claim| {
                let task = claim.task();
                let partials = state.partials[role as usize].write(claim, schedule.unit());
                heads.attend(role, &phase, task, query_key_value, self.buffers, partials);
            });
        }

        let phase = self.worker.phase(batch.rows.len());
        let partials = state.partials.each_ref().map(|partials| partials.read(&phase));
        let query_key_value = state.query_key_value.read(&phase);
        phase.for_each(|claim| {
            let out = &mut self.buffers.row[..config.query_width()];
            let row = claim.task();
            let at = At { place: self.place, row };
            // The softmax may turn scores that are not finite into ordinary numbers.
            let inputs = &query_key_value[row * state.query_key_value.width()..];
            self.pass.check(&inputs[..attention.query_key_value.width], at);
            let (role, row) = match row.checked_sub(batch.roles.answers) {
                None => (Role::Answer, row),
                Some(row) => (Role::Prompt, row),
            };
            let schedule = &schedules[role as usize];
            schedule.gather(cpu, partials[role as usize], row, config.head_dim, out);
            self.pass.put(claim, out, &state.attended, at);
        });
        drop(phase);

        self.product(&attention.output, batch.roles, &state.attended, &state.projected);
    }

    /// Computes `projected = W_down (activation(W_gate x) * W_up x)` for `x = normed`.
    fn gated(&mut self, network: &Gated<'_>) {
        let (state, rows) = (self.pass.state, self.pass.batch.roles);
        self.product(&network.gate_up, rows, &state.normed, &state.gate_up);
        self.activate(network, rows.total(), &state.gate_up, &state.gated, |_, row| row);
        self.product(&network.down, rows, &state.gated, &state.projected);
    }

    /// Computes `gated = activation(gate) * up` for rows of `gate_up`, the output of the network's
    /// first product. `batch_row` returns the row of the batch that one of these belongs to.
    pub fn activate(
        &mut self,
        network: &Gated<'_>,
        rows: usize,
        gate_up: &Phased<f32>,
        gated: &Activations,
        batch_row: impl Fn(&WorkerBuffers, usize) -> usize,
    ) {
        let (pass, feed_forward) = (self.pass, network.feed_forward);
        let ([gates, ups], width) = (network.gate_up.columns(), gate_up.width());
        let phase = self.worker.phase(rows);
        let gate_up = gate_up.read(&phase);
        phase.for_each(|claim| {
            let at = At { place: self.place, row: batch_row(self.buffers, claim.task()) };
            let x = &gate_up[claim.task() * width..][..width];
            let out = &mut self.buffers.row[..feed_forward];
            out.copy_from_slice(&x[gates..][..feed_forward]);
            let activation = pass.config.architecture.activation;
            gate(pass.cpu, activation, out, &x[ups..][..feed_forward]);
            pass.put(claim, out, gated, at);
        });
    }

    /// Computes `hidden += norm(projected)`, or without `norm` if a branch has none; then `normed =
    /// norm(hidden)` by the weights of the `next` norm, if there is one.
    fn add_projected(&mut self, norm: Option<&[f32]>, next: Option<&[f32]>) {
        let Forward { config, state, cpu, batch, .. } = *self.pass;
        let embedding = config.embedding;
        let phase = self.worker.phase(batch.rows.len());
        let projected = state.projected.read(&phase);
        phase.for_each(|claim| {
            let x = &mut self.buffers.row[..embedding];
            x.copy_from_slice(&projected[claim.task() * state.projected.width()..][..embedding]);
            if let Some(norm) = norm {
                rms_norm(cpu, x, norm, config.epsilon);
            }
            let hidden = state.hidden.write(claim, embedding);
            add(cpu, hidden, x);
            x.copy_from_slice(hidden);
            let at = At { place: self.place, row: claim.task() };
            match next {
                Some(next) => self.pass.norm(claim, x, next, at),
                None => self.pass.check(x, at),
            }
        });
    }

    /// Computes `normed = norm(hidden)` for the rows in `wanted`.
    fn output(&mut self, wanted: &[usize]) {
        let Forward { config, weights, state, .. } = *self.pass;
        let embedding = config.embedding;
        let phase = self.worker.phase(wanted.len());
        let hidden = state.hidden.read(&phase);
        phase.for_each(|claim| {
            let x = &mut self.buffers.row[..embedding];
            let at = At { place: Place::Output, row: wanted[claim.task()] };
            x.copy_from_slice(&hidden[at.row * embedding..][..embedding]);
            self.pass.norm(claim, x, weights.output_norm, at);
        });
    }

    /// Computes `logits = cap(W norm(hidden))` for the rows in `wanted`.
    fn logits(&mut self, wanted: &[usize]) {
        let Forward { config, weights, state, cpu, batch, .. } = *self.pass;
        self.output(wanted);
        let answers = wanted.partition_point(|&row| row < batch.roles.answers);
        let rows = RoleRows { answers, prompts: wanted.len() - answers };
        self.product(&weights.output, rows, &state.normed, &state.logits);
        if let Some(cap) = config.logit_soft_cap {
            self.worker.phase(wanted.len()).for_each(|claim| {
                soft_cap(cpu, state.logits.write(claim, state.logits.width()), cap);
            });
        }
    }
}
