//! The tensors of a tiny model.

use rope_cpu::model::architecture::{
    self as model, AttentionGates, GateFunction, HeadNorms, Inner,
};

use super::{Latent, Recurrent, Tiny};

impl Tiny {
    /// Returns the names and shapes of all tensors: rows, then columns; one dimension for vectors.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (e, norms) = (self.embedding, self.architecture.norms);
        let of_attention = self.architecture.attention;
        let mut all = vec![("token_embd.weight".to_string(), vec![self.vocabulary, e])];
        if let Some(norm) = norms.output {
            all.push((format!("{norm}.weight"), vec![e]));
        }
        let [types, positions] = self.terms();
        if types {
            all.push(("token_types.weight".to_string(), vec![2, e]));
            all.push(("token_embd_norm.weight".to_string(), vec![e]));
        }
        if positions {
            all.push(("position_embd.weight".to_string(), vec![self.context, e]));
        }
        if !self.tied {
            all.push(("output.weight".to_string(), vec![self.vocabulary, e]));
            if self.biases.contains(&"output") {
                all.push(("output.bias".to_string(), vec![self.vocabulary]));
            }
        }
        if self.layer_input > 0 {
            let width = self.layers * self.layer_input;
            all.push(("per_layer_token_embd.weight".to_string(), vec![self.vocabulary, width]));
            all.push(("per_layer_model_proj.weight".to_string(), vec![width, e]));
            all.push(("per_layer_proj_norm.weight".to_string(), vec![self.layer_input]));
        }
        if self.assists > 0 {
            all.push(("nextn.pre_projection.weight".to_string(), vec![e, 2 * self.assists]));
            all.push(("nextn.post_projection.weight".to_string(), vec![self.assists, e]));
        }
        for layer in 0..self.layers + usize::from(self.predicts) {
            let f = self.layer_feed_forward(layer);
            let [heads, kv_heads, head_dim] = self.layer_shape(layer);
            let (q, kv) = (heads * head_dim, kv_heads * head_dim);
            let mut add = |name: &str, shape: &[usize]| {
                all.push((format!("blk.{layer}.{name}"), shape.to_vec()));
            };
            let with_queries = of_attention.gates == AttentionGates::WithQueries;
            let queries = if with_queries { 2 * q } else { q };
            let recurrence = self.layer_recurrence(layer);
            let attention = match self.fused {
                _ if !self.layer_attends(layer) || self.latent.is_some() => vec![],
                true => vec![("attn_qkv", q + 2 * kv, e)],
                false if self.lacks_keys(layer) => vec![("attn_q", queries, e)],
                false if self.lacks_values(layer) => {
                    vec![("attn_q", queries, e), ("attn_k", kv, e)]
                }
                false => vec![("attn_q", queries, e), ("attn_k", kv, e), ("attn_v", kv, e)],
            };
            if let AttentionGates::Apart(function) = of_attention.gates {
                let elements = self.element_gates || function == GateFunction::Sigmoid;
                add("attn_gate.weight", &[if elements { q } else { heads }, e]);
            }
            let values = self.latent.map_or(head_dim, |latent| latent.value_dim);
            let output = self.layer_attends(layer).then_some(("attn_output", e, heads * values));
            if let Some(Latent { query_rank, rank, unrotated, value_dim, .. }) = self.latent {
                let queries = heads * (unrotated + self.n_rot);
                if query_rank > 0 {
                    add("attn_q_a.weight", &[query_rank, e]);
                    add("attn_q_a_norm.weight", &[query_rank]);
                    add("attn_q_b.weight", &[queries, query_rank]);
                } else {
                    add("attn_q.weight", &[queries, e]);
                }
                add("attn_kv_a_mqa.weight", &[rank + self.n_rot, e]);
                add("attn_kv_a_norm.weight", &[rank]);
                add("attn_k_b.weight", &[heads, rank, unrotated]);
                add("attn_v_b.weight", &[heads, value_dim, rank]);
            }
            match recurrence {
                Some(Recurrent::ShortConvolution { taps }) => {
                    add("shortconv.in_proj.weight", &[3 * e, e]);
                    add("shortconv.conv.weight", &[e, taps]);
                    add("shortconv.out_proj.weight", &[e, e]);
                }
                Some(Recurrent::Delta { key_heads, value_heads, dim, taps }) => {
                    let channels = (2 * key_heads + value_heads) * dim;
                    add("attn_qkv.weight", &[channels, e]);
                    add("attn_gate.weight", &[value_heads * dim, e]);
                    add("ssm_conv1d.weight", &[channels, taps]);
                    add("ssm_dt.bias", &[value_heads]);
                    add("ssm_a", &[value_heads]);
                    if self.architecture.recurrent == model::Recurrent::DeltaSideBySide {
                        add("ssm_ba.weight", &[2 * value_heads, e]);
                    } else {
                        add("ssm_alpha.weight", &[value_heads, e]);
                        add("ssm_beta.weight", &[value_heads, e]);
                    }
                    add("ssm_norm.weight", &[dim]);
                    add("ssm_out.weight", &[e, value_heads * dim]);
                }
                Some(Recurrent::Mamba2 { groups, heads, dim, state, taps }) => {
                    let (inner, channels) = (heads * dim, heads * dim + 2 * groups * state);
                    add("ssm_in.weight", &[inner + channels + heads, e]);
                    add("ssm_conv1d.weight", &[channels, taps]);
                    add("ssm_conv1d.bias", &[channels]);
                    add("ssm_dt.bias", &[heads]);
                    add("ssm_a", &[heads, 1]);
                    add("ssm_d", &[heads, 1]);
                    add("ssm_norm.weight", &[groups, inner / groups]);
                    add("ssm_out.weight", &[e, inner]);
                }
                None => {}
            }
            let network = match (self.architecture.network.inner, self.is_gated()) {
                _ if !self.has_network(layer) => vec![],
                (Inner::GatedInOne(_), _) => vec![("ffn_up", 2 * f, e), ("ffn_down", e, f)],
                (_, true) => vec![("ffn_gate", f, e), ("ffn_up", f, e), ("ffn_down", e, f)],
                (_, false) => vec![("ffn_up", f, e), ("ffn_down", e, f)],
            };
            let experts = self.layer_experts(layer);
            if let Some((count, _)) = experts {
                add("ffn_gate_inp.weight", &[count, e]);
                if self.biases.contains(&"ffn_gate_inp") {
                    add("ffn_gate_inp.bias", &[count]);
                }
                if self.selection_bias {
                    add("exp_probs_b.bias", &[count]);
                }
                if self.beside() {
                    let f = self.feed_forward;
                    add("ffn_gate_up_exps.weight", &[count, 2 * f, e]);
                    add("ffn_down_exps.weight", &[count, e, f]);
                    add("ffn_down_exps.scale", &[count]);
                    add("ffn_gate_inp.scale", &[e]);
                    add("pre_ffw_norm_2.weight", &[e]);
                    add("post_ffw_norm_1.weight", &[e]);
                    add("post_ffw_norm_2.weight", &[e]);
                }
                let split = &network[..];
                let fused = [("ffn_gate_up", 2 * f, e), ("ffn_down", e, f)];
                let separate = if self.fused_experts { &fused } else { split };
                for (name, rows, columns) in separate.iter().filter(|_| !self.beside()) {
                    add(&format!("{name}_exps.weight"), &[count, *rows, *columns]);
                    if self.biases.contains(name) {
                        add(&format!("{name}_exps.bias"), &[count, *rows]);
                    }
                }
                if self.shared > 0 {
                    let f = self.shared;
                    if self.is_gated() {
                        add("ffn_gate_shexp.weight", &[f, e]);
                    }
                    add("ffn_up_shexp.weight", &[f, e]);
                    add("ffn_down_shexp.weight", &[e, f]);
                    if self.shared_gate {
                        add("ffn_gate_inp_shexp.weight", &[e]);
                    }
                }
            }
            let network = if experts.is_some() && !self.beside() { vec![] } else { network };
            let linears = attention.into_iter().chain(output).chain(network);
            for (name, rows, columns) in linears {
                add(&format!("{name}.weight"), &[rows, columns]);
                if self.biases.contains(&name) {
                    add(&format!("{name}.bias"), &[rows]);
                }
            }
            if let Some(norm) = norms.attention.before {
                add(&format!("{norm}.weight"), &[e]);
            }
            if let Some(norm) = norms.network.and_then(|norms| norms.before) {
                // Falcon-H1 has it without the suffix.
                let suffix = if self.architecture.name == "falcon-h1" { "" } else { ".weight" };
                add(&format!("{norm}{suffix}"), &[e]);
            }
            if self.layer_attends(layer) {
                let shapes = match self.head_norms() {
                    HeadNorms::None => None,
                    HeadNorms::EachHeadIfAny => {
                        Some([vec![heads, head_dim], vec![kv_heads, head_dim]])
                    }
                    HeadNorms::Rows => Some([vec![q], vec![kv]]),
                    HeadNorms::Heads | HeadNorms::HeadsIfAny | HeadNorms::RotatedHeads => {
                        Some([vec![head_dim], vec![head_dim]])
                    }
                };
                for (name, shape) in
                    ["attn_q_norm", "attn_k_norm"].iter().zip(shapes.iter().flatten())
                {
                    if *name == "attn_q_norm" || !self.lacks_keys(layer) {
                        add(&format!("{name}.weight"), shape);
                    }
                }
            }
            if layer == self.layers {
                add("nextn.eh_proj.weight", &[e, 2 * e]);
                add("nextn.enorm.weight", &[e]);
                add("nextn.hnorm.weight", &[e]);
                if self.predicts_alone {
                    add("nextn.embed_tokens.weight", &[self.vocabulary, e]);
                    add("nextn.shared_head_norm.weight", &[e]);
                    add("nextn.shared_head_head.weight", &[self.vocabulary, e]);
                }
            }
            if of_attention.sinks {
                add("attn_sinks.weight", &[heads]);
            }
            let after = [norms.attention.after, norms.network.and_then(|norms| norms.after)];
            for name in after.into_iter().flatten() {
                add(&format!("{name}.weight"), &[e]);
            }
            if self.layer_input > 0 {
                add("inp_gate.weight", &[self.layer_input, e]);
                add("proj.weight", &[e, self.layer_input]);
                add("post_norm.weight", &[e]);
            }
            if self.output_scales {
                add("layer_output_scale.weight", &[1]);
            }
        }
        if self.norm_biases {
            let norms = all.iter().filter_map(|(name, _)| name.strip_suffix("norm.weight"));
            let biases: Vec<_> = norms.map(|name| (format!("{name}norm.bias"), vec![e])).collect();
            all.extend(biases);
        }
        all
    }
}
