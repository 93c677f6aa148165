//! Recurrent layers: short convolutions, and scans by the gated delta rule or the rule of Mamba 2.
//!
//! A recurrent state summarizes all earlier tokens, and each token updates it. The tokens of a sequence
//! are therefore computed in order, and tasks divide the channels instead. Each task advances its
//! channels of every sequence in the batch through the whole step, and saves them at each snapshot.
//! So the bits of a token do not depend on the step that computes it.

use std::ops::Range;

use rope_cpu_kernels::{
    isa::LANES,
    recurrence::{Rule, ScanTokens, convolve, scan},
    vector::{Activation, Ungated, activate, add, normalize, rms_norm},
};

use super::{
    config::{self, softplus},
    forward::{At, Forward, Step, open},
    state::{RecurrentState, WorkerBuffers},
    weights::{Scan, ScanInput, ShortConvolution},
};
use crate::threads::{Claim, Phase, Phased};

/// The tokens that a task computes before it writes their results.
const TOKENS: usize = 32;

/// Values of [`LANES`] channels of some tokens.
type Block = [[f32; LANES]; TOKENS];

/// A buffer of the states of all sequences.
#[derive(Clone, Copy)]
struct Place {
    layer: usize,
    /// The buffer of the layer: of the convolution, or of the scan.
    part: usize,
    /// The floats of a task.
    unit: usize,
}

impl Step<'_, '_> {
    /// Computes `out = W_o (c * conv(b * x))` for `[b, c, x] = W_i normed`.
    pub fn short_convolution(&mut self, own: &ShortConvolution<'_>, out: &Phased<f32>) {
        let Forward { state, batch, .. } = *self.pass;
        let Some(buffers) = &state.recurrent else { return };
        self.product(&own.input, batch.roles, &state.normed, &buffers.input);
        let [gates, out_gates, inputs] = own.input.columns();
        let product = |row: &[f32], channel: usize, to: &mut [f32]| {
            let both = row[gates + channel..].iter().zip(&row[inputs + channel..]);
            to.iter_mut().zip(both).for_each(|(to, (gate, x))| *to = gate * x);
        };
        self.convolve(own.config, own.layer, own.convolution, buffers, product);

        let channels = own.config.channels;
        if let Some(phase) = self.worker.phase(batch.rows.len()) {
            let (all, mixed) = (buffers.input.read(&phase), buffers.mixed.read(&phase));
            phase.for_each(|claim| {
                let at = At { place: self.place, row: claim.task() };
                let row = &all[at.row * buffers.input.width()..][..own.input.width];
                self.pass.check(row, at);
                let out = &mut self.buffers.row[..channels];
                let mixed = &mixed[at.row * buffers.mixed.width()..][..channels];
                let gates = &row[out_gates..][..channels];
                for ((out, mixed), gate) in out.iter_mut().zip(mixed).zip(gates) {
                    *out = gate * mixed;
                }
                self.pass.put(claim, out, &state.attended, at);
            });
        }
        self.product(&own.output, batch.roles, &state.attended, out);
    }

    /// Computes the outputs `o` of a scan, and `out = W_o (rms_norm(o) * silu(z))` for the delta rule,
    /// `out = W_o rms_norm((o + D v) * silu(z))` for Mamba 2. Queries, keys and values `v` are convolved
    /// and activated, and the decay is `e^(A softplus(a + bias))`, for the projections `z` and `a` of
    /// `normed`.
    pub fn scan(&mut self, own: &Scan<'_>, out: &Phased<f32>) {
        let Forward { state, batch, .. } = *self.pass;
        let Some(buffers) = &state.recurrent else { return };
        self.product(&own.input, batch.roles, &state.normed, &buffers.input);
        let first = own.column(ScanInput::Convolved);
        let input = |row: &[f32], channel: usize, to: &mut [f32]| {
            to.copy_from_slice(&row[first + channel..][..to.len()]);
        };
        self.convolve(own.config.convolution(), own.layer, own.convolution, buffers, input);
        self.prepare_scan(own, buffers);
        self.scan_tokens(own.config, own.layer, buffers);
        self.finish_scan(own, buffers);
        self.product(&own.output, batch.roles, &state.attended, out);
    }

