//! Tiny models and their adapters as GGUF files.

use std::collections::HashMap;

use half::f16;
use rope_cpu::gguf::GgmlType;

use super::{
    ALPHA, ALPHA_OF_BASE, EPSILON, Latent, Recurrent, Tiny,
    weights::{encoded, is_table},
};
use crate::builder::{ARRAY, BOOL, Builder, F32, STRING, U32, array, string};

impl Tiny {
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

    /// Adds a flag for each layer.
    fn flags(&self, b: Builder, key: String, flag: impl Fn(usize) -> bool) -> Builder {
        let flags = (0..self.layers).map(|layer| [u8::from(flag(layer))]);
        b.key(key, ARRAY, array(BOOL, self.layers as u64, flags))
    }

    /// Adds the keys of a scan.
    fn scan_keys(&self, b: Builder) -> Builder {
        let (taps, inner, state, heads, groups) = match self.recurrent {
            Some(Recurrent::Delta { key_heads, value_heads, dim, taps, .. }) => {
                (taps, value_heads * dim, dim, value_heads, key_heads)
            }
            Some(Recurrent::Mamba2 { groups, heads, dim, state, taps }) => {
                (taps, heads * dim, state, heads, groups)
            }
            _ => return b,
        };
        let numbers = [
            ("ssm.conv_kernel", taps),
            ("ssm.inner_size", inner),
            ("ssm.state_size", state),
            ("ssm.time_step_rank", heads),
            ("ssm.group_count", groups),
            ("full_attention_interval", self.attends),
            ("nextn_predict_layers", usize::from(self.predicts)),
        ];
        numbers.into_iter().fold(b, |b, (key, number)| {
            let key = format!("{}.{key}", self.architecture);
            b.key(key, U32, (number as u32).to_le_bytes())
        })
    }

    /// Adds the keys of DeepSeek's models.
    fn latent_keys(&self, mut b: Builder) -> Builder {
        let Some(Latent { query_rank, rank, unrotated, value_dim, joined }) = self.latent else {
            return b;
        };
        let a = self.architecture;
        let (groups, used_groups) = self.groups.unwrap_or_default();
        let numbers = [
            ("attention.q_lora_rank", query_rank),
            ("attention.kv_lora_rank", rank),
            ("attention.key_length_mla", unrotated + self.n_rot),
            ("attention.value_length_mla", value_dim),
            ("expert_shared_count", self.shared / self.feed_forward),
            ("expert_gating_func", 1 + usize::from(self.sigmoid_gating)),
            ("expert_group_count", groups),
            ("expert_group_used_count", used_groups),
            ("nextn_predict_layers", usize::from(self.predicts)),
        ];
        for (key, number) in numbers.into_iter().filter(|(key, _)| !joined || !key.ends_with("mla"))
        {
            b = b.key(format!("{a}.{key}"), U32, (number as u32).to_le_bytes());
        }
        b = b.key(format!("{a}.expert_weights_norm"), BOOL, [u8::from(self.sums_to_one)]);
        let scale = self.expert_scale.to_le_bytes();
        b = b.key(format!("{a}.expert_weights_scale"), F32, scale);
        if self.score_weight != 0.0 {
            let key = format!("{a}.rope.scaling");
            b = b.key(format!("{key}.type"), STRING, string("yarn"));
            b = b.key(format!("{key}.factor"), F32, 4.0f32.to_le_bytes());
            b = b.key(format!("{key}.original_context_length"), U32, 16u32.to_le_bytes());
            let weight = 0.1 * self.score_weight;
            b = b.key(format!("{key}.yarn_log_multiplier"), F32, weight.to_le_bytes());
        }
        b
    }

    /// Adds the tensor that joins the matrices of keys, transposed, and of values of each head.
    fn add_joined(
        &self,
        b: Builder,
        keys_name: &str,
        Latent { rank, unrotated, value_dim, .. }: Latent,
        weights: &HashMap<String, Vec<f32>>,
    ) -> Builder {
        let values = &weights[&keys_name.replace("attn_k_b", "attn_v_b")];
        let keys = weights[keys_name].chunks_exact(rank * unrotated);
        let heads = keys.zip(values.chunks_exact(value_dim * rank)).flat_map(|(keys, values)| {
            let column = |i| (0..rank).map(move |r| keys[r * unrotated + i]);
            (0..unrotated).flat_map(column).chain(values.iter().copied()).collect::<Vec<_>>()
        });
        let rows = self.heads * (unrotated + value_dim);
        let name = keys_name.replace("attn_k_b", "attn_kv_b");
        add_tensor(b, &name, &[rank as u64, rows as u64], &heads.collect::<Vec<_>>())
    }

