//! Mixtures of experts: many small feed-forward networks, a few of which compute each token.
//!
//! A router scores the experts. The experts with the highest scores are computed, and their outputs
//! are weighted by the softmax of the scores, scaled to sum to 1 (Mixtral, arXiv:2401.04088; Qwen
//! 3). The tokens of a micro-batch are grouped by expert, so that a matrix is unpacked once for all
//! of them. A token and one of its experts make a slot; slots are ordered by expert, then by token.
//! A token's results are summed in the order in which its experts were chosen, with any number of
//! threads.

use std::ops::Range;

use super::{
    allocator::Amount,
    batch::RoleRows,
    forward::{At, Step},
    products::{Inputs, SegmentOutput},
    state::{Activations, WorkerBuffers},
    weights::{Linear, Mixture},
};
use crate::threads::Phased;

/// An expert chosen for a token, and the weight of its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Zeroable)]
pub struct Choice {
    pub expert: u32,
    pub weight: f32,
}

/// The slots of a micro-batch. Every worker computes them for itself.
#[derive(Debug, Default)]
pub struct Slots {
    /// The first slot of each expert, and the number of all slots.
    starts: Vec<usize>,
    /// The token of each slot.
    tokens: Vec<usize>,
    /// The slot of each token and choice.
    slots: Vec<usize>,
}

impl Slots {
    /// Allocates slots for up to `choices` choices among `experts` experts.
    pub fn new(experts: usize, choices: usize) -> Self {
        let starts = Vec::with_capacity(experts + 1);
        Slots { starts, tokens: Vec::with_capacity(choices), slots: Vec::with_capacity(choices) }
    }

    /// Returns the bytes of slots for `used` choices of each token.
    pub fn bytes(experts: usize, used: usize) -> Amount {
        let size = size_of::<usize>();
        Amount { per_token: 2 * used * size, ..Amount::fixed((experts + 1) * size) }
    }

    /// Sorts `choices` into slots. Each token has `used` consecutive choices.
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
        // Each expert's start moves through its slots, and ends at the next expert's first slot.
        for (i, choice) in choices.iter().enumerate() {
            let next = &mut self.starts[choice.expert as usize];
            self.slots[i] = *next;
            self.tokens[*next] = i / used;
            *next += 1;
        }
        self.starts.rotate_right(1);
        self.starts[0] = 0;
    }

    /// Returns the slots of an expert.
    fn of_expert(&self, expert: usize) -> Range<usize> {
        self.starts[expert]..self.starts[expert + 1]
    }
}

impl Step<'_, '_> {
    /// Computes `projected = sum of p_e network_e(x)` for `x = normed` and the experts `e` with the
    /// largest scores `W_router x`, where `p` is the softmax of their scores.
    pub fn experts(&mut self, mixture: &Mixture<'_>) {
        let (state, roles) = (self.pass.state, self.pass.batch.roles);
        let tokens = roles.total();
        let Some(experts) = &state.experts else { return };
        let (count, used) = (mixture.experts.len(), mixture.used);
        self.product(&mixture.router, roles, &state.normed, &experts.scores);

        let phase = self.worker.phase(tokens);
        let scores = experts.scores.read(&phase);
        phase.for_each(|claim| {
            let scores = &scores[claim.task() * experts.scores.width()..][..count];
            // Comparisons would pass over scores that are not numbers.
            self.pass.check(scores, At { place: self.place, row: claim.task() });
            choose(scores, experts.choices.write(claim, used));
        });
        drop(phase);

        // Copy the inputs of the experts, slot by slot.
        let phase = self.worker.phase(tokens * used);
        let choices = &experts.choices.read(&phase)[..tokens * used];
        self.buffers.slots.sort(choices, count, used);
        let (floats, spans) = (state.normed.floats.read(&phase), state.normed.spans.read(&phase));
        let (width, span_width) = (experts.input.floats.width(), experts.input.spans.width());
        phase.for_each(|claim| {
            let token = self.buffers.slots.tokens[claim.task()];
            let to = experts.input.floats.write(claim, width);
            to.copy_from_slice(&floats[token * width..][..width]);
            let to = experts.input.spans.write(claim, span_width);
            to.copy_from_slice(&spans[token * span_width..][..span_width]);
        });
        drop(phase);

        let linears = |expert: usize| Some(&mixture.experts[expert].gate_up);
        self.expert_products(&linears, &experts.input, &experts.gate_up);

        let (network, slots) = (&mixture.experts[0], tokens * used);
        let token = |buffers: &WorkerBuffers, slot: usize| buffers.slots.tokens[slot];
        self.activate(network, slots, &experts.gate_up, &experts.gated, token);

        let linears = |expert: usize| Some(&mixture.experts[expert].down);
        self.expert_products(&linears, &experts.gated, &experts.output);

        let phase = self.worker.phase(tokens);
        let (choices, output) = (experts.choices.read(&phase), experts.output.read(&phase));
        let width = experts.output.width();
        phase.for_each(|claim| {
            let first = claim.task() * used;
            let out = state.projected.write(claim, state.projected.width());
            out.fill(0.0);
            for i in first..first + used {
                let x =
                    &output[self.buffers.slots.slots[i] * width..][..self.pass.config.embedding];
                out.iter_mut().zip(x).for_each(|(out, x)| *out += choices[i].weight * x);
            }
        });
    }

    /// Computes the product of each slot's input with its expert's weights.
    fn expert_products<'w>(
        &mut self,
        weights: &dyn Fn(usize) -> Option<&'w Linear<'w>>,
        x: &Activations,
        out: &Phased<f32>,
    ) {
        let Some(Linear { width, adapter_down, .. }) = weights(0) else { return };
        let pass = self.pass;
        let low_rank_out = &pass.state.low_rank;
        if adapter_down.is_some() {
            self.expert_products(&|i| weights(i)?.adapter_down.as_deref(), x, low_rank_out);
        }
        let unit = Linear::unit(self.buffers.slots.tokens.len());
        let phase = self.worker.phase(width.div_ceil(unit));
        let inputs = Inputs::read(&phase, x, adapter_down.as_ref().map(|_| low_rank_out));
        while let Some(mut claim) = phase.claim() {
            let mut to = SegmentOutput::new(out.columns(&mut claim, unit));
            for expert in 0..self.buffers.slots.starts.len() - 1 {
                let slots = self.buffers.slots.of_expert(expert);
                let Some(weights) = weights(expert).filter(|_| !slots.is_empty()) else { continue };
                let tokens = &self.buffers.slots.tokens[slots.clone()];
                let answers = tokens.partition_point(|&token| token < pass.batch.roles.answers);
                let rows = RoleRows { answers, prompts: slots.len() - answers };
                pass.multiply_roles(self.buffers, weights, inputs, slots.start, rows, &mut to);
            }
        }
    }
}

/// Chooses the experts with the largest scores, in descending order, the first of equal ones first.
/// Weights are the softmax of the chosen scores.
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
        let of: Vec<_> = (0..4).map(|expert| slots.of_expert(expert)).collect();
        assert_eq!(of, [0..2, 2..2, 2..4, 4..6]);
    }
}
