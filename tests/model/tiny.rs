//! Tiny random models as GGUF files, and the same weights as plain numbers.

use std::collections::HashMap;

use half::f16;

use crate::build::{ARRAY, Builder, F32, STRING, U32, array, string};

/// The description of a tiny model, with the properties that the tests vary.
#[derive(Clone)]
pub struct Tiny {
    pub architecture: &'static str,
    pub layers: usize,
    pub embedding: usize,
    pub feed_forward: usize,
    /// The elements by which each feed-forward network is narrower than that of the layer before.
    pub narrower: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub n_rot: usize,
    pub vocabulary: usize,
    pub context: usize,
    pub base: f32,
    /// The matrices that have a bias.
    pub biases: &'static [&'static str],
    /// The size of the biases of keys.
    pub key_bias: f32,
    pub tied: bool,
    pub head_norms: bool,
    pub post_norms: bool,
    /// Whether queries, keys and values are in one tensor, and gate and up in another.
    pub fused: bool,
    /// The number of experts, and the number of them that compute a token.
    pub experts: Option<(usize, usize)>,
    /// Whether each expert has its own tensors, as in Mixtral's first files.
    pub experts_apart: bool,
    /// Whether embeddings are multiplied by the square root of their length, as in Gemma.
    pub scaled: bool,
    pub window: Option<(usize, usize)>,
    pub soft_caps: Option<(f32, f32)>,
    /// The period of layers that do not rotate: the last layer of each.
    pub unrotated: Option<usize>,
    pub long_rope: Option<usize>,
    /// The scale of the adapter that is merged into the weights, 0 for none.
    pub merged: f32,
    /// Whether adapters are in F16.
    pub half_adapters: bool,
    /// Whether matrices with rows of whole blocks are in Q8_0.
    pub quantized: bool,
    /// Whether matrices of layers are multiplied by a power of two in the file, and have a tensor
    /// with the inverse scale, as in files of NVFP4.
    pub scales: bool,
}

/// The rank of the adapters of all models.
pub const RANK: usize = 5;
const ALPHA: f32 = 8.0;
const EMBEDDINGS: &str = "token_embd.weight";

pub const EPSILON: f32 = 1e-5;
const LINEARS: [&str; 7] =
    ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

impl Tiny {
    /// Returns a model with biases and grouped heads, whose length is no multiple of 32 and which
    /// rotate in part.
    pub fn llama() -> Tiny {
        Tiny {
            architecture: "llama",
            layers: 2,
            embedding: 72,
            feed_forward: 104,
            narrower: 0,
            heads: 6,
            kv_heads: 2,
            head_dim: 20,
            n_rot: 12,
            vocabulary: 50,
            context: 64,
            base: 500.0,
            biases: &LINEARS,
            key_bias: 0.3,
            tied: false,
            head_norms: false,
            post_norms: false,
            fused: false,
            experts: None,
            experts_apart: false,
            scaled: false,
            window: None,
            soft_caps: None,
            unrotated: None,
            long_rope: None,
            merged: 0.0,
            half_adapters: false,
            quantized: false,
            scales: false,
        }
    }

    /// Returns a model with query and key norms, a window of 40 in two of three layers, soft caps,
    /// and tied embeddings.
    pub fn gemma3() -> Tiny {
        Tiny {
            architecture: "gemma3",
            layers: 3,
            kv_heads: 3,
            head_dim: 32,
            n_rot: 32,
            base: 2000.0,
            biases: &[],
            tied: true,
            head_norms: true,
            post_norms: true,
            scaled: true,
            window: Some((40, 3)),
            soft_caps: Some((1.5, 3.0)),
            ..Tiny::llama()
        }
    }

