//! Mixtures of experts: a few of many small feed-forward networks compute each token.
//!
//! A router scores the experts, and those with the highest scores compute the token. In Mixtral
//! (arXiv:2401.04088) and Qwen 3, the weights of their outputs are the softmax of the scores, scaled to
//! sum to 1. Other models differ: see [`Routing`].
//!
//! The tokens of a micro-batch are grouped by expert, so that a matrix is unpacked once for all of
//! them. A slot is a token with one of its experts; slots are ordered by expert, then by token. A
//! token's results are summed in the order in which its experts were chosen, with any number of
//! threads.

mod disk;

use std::ops::Range;

use super::{
    Gating, Routing,
    allocator::{Allocator, Amount},
    batch::RoleRows,
    forward::{At, Step},
    products::{Inputs, SegmentOutput},
    state::Activations,
    weights::{Linear, Mixture},
};
use crate::threads::{Claim, Phase, Phased};

pub use disk::{OnDisk, bytes_by_layer, least};

/// An expert chosen for a token, and the weight of its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Zeroable)]
pub struct Choice {
    pub expert: u32,
    pub weight: f32,
}

/// The slots of a micro-batch.
pub struct Slots {
    experts: usize,
    all: Phased<usize>, // the lists of `Lists`, one after the other
}

/// The lists of slots, as separate arrays of numbers.
struct Lists<T> {
    /// The first slot of each expert, and the number of all slots.
    starts: T,
    /// The token of each slot.
    tokens: T,
    /// The slot of each token and choice.
    slots: T,
}

impl Slots {
    /// Allocates slots for `used` choices of each token among `experts` experts.
    pub fn new(allocator: &mut Allocator<'_>, experts: usize, used: usize) -> Self {
        let numbers = Amount { per_token: 2 * used, ..Amount::fixed(experts + 1) };
        Slots { experts, all: allocator.shared(numbers, 1) }
    }

    /// Returns `count` slots.
    fn read<'p>(&'p self, phase: &'p Phase<'_>, count: usize) -> Lists<&'p [usize]> {
        let (starts, rest) = self.all.read(phase).split_at(self.experts + 1);
        Lists { starts, tokens: &rest[..count], slots: &rest[count..][..count] }
    }

    /// Sorts `choices` into slots, by expert and token. Each token has `used` consecutive choices.
    fn sort(&self, claim: &mut Claim<'_>, choices: &[Choice], used: usize) {
        let all = self.all.write(claim, self.experts + 1 + 2 * choices.len());
        let (starts, rest) = all.split_at_mut(self.experts + 1);
        let (tokens, slots) = rest.split_at_mut(choices.len());
        sort(choices, used, Lists { starts, tokens, slots });
    }
}

impl Lists<&[usize]> {
    /// Returns the slots of an expert.
    fn of_expert(&self, expert: usize) -> Range<usize> {
        self.starts[expert]..self.starts[expert + 1]
    }
}

fn sort(choices: &[Choice], used: usize, to: Lists<&mut [usize]>) {
    let Lists { starts, tokens, slots } = to;
    starts.fill(0);
    for choice in choices {
        starts[choice.expert as usize + 1] += 1;
    }
    for expert in 1..starts.len() {
        starts[expert] += starts[expert - 1];
    }
    // Each expert's start moves through its slots, up to the next expert's first slot.
    for (i, choice) in choices.iter().enumerate() {
        let next = &mut starts[choice.expert as usize];
        slots[i] = *next;
        tokens[*next] = i / used;
        *next += 1;
    }
    starts.rotate_right(1);
    starts[0] = 0;
}

