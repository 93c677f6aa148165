//! The feed-forward network of a layer, dense or of experts.

use rope_cpu::model::architecture::Inner;
use rope_cpu_kernels::vector::{Activation, Ungated};

use super::weights::{Weights, normalize, product};
use crate::tiny::Tiny;

impl Weights {
    /// Computes the feed-forward network of a layer.
    pub fn network(&self, tiny: &Tiny, layer: usize, x: &[f64]) -> Vec<f64> {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let Some((count, used)) = tiny.layer_experts(layer) else {
            let inner = inner(tiny, layer, &|tensor| self.linear(&name(tensor), x));
            return self.linear(&name("ffn_down"), &inner);
        };
        let scores = self.linear(&name("ffn_gate_inp"), x);
        let all: f64 = scores.iter().map(|score| score.exp()).sum();
        let bias = self.0.get(&name("exp_probs_b.bias"));
        let weight = |e: usize| match tiny.sigmoid_gating() {
            true => sigmoid(scores[e]),
            false => scores[e].exp() / all,
        };
        let rank = |e: usize| weight(e) + bias.map_or(0.0, |bias| bias[e]);
        let mut order: Vec<usize> = (0..count).collect();
        if let Some((groups, used_groups)) = tiny.groups {
            let each = count / groups;
            let sum_of_two = |group: usize| {
                let mut ranks: Vec<f64> = (group * each..(group + 1) * each).map(rank).collect();
                ranks.sort_by(|a, b| b.total_cmp(a));
                ranks[0] + ranks[1]
            };
            let mut best: Vec<usize> = (0..groups).collect();
            best.sort_by(|&a, &b| sum_of_two(b).total_cmp(&sum_of_two(a)));
            order.retain(|e| best[..used_groups].contains(&(e / each)));
        }
        order.sort_by(|&a, &b| rank(b).total_cmp(&rank(a)));
        let sum: f64 = order[..used].iter().map(|&e| weight(e)).sum();
        let sum = if tiny.sums_to_one { sum } else { 1.0 } / f64::from(tiny.expert_scale);
        let mut y = vec![0.0; x.len()];
        for &expert in &order[..used] {
            let of = |tensor: &str, x: &[f64]| self.of_expert(&name(tensor), (expert, count), x);
            let inner = inner(tiny, layer, &|tensor| match (tiny.fused_experts, tensor) {
                (false, tensor) => of(tensor, x),
                (true, "ffn_gate") => of("ffn_gate_up", x)[..tiny.feed_forward].to_vec(),
                (true, _) => of("ffn_gate_up", x)[tiny.feed_forward..].to_vec(),
            });
            let share = weight(expert) / sum;
            y.iter_mut().zip(of("ffn_down", &inner)).for_each(|(y, x)| *y += share * x);
        }
        if tiny.shared > 0 {
            let of = |tensor: &str, x: &[f64]| self.linear(&name(&format!("{tensor}_shexp")), x);
            let inner = inner(tiny, layer, &|tensor| of(tensor, x));
            let gate = self.0.get(&name("ffn_gate_inp_shexp.weight"));
            let share = gate.map_or(1.0, |gate| sigmoid(product(gate, x)[0]));
            y.iter_mut().zip(of("ffn_down", &inner)).for_each(|(y, x)| *y += share * x);
            let factor = f64::from(tiny.architecture.network.mixture_scale);
            y.iter_mut().for_each(|y| *y *= factor);
        }
        y
    }

    /// Computes the network and the experts of a layer from activations `x`, with `input` as the
    /// network's input.
    pub fn network_beside_experts(
        &self,
        tiny: &Tiny,
        layer: usize,
        x: &[f64],
        input: &[f64],
    ) -> Vec<f64> {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let Some((count, used)) = tiny.layer_experts(layer) else { unreachable!() };
        let dense = Tiny { experts: None, ..tiny.clone() };
        let network = self.network(&dense, layer, input);
        let mut y = self.norm(tiny, &name("post_ffw_norm_1"), &network);
        let root = (x.len() as f64).sqrt();
        let mut to_router = x.to_vec();
        normalize(&mut to_router);
        let scales = self.get(&name("ffn_gate_inp.scale"));
        to_router.iter_mut().zip(scales).for_each(|(x, scale)| *x *= scale / root);
        let scores = self.linear(&name("ffn_gate_inp"), &to_router);
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let sum: f64 = order[..used].iter().map(|&e| scores[e].exp()).sum();
        let input = self.norm(tiny, &name("pre_ffw_norm_2"), x);
        let mut experts = vec![0.0; x.len()];
        for &expert in &order[..used] {
            let of = |tensor: &str, x: &[f64]| self.of_expert(&name(tensor), (expert, count), x);
            let inner = inner(tiny, layer, &|tensor| match tensor {
                "ffn_gate" => of("ffn_gate_up", &input)[..tiny.feed_forward].to_vec(),
                _ => of("ffn_gate_up", &input)[tiny.feed_forward..].to_vec(),
            });
            let down = of("ffn_down", &inner);
            let share = scores[expert].exp() / sum * self.get(&name("ffn_down_exps.scale"))[expert];
            experts.iter_mut().zip(down).for_each(|(y, x)| *y += share * x);
        }
        let experts = self.norm(tiny, &name("post_ffw_norm_2"), &experts);
        y.iter_mut().zip(experts).for_each(|(y, x)| *y += x);
        y
    }