    /// Returns the models that `scripts/make-architecture-golden` writes, with their names there.
    pub fn all() -> [(&'static str, Tiny); 8] {
        let base = Tiny { head_dim: 12, biases: &[], ..Tiny::llama() };
        let wide = Tiny { head_dim: 20, n_rot: 20, head_norms: true, ..base.clone() };
        [
            ("llama", Tiny { biases: &LINEARS, tied: true, ..base.clone() }),
            ("llama-experts", Tiny { experts: Some((5, 2)), ..base.clone() }),
            (
                "smollm3",
                Tiny {
                    architecture: "smollm3",
                    layers: 5,
                    tied: true,
                    unrotated: Some(4),
                    ..base.clone()
                },
            ),
            ("qwen2", Tiny { architecture: "qwen2", biases: &LINEARS[..3], ..base.clone() }),
            ("qwen3", Tiny { architecture: "qwen3", tied: true, ..wide.clone() }),
            ("qwen3moe", Tiny { architecture: "qwen3moe", experts: Some((7, 3)), ..wide }),
            (
                "phi3",
                Tiny {
                    architecture: "phi3",
                    n_rot: 8,
                    fused: true,
                    long_rope: Some(16),
                    ..base.clone()
                },
            ),
            (
                "gemma2",
                Tiny {
                    architecture: "gemma2",
                    layers: 4,
                    tied: true,
                    post_norms: true,
                    scaled: true,
                    window: Some((10, 2)),
                    soft_caps: Some((1.5, 3.0)),
                    ..base
                },
            ),
        ]
    }

    /// Returns the model of [`Tiny::all`] with this name.
    pub fn named(name: &str) -> Tiny {
        Tiny::all().into_iter().find(|(known, _)| *known == name).unwrap().1
    }

    /// Returns the model in Q8_0, with rows of whole blocks.
    pub fn in_blocks(self) -> Tiny {
        let head_dim = 16 + 16 * usize::from(self.n_rot > 16);
        Tiny { embedding: 64, feed_forward: 96, head_dim, quantized: true, ..self }
    }

    fn is_quantized(&self, name: &str, shape: &[usize]) -> bool {
        let columns = shape[shape.len() - 1];
        let matrix = shape.len() > 1 && !name.contains("gate_inp");
        self.quantized && matrix && columns.is_multiple_of(32)
    }

    /// Returns whether it is a Gemma model.
    pub fn is_gemma(&self) -> bool {
        self.architecture.starts_with("gemma")
    }

    /// Returns the window of a layer, if it has one.
    pub fn layer_window(&self, layer: usize) -> Option<usize> {
        self.window.filter(|(_, period)| layer % period + 1 < *period).map(|(window, _)| window)
    }

    fn layer_feed_forward(&self, layer: usize) -> usize {
        self.feed_forward - layer * self.narrower
    }

    /// Returns the divisors of LongRoPE, short and long.
    pub fn divisors(&self) -> [Vec<f32>; 2] {
        [1.1, 3.0].map(|d| (0..self.n_rot / 2).map(|i| d + i as f32 / 4.0).collect())
    }

    /// Returns the names and shapes of all tensors: rows, then columns; one dimension for vectors.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let e = self.embedding;
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut all = vec![
            ("token_embd.weight".to_string(), vec![self.vocabulary, e]),
            ("output_norm.weight".to_string(), vec![e]),
        ];
        if !self.tied {
            all.push(("output.weight".to_string(), vec![self.vocabulary, e]));
        }
        for layer in 0..self.layers {
            let f = self.layer_feed_forward(layer);
            let mut add = |name: &str, shape: &[usize]| {
                all.push((format!("blk.{layer}.{name}"), shape.to_vec()));
            };
            let attention = match self.fused {
                true => vec![("attn_qkv", q + 2 * kv, e)],
                false => vec![("attn_q", q, e), ("attn_k", kv, e), ("attn_v", kv, e)],
            };
            let network = match self.fused {
                true => vec![("ffn_up", 2 * f, e), ("ffn_down", e, f)],
                false => vec![("ffn_gate", f, e), ("ffn_up", f, e), ("ffn_down", e, f)],
            };
            if let Some((count, _)) = self.experts {
                add("ffn_gate_inp.weight", &[count, e]);
                for (name, rows, columns) in &network {
                    add(&format!("{name}_exps.weight"), &[count, *rows, *columns]);
                }
            }
            let network = if self.experts.is_some() { vec![] } else { network };
            let linears = attention.into_iter().chain([("attn_output", e, q)]).chain(network);
            for (name, rows, columns) in linears {
                add(&format!("{name}.weight"), &[rows, columns]);
                if self.biases.contains(&name) {
                    add(&format!("{name}.bias"), &[rows]);
                }
            }
            add("attn_norm.weight", &[e]);
            add("ffn_norm.weight", &[e]);
            if self.head_norms {
                add("attn_q_norm.weight", &[self.head_dim]);
                add("attn_k_norm.weight", &[self.head_dim]);
            }
            if self.post_norms {
                add("post_attention_norm.weight", &[e]);
                add("post_ffw_norm.weight", &[e]);
            }
        }
        all
    }