    /// Adds the keys that single families have.
    fn family_keys(&self, b: Builder) -> Builder {
        let a = self.architecture;
        let float = |b: Builder, key: &str, value: f32| {
            b.key(format!("{a}.{key}"), F32, value.to_le_bytes())
        };
        match a {
            "granite" | "granitemoe" | "granite_swa" | "granitehybrid" | "minicpm" => {
                let b = self.scan_keys(b);
                let rotates = format!("{a}.rope.scaling.finetuned");
                let b = match a {
                    "granitehybrid" => b.key(rotates, BOOL, [u8::from(self.unrotated.is_none())]),
                    _ => b,
                };
                let [embedding, residual, logits] = self.factors;
                let b = float(b, "embedding_scale", embedding);
                let b = float(b, "residual_scale", residual);
                float(b, "logit_scale", 1.0 / logits)
            }
            "bert" | "nomic-bert" => b.key(format!("{a}.attention.causal"), BOOL, [0]).key(
                "tokenizer.ggml.token_type_count",
                U32,
                2u32.to_le_bytes(),
            ),
            "deepseek2" => self.latent_keys(b),
            "falcon-h1" => self.scan_keys(b),
            "nemotron_h" | "nemotron_h_moe" => {
                let b = self.scan_keys(b);
                let b = b.key(format!("{a}.expert_weights_norm"), BOOL, [1]);
                float(b, "expert_weights_scale", self.expert_scale)
            }
            "glm4moe" | "cohere2moe" => {
                let b = match a {
                    "cohere2moe" => float(b, "logit_scale", self.factors[2]),
                    _ => b,
                };
                let numbers = [
                    ("expert_shared_count", self.shared.div_ceil(self.feed_forward)),
                    ("nextn_predict_layers", usize::from(self.predicts)),
                ];
                let b = numbers.into_iter().fold(b, |b, (key, number)| {
                    b.key(format!("{a}.{key}"), U32, (number as u32).to_le_bytes())
                });
                let b = b.key(format!("{a}.expert_weights_norm"), BOOL, [1]);
                float(b, "expert_weights_scale", self.expert_scale)
            }
            "laguna" => {
                let b = b.key(format!("{a}.expert_weights_norm"), BOOL, [1]);
                float(b, "expert_weights_scale", self.expert_scale)
            }
            "command-r" | "cohere2" | "muse-glimmer" => float(b, "logit_scale", self.factors[2]),
            "gemma4" | "gemma4-assistant" => {
                let key = format!("{a}.embedding_length_per_layer_input");
                let b = b.key(key, U32, (self.layer_input as u32).to_le_bytes());
                let turning = self.turning.unwrap_or(self.n_rot / 2);
                let still = vec![1e30; self.n_rot / 2 - turning];
                let divisors = [vec![1.0; turning], still].concat();
                add_tensor(b, "rope_freqs.weight", &[divisors.len() as u64], &divisors)
            }
            "qwen2vl" | "qwen3vl" | "qwen3vlmoe" | "qwen35" | "qwen35moe" => {
                let b = self.scan_keys(b);
                let pairs = self.n_rot as u32 / 6;
                let sections = [pairs, pairs, self.n_rot as u32 / 2 - 2 * pairs, 0];
                let sections = array(U32, 4, sections.map(u32::to_le_bytes));
                b.key(format!("{a}.rope.dimension_sections"), ARRAY, sections)
            }
            "glm4" => match self.sections {
                Some(sections) => {
                    let sections = array(U32, 4, sections.map(u32::to_le_bytes));
                    b.key(format!("{a}.rope.dimension_sections"), ARRAY, sections)
                }
                None => b,
            },
            "qwen3next" => self.scan_keys(b),
            "lfm2" | "lfm2moe" => {
                let Some(Recurrent::ShortConvolution { taps }) = self.recurrent else { return b };
                let b = b.key(format!("{a}.shortconv.l_cache"), U32, (taps as u32).to_le_bytes());
                let gating = 1 + u32::from(self.sigmoid_gating);
                b.key(format!("{a}.expert_gating_func"), U32, gating.to_le_bytes())
            }
            "hunyuan-dense" => float(b, "rope.scaling.alpha", ALPHA_OF_BASE),
            "apertus" => {
                let names = ["alpha_n", "alpha_p", "beta", "eps"].into_iter().enumerate();
                names.fold(b, |b, (i, name)| {
                    let all = (0..self.layers).map(|layer| self.xielu(layer)[i].to_le_bytes());
                    b.key(format!("xielu.{name}"), ARRAY, array(F32, self.layers as u64, all))
                })
            }
            _ => b,
        }
    }