impl Step<'_, '_> {
    /// Computes `out = sum of p_e network_e(x)` for `x = normed`, or for `hidden` with norms of the
    /// mixture's own. The experts `e` and their weights `p` follow from the scores `W_router x` by the
    /// model's [`Routing`].
    pub fn experts(&mut self, layer: usize, mixture: &Mixture<'_>, out: &Phased<f32>) {
        let (state, roles) = (self.pass.state, self.pass.batch.roles);
        let tokens = roles.total();
        let Some(experts) = &state.experts else { return };
        let (count, used) = (mixture.experts.len(), mixture.used);
        if let Some(norms) = &mixture.norms
            && let Some(phase) = self.worker.phase(tokens)
        {
            let hidden = state.hidden.read(&phase);
            let scale = 1.0 / (self.pass.config.embedding as f32).sqrt();
            phase.for_each(|claim| {
                let at = At { place: self.place, row: claim.task() };
                let x = self.pass.hidden(self.buffers, hidden, at.row);
                self.pass.norm(x, Some(norms.router));
                x.iter_mut().for_each(|x| *x *= scale);
                self.pass.put(claim, x, &state.normed, at);
            });
        }
        self.product(&mixture.router, roles, &state.normed, &experts.scores);

        if let Some(phase) = self.worker.phase(tokens) {
            let scores = experts.scores.read(&phase);
            let own_input = mixture.norms.as_ref().map(|norms| (norms, state.hidden.read(&phase)));
            phase.for_each(|claim| {
                let scores = &scores[claim.task() * experts.scores.width()..][..count];
                // Comparisons would pass over scores that are not numbers.
                let at = At { place: self.place, row: claim.task() };
                self.pass.check(scores, at);
                let choices = experts.choices.write(claim, used);
                let ranks = &mut self.buffers.ranks;
                choose(scores, &mixture.routing, mixture.selection_bias, ranks, choices);
                if let Some((norms, hidden)) = own_input {
                    let x = self.pass.hidden(self.buffers, hidden, at.row);
                    self.pass.norm(x, Some(norms.experts));
                    self.pass.put(claim, x, &state.normed, at);
                }
            });
        }

        let slots = tokens * used;
        if let Some(phase) = self.worker.phase(1) {
            let choices = &experts.choices.read(&phase)[..slots];
            phase.for_each(|claim| experts.slots.sort(claim, choices, used));
        }
        self.read_experts(layer, mixture, slots);

        // Copy the inputs of the experts, slot by slot.
        if let Some(phase) = self.worker.phase(slots) {
            let Lists { tokens, .. } = experts.slots.read(&phase, slots);
            let (floats, spans) =
                (state.normed.floats.read(&phase), state.normed.spans.read(&phase));
            let (width, span_width) = (experts.input.floats.width(), experts.input.spans.width());
            phase.for_each(|claim| {
                let token = tokens[claim.task()];
                let to = experts.input.floats.write(claim, width);
                to.copy_from_slice(&floats[token * width..][..width]);
                let to = experts.input.spans.write(claim, span_width);
                to.copy_from_slice(&spans[token * span_width..][..span_width]);
            });
        }

        let linears = |expert: usize| Some(&mixture.experts[expert].gate_up);
        self.expert_products(&linears, slots, &experts.input, &experts.gate_up);

        let token = |phase: &Phase<'_>, slot| experts.slots.read(phase, slots).tokens[slot];
        let network = &mixture.experts[0];
        self.activate(network, slots, &experts.gate_up, &experts.gated, token);

        let linears = |expert: usize| Some(&mixture.experts[expert].down);
        self.expert_products(&linears, slots, &experts.gated, &experts.output);
        self.leave_experts(layer, mixture, slots);

        let Some(phase) = self.worker.phase(tokens) else { return };
        let (choices, output) = (experts.choices.read(&phase), experts.output.read(&phase));
        let Lists { slots, .. } = experts.slots.read(&phase, slots);
        let width = experts.output.width();
        phase.for_each(|claim| {
            let first = claim.task() * used;
            let out = out.write(claim, out.width());
            out.fill(0.0);
            for i in first..first + used {
                let x = &output[slots[i] * width..][..self.pass.config.embedding];
                out.iter_mut().zip(x).for_each(|(out, x)| *out += choices[i].weight * x);
            }
        });
    }

