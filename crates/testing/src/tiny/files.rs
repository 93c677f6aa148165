//! Tiny models and their adapters as GGUF files.

use std::collections::HashMap;

use half::f16;
use rope_cpu::gguf::GgmlType;

use super::{
    ALPHA, Latent, Tiny,
    weights::{encoded, is_table},
};
use crate::builder::{Builder, F32, STRING, string};

impl Tiny {
    /// Returns the file of an adapter for the model.
    pub fn adapter(&self) -> Builder {
        let mut b = Builder::new()
            .key("general.type", STRING, string("adapter"))
            .key("general.architecture", STRING, string(self.architecture.name))
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

    /// Returns the file of the model.
    pub fn builder(&self) -> Builder {
        let mut b = self.metadata();
        let mut weights = self.weights();
        for (name, shape) in self
            .tensors()
            .into_iter()
            .filter(|(n, s)| self.scales && s.len() > 1 && n.starts_with("blk."))
            .filter(|(n, _)| n.ends_with(".weight") && !is_table(n))
            .filter(|(n, _)| {
                !self.beside() || !n.contains("ffn_gate_inp") && !n.contains("ffn_down_exps")
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
        if let Some(turning) = self.turning {
            let still = vec![1e30; self.n_rot / 2 - turning];
            let divisors = [vec![1.0; turning], still].concat();
            b = add_tensor(b, "rope_freqs.weight", &[divisors.len() as u64], &divisors);
        }
        if self.long_rope.is_some() {
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
