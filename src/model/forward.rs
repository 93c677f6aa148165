//! The forward pass, phase by phase, as every worker runs it.
//!
//! Let `x` be a token's activations between layers, `hidden` in the code. A layer is a list of
//! branches that add to them:
//!
//! ```text
//! x = s E[token]                          the row of the embeddings, scaled
//! x = x + r post_norm(sum mixer(norm(x))) for each branch of each layer, with its mixers
//! logits = cap(c W norm(x))
//! ```
//!
//! BERT adds vectors of the position and the segment's type to `E[token]`, and normalizes sums:
//! `x = norm(E[token] + P[position] + T[type])` and `x = norm(x + r sum mixer(x))`.
//!
//! The phase that computes `x` also computes `norm(x)` of the next branch, which is `normed` in the
//! code. Each mixer computes its `projected` from it.

mod attention;
mod network;

use std::{iter::Peekable, sync::PoisonError};

use rope_cpu_kernels::{
    Cpu,
    activations::{quantize, spans_for},
    multiply,
    vector::{add, soft_cap},
};

pub use self::attention::open;
use super::{
    Config,
    attention::Schedules,
    batch::{Batch, RoleRows},
    experts::OnDisk,
    finite::{Place, are_finite},
    inputs::InputSums,
    observer::Observer,
    probe::Probe,
    products::Scaled,
    state::{Activations, State, WorkerBuffers},
    weights::{Branch, Linear, Mixer, NormWeights, Predictor, Weights},
};
use crate::{
    kv_cache::PageTable,
    rope::Rope,
    threads::{Claim, Threads, Worker},
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
    /// The schedules of the batch's attention.
    pub schedules: &'a Schedules,
    /// The layer that predicts the token after the next one, if it follows the tokens.
    pub predictor: Option<&'a Predictor<'a>>,
    /// The number of workers.
    pub workers: usize,
    /// How experts are read that do not fit in memory.
    pub on_disk: Option<&'a OnDisk>,
    /// Captures queries and keys of some layers.
    pub observer: Option<&'a Observer>,
    /// Measures the attention of some tokens.
    pub probe: Option<&'a Probe>,
    /// Sums up the inputs of all matrices.
    pub inputs: Option<&'a InputSums>,
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
        self.run(team, |mut step| step.layers(0, true));
    }

    /// Computes all layers for all rows, except for the branches of [`Weights::tail`].
    pub fn body(&self, team: &Threads) {
        self.run(team, |mut step| step.layers(self.weights.tail(), true));
    }

    /// Computes what later tokens need of all rows: keys, values and states.
    pub fn store(&self, team: &Threads) {
        self.run(team, |mut step| step.layers(self.weights.storeless(), false));
    }

    /// Computes the branches of [`Weights::tail`] for all rows, from `hidden`.
    pub fn tail(&self, team: &Threads) {
        let rows: Vec<usize> = (0..self.batch.rows.len()).collect();
        let before = self.weights.branches().count() - self.weights.tail();
        self.run(team, |mut step| {
            let mut branches = self.weights.branches().skip(before).peekable();
            step.output(&rows, branches.peek().and_then(|(_, first)| first.norm));
            step.branches(branches, true);
        });
    }

    /// Computes the logits of some rows in ascending order, at most [`super::state::LOGIT_ROWS`], into
    /// `state.logits`.
    pub fn logits(&self, team: &Threads, wanted: &[usize]) {
        let Some(output) = &self.weights.output else { return };
        self.run(team, |mut step| step.logits(wanted, self.weights.output_norm, output));
    }

    /// Computes the output of the last layer of some rows, at most [`super::state::LOGIT_ROWS`],
    /// normalized, into `state.normed`.
    pub fn output(&self, team: &Threads, wanted: &[usize]) {
        self.run(team, |mut step| step.output(wanted, self.weights.output_norm));
    }

    /// Runs `work` on all workers.
    pub fn run(&self, team: &Threads, work: impl Fn(Step<'_, '_>) + Sync) {
        team.step_of(self.workers, |worker| {
            let buffers = self.state.workers[worker.index()].lock();
            let mut buffers = buffers.unwrap_or_else(PoisonError::into_inner);
            work(Step { pass: self, place: Place::Embedding, worker, buffers: &mut buffers });
        });
    }

    /// Normalizes a row, if there is a norm.
    pub fn norm(&self, x: &mut [f32], norm: Option<NormWeights<'_>>) {
        if let Some(norm) = norm {
            norm.apply(self.cpu, x);
        }
    }

    /// Copies a row of `hidden`, which the phase reads, to a buffer.
    pub fn hidden<'b>(
        &self,
        buffers: &'b mut WorkerBuffers,
        hidden: &[f32],
        row: usize,
    ) -> &'b mut [f32] {
        let embedding = self.config.embedding;
        let x = &mut buffers.row[..embedding];
        x.copy_from_slice(&hidden[row * embedding..][..embedding]);
        x
    }

    /// Writes the input of the `next` branch for a row of `hidden`, which `at` computed.
    pub fn put_normed(&self, claim: &mut Claim<'_>, x: &mut [f32], next: &Branch<'_>, at: At) {
        self.norm(x, next.norm);
        self.put(claim, x, &self.state.normed, at);
    }

    /// Writes a row to the inputs of the next phase's products, as floats and quantized.
    pub fn put(&self, claim: &mut Claim<'_>, x: &[f32], to: &Activations, at: At) {
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
    /// Computes the embeddings and all branches except for the last `without`. `hidden` has the output
    /// only if `outputs`.
    fn layers(&mut self, without: usize, outputs: bool) {
        let weights = self.pass.weights;
        let count = weights.branches().count() - without;
        let mut branches = weights.branches().take(count).peekable();
        self.embed(branches.peek().map(|(_, first)| *first));
        self.branches(branches, outputs);
        if let Some(predictor) = self.pass.predictor {
            self.follow(predictor);
        }
    }

    /// Computes branches, each with its layer. `normed` has the input of the first one. Unless
    /// `outputs`, the last one only stores what later tokens need.
    pub fn branches<'b>(
        &mut self,
        mut branches: Peekable<impl Iterator<Item = (usize, &'b Branch<'b>)>>,
        outputs: bool,
    ) {
        while let Some((layer, branch)) = branches.next() {
            let stores = !outputs && branches.peek().is_none();
            for (mixer, out) in branch.mixers.iter().zip(&self.pass.state.projected) {
                self.place = match mixer {
                    Mixer::Attention(_) => Place::Attention { layer },
                    Mixer::ShortConvolution(_) | Mixer::Scan(_) => Place::Recurrence { layer },
                    Mixer::Dense(_) | Mixer::Experts(_) => Place::FeedForward { layer },
                    Mixer::LayerInput(_) => Place::LayerInput { layer },
                };
                match mixer {
                    Mixer::Attention(attention) if stores => self.store(attention),
                    mixer if stores && !mixer.stores() => {}
                    Mixer::Attention(attention) => self.attention(attention, out),
                    Mixer::ShortConvolution(own) => self.short_convolution(own, out),
                    Mixer::Scan(scan) => self.scan(scan, out),
                    Mixer::Dense(network) => self.network(network, out),
                    Mixer::Experts(mixture) => self.experts(layer, mixture, out),
                    Mixer::LayerInput(input) => self.layer_input(input, out),
                }
            }
            if !stores {
                self.add_projected(branch, branches.peek().map(|(_, next)| *next));
            }
        }
    }

    /// Computes `hidden = s E[token]`, where `E` includes the adapters' terms, or in models with
    /// [`Terms`](super::weights::Terms) the norm of it and these; then `normed`, the input of the
    /// `next` branch.
    fn embed(&mut self, next: Option<&Branch<'_>>) {
        let Forward { config, weights, state, cpu, batch, scales, .. } = *self.pass;
        if let Some(phase) = self.worker.phase(batch.rows.len()) {
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
                if config.scales.embedding != 1.0 {
                    x.iter_mut().for_each(|x| *x *= config.scales.embedding);
                }
                if let Some(norm) = weights.embedding_norm {
                    let ones = &mut self.buffers.other[..config.embedding];
                    ones.fill(1.0);
                    norm.apply(cpu, x, ones);
                }
                let index = claim.task();
                let hidden = state.hidden.write(claim, config.embedding);
                if let Some(terms) = &weights.terms {
                    let position = batch.rows[index].position;
                    let segment = terms.separator.map(|token| batch.segment(index, token));
                    for (matrix, row) in terms.rows(position, segment.unwrap_or(0)) {
                        matrix.decode_row(row, hidden);
                        add(cpu, x, hidden);
                    }
                    self.pass.norm(x, Some(terms.norm));
                }
                hidden.copy_from_slice(x);
                let at = At { place: self.place, row: index };
                match next {
                    _ if weights.layer_inputs.is_some() => {
                        self.pass.put(claim, x, &state.normed, at)
                    }
                    Some(next) => self.pass.put_normed(claim, x, next, at),
                    None => {}
                }
            });
        }
        if let Some(inputs) = &weights.layer_inputs {
            self.layer_inputs(inputs, next);
        }
    }

    /// Computes `hidden = norm(hidden + r norm(projected)) s` for the outputs of a branch, added
    /// together, with the norms that the branch has; then `normed`, the input of the `next` branch.
    fn add_projected(&mut self, branch: &Branch<'_>, next: Option<&Branch<'_>>) {
        let Forward { config, state, cpu, batch, .. } = *self.pass;
        let embedding = config.embedding;
        let Some(phase) = self.worker.phase(batch.rows.len()) else { return };
        let projected = &state.projected[..branch.mixers.len()];
        let row = |mixer: usize, row: usize| {
            let all = projected[mixer].read(&phase);
            &all[row * projected[mixer].width()..][..embedding]
        };
        phase.for_each(|claim| {
            let WorkerBuffers { row: x, other, .. } = &mut *self.buffers;
            let x = &mut x[..embedding];
            x.copy_from_slice(row(0, claim.task()));
            self.pass.norm(x, branch.mixer_norms.first().copied());
            for mixer in 1..projected.len() {
                match branch.mixer_norms.get(mixer).copied() {
                    None => add(cpu, x, row(mixer, claim.task())),
                    Some(norm) => {
                        other.copy_from_slice(row(mixer, claim.task()));
                        self.pass.norm(other, Some(norm));
                        add(cpu, x, other);
                    }
                }
            }
            self.pass.norm(x, branch.post_norm);
            if config.scales.residual != 1.0 {
                x.iter_mut().for_each(|x| *x *= config.scales.residual);
            }
            let hidden = state.hidden.write(claim, embedding);
            add(cpu, hidden, x);
            self.pass.norm(hidden, branch.sum_norm);
            if branch.output_scale != 1.0 {
                hidden.iter_mut().for_each(|x| *x *= branch.output_scale);
            }
            x.copy_from_slice(hidden);
            let at = At { place: self.place, row: claim.task() };
            match next {
                Some(next) => self.pass.put_normed(claim, x, next, at),
                None => self.pass.check(x, at),
            }
        });
    }

    /// Computes `normed = norm(hidden)` for the rows in `wanted`.
    fn output(&mut self, wanted: &[usize], norm: Option<NormWeights<'_>>) {
        let Forward { state, .. } = *self.pass;
        let Some(phase) = self.worker.phase(wanted.len()) else { return };
        let hidden = state.hidden.read(&phase);
        phase.for_each(|claim| {
            let at = At { place: Place::Output, row: wanted[claim.task()] };
            let x = self.pass.hidden(self.buffers, hidden, at.row);
            self.pass.norm(x, norm);
            self.pass.put(claim, x, &state.normed, at);
        });
    }

    /// Computes `logits = cap(c W norm(hidden))` for the rows in `wanted`.
    pub fn logits(&mut self, wanted: &[usize], norm: Option<NormWeights<'_>>, output: &Linear<'_>) {
        let Forward { config, state, cpu, batch, .. } = *self.pass;
        self.output(wanted, norm);
        let answers = wanted.partition_point(|&row| row < batch.roles.answers);
        let rows = RoleRows { answers, prompts: wanted.len() - answers };
        self.product(output, rows, &state.normed, &state.logits);
        let (scale, cap) = (config.scales.logits, config.scales.logit_cap);
        if (scale != 1.0 || cap.is_some())
            && let Some(phase) = self.worker.phase(wanted.len())
        {
            phase.for_each(|claim| {
                let logits = state.logits.write(claim, state.logits.width());
                let logits = &mut logits[..output.width];
                if scale != 1.0 {
                    logits.iter_mut().for_each(|x| *x *= scale);
                }
                // The caller finds logits that are not finite. A cap would turn them into ordinary ones.
                if let Some(cap) = cap.filter(|_| are_finite(logits)) {
                    soft_cap(cpu, logits, cap);
                }
            });
        }
    }
}
