//! A plain forward pass in double precision, written as the definition.

use std::{collections::HashMap, ops::Range};

use crate::tiny::{ALPHA_OF_BASE, EPSILON, Function, Latent, Recurrent, Tiny};

/// The inverse frequencies of global and of window layers.
pub struct Frequencies {
    pub global: Vec<f64>,
    pub window: Vec<f64>,
}

impl Frequencies {
    /// Returns `base^(-2i/n)` for both kinds of layers, the global ones divided by `factor`.
    pub fn new(tiny: &Tiny, factor: f64) -> Self {
        let of = |base: f64, n_rot: usize| {
            let n = n_rot as f64;
            (0..n_rot / 2).map(|i| base.powf(-2.0 * i as f64 / n)).collect::<Vec<_>>()
        };
        let window_n_rot = tiny.window_head.map_or(tiny.n_rot, |[_, n_rot]| n_rot);
        let alpha = if tiny.architecture == "hunyuan-dense" { ALPHA_OF_BASE } else { 1.0 };
        let n = tiny.n_rot as f64;
        let base = f64::from(tiny.base) * f64::from(alpha).powf(n / (n - 2.0));
        let mut global: Vec<f64> = of(base, tiny.n_rot).into_iter().map(|x| x / factor).collect();
        if let Some(turning) = tiny.turning {
            global[turning..].fill(0.0);
        }
        let window = match tiny.architecture {
            "gemma3" | "gemma4" | "gemma-embedding" => of(10000.0, window_n_rot),
            "gemma2" | "laguna" => of(base, window_n_rot),
            _ => global.clone(),
        };
        Frequencies { global, window }
    }

    /// Returns the frequencies of a sequence longer than LongRoPE's original length.
    pub fn long(tiny: &Tiny) -> Self {
        let [_, divisors] = tiny.divisors();
        let plain = Frequencies::new(tiny, 1.0);
        let divided = plain.global.iter().zip(divisors).map(|(x, d)| x / f64::from(d));
        let global: Vec<f64> = divided.collect();
        Frequencies { window: global.clone(), global }
    }
}

/// The rules of attention for the query of token `i` and the key of token `j`. All but `place`
/// apply to global layers only.
pub struct Rules<'r> {
    /// The position of the `j`th token when the `i`th is read; `None` if it is evicted.
    pub place: &'r dyn Fn(usize, usize) -> Option<usize>,
    /// The inverse frequencies for the query of the `i`th token, and the factor of the rotated
    /// elements of queries and keys.
    pub frequencies: &'r dyn Fn(usize) -> (Vec<f64>, f64),
    /// The distance of the key at position `j` from the query at position `i`; `None` if the query
    /// does not attend to the key.
    pub distance: &'r dyn Fn(usize, usize) -> Option<f64>,
    /// The factor of the query at a position.
    pub query_scale: &'r dyn Fn(usize) -> f64,
}

struct Weights(HashMap<String, Vec<f64>>);

impl Weights {
    fn new(tiny: &Tiny) -> Self {
        let exact = |values: Vec<f32>| values.into_iter().map(f64::from).collect();
        Weights(tiny.weights().into_iter().map(|(name, values)| (name, exact(values))).collect())
    }

    fn get(&self, name: &str) -> &[f64] {
        &self.0[name]
    }

