//! Mixtures of experts: of many small feed-forward networks, each token goes through a few.
//!
//! A router scores the experts, the softmax of the scores weighs them, and the best few, their
//! weights scaled to sum to 1, are computed (Mixtral, arXiv:2401.04088; Qwen 3). The tokens of a
//! micro-batch are grouped by expert, so that a matrix is unpacked once for all of them. A token and
//! one of its experts make a slot; slots are in the order of experts, then of tokens. A token's
//! results are summed in the order in which its experts were chosen, whatever the number of threads.

use std::ops::Range;

use rope_cpu_kernels::Input;

use super::{
    forward::{Forward, PartOutput},
    state::{Activations, Private},
    weights::{Linear, Mixture},
};
use crate::threads::{Phased, Worker};

/// One of the experts that a token goes through.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Zeroable)]
pub struct Choice {
    pub expert: u32,
    pub weight: f32,
}

/// Which slots a micro-batch has, as every worker works it out for itself.
#[derive(Debug, Default)]
pub struct Slots {
    /// Where the slots of each expert begin, and where the last one's end.
    starts: Vec<usize>,
    /// The token of each slot.
    tokens: Vec<usize>,
    /// For each token and choice, its slot.
    slots: Vec<usize>,
}

impl Slots {
    /// For up to `choices` choices of `experts`.
    pub fn new(experts: usize, choices: usize) -> Self {
        let starts = Vec::with_capacity(experts + 1);
        Slots { starts, tokens: Vec::with_capacity(choices), slots: Vec::with_capacity(choices) }
    }

    /// Sorts `choices`, of which each token has `used`.
    fn sort(&mut self, choices: &[Choice], experts: usize, used: usize) {
        self.starts.clear();
        self.starts.resize(experts + 1, 0);
        for choice in choices {
            self.starts[choice.expert as usize + 1] += 1;
        }
        for expert in 0..experts {
            self.starts[expert + 1] += self.starts[expert];
        }
        self.tokens.clear();
        self.tokens.resize(choices.len(), 0);
        self.slots.clear();
        self.slots.resize(choices.len(), 0);
        // Each expert's start moves through its slots, which ends where the next one's began.
        for (i, choice) in choices.iter().enumerate() {
            let next = &mut self.starts[choice.expert as usize];
            self.slots[i] = *next;
            self.tokens[*next] = i / used;
            *next += 1;
        }
        self.starts.rotate_right(1);
        self.starts[0] = 0;
    }

    /// The slots of an expert.
    fn of(&self, expert: usize) -> Range<usize> {
        self.starts[expert]..self.starts[expert + 1]
    }
}

