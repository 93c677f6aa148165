//! The elements of a tiny model's tensors, of its adapter too.

use std::collections::HashMap;

use half::f16;
use rope_cpu::model::architecture::{HeadNorms, ScoreFactor};
use rope_cpu_kernels::{Cpu, DType, Encoder};

use super::{ALPHA, RANK, Tiny};

const EMBEDDINGS: &str = "token_embd.weight";

impl Tiny {
    /// Returns the elements of all tensors by name. Queries and keys are large, so that attention
    /// is peaked and their rotation changes the logits.
    pub fn weights(&self) -> HashMap<String, Vec<f32>> {
        let tensors = self.tensors().into_iter().map(|(name, shape)| {
            let values = shape.iter().product::<usize>();
            let size = match (&shape[..], name.as_str()) {
                ([_], _) => 0.5,
                (_, n) if n.ends_with(".bias") => 0.3,
                // So small that the constant of the norms after them matters.
                (_, n)
                    if self.architecture.norms.post_epsilon.is_some()
                        && ["attn_output", "ffn_down"].iter().any(|l| n.contains(l)) =>
                {
                    0.01
                }
                // Likewise, and their norm makes them large.
                (_, n)
                    if self.head_norms() == HeadNorms::RotatedHeads
                        && n.ends_with("attn_q.weight") =>
                {
                    0.01
                }
                (_, n) if ["attn_q", "attn_k", "gate_inp"].iter().any(|l| n.contains(l)) => 3.0,
                _ => 1.0,
            };
            let scale = size * (3.0 / *shape.last().unwrap() as f32).sqrt();
            let shift = match name.as_str() {
                // Scores that are not divided would be too large.
                n if self.architecture.scales.scores == ScoreFactor::One
                    && n.contains("attn_q_norm") =>
                {
                    0.4
                }
                // The input of the router is divided by the root of its length.
                n if n.ends_with("gate_inp.scale") => 8.0,
                n if n.ends_with("ssm_a") => -0.5,
                n if n.ends_with("ssm_d") => 1.0,
                n if n.contains("norm") && !n.ends_with(".bias") => 1.0,
                n if shape.len() == 1 && n.contains("scale") => 1.0,
                _ => 0.0,
            };
            let scale = match shape.len() {
                1 if name.ends_with("attn_k.bias") => self.key_bias,
                // As large as scores.
                1 if name.contains("sinks") => 3.0,
                _ if name.contains("norm.weight") || shape.ends_with(&[1]) => 0.3,
                _ if is_table(&name) => 1.0,
                1 => 0.3,
                _ => scale,
            };
            let mut random = random(&name);
            let mut values: Vec<f32> = (0..values).map(|_| random() * scale + shift).collect();
            if let Some(encoder) = self.encoder(&name, &shape) {
                encoder.decode(&encoded(encoder, &values), &mut values);
            }
            // Adapters are added to weights that are already rounded.
            if self.merged != 0.0 && self.is_adapted(&name, &shape) {
                self.merge(&name, &shape, &mut values);
            }
            (name, values)
        });
        tensors.collect()
    }

    /// Returns the quantizer of a tensor, unless it is in F32.
    pub fn encoder(&self, name: &str, shape: &[usize]) -> Option<Encoder> {
        let columns = shape[shape.len() - 1];
        let matrix = shape.len() > 1
            && name.ends_with(".weight")
            && !name.contains("gate_inp")
            && !is_table(name);
        let fits = |dtype: &DType| matrix && columns.is_multiple_of(dtype.block().0);
        self.quantized.filter(fits).and_then(Encoder::new)
    }

    /// Computes `W + s B A`, for each expert; for embeddings `W + s A B`.
    fn merge(&self, name: &str, shape: &[usize], weights: &mut [f32]) {
        let [(.., a), (.., b)] = self.halves(name, shape);
        let [rows, columns] = [shape[shape.len() - 2], shape[shape.len() - 1]];
        let scale = f64::from(self.merged * ALPHA) / RANK as f64;
        for (i, w) in weights.iter_mut().enumerate() {
            let (row, column, expert) = (i / columns, i % columns, i / columns / rows);
            let pair = |r: usize| match name {
                EMBEDDINGS => (a[row * RANK + r], b[column * RANK + r]),
                _ => (a[(expert * RANK + r) * columns + column], b[row * RANK + r]),
            };
            let sum: f64 = (0..RANK).map(pair).map(|(a, b)| f64::from(a) * f64::from(b)).sum();
            *w += (scale * sum) as f32;
        }
    }

    /// Returns whether the adapter has a tensor: it has all matrices except embeddings that are
    /// also the output, which abort llama.cpp (b11434), and a table that products do not use.
    pub fn is_adapted(&self, name: &str, shape: &[usize]) -> bool {
        let matrix = shape.len() > 1 && name.ends_with(".weight") && !is_table(name);
        let predicts = name.starts_with(&format!("blk.{}.", self.layers));
        let looked_up = name == "per_layer_token_embd.weight" || self.tied && name == EMBEDDINGS;
        // Their scales do not multiply what an adapter adds, as in llama.cpp.
        let scaled = self.beside() && name.contains("ffn_down_exps");
        let of_heads = name.contains("attn_k_b") || name.contains("attn_v_b");
        matrix && !predicts && !looked_up && !scaled && !of_heads
    }

    /// Returns the names, shapes and elements of the two matrices that adapt a tensor: A and B.
    pub fn halves(&self, name: &str, shape: &[usize]) -> [Named; 2] {
        let (count, matrix) = shape.split_at(shape.len() - 2);
        let half = |half: &str, matrix: [usize; 2]| {
            let (name, shape) = (format!("{name}.{half}"), [count, &matrix[..]].concat());
            let mut random = random(&name);
            let scale = (3.0 / matrix[1] as f32).sqrt();
            let values = (0..shape.iter().product()).map(|_| random() * scale);
            let rounded = |x| if self.half_adapters { f16::from_f32(x).to_f32() } else { x };
            (name, shape, values.map(rounded).collect())
        };
        match name {
            EMBEDDINGS => [half("lora_a", [matrix[0], RANK]), half("lora_b", [matrix[1], RANK])],
            _ => [half("lora_a", [RANK, matrix[1]]), half("lora_b", [matrix[0], RANK])],
        }
    }
}

/// Returns whether a tensor is a table of floats that no adapter changes: the weights of a convolution,
/// or norms of groups or of heads.
pub fn is_table(name: &str) -> bool {
    let norms = ["ssm_norm.weight", "q_norm.weight", "k_norm.weight"];
    ["conv.weight", "conv1d.weight"].iter().chain(&norms).any(|end| name.ends_with(end))
}

/// Returns the blocks of quantized values. For Q8_0, Q1_0 and Q2_0, quantizing decoded blocks gives
/// the same blocks.
pub fn encoded(encoder: Encoder, values: &[f32]) -> Vec<u8> {
    let (block, bytes) = encoder.dtype().block();
    let mut out = vec![0; values.len() / block * bytes];
    encoder.encode(Cpu::best(), values, None, &mut out);
    out
}

/// A name, a shape and values.
type Named = (String, Vec<usize>, Vec<f32>);

/// Returns a generator of random numbers from -1 to 1: xorshift64 from the FNV-1a of a name. So a
/// tensor does not depend on the other tensors of a model.
fn random(name: &str) -> impl FnMut() -> f32 + use<> {
    let fnv = |state: u64, byte| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let mut state = name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}