    /// Computes `W x + b`.
    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let w = self.get(&format!("{name}.weight"));
        let bias = self.0.get(&format!("{name}.bias"));
        let products = product(w, x).into_iter().enumerate();
        products.map(|(r, dot)| dot + bias.map_or(0.0, |b| b[r])).collect()
    }

    /// Computes `W x + b` for an expert.
    fn of_expert(&self, name: &str, (expert, count): (usize, usize), x: &[f64]) -> Vec<f64> {
        let part = |all: &[f64]| all[expert * all.len() / count..][..all.len() / count].to_vec();
        let y = product(&part(self.get(&format!("{name}_exps.weight"))), x);
        let bias = self.0.get(&format!("{name}_exps.bias")).map(|bias| part(bias));
        let bias = bias.unwrap_or_else(|| vec![0.0; y.len()]);
        y.into_iter().zip(bias).map(|(y, bias)| y + bias).collect()
    }

    /// Computes the feed-forward network of a layer.
    fn network(&self, tiny: &Tiny, layer: usize, x: &[f64]) -> Vec<f64> {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let gated = |gate: &[f64], up: &[f64]| -> Vec<f64> {
            let pairs = gate.iter().zip(up);
            pairs.map(|(gate, up)| gated(tiny.function, *gate, *up)).collect()
        };
        let Some((count, used)) = tiny.layer_experts(layer) else {
            let up = self.linear(&name("ffn_up"), x);
            let inner: Vec<f64> = match tiny.function {
                _ if tiny.fused_network() => {
                    let (gate, up) = up.split_at(up.len() / 2);
                    gated(gate, up)
                }
                Function::UngatedGelu => up.iter().map(|x| gelu(*x)).collect(),
                Function::SquaredRelu => squared_relu(&up),
                Function::Xielu => up.iter().map(|x| xielu(tiny.xielu(layer), *x)).collect(),
                _ => gated(&self.linear(&name("ffn_gate"), x), &up),
            };
            return self.linear(&name("ffn_down"), &inner);
        };
        let scores = self.linear(&name("ffn_gate_inp"), x);
        let all: f64 = scores.iter().map(|score| score.exp()).sum();
        let bias = self.0.get(&name("exp_probs_b.bias"));
        let weight = |e: usize| match tiny.sigmoid_gating {
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
            let inner = match tiny.fused_experts {
                true => {
                    let both = of("ffn_gate_up", x);
                    let (gate, up) = both.split_at(both.len() / 2);
                    gated(gate, up)
                }
                false if tiny.function == Function::SquaredRelu => squared_relu(&of("ffn_up", x)),
                false => gated(&of("ffn_gate", x), &of("ffn_up", x)),
            };
            let share = weight(expert) / sum;
            y.iter_mut().zip(of("ffn_down", &inner)).for_each(|(y, x)| *y += share * x);
        }
        if tiny.shared > 0 {
            let of = |tensor: &str, x: &[f64]| self.linear(&name(&format!("{tensor}_shexp")), x);
            let inner = match tiny.function {
                Function::SquaredRelu => squared_relu(&of("ffn_up", x)),
                _ => gated(&of("ffn_gate", x), &of("ffn_up", x)),
            };
            let gate = self.0.get(&name("ffn_gate_inp_shexp.weight"));
            let share = gate.map_or(1.0, |gate| sigmoid(product(gate, x)[0]));
            y.iter_mut().zip(of("ffn_down", &inner)).for_each(|(y, x)| *y += share * x);
        }
        y
    }

    /// Computes the recurrence of a layer for all tokens.
    fn recurrence(
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
            Recurrent::Delta { key_heads, value_heads, dim, taps, side_by_side } => {
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

    /// Computes the queries, keys and values of all heads of a layer with latents, what rotates first.
    fn of_latent(&self, tiny: &Tiny, latent: Latent, layer: usize, x: &[f64]) -> [Vec<f64>; 3] {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let (n_rot, Latent { rank, unrotated, .. }) = (tiny.n_rot, latent);
        let queries = match latent.query_rank {
            0 => self.linear(&name("attn_q"), x),
            _ => {
                let short = self.linear(&name("attn_q_a"), x);
                self.linear(&name("attn_q_b"), &self.norm(tiny, &name("attn_q_a_norm"), &short))
            }
        };
        let queries = queries.chunks_exact(unrotated + n_rot);
        let queries = queries.flat_map(|q| [&q[unrotated..], &q[..unrotated]].concat()).collect();
        let both = self.linear(&name("attn_kv_a_mqa"), x);
        let latent = self.norm(tiny, &name("attn_kv_a_norm"), &both[..rank]);
        let [keys, values] = ["attn_k_b", "attn_v_b"].map(|tensor| {
            let all = self.get(&name(&format!("{tensor}.weight")));
            all.chunks_exact(all.len() / tiny.heads).collect::<Vec<_>>()
        });
        let key = |matrix: &&[f64]| {
            // The file has the transposed matrix.
            let element = |i| (0..rank).map(|r| matrix[r * unrotated + i] * latent[r]).sum();
            let rest: Vec<f64> = (0..unrotated).map(element).collect();
            let rest = if tiny.without == "keys of heads" { vec![0.0; unrotated] } else { rest };
            [&both[rank..], &rest].concat()
        };
        let value = |matrix: &&[f64]| product(matrix, &latent);
        [queries, keys.iter().flat_map(key).collect(), values.iter().flat_map(value).collect()]
    }

    /// Computes the network and the experts of a layer from activations `x`, with `input` as the
    /// network's input.
    fn network_beside_experts(
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
            let both = of("ffn_gate_up", &input);
            let (gate, up) = both.split_at(both.len() / 2);
            let inner = gate.iter().zip(up).map(|(gate, up)| gated(tiny.function, *gate, *up));
            let down = of("ffn_down", &inner.collect::<Vec<_>>());
            let share = scores[expert].exp() / sum * self.get(&name("ffn_down_exps.scale"))[expert];
            experts.iter_mut().zip(down).for_each(|(y, x)| *y += share * x);
        }
        let experts = self.norm(tiny, &name("post_ffw_norm_2"), &experts);
        y.iter_mut().zip(experts).for_each(|(y, x)| *y += x);
        y
    }

    /// Computes the inputs of all layers for a token with the embedding `x`.
    fn layer_inputs(&self, tiny: &Tiny, len: usize, token: u32, x: &[f64]) -> Vec<f64> {
        let (all, root) = (tiny.layers * len, (x.len() as f64).sqrt());
        let projected = self.linear("per_layer_model_proj", x);
        let projected: Vec<f64> = projected.into_iter().map(|x| x / root).collect();
        let normed = projected.chunks(len).flat_map(|x| self.norm(tiny, "per_layer_proj_norm", x));
        let row = &self.get("per_layer_token_embd.weight")[token as usize * all..][..all];
        let scale = (len as f64).sqrt();
        normed.zip(row).map(|(x, row)| (x + row * scale) / 2f64.sqrt()).collect()
    }

    fn norm(&self, tiny: &Tiny, name: &str, x: &[f64]) -> Vec<f64> {
        let center = x.iter().sum::<f64>() / x.len() as f64;
        let center = if tiny.centered { center } else { 0.0 };
        let x: Vec<_> = x.iter().map(|x| x - center).collect();
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + f64::from(EPSILON)).sqrt();
        let bias = self.0.get(&format!("{name}.bias"));
        // Falcon-H1 has one without the suffix.
        let weights = self
            .0
            .get(name)
            .map(|all| &all[..])
            .unwrap_or_else(|| self.get(&format!("{name}.weight")));
        let products = x.iter().zip(weights).map(|(x, w)| x * scale * w);
        products.enumerate().map(|(i, x)| x + bias.map_or(0.0, |bias| bias[i])).collect()
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Divides by the root of the mean square.
fn normalize(x: &mut [f64]) {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter_mut().for_each(|x| *x /= (mean + f64::from(EPSILON)).sqrt());
}

fn squared_relu(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| x.max(0.0).powi(2)).collect()
}