    /// Computes the products of the inputs of `count` slots with their experts' weights.
    fn expert_products<'w>(
        &mut self,
        weights: &dyn Fn(usize) -> Option<&'w Linear<'w>>,
        count: usize,
        x: &Activations,
        out: &Phased<f32>,
    ) {
        let pass = self.pass;
        let Some(Linear { width, adapter_down, .. }) = weights(0) else { return };
        let Some(experts) = &pass.state.experts else { return };
        let low_rank_out = &pass.state.low_rank;
        if adapter_down.is_some() {
            let down = |i| weights(i)?.adapter_down.as_deref();
            self.expert_products(&down, count, x, low_rank_out);
        }
        let unit = Linear::unit(count);
        let Some(phase) = self.worker.phase(width.div_ceil(unit)) else { return };
        let inputs = Inputs::read(&phase, x, adapter_down.as_ref().map(|_| low_rank_out));
        let all = experts.slots.read(&phase, count);
        while let Some(mut claim) = phase.claim() {
            let mut to = SegmentOutput::new(out.columns(&mut claim, unit));
            for expert in 0..all.starts.len() - 1 {
                let slots = all.of_expert(expert);
                let Some(weights) = weights(expert).filter(|_| !slots.is_empty()) else { continue };
                let tokens = &all.tokens[slots.clone()];
                let answers = tokens.partition_point(|&token| token < pass.batch.roles.answers);
                let rows = RoleRows { answers, prompts: slots.len() - answers };
                pass.multiply_roles(self.buffers, weights, inputs, slots.start, rows, &mut to);
            }
        }
    }
}

/// Minimum sum of the sigmoids of a token's scores: the smallest normal number of half precision.
const SIGMOIDS_MIN: f32 = 6.103_515_6e-5;

/// Chooses the experts with the largest scores, in descending order, the first of equal ones first.
/// Weights are their probabilities, by default scaled to sum to 1: with [`Gating::Softmax`] the softmax
/// of the chosen scores. With a `bias`, the experts with the largest sum of probability and bias are
/// chosen (DeepSeek-V3, arXiv:2412.19437, equation 16). `ranks` is a buffer of twice as many numbers as
/// there are experts.
fn choose(
    scores: &[f32],
    routing: &Routing,
    bias: Option<&[f32]>,
    ranks: &mut [f32],
    choices: &mut [Choice],
) {
    let Routing { gating, sums_to_one, scale, groups } = *routing;
    let sigmoid = |e: usize| 1.0 / (1.0 + (-scores[e]).exp());
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let by_probability = bias.is_some() || groups.is_some() || !sums_to_one;
    let all: f32 =
        if by_probability { scores.iter().map(|score| (score - most).exp()).sum() } else { 1.0 };
    let probability = |e: usize| match gating {
        Gating::Softmax => (scores[e] - most).exp() / all,
        Gating::Sigmoid => sigmoid(e),
    };
    let (ranks, group_ranks) = ranks.split_at_mut(scores.len());
    for (e, rank) in ranks.iter_mut().enumerate() {
        *rank = match bias {
            None if groups.is_none() => scores[e],
            bias => probability(e) + bias.map_or(0.0, |bias| bias[e]),
        };
    }
    if let Some([count, used]) = groups {
        leave_groups(ranks, used, &mut group_ranks[..count]);
    }
    for i in 0..choices.len() {
        let free = |e: &usize| !choices[..i].iter().any(|c| c.expert as usize == *e);
        let best = (0..scores.len())
            .filter(free)
            .reduce(|best, e| if ranks[e] > ranks[best] { e } else { best });
        let Some(best) = best else { break };
        choices[i].expert = best as u32;
    }
    let score = |choice: &Choice| scores[choice.expert as usize];
    let largest = choices.iter().map(score).fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for choice in &mut *choices {
        choice.weight = match gating {
            Gating::Softmax if sums_to_one => (score(choice) - largest).exp(),
            _ => probability(choice.expert as usize),
        };
        sum += choice.weight;
    }
    if gating == Gating::Sigmoid {
        // All may be 0. The limit is llama.cpp's.
        sum = sum.max(SIGMOIDS_MIN);
    }
    if sums_to_one {
        choices.iter_mut().for_each(|choice| choice.weight /= sum);
    }
    if scale != 1.0 {
        choices.iter_mut().for_each(|choice| choice.weight *= scale);
    }
}

