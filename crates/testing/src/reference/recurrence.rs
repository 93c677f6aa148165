//! The recurrences of layers that do not attend.

use rope_cpu::model::architecture as model;

use super::{
    network::sigmoid,
    weights::{Weights, normalize},
};
use crate::tiny::{EPSILON, Recurrent, Tiny};

impl Weights {
    /// Computes the recurrence of a layer for all tokens.
    pub fn recurrence(
        &self,
        tiny: &Tiny,
        recurrent: Recurrent,
        layer: usize,
        x: &[Vec<f64>],
    ) -> Vec<Vec<f64>> {
        let has = |part: &str| tiny.without != part;
        let gate = |x: f64, part: &str| if has(part) { x } else { 1.0 };
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        match recurrent {
            Recurrent::ShortConvolution { taps } => {
                let all: Vec<_> = x
                    .iter()
                    .map(|x| self.linear(&name("shortconv.in_proj"), x))
                    .map(|all| {
                        [0, 1, 2].map(|i| all[i * all.len() / 3..][..all.len() / 3].to_vec())
                    })
                    .collect();
                let inputs = all
                    .iter()
                    .map(|[b, _, x]| b.iter().zip(x).map(|(b, x)| gate(*b, "gates of inputs") * x));
                let inputs: Vec<Vec<f64>> = inputs.map(Iterator::collect).collect();
                let mixed = convolve(self.get(&name("shortconv.conv.weight")), taps, &inputs);
                let gated = all.iter().zip(mixed).map(|([_, c, _], mixed)| {
                    c.iter()
                        .zip(mixed)
                        .map(|(c, x)| gate(*c, "gates of outputs") * x)
                        .collect::<Vec<_>>()
                });
                gated.map(|x| self.linear(&name("shortconv.out_proj"), &x)).collect()
            }
            Recurrent::Delta { key_heads, value_heads, dim, taps } => {
                let side_by_side = tiny.architecture.recurrent == model::Recurrent::DeltaSideBySide;
                let linear = |tensor: &str| -> Vec<_> {
                    x.iter().map(|x| self.linear(&name(tensor), x)).collect()
                };
                let mixed = linear("attn_qkv");
                let mixed = convolve(self.get(&name("ssm_conv1d.weight")), taps, &mixed);
                let gates = linear("attn_gate");
                let each = value_heads / key_heads;
                let [steps, rates] = if side_by_side {
                    let both = linear("ssm_ba");
                    [each, 0].map(|first| {
                        let pick = |x: &Vec<f64>| {
                            x.chunks_exact(2 * each)
                                .flat_map(|x| &x[first..][..each])
                                .copied()
                                .collect()
                        };
                        both.iter().map(pick).collect::<Vec<Vec<f64>>>()
                    })
                } else {
                    ["ssm_alpha", "ssm_beta"].map(linear)
                };
                let mut outputs = vec![vec![0.0; value_heads * dim]; x.len()];
                for head in 0..value_heads {
                    let mut state = vec![vec![0.0; dim]; dim]; // (values, keys)
                    let in_turns = has("order of heads") != side_by_side;
                    let shared = if in_turns { head % key_heads } else { head / each };
                    let key = shared * dim;
                    for (t, out) in outputs.iter_mut().enumerate() {
                        let silu = |x: &f64| x * gate(sigmoid(*x), "activation");
                        let mixed: Vec<f64> = mixed[t].iter().map(silu).collect();
                        let unit = |x: &[f64]| {
                            let sum: f64 = x.iter().map(|x| x * x).sum();
                            let scale = gate(1.0 / (sum + f64::from(EPSILON)).sqrt(), "unit keys");
                            x.iter().map(|x| x * scale).collect::<Vec<_>>()
                        };
                        let q = unit(&mixed[key..][..dim]);
                        let k = unit(&mixed[key_heads * dim + key..][..dim]);
                        let v = &mixed[2 * key_heads * dim + head * dim..][..dim];
                        let step = steps[t][head] + self.get(&name("ssm_dt.bias"))[head];
                        let decay = (self.get(&name("ssm_a"))[head] * step.exp().ln_1p()).exp();
                        let decay = gate(decay, "decays");
                        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum();
                        for (j, state) in state.iter_mut().enumerate() {
                            state.iter_mut().for_each(|s| *s *= decay);
                            let known: f64 = dot(state, &k);
                            let known = if has("what is known") { known } else { 0.0 };
                            let new = gate(sigmoid(rates[t][head]), "rates") * (v[j] - known);
                            state.iter_mut().zip(&k).for_each(|(s, k)| *s += new * k);
                            let found: f64 = dot(state, &q);
                            out[head * dim + j] = found / (dim as f64).sqrt();
                        }
                    }
                }
                let norm = self.get(&name("ssm_norm.weight"));
                for (out, gates) in outputs.iter_mut().zip(gates) {
                    for (out, gates) in out.chunks_exact_mut(dim).zip(gates.chunks_exact(dim)) {
                        let mean = out.iter().map(|x| x * x).sum::<f64>() / dim as f64;
                        let scale = 1.0 / (mean + f64::from(EPSILON)).sqrt();
                        for ((x, norm), z) in out.iter_mut().zip(norm).zip(gates) {
                            *x *= scale * norm * gate(z * sigmoid(*z), "gates of outputs");
                        }
                    }
                }
                outputs.iter().map(|x| self.linear(&name("ssm_out"), x)).collect()
            }
            Recurrent::Mamba2 { groups, heads, dim, state, taps } => {
                let all: Vec<_> = x.iter().map(|x| self.linear(&name("ssm_in"), x)).collect();
                let (inner, keys) = (heads * dim, groups * state);
                let mixed: Vec<_> =
                    all.iter().map(|all| all[inner..][..inner + 2 * keys].to_vec()).collect();
                let mixed = convolve(self.get(&name("ssm_conv1d.weight")), taps, &mixed);
                let bias = self.get(&name("ssm_conv1d.bias"));
                let activate = |(x, bias): (&f64, &f64)| {
                    let x = if has("bias of the convolution") { x + bias } else { *x };
                    x * gate(sigmoid(x), "activation")
                };
                let mixed: Vec<Vec<f64>> =
                    mixed.iter().map(|x| x.iter().zip(bias).map(activate).collect()).collect();
                let mut outputs = vec![vec![0.0; inner]; x.len()];
                for head in 0..heads {
                    let group = if has("groups of heads") {
                        head / (heads / groups)
                    } else {
                        head % groups
                    };
                    let [decay, skip] = ["ssm_a", "ssm_d"].map(|all| self.get(&name(all))[head]);
                    let mut states = vec![vec![0.0; state]; dim]; // (values, keys)
                    for (t, out) in outputs.iter_mut().enumerate() {
                        let step = all[t][2 * inner + 2 * keys + head];
                        let step = (step + self.get(&name("ssm_dt.bias"))[head]).exp().ln_1p();
                        let decay = gate((decay * step).exp(), "decays");
                        let k = &mixed[t][inner + group * state..][..state];
                        let q = &mixed[t][inner + keys + group * state..][..state];
                        for (j, states) in states.iter_mut().enumerate() {
                            let value = mixed[t][head * dim + j];
                            let new = gate(step, "steps") * value;
                            states.iter_mut().zip(k).for_each(|(s, k)| *s = decay * *s + new * k);
                            let found: f64 = states.iter().zip(q).map(|(s, q)| s * q).sum();
                            let skip = if has("values beside outputs") { skip } else { 0.0 };
                            out[head * dim + j] = found + skip * value;
                        }
                    }
                }
                let norm = self.get(&name("ssm_norm.weight"));
                for (out, gates) in outputs.iter_mut().zip(&all) {
                    let gates = gates[..inner].iter().map(|z| gate(z * sigmoid(*z), "gates"));
                    out.iter_mut().zip(gates).for_each(|(out, gate)| *out *= gate);
                    let part = inner / groups;
                    out.chunks_exact_mut(part).for_each(normalize);
                    out.iter_mut().zip(norm).for_each(|(out, weight)| *out *= weight);
                }
                outputs.iter().map(|x| self.linear(&name("ssm_out"), x)).collect()
            }
        }
    }
}

/// Computes a causal convolution with weights (channels, taps) for all tokens.
fn convolve(weights: &[f64], taps: usize, x: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let channel = |t: usize, c: usize| {
        let weights = &weights[c * taps..][..taps];
        let terms = weights.iter().enumerate().filter_map(|(j, w)| {
            let at = (t + 1 + j).checked_sub(taps)?;
            Some(w * x[at][c])
        });
        terms.sum()
    };
    (0..x.len()).map(|t| (0..x[t].len()).map(|c| channel(t, c)).collect()).collect()
}