/// Computes the function of one inner activation of a gated network.
fn gated(function: Function, gate: f64, up: f64) -> f64 {
    match function {
        Function::Gelu => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044715 * gate.powi(3));
            0.5 * gate * (1.0 + u.tanh()) * up
        }
        Function::ClampedSilu => {
            let gate = gate.min(7.0);
            gate * sigmoid(1.702 * gate) * (up.clamp(-7.0, 7.0) + 1.0)
        }
        _ => gate * sigmoid(gate) * up,
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

/// Computes `W x`.
fn product(w: &[f64], x: &[f64]) -> Vec<f64> {
    let rows = w.chunks_exact(x.len());
    rows.map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

fn capped(x: f64, cap: Option<f32>) -> f64 {
    cap.filter(|cap| *cap > 0.0).map_or(x, |cap| f64::from(cap) * (x / f64::from(cap)).tanh())
}

/// Rotates the first elements of a head, each pair by an angle given as (sine, cosine).
fn rotate(head: &mut [f64], angles: &[(f64, f64)], adjacent: bool) {
    let half = angles.len();
    for (i, (sin, cos)) in angles.iter().enumerate() {
        let (a, b) = if adjacent { (2 * i, 2 * i + 1) } else { (i, i + half) };
        (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
    }
}

/// Computes the logits of each token, or its embedding if the model is an encoder.
pub fn forward(tiny: &Tiny, rope: &Frequencies, tokens: &[u32]) -> Vec<Vec<f32>> {
    forward_by(tiny, &plain(&|_| (rope.global.clone(), 1.0)), &rope.window, tokens)
}

/// Returns the rules of RoPE itself, with these frequencies.
fn plain<'r>(frequencies: &'r dyn Fn(usize) -> (Vec<f64>, f64)) -> Rules<'r> {
    Rules {
        place: &|_, j| Some(j),
        frequencies,
        distance: &|i, j| Some(i as f64 - j as f64),
        query_scale: &|_| 1.0,
    }
}

