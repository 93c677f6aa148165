//! Chooses the format of each tensor as llama.cpp does (`llama_tensor_get_type` in llama-quant.cpp)
//! for models without an importance matrix. The special cases of falcon and glm5-next are left out.

use std::collections::HashMap;

use rope_cpu_kernels::{DType, Encoder};

use super::{Error, Planned, Target};
use crate::gguf::{GgmlType, Gguf, Tensor};

/// Options that change the choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Uses one format for all tensors.
    pub pure: bool,
    /// Copies `output.weight` unchanged.
    pub leave_output_tensor: bool,
}

/// Parts of the names of matrices that are copied unchanged, since they are small or are not
/// factors of a matrix product.
#[rustfmt::skip]
const KEPT: [&str; 35] = [
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel",
    "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight",
    "indexer.q_proj.weight", "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight",
    "time_mix_w2.weight", "time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight",
    "time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight",
    "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight", "attn_rel_b.weight", ".position_embd", "sam.pos_embd",
    "sam.neck.", "sam.net_", ".rel_pos", ".patch_embd", ".patch_merger", "a.rvq.codebook",
    "mm.a.code_embd",
];

/// The role of a tensor in the model.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    Output,
    Embeddings,
    /// Values, alone or with queries and keys.
    Value,
    Key,
    AttentionOutput,
    Down,
    Other,
}

impl Role {
    fn of(name: &str) -> Self {
        const PARTS: [(&str, Role); 6] = [
            ("attn_qkv.weight", Role::Value),
            ("attn_kv_b.weight", Role::Value),
            ("attn_v.weight", Role::Value),
            ("attn_k.weight", Role::Key),
            ("attn_output.weight", Role::AttentionOutput),
            ("ffn_down", Role::Down),
        ];
        match name {
            "output.weight" => Role::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Role::Embeddings,
            _ => PARTS.into_iter().find(|p| name.contains(p.0)).map_or(Role::Other, |part| part.1),
        }
    }
}

/// The properties of the model that the choice depends on.
struct Model {
    target: Target,
    layers: usize,
    experts: u32,
    values: usize,
    tied: bool,
    /// Whether the model is a 70B model, in which eight query heads share a KV head.
    is_70b: bool,
}

/// Chooses the format of every tensor, in file order.
pub(super) fn plan<'g, 'a>(
    gguf: &'g Gguf<'a>,
    target: Target,
    options: &Options,
) -> Result<Vec<Planned<'g, 'a>>, Error> {
    let tensors = gguf.tensors();
    let model = Model::read(gguf, target)?;

    // Tensors are counted layer by layer, not in file order.
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| (layer(tensors[i].name), tensors[i].name));
    let mut seen = HashMap::new();
    let mut planned: Vec<_> = tensors
        .iter()
        .map(|source| Planned {
            source,
            ggml_type: source.ggml_type,
            encoder: None,
            instead_of: None,
        })
        .collect();
    for i in order {
        let tensor = &tensors[i];
        if !is_quantized(tensor, options) {
            continue;
        }
        let role = Role::of(tensor.name);
        let before = seen.entry(role).or_insert(0);
        let wanted = match target.dtype() {
            plain if !plain.is_quantized() || options.pure => plain,
            _ => model.choose(tensor, role, *before),
        };
        *before += 1;
        let dtype = fitting(wanted, tensor.row_len());
        planned[i].instead_of = (dtype != wanted).then_some(wanted);
        if let Some(ggml_type) = GgmlType::named(dtype.name())
            && ggml_type != tensor.ggml_type
        {
            planned[i].ggml_type = ggml_type;
            planned[i].encoder = Encoder::new(dtype);
        }
    }
    Ok(planned)
}

impl Model {
    fn read(gguf: &Gguf<'_>, target: Target) -> Result<Self, Error> {
        let metadata = gguf.metadata();
        let architecture = metadata.string("general.architecture")?.unwrap_or_default();
        let number = |key: &str| metadata.u32(&format!("{architecture}.{key}"));
        let layers = number("block_count")?.unwrap_or(0);
        let is_70b = layers == 80
            && match architecture {
                "llama" => {
                    let heads = number("attention.head_count")?;
                    number("attention.head_count_kv")?.or(heads) != heads
                }
                other => ["qwen2", "olmo", "deci"].contains(&other),
            };
        let named = |role| gguf.tensors().iter().filter(move |t| Role::of(t.name) == role).count();
        Ok(Model {
            target,
            layers: layers as usize,
            experts: number("expert_count")?.unwrap_or(0),
            values: named(Role::Value),
            tied: named(Role::Output) == 0,
            is_70b,
        })
    }

    /// Chooses the format of a quantized tensor; `before` is the number of earlier tensors of its
    /// role.
    fn choose(&self, tensor: &Tensor<'_>, role: Role, before: usize) -> DType {
        use Target::{Q2_0, Q4KM, Q4KS, Q5KM};
        let usual = self.target.dtype();
        let with_m = matches!(self.target, Q4KM | Q5KM);
        let eight_experts = self.experts == 8;
        // The experts of a layer may be several tensors, and some layers may have none.
        let by_name = layer(tensor.name).filter(|_| self.experts > 1);
        let layer = by_name.map_or(before, |layer| layer as usize);
        match role {
            Role::Embeddings if !self.tied && self.target == Q2_0 => DType::Q4K,
            Role::Embeddings if !self.tied => usual,
            Role::Output | Role::Embeddings => {
                let whole = tensor.row_len().is_multiple_of(usual.block().0 as u64);
                if whole && usual != DType::Q8_0 { DType::Q6K } else { DType::Q8_0 }
            }
            Role::Value | Role::Key if eight_experts => DType::Q8_0,
            Role::Value if with_m && more_bits(before, self.values) => DType::Q6K,
            Role::Value if self.target == Q4KS && before < 4 => DType::Q5K,
            Role::Value if self.is_70b && usual == DType::Q4K => DType::Q5K,
            Role::Down if with_m && more_bits(layer, self.layers) => DType::Q6K,
            Role::Down if self.target == Q4KS && layer < self.layers / 8 => DType::Q5K,
            Role::AttentionOutput if eight_experts && usual == DType::Q4K => DType::Q5K,
            _ => usual,
        }
    }
}

/// Returns whether a layer is in the first or the last eighth, or every third in between.
fn more_bits(layer: usize, layers: usize) -> bool {
    layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2
}

fn is_quantized(tensor: &Tensor<'_>, options: &Options) -> bool {
    let name = tensor.name;
    let is_matrix = tensor.dims[1..].iter().any(|&dim| dim > 1);
    is_matrix
        && name.ends_with("weight")
        && !KEPT.iter().any(|part| name.contains(part))
        && !["position_embd.weight", "token_types.weight"].contains(&name)
        && !(options.leave_output_tensor && name == "output.weight")
}

/// Returns `dtype`, or its replacement if a row is not a multiple of its block.
fn fitting(dtype: DType, row_len: u64) -> DType {
    let fits = |dtype: &DType| row_len.is_multiple_of(dtype.block().0 as u64);
    let smaller = match dtype {
        // llama.cpp has no replacement for Q1_0.
        DType::Q1_0 | DType::Q2_0 => DType::Q4_0,
        DType::Q4K => DType::Q5_0,
        DType::Q5K => DType::Q5_1,
        DType::Q6K => DType::Q8_0,
        other => other,
    };
    [dtype, smaller].into_iter().find(fits).unwrap_or(DType::F16)
}

/// Returns the layer in a tensor's name.
fn layer(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}