    /// Returns the file of the model.
    pub fn builder(&self) -> Builder {
        let a = self.architecture;
        let mut b = Builder::new().key("general.architecture", STRING, string(a));
        let numbers = [
            ("context_length", self.context),
            ("embedding_length", self.embedding),
            ("block_count", self.layers + usize::from(self.predicts)),
            ("rope.dimension_count", self.n_rot),
        ];
        for (key, number) in numbers {
            b = b.key(format!("{a}.{key}"), U32, (number as u32).to_le_bytes());
        }
        if self.shared_kv > 0 {
            let key = format!("{a}.attention.shared_kv_layers");
            b = b.key(key, U32, (self.shared_kv as u32).to_le_bytes());
        }
        if self.assists > 0 {
            let layers = self.layers;
            for (key, number) in [
                ("embedding_length_out", self.assists),
                ("nextn_predict_layers", layers),
                ("attention.shared_kv_layers", layers),
            ] {
                b = b.key(format!("{a}.{key}"), U32, (number as u32).to_le_bytes());
            }
        }
        let by_layer =
            [("head_count", 0), ("head_count_kv", 1), ("key_length", 2), ("value_length", 2)];
        for (key, index) in by_layer {
            let latent = self.latent.map(|latent| match key {
                "head_count_kv" if latent.joined => self.heads,
                "key_length" if latent.joined => latent.unrotated + self.n_rot,
                "value_length" if latent.joined => latent.value_dim,
                "key_length" => latent.rank + self.n_rot,
                "value_length" => latent.rank,
                _ => self.layer_shape(0)[index],
            });
            let number = |layer| latent.unwrap_or_else(|| self.layer_shape(layer)[index]) as u32;
            let numbers = (0..self.layers).map(number);
            let mut numbers = numbers.map(u32::to_le_bytes);
            let key = format!("{a}.attention.{key}");
            let without = match self.recurrent {
                Some(Recurrent::ShortConvolution { .. }) => true,
                Some(Recurrent::Mamba2 { .. }) => !self.recurs_beside,
                _ => false,
            };
            b = match self.shapes {
                [] if without && index == 1 => {
                    let all = (0..self.layers).map(|layer| u32::from(self.layer_attends(layer)));
                    let all = all.map(|one| (one * self.kv_heads as u32).to_le_bytes());
                    b.key(key, ARRAY, array(U32, self.layers as u64, all))
                }
                _ if index == 2 && self.window_head.is_some() => b,
                [] => b.key(key, U32, numbers.next().unwrap()),
                _ => b.key(key, ARRAY, array(U32, self.layers as u64, numbers)),
            };
        }
        if let Some([head_dim, n_rot]) = self.window_head {
            let numbers = [
                ("attention.key_length", self.head_dim),
                ("attention.value_length", self.head_dim),
                ("attention.key_length_swa", head_dim),
                ("attention.value_length_swa", head_dim),
                ("rope.dimension_count_swa", n_rot),
            ];
            for (key, number) in numbers {
                b = b.key(format!("{a}.{key}"), U32, (number as u32).to_le_bytes());
            }
        }
        let width = |layer| match self.has_network(layer) {
            true => self.layer_feed_forward(layer) as u32,
            false => 0,
        };
        let widths = (0..self.layers).map(width);
        let key = format!("{a}.feed_forward_length");
        b = match self.narrower {
            0 if self.branches.is_empty() => {
                b.key(key, U32, (self.feed_forward as u32).to_le_bytes())
            }
            _ => b.key(key, ARRAY, array(U32, self.layers as u64, widths.map(u32::to_le_bytes))),
        };
        // Files of Nemotron-H name it as if norms subtracted the mean.
        let rms = if self.centered || !self.branches.is_empty() { "" } else { "_rms" };
        b = b.key(format!("{a}.attention.layer_norm{rms}_epsilon"), F32, EPSILON.to_le_bytes());
        b = self.family_keys(b);
        b = b.key(format!("{a}.rope.freq_base"), F32, self.base.to_le_bytes());
        if let Some(token) = self.separator {
            b = b.key("tokenizer.ggml.seperator_token_id", U32, token.to_le_bytes());
        }
        if let Some((count, used)) = self.experts {
            b = b.key(format!("{a}.expert_count"), U32, (count as u32).to_le_bytes());
            b = b.key(format!("{a}.expert_used_count"), U32, (used as u32).to_le_bytes());
            let width = self.feed_forward as u32;
            b = b.key(format!("{a}.expert_feed_forward_length"), U32, width.to_le_bytes());
        }
        // Files of GLM 4.5 have only the number of shared experts.
        if self.shared > 0 && a != "glm4moe" {
            let key = format!("{a}.expert_shared_feed_forward_length");
            b = b.key(key, U32, (self.shared as u32).to_le_bytes());
        }
        if let Some(dense) = self.dense {
            b = b.key(format!("{a}.leading_dense_block_count"), U32, (dense as u32).to_le_bytes());
            b = b.key(format!("{a}.interleave_moe_layer_step"), U32, 1u32.to_le_bytes());
        }
        if let Some((window, period)) = self.window {
            let key = format!("{a}.attention.sliding_window");
            b = b.key(&key, U32, (window as u32).to_le_bytes());
            let pattern = format!("{key}_pattern");
            b = match a {
                "gemma4" | "gemma4-assistant" | "cohere2moe" => {
                    self.flags(b, pattern, |layer| self.layer_window(layer).is_some())
                }
                // These files list the layers with a window, and the layers that rotate.
                "granite_swa" => {
                    let rotates = format!("{a}.attention.rope_pattern");
                    let b = self.flags(b, pattern, |layer| self.layer_window(layer).is_some());
                    self.flags(b, rotates, |layer| !self.is_unrotated(layer))
                }
                _ => b.key(pattern, U32, (period as u32).to_le_bytes()),
            };
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
            .filter(|(n, _)| n.ends_with(".weight") && !is_table(n))
            .filter(|(n, _)| {
                !self.beside || !n.contains("ffn_gate_inp") && !n.contains("ffn_down_exps")
            })
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
            if self.latent.is_some_and(|latent| latent.joined) && name.contains("attn_v_b") {
                continue;
            }
            if let Some(latent) = self.latent.filter(|_| name.contains("attn_k_b"))
                && latent.joined
            {
                b = self.add_joined(b, &name, latent, &weights);
                continue;
            }
            let dims: Vec<u64> = shape.iter().rev().map(|&n| n as u64).collect();
            match (name.split_once("_exps"), self.encoder(&name, &shape)) {
                (Some((before, after)), _) if self.experts_apart => {
                    let each = weights[&name].len() / shape[0];
                    for (i, values) in weights[&name].chunks(each).enumerate() {
                        b = add_tensor(b, &format!("{before}.{i}{after}"), &dims[..2], values);
                    }
                }
                (_, Some(encoder)) => {
                    let ggml_type = GgmlType::named(encoder.dtype().name()).unwrap();
                    b = b.append(&name, &dims, ggml_type.number, encoded(encoder, &weights[&name]));
                }
                _ => b = add_tensor(b, &name, &dims, &weights[&name]),
            }
        }
        if let Some((slope, original)) = self.temperature {
            let key = format!("{a}.rope.scaling");
            let original = original as u32;
            b = b.key(format!("{a}.attention.temperature_scale"), F32, slope.to_le_bytes());
            b = b.key(format!("{key}.type"), STRING, string("yarn"));
            b = b.key(format!("{key}.original_context_length"), U32, original.to_le_bytes());
            for (name, value) in [
                ("factor", 4.0f32),
                ("yarn_beta_fast", 4.0),
                ("yarn_beta_slow", 0.5),
                ("yarn_log_multiplier", 0.8),
            ] {
                b = b.key(format!("{key}.{name}"), F32, value.to_le_bytes());
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

/// Appends a tensor of floats to a file.
pub fn add_tensor(b: Builder, name: &str, dims: &[u64], values: &[f32]) -> Builder {
    b.append(name, dims, 0, values.iter().flat_map(|x| x.to_le_bytes()))
}