/// Computes what [`forward`] does, with other rules in global layers.
pub fn forward_by(
    tiny: &Tiny,
    rules: &Rules<'_>,
    window_frequencies: &[f64],
    tokens: &[u32],
) -> Vec<Vec<f32>> {
    let w = Weights::new(tiny);
    let output = |x: &Vec<f64>| {
        let x = match tiny.norms_sums {
            true => x.clone(),
            false => w.norm(tiny, tiny.output_norm, x),
        };
        match tiny.causal {
            true => logits(tiny, &w, &x),
            false => x.into_iter().map(|x| x as f32).collect(),
        }
    };
    outputs(tiny, &w, rules, window_frequencies, tokens).iter().map(output).collect()
}

/// Computes the outputs of the last layer.
fn outputs(
    tiny: &Tiny,
    w: &Weights,
    rules: &Rules<'_>,
    window_frequencies: &[f64],
    tokens: &[u32],
) -> Vec<Vec<f64>> {
    let embeddings = w.get("token_embd.weight");
    let scale = f64::from(tiny.factors[0]);
    let mut hidden: Vec<Vec<f64>> = tokens
        .iter()
        .map(|&t| embeddings[t as usize * tiny.embedding..][..tiny.embedding].to_vec())
        .map(|x| x.into_iter().map(|x| x * scale).collect())
        .collect();
    let layer_inputs: Vec<_> = match tiny.layer_input {
        0 => vec![],
        len => {
            let inputs = |(token, x): (&u32, &Vec<f64>)| w.layer_inputs(tiny, len, *token, x);
            tokens.iter().zip(&hidden).map(inputs).collect()
        }
    };
    for (position, x) in hidden.iter_mut().enumerate() {
        let mut add = |tensor: &str, row: usize| {
            let row = &w.get(tensor)[row * tiny.embedding..];
            x.iter_mut().zip(row).for_each(|(x, term)| *x += term);
        };
        let [types, positions] = tiny.terms;
        if types {
            let before = |separator| tokens[..position].contains(&separator);
            add("token_types.weight", usize::from(tiny.separator.is_some_and(before)));
        }
        if positions {
            add("position_embd.weight", position);
        }
        if types {
            *x = w.norm(tiny, "token_embd_norm", x);
        }
    }
    compute(tiny, w, rules, window_frequencies, &layer_inputs, 0..tiny.layers, &mut hidden);
    hidden
}

