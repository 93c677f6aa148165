//! The layers of a model: attention and the networks.

use std::ops::Range;

use rope_cpu::model::architecture::{AttentionGates, GateFunction, HeadNorms, ScoreFactor};
use rope_cpu_kernels::vector::Activation;

use super::{
    Record, Rules, Stored, capped,
    network::{gated, sigmoid},
    weights::{Weights, normalize, product},
};
use crate::tiny::{Latent, Tiny};

/// Computes some layers for all tokens. Returns the keys and values of each.
#[allow(clippy::too_many_arguments, reason = "a plain function of everything that layers need")]
pub fn compute(
    tiny: &Tiny,
    w: &Weights,
    rules: &Rules<'_>,
    window_frequencies: &[f64],
    layer_inputs: &[Vec<f64>],
    layers: Range<usize>,
    hidden: &mut [Vec<f64>],
    record: Record<'_>,
) -> Vec<Stored> {
    let family = tiny.architecture;
    let (norms, adjacent) = (family.norms, tiny.pairs_adjacent());
    let gated_queries = family.attention.gates == AttentionGates::WithQueries;
    let (residual, count) = (f64::from(tiny.factors()[1]), hidden.len());
    let mut stored: Vec<Stored> = vec![Default::default(); layers.start];
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
                "attn_q" if gated_queries => {
                    let both = w.linear(&name(tensor), x);
                    both.chunks_exact(2 * dim).flat_map(|both| both[..dim].to_vec()).collect()
                }
                _ if !tiny.fused => w.linear(&name(tensor), x),
                "attn_q" => w.linear(&name("attn_qkv"), x)[..q].to_vec(),
                "attn_k" => w.linear(&name("attn_qkv"), x)[q..][..kv].to_vec(),
                _ => w.linear(&name("attn_qkv"), x)[q + kv..].to_vec(),
            };
            let len = match tiny.head_norms() {
                HeadNorms::None | HeadNorms::RotatedHeads => None,
                HeadNorms::Rows => Some(all.len()),
                HeadNorms::Heads | HeadNorms::HeadsIfAny | HeadNorms::EachHeadIfAny => Some(dim),
            };
            if let (Some(norm), Some(len)) = (norm, len) {
                for (head, part) in all.chunks_exact_mut(len).enumerate() {
                    part.copy_from_slice(&w.norm_of_head(tiny, &name(norm), head, part));
                }
            }
            all
        };
        let norm_if = |norm: Option<&str>, x: &[f64]| w.norm_if(tiny, norm.map(name).as_deref(), x);
        let normed: Vec<_> = hidden.iter().map(|x| norm_if(norms.attention.before, x)).collect();
        let add = |x: &mut [f64], norm: Option<&str>, y: Vec<f64>| {
            let [of_output, of_sum] = if norms.of_sums { [None, norm] } else { [norm, None] };
            let y = norm_if(of_output, &y);
            x.iter_mut().zip(y).for_each(|(x, y)| *x += residual * y);
            x.copy_from_slice(&norm_if(of_sum, x));
        };
        let network_norm = norms.network.and_then(|norms| norms.after);
        let network = |i: usize, x: &mut [f64]| {
            if !tiny.has_network(layer) {
                return;
            }
            let input = match norms.network {
                None if tiny.without == "one input" => norm_if(norms.attention.before, x),
                None => normed[i].clone(),
                Some(norms) => norm_if(norms.before, x),
            };
            let network = match tiny.beside() {
                true => w.network_beside_experts(tiny, layer, x, &input),
                false => w.network(tiny, layer, &input),
            };
            add(x, network_norm, network);
            if tiny.layer_input > 0 {
                let gates = w.linear(&name("inp_gate"), x);
                let inputs = &layer_inputs[i][layer * tiny.layer_input..];
                let inner =
                    gates.iter().zip(inputs).map(|(x, i)| gated(Activation::GeluTanh, *x, *i));
                add(x, Some("post_norm"), w.linear(&name("proj"), &inner.collect::<Vec<_>>()));
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
                    add(x, norms.attention.after, outputs[i].clone());
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
            if family.attention.value_norm {
                values.iter_mut().flat_map(|x| x.chunks_exact_mut(dim)).for_each(normalize);
            }
            stored.push([of("attn_k", Some("attn_k_norm")), values]);
        }
        let [keys, values] = &stored[tiny.source(layer)];
        for (i, x) in hidden.iter_mut().enumerate() {
            let place = (rules.place)(i, i).unwrap();
            // In an encoder, a window has its token in the middle, and tokens see the whole text.
            let (first, last) = match (family.causal, window) {
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
                let frequencies = if unrotated { &[] } else { &frequencies[..] };
                frequencies.iter().map(|frequency| (distance * frequency).sin_cos()).collect()
            };
            let tokens = if family.causal { 0..i + 1 } else { 0..count };
            let seen = tokens.filter_map(|j| Some((j, angles(distance(j)?))));
            let seen: Vec<_> = seen.collect();
            let mut attended = vec![0.0; query_heads * value_dim];
            for (head, out) in attended.chunks_exact_mut(value_dim).enumerate() {
                let (q, at) = (&queries[i][head * dim..][..dim], head / group * dim);
                let weights: Vec<f64> = seen
                    .iter()
                    .map(|(j, angles)| {
                        let k = &keys[*j][at..][..dim];
                        let dot = if tiny.head_norms() == HeadNorms::RotatedHeads {
                            // Norms of what both have rotated to their own positions.
                            let rotated = |x: &[f64], position: usize, norm: &str| {
                                let mut x = x.to_vec();
                                let angles = frequencies.iter();
                                let angles: Vec<_> =
                                    angles.map(|f| (position as f64 * f).sin_cos()).collect();
                                rotate(&mut x, &angles, adjacent);
                                w.norm(tiny, &name(norm), &x)
                            };
                            dot(&rotated(q, i, "attn_q_norm"), &rotated(k, *j, "attn_k_norm"))
                        } else {
                            rotated_dot(q, k, angles, adjacent, rotated_scale.powi(2))
                        };
                        let dot = dot * query_scale;
                        let cap = tiny.soft_caps.map(|caps| caps.0);
                        let plain = family.scales.scores == ScoreFactor::One;
                        let divisor = if plain { 1.0 } else { (dim as f64).sqrt() };
                        let score = capped(dot / divisor, cap);
                        record([layer, head, i, *j], score);
                        score.exp()
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
            if gated_queries && tiny.without != "gates of attention" {
                let both = w.linear(&name("attn_q"), &normed[i]);
                for (out, both) in attended.chunks_exact_mut(dim).zip(both.chunks_exact(2 * dim)) {
                    out.iter_mut().zip(&both[dim..]).for_each(|(out, gate)| *out *= sigmoid(*gate));
                }
            }
            if let AttentionGates::Apart(function) = family.attention.gates
                && tiny.without != "gates of attention"
            {
                let gates = w.linear(&name("attn_gate"), &normed[i]);
                let outputs = attended.len() / gates.len();
                for (out, gate) in attended.chunks_exact_mut(outputs).zip(gates) {
                    let gate = match function {
                        GateFunction::Sigmoid => sigmoid(gate),
                        GateFunction::Softplus => gate.exp().ln_1p(),
                    };
                    out.iter_mut().for_each(|out| *out *= gate);
                }
            }
            let mut y = w.linear(&name("attn_output"), &attended);
            if let Some(outputs) = &recurrent {
                y.iter_mut().zip(&outputs[i]).for_each(|(y, x)| *y += x);
            }
            add(x, norms.attention.after, y);
            network(i, x);
        }
    }
    stored
}

impl Weights {
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

    /// Computes the inputs of all layers for a token with the embedding `x`.
    pub fn layer_inputs(&self, tiny: &Tiny, len: usize, token: u32, x: &[f64]) -> Vec<f64> {
        let (all, root) = (tiny.layers * len, (x.len() as f64).sqrt());
        let projected = self.linear("per_layer_model_proj", x);
        let projected: Vec<f64> = projected.into_iter().map(|x| x / root).collect();
        let normed = projected.chunks(len).flat_map(|x| self.norm(tiny, "per_layer_proj_norm", x));
        let row = &self.get("per_layer_token_embd.weight")[token as usize * all..][..all];
        let scale = (len as f64).sqrt();
        normed.zip(row).map(|(x, row)| (x + row * scale) / 2f64.sqrt()).collect()
    }
}

/// Returns the elements of a pair of `pairs` that rotate.
fn pair(i: usize, pairs: usize, adjacent: bool) -> (usize, usize) {
    if adjacent { (2 * i, 2 * i + 1) } else { (i, i + pairs) }
}

/// Rotates the first elements of a head, each pair by an angle given as (sine, cosine).
pub fn rotate(head: &mut [f64], angles: &[(f64, f64)], adjacent: bool) {
    for (i, (sin, cos)) in angles.iter().enumerate() {
        let (a, b) = pair(i, angles.len(), adjacent);
        (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
    }
}

/// Computes the product of a key and a query that [`rotate`] has rotated, with the rotated elements
/// times `scale`.
fn rotated_dot(q: &[f64], k: &[f64], angles: &[(f64, f64)], adjacent: bool, scale: f64) -> f64 {
    let rotated = angles.iter().enumerate().map(|(i, (sin, cos))| {
        let (a, b) = pair(i, angles.len(), adjacent);
        (q[a] * cos - q[b] * sin) * k[a] + (q[a] * sin + q[b] * cos) * k[b]
    });
    let rest = 2 * angles.len();
    rotated.sum::<f64>() * scale + dot(&q[rest..], &k[rest..])
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