impl Forward<'_> {
    /// `projected = mixture(normed)`.
    pub fn experts(&self, worker: &mut Worker<'_>, private: &mut Private, mixture: &Mixture<'_>) {
        let (state, tokens) = (self.state, self.rows.len());
        let Some(buffers) = &state.experts else { return };
        let (count, used) = (mixture.experts.len(), mixture.used);
        self.product(worker, private, &mixture.router, tokens, &state.normed, &buffers.scores);

        let phase = worker.phase(tokens);
        let scores = buffers.scores.read(&phase);
        phase.for_each(|claim| {
            let scores = &scores[claim.task() * buffers.scores.width()..][..count];
            choose(scores, buffers.choices.write(claim, used));
        });
        drop(phase);

        // What the experts read, slot by slot.
        let phase = worker.phase(tokens * used);
        let choices = &buffers.choices.read(&phase)[..tokens * used];
        private.slots.sort(choices, count, used);
        let (floats, spans) = (state.normed.floats.read(&phase), state.normed.spans.read(&phase));
        let (width, span_width) = (buffers.input.floats.width(), buffers.input.spans.width());
        phase.for_each(|claim| {
            let token = private.slots.tokens[claim.task()];
            let to = buffers.input.floats.write(claim, width);
            to.copy_from_slice(&floats[token * width..][..width]);
            let to = buffers.input.spans.write(claim, span_width);
            to.copy_from_slice(&spans[token * span_width..][..span_width]);
        });
        drop(phase);

        let linears = |expert: usize| Some(&mixture.experts[expert].gate_up);
        self.expert_products(worker, private, &linears, &buffers.input, &buffers.gate_up);

        let (network, slots) = (&mixture.experts[0], tokens * used);
        self.activate(worker, private, network, slots, &buffers.gate_up, &buffers.gated);

        let linears = |expert: usize| Some(&mixture.experts[expert].down);
        self.expert_products(worker, private, &linears, &buffers.gated, &buffers.output);

        let phase = worker.phase(tokens);
        let (choices, output) = (buffers.choices.read(&phase), buffers.output.read(&phase));
        let width = buffers.output.width();
        phase.for_each(|claim| {
            let first = claim.task() * used;
            let out = state.projected.write(claim, state.projected.width());
            out.fill(0.0);
            for i in first..first + used {
                let x = &output[private.slots.slots[i] * width..][..self.config.embedding];
                out.iter_mut().zip(x).for_each(|(out, x)| *out += choices[i].weight * x);
            }
        });
    }

    /// For each slot, the product with its expert's weights.
    fn expert_products<'w>(
        &self,
        worker: &mut Worker<'_>,
        private: &mut Private,
        weights: &dyn Fn(usize) -> Option<&'w Linear<'w>>,
        x: &Activations,
        out: &Phased<f32>,
    ) {
        let Some(Linear { width, low, .. }) = weights(0) else { return };
        let all_low = &self.state.low;
        if low.is_some() {
            self.expert_products(worker, private, &|i| weights(i)?.low.as_deref(), x, all_low);
        }
        let unit = Linear::unit(private.slots.tokens.len());
        let phase = worker.phase(width.div_ceil(unit));
        let (floats, spans) = (x.floats.read(&phase), x.spans.read(&phase));
        let low = low.as_ref().map_or(&[][..], |_| all_low.read(&phase));
        while let Some(mut claim) = phase.claim() {
            let mut to = PartOutput::new(out.columns(&mut claim, unit));
            for expert in 0..private.slots.starts.len() - 1 {
                let slots = private.slots.of(expert);
                let Some(weights) = weights(expert).filter(|_| !slots.is_empty()) else { continue };
                let input = Input {
                    regime: self.role.regime(),
                    tokens: slots.len(),
                    floats: &floats[slots.start * x.floats.width()..],
                    spans: &spans[slots.start * x.spans.width()..],
                };
                let low = low.get(slots.start * all_low.width()..).unwrap_or_default();
                to.first_row = slots.start;
                self.multiply_parts(private, weights, input, low, &mut to);
            }
        }
    }
}

/// The experts of the largest scores, the first of equals first, with their shares of the sum of
/// their exponentials.
fn choose(scores: &[f32], choices: &mut [Choice]) {
    let mut largest = f32::NAN;
    let mut sum = 0.0;
    for i in 0..choices.len() {
        let free = |e: &usize| !choices[..i].iter().any(|c| c.expert as usize == *e);
        let best = (0..scores.len())
            .filter(free)
            .reduce(|best, e| if scores[e] > scores[best] { e } else { best });
        let Some(best) = best else { break };
        if i == 0 {
            largest = scores[best];
        }
        let weight = (scores[best] - largest).exp();
        sum += weight;
        choices[i] = Choice { expert: best as u32, weight };
    }
    choices.iter_mut().for_each(|choice| choice.weight /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_chosen_and_weigh_as_the_softmax_of_their_scores() {
        let mut choices = [Choice::default(); 2];
        choose(&[1.0, 3.0, 2.0, 3.0], &mut choices);
        let chosen = choices.map(|choice| (choice.expert, choice.weight));
        assert_eq!(chosen, [(1, 0.5), (3, 0.5)]);
        choose(&[0.0, 2.0, 1.0, -1.0], &mut choices);
        let share = 1.0 / (1.0 + (-1f32).exp());
        assert_eq!(choices[0].expert, 1);
        assert!((choices[0].weight - share).abs() < 1e-6);
    }

    #[test]
    fn slots_are_sorted_by_expert_then_token() {
        let mut slots = Slots::new(4, 6);
        let choices = [2, 0, 3, 2, 0, 3].map(|expert| Choice { expert, weight: 0.5 });
        slots.sort(&choices, 4, 2);
        assert_eq!(slots.tokens, [0, 2, 0, 1, 1, 2]);
        assert_eq!(slots.slots, [2, 0, 4, 3, 1, 5]);
        let of: Vec<_> = (0..4).map(|expert| slots.of(expert)).collect();
        assert_eq!(of, [0..2, 2..2, 2..4, 4..6]);
    }
}