    /// Computes `W x + b` for an expert.
    fn of_expert(&self, name: &str, (expert, count): (usize, usize), x: &[f64]) -> Vec<f64> {
        let part = |all: &[f64]| all[expert * all.len() / count..][..all.len() / count].to_vec();
        let y = product(&part(self.get(&format!("{name}_exps.weight"))), x);
        let bias = self.0.get(&format!("{name}_exps.bias")).map(|bias| part(bias));
        let bias = bias.unwrap_or_else(|| vec![0.0; y.len()]);
        y.into_iter().zip(bias).map(|(y, bias)| y + bias).collect()
    }
}

pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Computes the inner activations of a network. `product` returns the outputs of a matrix.
fn inner(tiny: &Tiny, layer: usize, product: &dyn Fn(&str) -> Vec<f64>) -> Vec<f64> {
    let pairs = |activation, gate: &[f64], up: &[f64]| {
        gate.iter().zip(up).map(|(gate, up)| gated(activation, *gate, *up)).collect()
    };
    let up = product("ffn_up");
    let each = |function: &dyn Fn(f64) -> f64| up.iter().map(|x| function(*x)).collect();
    match tiny.architecture.network.inner {
        Inner::Gated(activation) => pairs(activation, &product("ffn_gate"), &up),
        Inner::GatedInOne(activation) => {
            let (gate, up) = up.split_at(up.len() / 2);
            pairs(activation, gate, up)
        }
        Inner::Alone(activation) => each(&|x| gated(activation, x, 1.0)),
        Inner::Ungated(Ungated::Gelu) => each(&gelu),
        Inner::Ungated(Ungated::SquaredRelu) => each(&|x| x.max(0.0).powi(2)),
        Inner::Xielu => each(&|x| xielu(tiny.xielu(layer), x)),
        Inner::Ungated(Ungated::Silu | Ungated::Xielu { .. }) => unimplemented!(),
    }
}

/// Computes the function of one inner activation of a gated network.
pub fn gated(activation: Activation, gate: f64, up: f64) -> f64 {
    match activation {
        Activation::GeluTanh => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044715 * gate.powi(3));
            0.5 * gate * (1.0 + u.tanh()) * up
        }
        Activation::ClampedSilu => {
            let gate = gate.min(7.0);
            gate * sigmoid(1.702 * gate) * (up.clamp(-7.0, 7.0) + 1.0)
        }
        Activation::Silu => gate * sigmoid(gate) * up,
        Activation::Sigmoid => sigmoid(gate) * up,
    }
}

/// Computes `x` times the probability that a number of the normal distribution is below `x`, by
/// the series of the error function.
fn gelu(x: f64) -> f64 {
    let z = x / std::f64::consts::SQRT_2;
    // Beyond, it is 0 or 1 to more digits than a float has.
    let z = z.clamp(-5.0, 5.0);
    let (mut term, mut sum) = (z, z);
    for n in 1..200 {
        term *= -z * z / f64::from(n);
        sum += term / f64::from(2 * n + 1);
        if term.abs() < 1e-20 {
            break;
        }
    }
    x * (0.5 + sum / std::f64::consts::PI.sqrt())
}

fn xielu([alpha_n, alpha_p, beta, eps]: [f32; 4], x: f64) -> f64 {
    let softplus = |x: f32| f64::from(x).exp().ln_1p();
    let beta = f64::from(beta);
    match x > 0.0 {
        true => softplus(alpha_p) * x * x + beta * x,
        false => (x.min(eps.into()).exp_m1() - x) * (beta + softplus(alpha_n)) + beta * x,
    }
}