    /// Activates the channels of `mixed`, and computes decays and rates. The delta rule has queries and
    /// keys of length 1.
    fn prepare_scan(&mut self, own: &Scan<'_>, buffers: &RecurrentState) {
        let Forward { cpu, batch, config, .. } = *self.pass;
        let (scan, dim) = (own.config, own.config.key_dim);
        let Some(phase) = self.worker.phase(batch.rows.len()) else { return };
        let all = buffers.input.read(&phase);
        phase.for_each(|claim| {
            let at = At { place: self.place, row: claim.task() };
            let row = &all[at.row * buffers.input.width()..][..own.input.width];
            self.pass.check(row, at);
            let mixed = buffers.mixed.write(claim, buffers.mixed.width());
            let channels = &mut mixed[..scan.convolution().channels];
            if let Some(bias) = own.convolution_bias {
                add(cpu, channels, bias);
            }
            activate(cpu, Ungated::Silu, channels);
            if scan.rule == Rule::Delta {
                let (queries, keys) = channels.split_at_mut(scan.key_width());
                for head in queries.chunks_exact_mut(dim) {
                    normalize(cpu, head, 1.0 / (dim as f32).sqrt(), config.epsilon);
                }
                for head in keys[..scan.key_width()].chunks_exact_mut(dim) {
                    normalize(cpu, head, 1.0, config.epsilon);
                }
            }
            let to = mixed[scan.decays()..][..2 * scan.value_heads].split_at_mut(scan.value_heads);
            for (head, (decay, rate)) in to.0.iter_mut().zip(to.1).enumerate() {
                let [to_step, to_rate] = own.step_and_rate(head);
                let step = softplus(row[to_step] + own.decay_bias[head]);
                *decay = (own.decay[head] * step).exp();
                *rate = match scan.rule {
                    Rule::Delta => 1.0 / (1.0 + (-row[to_rate]).exp()),
                    Rule::Mamba2 => step,
                };
            }
        });
    }

    /// Normalizes the outputs of a scan, and multiplies them by their gates.
    fn finish_scan(&mut self, own: &Scan<'_>, buffers: &RecurrentState) {
        let Forward { state, cpu, batch, config, .. } = *self.pass;
        let (values, dim) = (own.config.value_width(), own.config.value_dim);
        let [_, _, first] = own.config.channels();
        let gates = own.column(ScanInput::Gate);
        let Some(phase) = self.worker.phase(batch.rows.len()) else { return };
        let [all, mixed, outputs] = [&buffers.input, &buffers.mixed, &buffers.output]
            .map(|buffer| (buffer.read(&phase), buffer.width()));
        phase.for_each(|claim| {
            let at = At { place: self.place, row: claim.task() };
            let gates = &all.0[at.row * all.1 + gates..][..values];
            let inputs = &mixed.0[at.row * mixed.1 + first..][..values];
            let WorkerBuffers { row: out, head: buffer, .. } = &mut *self.buffers;
            let out = &mut out[..values];
            out.copy_from_slice(&outputs.0[at.row * outputs.1..][..values]);
            let normalize = |out: &mut [f32]| {
                let weights = own.norm.unwrap_or_default().chunks_exact(own.norm_len);
                for (part, weights) in out.chunks_exact_mut(own.norm_len).zip(weights.cycle()) {
                    rms_norm(cpu, part, weights, config.epsilon);
                }
            };
            if own.config.rule == Rule::Delta {
                normalize(out);
            }
            let heads = out.chunks_exact_mut(dim).zip(inputs.chunks_exact(dim)).enumerate();
            for ((head, (out, inputs)), gates) in heads.zip(gates.chunks_exact(dim)) {
                if let Some(skip) = own.skip {
                    out.iter_mut().zip(inputs).for_each(|(out, x)| *out += skip[head] * x);
                }
                open(cpu, Activation::Silu, out, gates, buffer);
            }
            if own.config.rule == Rule::Mamba2 {
                normalize(out);
            }
            self.pass.put(claim, out, &state.attended, at);
        });
    }