    /// Returns the elements of all tensors by name. Queries and keys are large, so that attention
    /// is peaked and their rotation changes the logits.
    pub fn weights(&self) -> HashMap<String, Vec<f32>> {
        let tensors = self.tensors().into_iter().map(|(name, shape)| {
            let values = shape.iter().product::<usize>();
            let size = match (&shape[..], name.as_str()) {
                ([_], _) => 0.5,
                (_, n) if ["attn_q", "attn_k", "gate_inp"].iter().any(|l| n.contains(l)) => 3.0,
                _ => 1.0,
            };
            let scale = size * (3.0 / *shape.last().unwrap() as f32).sqrt();
            let shift = if shape.len() == 1 && name.contains("norm") { 1.0 } else { 0.0 };
            let scale = match shape.len() {
                1 if name.ends_with("attn_k.bias") => self.key_bias,
                1 => 0.3,
                _ => scale,
            };
            let mut random = random(&name);
            let mut values: Vec<f32> = (0..values).map(|_| random() * scale + shift).collect();
            if self.is_quantized(&name, &shape) {
                for block in values.chunks_mut(32) {
                    let (scale, quants) = q8_0(block);
                    for (value, quant) in block.iter_mut().zip(quants) {
                        *value = scale.to_f32() * f32::from(quant);
                    }
                }
            }
            // Adapters are added to weights that are already rounded.
            if self.merged != 0.0 && self.is_adapted(&name, &shape) {
                self.merge(&name, &shape, &mut values);
            }
            (name, values)
        });
        tensors.collect()
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
    /// also the output, which abort llama.cpp (b11434).
    fn is_adapted(&self, name: &str, shape: &[usize]) -> bool {
        shape.len() > 1 && !(self.tied && name == EMBEDDINGS)
    }

    /// Returns the names, shapes and elements of the two matrices that adapt a tensor: A and B.
    fn halves(&self, name: &str, shape: &[usize]) -> [Named; 2] {
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

    /// Returns the file of an adapter for the model.
    pub fn adapter(&self) -> Builder {
        let mut b = Builder::new()
            .key("general.type", STRING, string("adapter"))
            .key("general.architecture", STRING, string(self.architecture))
            .key("adapter.type", STRING, string("lora"))
            .key("adapter.lora.alpha", F32, ALPHA.to_le_bytes());
        for (name, shape) in self.tensors().into_iter().filter(|(n, s)| self.is_adapted(n, s)) {
            for (name, shape, values) in self.halves(&name, &shape) {
                let dims: Vec<u64> = shape.iter().rev().map(|&n| n as u64).collect();
                let halves = values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes());
                b = match self.half_adapters {
                    true => b.append(&name, &dims, 1, halves),
                    false => add_tensor(b, &name, &dims, &values),
                };
            }
        }
        b
    }

    /// Returns the file of the model.
    pub fn builder(&self) -> Builder {
        let a = self.architecture;
        let mut b = Builder::new().key("general.architecture", STRING, string(a));
        let numbers = [
            ("context_length", self.context),
            ("embedding_length", self.embedding),
            ("block_count", self.layers),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
            ("rope.dimension_count", self.n_rot),
        ];
        for (key, number) in numbers {
            b = b.key(format!("{a}.{key}"), U32, (number as u32).to_le_bytes());
        }
        let widths = (0..self.layers).map(|layer| self.layer_feed_forward(layer) as u32);
        let key = format!("{a}.feed_forward_length");
        b = match self.narrower {
            0 => b.key(key, U32, (self.feed_forward as u32).to_le_bytes()),
            _ => b.key(key, ARRAY, array(U32, self.layers as u64, widths.map(u32::to_le_bytes))),
        };
        b = b.key(format!("{a}.attention.layer_norm_rms_epsilon"), F32, EPSILON.to_le_bytes());
        b = b.key(format!("{a}.rope.freq_base"), F32, self.base.to_le_bytes());
        if let Some((count, used)) = self.experts {
            b = b.key(format!("{a}.expert_count"), U32, (count as u32).to_le_bytes());
            b = b.key(format!("{a}.expert_used_count"), U32, (used as u32).to_le_bytes());
        }
        if let Some((window, period)) = self.window {
            let key = format!("{a}.attention.sliding_window");
            b = b.key(&key, U32, (window as u32).to_le_bytes());
            b = b.key(format!("{key}_pattern"), U32, (period as u32).to_le_bytes());
        }
        // Without these keys Gemma 2 has default soft caps: 0 disables them.
        let gemma2 = (a == "gemma2").then_some((0.0f32, 0.0f32));
        if let Some((attention, logits)) = self.soft_caps.or(gemma2) {
            b = b.key(format!("{a}.attn_logit_softcapping"), F32, attention.to_le_bytes());
            b = b.key(format!("{a}.final_logit_softcapping"), F32, logits.to_le_bytes());
        }
        let mut weights = self.weights();
        for (name, shape) in self
            .tensors()
            .into_iter()
            .filter(|(n, s)| self.scales && s.len() > 1 && n.starts_with("blk."))
        {
            let stem = name.trim_end_matches(".weight");
            let count = if shape.len() > 2 { shape[0] } else { 1 };
            let scales: Vec<f32> = (0..count).map(|i| 0.5f32.powi(1 + i as i32)).collect();
            b = add_tensor(b, &format!("{stem}.scale"), &[count as u64], &scales);
            b = add_tensor(b, &format!("{stem}.input_scale"), &[count as u64], &scales);
            let values = weights.get_mut(&name).unwrap();
            let each = values.len() / count;
            for (values, scale) in values.chunks_mut(each).zip(scales) {
                values.iter_mut().for_each(|value| *value /= scale);
            }
        }
        for (name, shape) in self.tensors() {
            let dims: Vec<u64> = shape.iter().rev().map(|&n| n as u64).collect();
            match name.split_once("_exps") {
                Some((before, after)) if self.experts_apart => {
                    let each = weights[&name].len() / shape[0];
                    for (i, values) in weights[&name].chunks(each).enumerate() {
                        b = add_tensor(b, &format!("{before}.{i}{after}"), &dims[..2], values);
                    }
                }
                _ if self.is_quantized(&name, &shape) => {
                    let blocks = weights[&name].chunks(32).map(q8_0);
                    let bytes = blocks.flat_map(|(scale, quants)| {
                        scale.to_le_bytes().into_iter().chain(quants.map(|quant| quant as u8))
                    });
                    b = b.append(&name, &dims, 8, bytes);
                }
                _ => b = add_tensor(b, &name, &dims, &weights[&name]),
            }
        }
        if let Some(original) = self.long_rope {
            let key = format!("{a}.rope.scaling");
            // Files of Phi 3 do not have this key.
            if a != "phi3" {
                b = b.key(format!("{key}.type"), STRING, string("longrope"));
            }
            b = b.key(
                format!("{key}.original_context_length"),
                U32,
                (original as u32).to_le_bytes(),
            );
            b = b.key(format!("{key}.attn_factor"), F32, 1.0f32.to_le_bytes());
            let [short, long] = self.divisors();
            b = add_tensor(b, "rope_factors_short.weight", &[short.len() as u64], &short);
            b = add_tensor(b, "rope_factors_long.weight", &[long.len() as u64], &long);
        }
        b
    }
}

/// Quantizes a block to Q8_0: its scale, and 32 quants. Quantizing a dequantized block gives the
/// same block.
fn q8_0(values: &[f32]) -> (f16, [i8; 32]) {
    let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let scale = f16::from_f32(largest / 127.0);
    let quant = |i: usize| (values[i] / scale.to_f32()).round() as i8;
    (scale, std::array::from_fn(quant))
}

/// A name, a shape and values.
type Named = (String, Vec<usize>, Vec<f32>);

/// Returns a generator of random numbers from -1 to 1, seeded by a name, so that a tensor does not
/// depend on the other tensors of a model: xorshift64 from the FNV-1a of the name.
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

/// Appends a tensor of floats to a file.
pub fn add_tensor(b: Builder, name: &str, dims: &[u64], values: &[f32]) -> Builder {
    b.append(name, dims, 0, values.iter().flat_map(|x| x.to_le_bytes()))
}