/// Computes some layers for all tokens.
fn compute(
    tiny: &Tiny,
    w: &Weights,
    rules: &Rules<'_>,
    window_frequencies: &[f64],
    layer_inputs: &[Vec<f64>],
    layers: Range<usize>,
    hidden: &mut [Vec<f64>],
) {
    let halves = [
        "qwen", "phi3", "gemma", "gpt-oss", "olmo2", "exaone4", "seed_oss", "apertus", "hunyuan",
        "lfm2", "nomic", "falcon", "mellum", "laguna",
    ];
    let adjacent = !halves.iter().any(|family| tiny.architecture.starts_with(family));
    let (residual, count) = (f64::from(tiny.factors[1]), hidden.len());
    // The keys and values of each layer that has its own.
    let mut stored: Vec<[Vec<Vec<f64>>; 2]> = vec![Default::default(); layers.start];
    for layer in layers {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let window = tiny.layer_window(layer);
        let [query_heads, mut kv_heads, mut dim] = tiny.layer_shape(layer);
        let mut value_dim = dim;
        if let Some(latent) = tiny.latent {
            (kv_heads, dim) = (query_heads, latent.unrotated + tiny.n_rot);
            value_dim = latent.value_dim;
        }
        let (dim, kv_heads, value_dim) = (dim, kv_heads, value_dim);
        let group = query_heads / kv_heads;
        let unrotated = tiny.is_unrotated(layer);
        let heads = |tensor: &str, norm: Option<&str>, x: &[f64]| {
            let (q, kv) = (query_heads * dim, kv_heads * dim);
            let mut all = match tensor {
                "attn_q" if tiny.gated_attention => {
                    let both = w.linear(&name(tensor), x);
                    both.chunks_exact(2 * dim).flat_map(|both| both[..dim].to_vec()).collect()
                }
                _ if !tiny.fused => w.linear(&name(tensor), x),
                "attn_q" => w.linear(&name("attn_qkv"), x)[..q].to_vec(),
                "attn_k" => w.linear(&name("attn_qkv"), x)[q..][..kv].to_vec(),
                _ => w.linear(&name("attn_qkv"), x)[q + kv..].to_vec(),
            };
            if let Some(norm) = norm.filter(|_| tiny.head_norms || tiny.row_norms) {
                let len = if tiny.row_norms { all.len() } else { dim };
                for part in all.chunks_exact_mut(len) {
                    part.copy_from_slice(&w.norm(tiny, &name(norm), part));
                }
            }
            all
        };
        let before = |norm: &str, x: &[f64]| match tiny.pre_norms {
            true => w.norm(tiny, &name(norm), x),
            false => x.to_vec(),
        };
        let normed: Vec<_> = hidden.iter().map(|x| before("attn_norm", x)).collect();
        let add = |x: &mut [f64], norm: &str, y: Vec<f64>| {
            let y = if tiny.post_norms { w.norm(tiny, &name(norm), &y) } else { y };
            x.iter_mut().zip(y).for_each(|(x, y)| *x += residual * y);
            if tiny.norms_sums {
                x.copy_from_slice(&w.norm(tiny, &name(norm), x));
            }
        };
        let [attention_norm, network_norm] = tiny.norms_after();
        let network = |i: usize, x: &mut [f64]| {
            if !tiny.has_network(layer) {
                return;
            }
            let input = match tiny.parallel {
                true => normed[i].clone(),
                false => before(tiny.network_norm, x),
            };
            let network = match tiny.beside {
                true => w.network_beside_experts(tiny, layer, x, &input),
                false => w.network(tiny, layer, &input),
            };
            add(x, network_norm, network);
            if tiny.layer_input > 0 {
                let gates = w.linear(&name("inp_gate"), x);
                let inputs = &layer_inputs[i][layer * tiny.layer_input..];
                let inner = gates.iter().zip(inputs).map(|(x, i)| gated(Function::Gelu, *x, *i));
                add(x, "post_norm", w.linear(&name("proj"), &inner.collect::<Vec<_>>()));
            }
            if tiny.output_scales {
                let scale = w.get(&name("layer_output_scale.weight"))[0];
                x.iter_mut().for_each(|x| *x *= scale);
            }
        };
        let recurrent = tiny.layer_recurrence(layer);
        let recurrent = recurrent.map(|own| w.recurrence(tiny, own, layer, &normed));
        if !tiny.layer_attends(layer) {
            for (i, x) in hidden.iter_mut().enumerate() {
                if let Some(outputs) = &recurrent {
                    add(x, attention_norm, outputs[i].clone());
                }
                network(i, x);
            }
            stored.push(Default::default());
            continue;
        }
        let of = |tensor: &str, norm| -> Vec<_> {
            normed.iter().map(|x| heads(tensor, norm, x)).collect()
        };
        let mut of_latents = [vec![], vec![], vec![]];
        if let Some(latent) = tiny.latent {
            for x in &normed {
                let parts = w.of_latent(tiny, latent, layer, x);
                of_latents.iter_mut().zip(parts).for_each(|(all, one)| all.push(one));
            }
        }
        let [latent_queries, latent_keys, latent_values] = of_latents;
        let queries = match tiny.latent {
            Some(_) => latent_queries,
            None => of("attn_q", Some("attn_q_norm")),
        };
        if tiny.latent.is_some() {
            stored.push([latent_keys, latent_values]);
        } else if tiny.source(layer) == layer {
            let values = if tiny.lacks_values(layer) { "attn_k" } else { "attn_v" };
            let mut values = of(values, None);
            if tiny.value_norm {
                values.iter_mut().flat_map(|x| x.chunks_exact_mut(dim)).for_each(normalize);
            }
            stored.push([of("attn_k", Some("attn_k_norm")), values]);
        }
        let [keys, values] = &stored[tiny.source(layer)];
        for (i, x) in hidden.iter_mut().enumerate() {
            let place = (rules.place)(i, i).unwrap();
            // In an encoder, a window has its token in the middle, and tokens see the whole text.
            let (first, last) = match (tiny.causal, window) {
                (true, None) => (0, place),
                (true, Some(window)) => ((place + 1).saturating_sub(window), place),
                (false, None) => (0, usize::MAX),
                (false, Some(window)) => (place.saturating_sub(window / 2), place + window / 2),
            };
            let (frequencies, rotated_scale) = match window {
                Some(_) => (window_frequencies.to_vec(), 1.0),
                None => (rules.frequencies)(i),
            };
            let query_scale =
                if window.is_some() || unrotated { 1.0 } else { (rules.query_scale)(place) };
            let distance = |j| {
                let key = (rules.place)(i, j).filter(|key| (first..=last).contains(key))?;
                match window {
                    Some(_) => Some(place as f64 - key as f64),
                    None => (rules.distance)(place, key),
                }
            };
            let angles = |distance: f64| -> Vec<_> {
                frequencies.iter().map(|frequency| (distance * frequency).sin_cos()).collect()
            };
            let tokens = if tiny.causal { 0..i + 1 } else { 0..count };
            let seen = tokens.filter_map(|j| Some((j, angles(distance(j)?))));
            let seen: Vec<_> = seen.collect();
            let mut attended = vec![0.0; query_heads * value_dim];
            for (head, out) in attended.chunks_exact_mut(value_dim).enumerate() {
                let (q, at) = (&queries[i][head * dim..][..dim], head / group * dim);
                let weights: Vec<f64> = seen
                    .iter()
                    .map(|(j, angles)| {
                        let mut q = q.to_vec();
                        if !unrotated {
                            rotate(&mut q, angles, adjacent);
                            q[..2 * angles.len()]
                                .iter_mut()
                                .for_each(|q| *q *= rotated_scale.powi(2));
                        }
                        let mut k = keys[*j][at..][..dim].to_vec();
                        if tiny.rotated_norms {
                            // Norms of what both have rotated to their own positions.
                            let rotated = |x: &[f64], position: usize, norm: &str| {
                                let mut x = x.to_vec();
                                let angles = frequencies.iter();
                                let angles: Vec<_> =
                                    angles.map(|f| (position as f64 * f).sin_cos()).collect();
                                rotate(&mut x, &angles, adjacent);
                                w.norm(tiny, &name(norm), &x)
                            };
                            q = rotated(&queries[i][head * dim..][..dim], i, "attn_q_norm");
                            k = rotated(&k, *j, "attn_k_norm");
                        }
                        let dot: f64 = q.iter().zip(&k).map(|(q, k)| q * k).sum();
                        let dot = dot * query_scale;
                        let cap = tiny.soft_caps.map(|caps| caps.0);
                        let divisor = if tiny.plain_scores { 1.0 } else { (dim as f64).sqrt() };
                        capped(dot / divisor, cap).exp()
                    })
                    .collect();
                let sink = w.0.get(&name("attn_sinks.weight")).map_or(0.0, |all| all[head].exp());
                let sum: f64 = sink + weights.iter().sum::<f64>();
                for (weight, (j, _)) in weights.iter().zip(&seen) {
                    for (out, v) in out.iter_mut().zip(&values[*j][head / group * value_dim..]) {
                        *out += weight / sum * v;
                    }
                }
            }
            if tiny.gated_attention && tiny.without != "gates of attention" {
                let both = w.linear(&name("attn_q"), &normed[i]);
                for (out, both) in attended.chunks_exact_mut(dim).zip(both.chunks_exact(2 * dim)) {
                    out.iter_mut().zip(&both[dim..]).for_each(|(out, gate)| *out *= sigmoid(*gate));
                }
            }
            if let Some(elements) =
                tiny.gates_apart.filter(|_| tiny.without != "gates of attention")
            {
                let gates = w.linear(&name("attn_gate"), &normed[i]);
                let outputs = if elements { 1 } else { dim };
                for (out, gate) in attended.chunks_exact_mut(outputs).zip(gates) {
                    out.iter_mut().for_each(|out| *out *= gate.exp().ln_1p());
                }
            }
            let mut y = w.linear(&name("attn_output"), &attended);
            if let Some(outputs) = &recurrent {
                y.iter_mut().zip(&outputs[i]).for_each(|(y, x)| *y += x);
            }
            add(x, attention_norm, y);
            network(i, x);
        }
    }
}