    /// Computes the convolution of `input(row, channel, to)`, the inputs of the channels from one on,
    /// into `mixed`.
    fn convolve(
        &mut self,
        own: config::Convolution,
        layer: usize,
        weights: &[f32],
        buffers: &RecurrentState,
        input: impl Fn(&[f32], usize, &mut [f32]),
    ) {
        let Forward { cpu, .. } = *self.pass;
        let place = Place { layer, part: 0, unit: own.unit() };
        let Some(phase) = self.worker.phase(own.tasks()) else { return };
        let all = buffers.input.read(&phase);
        let width = buffers.input.width();
        phase.for_each(|claim| {
            let channel = claim.task() * LANES;
            let channels = LANES.min(own.channels - channel);
            let weights = &weights[channel * own.taps..][..channels * own.taps];
            let state = &mut self.buffers.state[..place.unit];
            self.pass.move_states(&phase, claim, place, state, |claim, rows, state| {
                for rows in chunks(rows) {
                    let mut block: Block = [[0.0; LANES]; TOKENS];
                    let block = &mut block[..rows.len()];
                    for (row, to) in rows.clone().zip(&mut *block) {
                        input(&all[row * width..][..width], channel, &mut to[..channels]);
                    }
                    convolve(cpu, weights, state.as_chunks_mut().0, block);
                    put(&buffers.mixed, claim, rows, block);
                }
            });
        });
    }

    /// Moves the states through the tokens of `mixed`, and computes `output`.
    fn scan_tokens(&mut self, own: config::Scan, layer: usize, buffers: &RecurrentState) {
        let Forward { cpu, .. } = *self.pass;
        let place = Place { layer, part: 1, unit: own.unit() };
        let [queries, keys, values] = own.channels();
        let Some(phase) = self.worker.phase(own.tasks()) else { return };
        let mixed = buffers.mixed.read(&phase);
        let width = buffers.mixed.width();
        phase.for_each(|claim| {
            let value = claim.task() * LANES;
            let head = value / own.value_dim;
            let key = own.key_head(head) * own.key_dim;
            let state = &mut self.buffers.state[..place.unit];
            self.pass.move_states(&phase, claim, place, state, |claim, rows, state| {
                for rows in chunks(rows) {
                    let mut block: Block = [[0.0; LANES]; TOKENS];
                    let block = &mut block[..rows.len()];
                    let tokens = ScanTokens {
                        rows: &mixed[rows.start * width..rows.end * width],
                        width,
                        query: queries + key,
                        key: keys + key,
                        value: values + value,
                        decay: own.decays() + head,
                        rate: own.decays() + own.value_heads + head,
                    };
                    scan(cpu, own.rule, state.as_chunks_mut().0, tokens, block);
                    put(&buffers.output, claim, rows, block);
                }
            });
        });
    }
}

impl Forward<'_> {
    /// Moves the claimed task's part of the state of every sequence through its rows. `advance`
    /// computes some consecutive rows and changes the state; `state` is a buffer.
    fn move_states(
        &self,
        phase: &Phase<'_>,
        claim: &mut Claim<'_>,
        Place { layer, part, unit }: Place,
        state: &mut [f32],
        mut advance: impl FnMut(&mut Claim<'_>, Range<usize>, &mut [f32]),
    ) {
        for rows in &self.batch.parts {
            let table = self.tables[rows.feed];
            let buffer = table.buffer_of(layer) + part;
            match table.states().source() {
                Some(source) => {
                    let source = source.buffer(buffer).read(phase);
                    state.copy_from_slice(&source[claim.task() * unit..][..unit]);
                }
                None => state.fill(0.0),
            }
            let mut first = rows.rows.start;
            for (tokens, target) in table.states().targets() {
                let end = rows.rows.start + tokens;
                advance(claim, first..end, state);
                target.buffer(buffer).write(claim, unit).copy_from_slice(state);
                first = end;
            }
        }
    }
}

/// Cuts rows into parts of at most [`TOKENS`].
fn chunks(rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = rows.end;
    rows.step_by(TOKENS).map(move |first| first..end.min(first + TOKENS))
}

/// Writes the values of rows to the columns of the claimed task.
fn put(to: &Phased<f32>, claim: &mut Claim<'_>, rows: Range<usize>, values: &[[f32; LANES]]) {
    let mut columns = to.columns(claim, LANES);
    for (row, values) in rows.zip(values) {
        let to = columns.row(row);
        to.copy_from_slice(&values[..to.len()]);
    }
}
