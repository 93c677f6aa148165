//! A plain forward pass in double precision, written as the definition.

use std::collections::HashMap;

use crate::tiny::{EPSILON, Tiny};

/// The inverse frequencies of global and of window layers.
pub struct Frequencies {
    pub global: Vec<f64>,
    pub window: Vec<f64>,
}

impl Frequencies {
    /// Returns `base^(-2i/n)` for both kinds of layers, the global ones divided by `factor`.
    pub fn new(tiny: &Tiny, factor: f64) -> Self {
        let of = |base: f64| {
            let n = tiny.n_rot as f64;
            (0..tiny.n_rot / 2).map(|i| base.powf(-2.0 * i as f64 / n)).collect::<Vec<_>>()
        };
        let base = f64::from(tiny.base);
        let global: Vec<f64> = of(base).into_iter().map(|x| x / factor).collect();
        let window = match tiny.architecture {
            "gemma3" => of(10000.0),
            "gemma2" => of(base),
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

    /// Computes the feed-forward network of a layer.
    fn network(&self, tiny: &Tiny, name: &dyn Fn(&str) -> String, x: &[f64]) -> Vec<f64> {
        let gated = |gate: &[f64], up: &[f64]| -> Vec<f64> {
            let activated = gate.iter().map(|g| {
                let u = (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g * g * g);
                if tiny.is_gemma() { 0.5 * g * (1.0 + u.tanh()) } else { g / (1.0 + (-g).exp()) }
            });
            activated.zip(up).map(|(g, up)| g * up).collect()
        };
        if let Some((count, used)) = tiny.experts {
            let scores = self.linear(&name("ffn_gate_inp"), x);
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            let sum: f64 = order[..used].iter().map(|&e| scores[e].exp()).sum();
            let mut y = vec![0.0; x.len()];
            for &expert in &order[..used] {
                let of = |tensor: &str, x: &[f64]| {
                    let all = self.get(&name(&format!("{tensor}_exps.weight")));
                    product(&all[expert * all.len() / count..][..all.len() / count], x)
                };
                let inner = gated(&of("ffn_gate", x), &of("ffn_up", x));
                let share = scores[expert].exp() / sum;
                y.iter_mut().zip(of("ffn_down", &inner)).for_each(|(y, x)| *y += share * x);
            }
            return y;
        }
        let inner = if tiny.fused {
            let both = self.linear(&name("ffn_up"), x);
            let (gate, up) = both.split_at(both.len() / 2);
            gated(gate, up)
        } else {
            gated(&self.linear(&name("ffn_gate"), x), &self.linear(&name("ffn_up"), x))
        };
        self.linear(&name("ffn_down"), &inner)
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + f64::from(EPSILON)).sqrt();
        x.iter().zip(self.get(&format!("{name}.weight"))).map(|(x, w)| x * scale * w).collect()
    }
}

/// Computes `W x`.
fn product(w: &[f64], x: &[f64]) -> Vec<f64> {
    let rows = w.chunks_exact(x.len());
    rows.map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

fn capped(x: f64, cap: Option<f32>) -> f64 {
    cap.map_or(x, |cap| f64::from(cap) * (x / f64::from(cap)).tanh())
}

/// Rotates the first elements of a head, each pair by an angle given as (sine, cosine).
fn rotate(head: &mut [f64], angles: &[(f64, f64)], adjacent: bool) {
    let half = angles.len();
    for (i, (sin, cos)) in angles.iter().enumerate() {
        let (a, b) = if adjacent { (2 * i, 2 * i + 1) } else { (i, i + half) };
        (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
    }
}

/// Computes the logits of each token.
pub fn forward(tiny: &Tiny, rope: &Frequencies, tokens: &[u32]) -> Vec<Vec<f32>> {
    let rules = Rules {
        place: &|_, j| Some(j),
        frequencies: &|_| (rope.global.clone(), 1.0),
        distance: &|i, j| Some((i - j) as f64),
        query_scale: &|_| 1.0,
    };
    forward_by(tiny, &rules, &rope.window, tokens)
}

/// Computes the logits of each token, with other rules in global layers.
pub fn forward_by(
    tiny: &Tiny,
    rules: &Rules<'_>,
    window_frequencies: &[f64],
    tokens: &[u32],
) -> Vec<Vec<f32>> {
    let w = Weights::new(tiny);
    let dim = tiny.head_dim;
    let group = tiny.heads / tiny.kv_heads;
    let adjacent = ["llama", "smollm3"].contains(&tiny.architecture);
    let embeddings = w.get("token_embd.weight");
    let scale = if tiny.scaled { (tiny.embedding as f64).sqrt() } else { 1.0 };
    let mut hidden: Vec<Vec<f64>> = tokens
        .iter()
        .map(|&t| embeddings[t as usize * tiny.embedding..][..tiny.embedding].to_vec())
        .map(|x| x.into_iter().map(|x| x * scale).collect())
        .collect();
    for layer in 0..tiny.layers {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let window = tiny.layer_window(layer);
        let unrotated = tiny.unrotated.is_some_and(|period| layer % period + 1 == period);
        let heads = |tensor: &str, norm: Option<&str>, x: &[f64]| {
            let (q, kv) = (tiny.heads * dim, tiny.kv_heads * dim);
            let mut all = match tensor {
                _ if !tiny.fused => w.linear(&name(tensor), x),
                "attn_q" => w.linear(&name("attn_qkv"), x)[..q].to_vec(),
                "attn_k" => w.linear(&name("attn_qkv"), x)[q..][..kv].to_vec(),
                _ => w.linear(&name("attn_qkv"), x)[q + kv..].to_vec(),
            };
            for head in all.chunks_exact_mut(dim) {
                if let Some(norm) = norm.filter(|_| tiny.head_norms) {
                    head.copy_from_slice(&w.norm(&name(norm), head));
                }
            }
            all
        };
        let normed: Vec<_> = hidden.iter().map(|x| w.norm(&name("attn_norm"), x)).collect();
        let of = |tensor: &str, norm| -> Vec<_> {
            normed.iter().map(|x| heads(tensor, norm, x)).collect()
        };
        let queries = of("attn_q", Some("attn_q_norm"));
        let keys = of("attn_k", Some("attn_k_norm"));
        let values = of("attn_v", None);
        for (i, x) in hidden.iter_mut().enumerate() {
            let place = (rules.place)(i, i).unwrap();
            let first = window.map_or(0, |window| (place + 1).saturating_sub(window));
            let (frequencies, rotated_scale) = match window {
                Some(_) => (window_frequencies.to_vec(), 1.0),
                None => (rules.frequencies)(i),
            };
            let query_scale =
                if window.is_some() || unrotated { 1.0 } else { (rules.query_scale)(place) };
            let distance = |j| {
                let key = (rules.place)(i, j).filter(|key| *key >= first)?;
                match window {
                    Some(_) => Some((place - key) as f64),
                    None => (rules.distance)(place, key),
                }
            };
            let angles = |distance: f64| -> Vec<_> {
                frequencies.iter().map(|frequency| (distance * frequency).sin_cos()).collect()
            };
            let seen = (0..=i).filter_map(|j| Some((j, angles(distance(j)?))));
            let seen: Vec<_> = seen.collect();
            let mut attended = vec![0.0; tiny.heads * dim];
            for (head, out) in attended.chunks_exact_mut(dim).enumerate() {
                let (q, at) = (&queries[i][head * dim..][..dim], head / group * dim);
                let weights: Vec<f64> = seen
                    .iter()
                    .map(|(j, angles)| {
                        let mut q = q.to_vec();
                        if !unrotated {
                            rotate(&mut q, angles, adjacent);
                            q[..tiny.n_rot].iter_mut().for_each(|q| *q *= rotated_scale.powi(2));
                        }
                        let dot: f64 = q.iter().zip(&keys[*j][at..]).map(|(q, k)| q * k).sum();
                        let dot = dot * query_scale;
                        let cap = tiny.soft_caps.map(|caps| caps.0);
                        capped(dot / (dim as f64).sqrt(), cap).exp()
                    })
                    .collect();
                let sum: f64 = weights.iter().sum();
                for (weight, (j, _)) in weights.iter().zip(&seen) {
                    for (out, v) in out.iter_mut().zip(&values[*j][at..]) {
                        *out += weight / sum * v;
                    }
                }
            }
            let post = |norm: &str, y: Vec<f64>| {
                if tiny.post_norms { w.norm(&name(norm), &y) } else { y }
            };
            let y = post("post_attention_norm", w.linear(&name("attn_output"), &attended));
            x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
            let normed = w.norm(&name("ffn_norm"), x);
            let y = post("post_ffw_norm", w.network(tiny, &name, &normed));
            x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
        }
    }
    hidden.iter().map(|x| logits(tiny, &w, &w.norm("output_norm", x))).collect()
}

/// Returns the logits that follow from an embedding: the normalized output of the last layer.
pub fn logits_of_embedding(tiny: &Tiny, embedding: &[f32]) -> Vec<f32> {
    let embedding: Vec<_> = embedding.iter().map(|x| f64::from(*x)).collect();
    logits(tiny, &Weights::new(tiny), &embedding)
}

fn logits(tiny: &Tiny, w: &Weights, embedding: &[f64]) -> Vec<f32> {
    let output = if tiny.tied { "token_embd" } else { "output" };
    let logits = w.linear(output, embedding).into_iter();
    logits.map(|x| capped(x, tiny.soft_caps.map(|caps| caps.1)) as f32).collect()
}