/// Computes the logits of the layer that predicts further tokens: after `tokens`, and then after each
/// of `drafts`. The model has computed all of `tokens` but the last.
pub fn predicted(tiny: &Tiny, rope: &Frequencies, tokens: &[u32], drafts: &[u32]) -> Vec<Vec<f32>> {
    let w = Weights::new(tiny);
    let has = |part: &str| tiny.without != part;
    let frequencies = |_: usize| (rope.global.clone(), 1.0);
    let rules = plain(&frequencies);
    let name = |tensor: &str| format!("blk.{}.{tensor}", tiny.layers);
    let own = |tensor: &str, of_model: &str| match tiny.predicts_alone && has(tensor) {
        true => name(tensor),
        false => of_model.to_string(),
    };
    let embeddings = w.get(&format!("{}.weight", own("nextn.embed_tokens", "token_embd")));
    let norm = |part: &str, x: &[f64]| match has(part) {
        true => w.norm(tiny, &name(part), x),
        false => x.to_vec(),
    };
    let input = |token: u32, output: &[f64]| {
        let embedding = &embeddings[token as usize * tiny.embedding..][..tiny.embedding];
        let parts = [norm("nextn.enorm", embedding), norm("nextn.hnorm", output)];
        let [first, second] =
            if has("the order") { parts } else { [1, 0].map(|i| parts[i].clone()) };
        w.linear(&name("nextn.eh_proj"), &[first, second].concat())
    };
    let outputs = outputs(tiny, &w, &rules, &rope.window, &tokens[..tokens.len() - 1]);
    let outputs = outputs.iter().map(|x| match has("the norm of outputs") {
        true => w.norm(tiny, tiny.output_norm, x),
        false => x.clone(),
    });
    let before = std::iter::once(vec![0.0; tiny.embedding]).chain(outputs);
    let mut x: Vec<_> = tokens.iter().zip(before).map(|(token, x)| input(*token, &x)).collect();
    if !has("earlier tokens") {
        x.drain(..tokens.len() - 1);
    }
    let (output_norm, head) = (
        own("nextn.shared_head_norm", tiny.output_norm),
        own("nextn.shared_head_head", output(tiny)),
    );
    let mut drafts = drafts.iter();
    let mut all = Vec::new();
    loop {
        let mut computed = x.clone();
        let layer = tiny.layers..tiny.layers + 1;
        compute(tiny, &w, &rules, &rope.window, &[], layer, &mut computed);
        let last = w.norm(tiny, &output_norm, &computed[computed.len() - 1]);
        all.push(w.linear(&head, &last).into_iter().map(|x| x as f32).collect());
        match drafts.next() {
            Some(draft) => x.push(input(*draft, &last)),
            None => return all,
        }
    }
}

/// Returns the logits that follow from an embedding: the normalized output of the last layer.
pub fn logits_of_embedding(tiny: &Tiny, embedding: &[f32]) -> Vec<f32> {
    let embedding: Vec<_> = embedding.iter().map(|x| f64::from(*x)).collect();
    logits(tiny, &Weights::new(tiny), &embedding)
}

/// Returns the name of the matrix that logits are computed with.
fn output(tiny: &Tiny) -> &'static str {
    if tiny.tied { "token_embd" } else { "output" }
}

fn logits(tiny: &Tiny, w: &Weights, embedding: &[f64]) -> Vec<f32> {
    let logits = w.linear(output(tiny), embedding).into_iter();
    let scale = f64::from(tiny.factors[2]);
    logits.map(|x| capped(scale * x, tiny.soft_caps.map(|caps| caps.1)) as f32).collect()
}