/// Leaves only the experts of the `used` groups with the largest sums of two ranks, the first of equal
/// ones (DeepSeek-V3). `sums` is a buffer with a number for each group.
fn leave_groups(ranks: &mut [f32], used: usize, sums: &mut [f32]) {
    let each = ranks.len() / sums.len();
    for (group, sum) in ranks.chunks_exact(each).zip(&mut *sums) {
        let two = group.iter().fold([f32::NEG_INFINITY; 2], |[first, second], &rank| {
            if rank > first { [rank, first] } else { [first, second.max(rank)] }
        });
        *sum = two[0] + two[1];
    }
    for (group, ranks) in ranks.chunks_exact_mut(each).enumerate() {
        let better = |other: &usize| {
            sums[*other] > sums[group] || sums[*other] == sums[group] && *other < group
        };
        if (0..sums.len()).filter(better).count() >= used {
            ranks.fill(f32::NEG_INFINITY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_chosen_and_weigh_as_the_softmax_of_their_scores() {
        let mut choices = [Choice::default(); 2];
        let choose = |scores: &[f32; 4], gating, bias: Option<&[f32]>, choices: &mut [Choice]| {
            super::choose(scores, &Routing::plain(gating), bias, &mut [0.0; 8], choices);
        };
        choose(&[1.0, 3.0, 2.0, 3.0], Gating::Softmax, None, &mut choices);
        let chosen = choices.map(|choice| (choice.expert, choice.weight));
        assert_eq!(chosen, [(1, 0.5), (3, 0.5)]);
        choose(&[0.0, 2.0, 1.0, -1.0], Gating::Softmax, None, &mut choices);
        let share = 1.0 / (1.0 + (-1f32).exp());
        assert_eq!(choices[0].expert, 1);
        assert!((choices[0].weight - share).abs() < 1e-6);
        // A bias moves a choice, and no weight.
        choose(&[0.0, 2.0, 1.0, -1.0], Gating::Softmax, Some(&[0.0, 0.0, 0.0, 1.0]), &mut choices);
        assert_eq!(choices.map(|choice| choice.expert), [3, 1]);
        let share = 1.0 / (1.0 + 3f32.exp());
        assert!((choices[0].weight - share).abs() < 1e-6);
        // Sigmoids of 2 and 1, and by the bias of 2 and -1.
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        for (bias, expert, second) in [([0.0; 4], 2, 1.0), ([0.0, 0.0, 0.0, 0.5], 3, -1.0)] {
            choose(&[0.0, 2.0, 1.0, -1.0], Gating::Sigmoid, Some(&bias), &mut choices);
            assert_eq!(choices.map(|choice| choice.expert), [1, expert]);
            let share = sigmoid(2.0) / (sigmoid(2.0) + sigmoid(second));
            assert!((choices[0].weight - share).abs() < 1e-6);
        }
    }

    #[test]
    fn groups_with_the_largest_sums_of_two_are_chosen_first() {
        // Sums of two: 5, 6, 4. The best expert is in the last group.
        let scores = [3.0, 2.0, 0.0, 3.0, 3.0, 0.0, 4.5, -0.5, -1.0];
        let bias = [0.0; 9];
        let routing =
            Routing { groups: Some([3, 2]), scale: 2.0, ..Routing::plain(Gating::Sigmoid) };
        let mut choices = [Choice::default(); 3];
        choose(&scores, &routing, Some(&bias), &mut [0.0; 18], &mut choices);
        assert_eq!(choices.map(|choice| choice.expert), [0, 3, 4]);
        let sum: f32 = choices.iter().map(|choice| choice.weight).sum();
        assert!((sum - 2.0).abs() < 1e-6, "{sum}");
        // Without groups the best is chosen, and weights need not sum to 1.
        let routing = Routing { sums_to_one: false, ..Routing::plain(Gating::Softmax) };
        choose(&scores, &routing, None, &mut [0.0; 18], &mut choices);
        assert_eq!(choices[0].expert, 6);
        let all: f32 = scores.iter().map(|score| score.exp()).sum();
        assert!((choices[0].weight - 4.5f32.exp() / all).abs() < 1e-6);
    }

    #[test]
    fn slots_are_sorted_by_expert_then_token() {
        let choices = [2, 0, 3, 2, 0, 3].map(|expert| Choice { expert, weight: 0.5 });
        let (mut starts, mut tokens, mut slots) = ([0; 5], [0; 6], [0; 6]);
        let to = Lists { starts: &mut starts[..], tokens: &mut tokens[..], slots: &mut slots[..] };
        sort(&choices, 2, to);
        assert_eq!(tokens, [0, 2, 0, 1, 1, 2]);
        assert_eq!(slots, [2, 0, 4, 3, 1, 5]);
        let sorted = Lists { starts: &starts[..], tokens: &tokens[..], slots: &slots[..] };
        let of: Vec<_> = (0..4).map(|expert| sorted.of_expert(expert)).collect();
        assert_eq!(of, [0..2, 2..2, 2..4, 4..6]);
    }
}
