//! Chooses a format for each tensor like llama.cpp (`llama_tensor_get_type` in llama-quant.cpp),
//! without the special cases of falcon, bailingmoe3 and glm5-next.

use std::collections::HashMap;

use rope_cpu_kernels::{DType, Encoder};

use super::{Error, Planned, Target};
use crate::{
    gguf::{GgmlType, Gguf, Metadata, MetadataError, Tensor},
    imatrix::Imatrix,
};

/// Options of the choice of formats.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'i> {
    /// Uses one format for all tensors.
    pub pure: bool,
    /// Copies `output.weight` unchanged.
    pub leave_output_tensor: bool,
    /// The importance of the weights. Formats of 1 to 2 bits require it.
    pub imatrix: Option<&'i Imatrix>,
}

/// Parts of the names of matrices to copy unchanged. They are small, or not factors of a matrix
/// product.
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
    /// Values, with or without queries and keys in the same tensor.
    Value,
    Key,
    Query,
    AttentionOutput,
    Up,
    Gate,
    Down,
    Other,
}

impl Role {
    fn of(name: &str) -> Self {
        const PARTS: [(&str, Role); 9] = [
            ("attn_qkv.weight", Role::Value),
            ("attn_kv_b.weight", Role::Value),
            ("attn_v.weight", Role::Value),
            ("attn_k.weight", Role::Key),
            ("attn_q.weight", Role::Query),
            ("attn_output.weight", Role::AttentionOutput),
            ("ffn_up", Role::Up),
            ("ffn_gate", Role::Gate),
            ("ffn_down", Role::Down),
        ];
        match name {
            "output.weight" => Role::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Role::Embeddings,
            _ => PARTS.into_iter().find(|p| name.contains(p.0)).map_or(Role::Other, |part| part.1),
        }
    }
}

/// The properties of the model that affect the choice.
struct Model {
    target: Target,
    has_imatrix: bool,
    layers: usize,
    experts: u32,
    /// Whether at least four query heads share a KV head.
    shared_heads: bool,
    values: usize,
    tied: bool,
    /// Whether the model is a 70B model: eight query heads share a KV head.
    is_70b: bool,
}

/// Chooses the format of every tensor, in file order.
pub(super) fn plan<'g, 'a>(
    gguf: &'g Gguf<'a>,
    target: Target,
    options: &Options<'g>,
) -> Result<Vec<Planned<'g, 'a>>, Error> {
    let tensors = gguf.tensors();
    let model = Model::read(gguf, target, options.imatrix.is_some())?;

    // Count tensors layer by layer, not in file order.
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
            importance: None,
            requires_importance: false,
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
            planned[i].importance =
                options.imatrix.map(|imatrix| imatrix.of(tensor)).transpose()?.flatten();
            planned[i].requires_importance = requires_importance(role, dtype, target);
        }
    }
    Ok(planned)
}

impl Model {
    fn read(gguf: &Gguf<'_>, target: Target, has_imatrix: bool) -> Result<Self, Error> {
        let metadata = gguf.metadata();
        let architecture = metadata.string("general.architecture")?.unwrap_or_default();
        let number = |key: &str| metadata.u32(&format!("{architecture}.{key}"));
        let layers = number("block_count")?.unwrap_or(0);
        let first = |key: &str| of_first_layer(metadata, &format!("{architecture}.{key}"));
        let heads = first("attention.head_count")?.unwrap_or(0);
        let kv_heads = first("attention.head_count_kv")?.unwrap_or(heads);
        let is_70b = layers == 80
            && match architecture {
                "llama" => kv_heads != heads,
                other => ["qwen2", "olmo", "deci"].contains(&other),
            };
        let named = |role| gguf.tensors().iter().filter(move |t| Role::of(t.name) == role).count();
        Ok(Model {
            target,
            has_imatrix,
            layers: layers as usize,
            experts: number("expert_count")?.unwrap_or(0),
            shared_heads: kv_heads > 0 && heads / kv_heads >= 4,
            values: named(Role::Value),
            tied: named(Role::Output) == 0,
            is_70b,
        })
    }

    /// Chooses the format of a quantized tensor. `before` is the number of earlier tensors with its
    /// role.
    fn choose(&self, tensor: &Tensor<'_>, role: Role, before: usize) -> DType {
        use Target::*;
        let usual = self.target.dtype();
        let is_low = matches!(self.target, Iq1S | Iq1M | Iq2Xxs | Iq2Xs | Iq2S | Iq2M);
        match role {
            Role::Output => self.output(tensor),
            Role::Embeddings if self.tied => self.output(tensor),
            _ if self.target == Mxfp4Moe => match tensor.dims[2] > 1 {
                true => DType::Mxfp4,
                false => DType::Q8_0,
            },
            Role::Embeddings => match self.target {
                Iq1S | Iq1M | Iq2Xxs | Iq2Xs => DType::Q2K,
                Iq2S | Iq2M | Iq3Xxs => DType::Iq3S,
                Tq1_0 | Tq2_0 | Q2_0 => DType::Q4K,
                _ => usual,
            },
            _ if is_low => self.low(role, before),
            Role::Value => self.value(before),
            Role::Key if self.experts == 8 => DType::Q8_0,
            Role::Key | Role::Query => match self.target {
                Iq3Xs => DType::Iq3Xxs,
                Iq3Xxs => DType::Iq2S,
                _ => usual,
            },
            Role::Up | Role::Gate => {
                let layer = self.layer(tensor, before);
                let is_middle = layer >= self.layers / 8 && layer < 7 * self.layers / 8;
                if self.target == Iq3Xs && is_middle { DType::Iq3Xxs } else { usual }
            }
            Role::Down => self.down(self.layer(tensor, before)),
            Role::AttentionOutput => self.attention_output(),
            Role::Other => usual,
        }
    }

    /// Returns the layer of a tensor with `before` earlier tensors of the same role.
    fn layer(&self, tensor: &Tensor<'_>, before: usize) -> usize {
        // The experts of a layer may be several tensors, and some layers may have none.
        let by_name = layer(tensor.name).filter(|_| self.experts > 1);
        by_name.map_or(before, |layer| layer as usize)
    }

    fn output(&self, tensor: &Tensor<'_>) -> DType {
        use Target::*;
        let usual = self.target.dtype();
        let whole = tensor.row_len().is_multiple_of(usual.block().0 as u64);
        match self.target {
            Mxfp4Moe | Q8_0 => DType::Q8_0,
            _ if !whole => DType::Q8_0,
            Iq1S | Iq1M | Iq2Xxs | Iq2Xs | Iq2S | Iq2M | Iq3Xxs => DType::Q5K,
            _ => DType::Q6K,
        }
    }

    /// Chooses a format for files of 1 to 2 bits.
    fn low(&self, role: Role, before: usize) -> DType {
        use Target::*;
        let usual = self.target.dtype();
        let more = if matches!(self.target, Iq2S | Iq2M) { DType::Iq3S } else { DType::Q2K };
        match role {
            Role::Value if self.shared_heads || self.experts >= 4 => DType::Q4K,
            Role::Value => more,
            Role::Key if self.experts == 8 => DType::Q4K,
            Role::Down if before < self.layers / 8 => more,
            Role::AttentionOutput if self.experts == 8 => DType::Q5K,
            Role::AttentionOutput => match self.target {
                Iq1S | Iq1M => DType::Iq2Xxs,
                Iq2S | Iq2M => DType::Iq3S,
                _ => usual,
            },
            _ => usual,
        }
    }

    fn value(&self, before: usize) -> DType {
        use Target::*;
        let usual = self.target.dtype();
        let shared = self.shared_heads;
        let chosen = match self.target {
            _ if self.experts == 8 => return DType::Q8_0,
            Q2K | Q2KS | Iq3Xxs | Iq3Xs | Iq3S if shared => DType::Q4K,
            Q2K => DType::Q3K,
            Iq3Xxs if !self.has_imatrix => DType::Iq3S,
            Iq3M => DType::Q4K,
            Q3KM if before < 2 => DType::Q5K,
            Q3KM => DType::Q4K,
            Q3KL => DType::Q5K,
            Iq4Nl | Iq4Xs if shared => DType::Q5K,
            Q4KM | Q5KM if more_bits(before, self.values) => DType::Q6K,
            Q4KS if before < 4 => DType::Q5K,
            _ => usual,
        };
        let has_few = matches!(chosen, DType::Q3K | DType::Q4K);
        if self.is_70b && has_few { DType::Q5K } else { chosen }
    }

    fn down(&self, layer: usize) -> DType {
        use Target::*;
        let is_first = layer < self.layers / 8;
        let gets_more = more_bits(layer, self.layers);
        match self.target {
            Q2K => DType::Q3K,
            Q2KS if is_first => DType::Q4K,
            Iq3Xxs if !self.has_imatrix && is_first => DType::Q4K,
            Iq3Xxs if !self.has_imatrix => DType::Q3K,
            Q3KM if layer < self.layers / 16 => DType::Q5K,
            Q3KM => DType::Q4K,
            Iq3M if is_first || (self.experts == 8 && gets_more) => DType::Q4K,
            Q3KL => DType::Q5K,
            Iq4Nl | Iq4Xs if is_first && !self.has_imatrix => DType::Q5K,
            Q4KM | Q5KM if gets_more => DType::Q6K,
            Q4KS if is_first => DType::Q5K,
            Q4_0 if self.has_imatrix && is_first => DType::Q4_1,
            Q5_0 if self.has_imatrix && is_first => DType::Q5_1,
            _ => self.target.dtype(),
        }
    }

    fn attention_output(&self) -> DType {
        use Target::*;
        match self.target {
            Q2K | Iq3Xs | Iq3Xxs | Q3KS | Q3KM | Iq4Nl | Q4KS | Q4KM | Iq3S | Iq3M | Iq4Xs
                if self.experts == 8 =>
            {
                DType::Q5K
            }
            _ if self.experts == 8 => self.target.dtype(),
            Q2K => DType::Q3K,
            Iq3Xxs => DType::Iq3S,
            Q3KM | Iq3M => DType::Q4K,
            Q3KL => DType::Q5K,
            _ => self.target.dtype(),
        }
    }
}

/// Returns a number for the first layer. The key has one number for all layers, or a list.
fn of_first_layer(metadata: &Metadata<'_>, key: &str) -> Result<Option<u32>, MetadataError> {
    let is_list = matches!(metadata.get(key), Some(crate::gguf::Value::Array(_)));
    if !is_list {
        return metadata.u32(key);
    }
    let numbers = metadata.integers(key)?.unwrap_or_default();
    Ok(numbers.first().and_then(|&number| u32::try_from(number).ok()))
}

/// Returns whether a tensor of this type is useless without knowing the importance of its weights.
fn requires_importance(role: Role, dtype: DType, target: Target) -> bool {
    use DType::{Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3Xxs, Q2K};
    match dtype {
        _ if matches!(role, Role::Output | Role::Embeddings) => false,
        Iq1S | Iq1M | Iq2Xxs | Iq2Xs | Iq2S | Iq3Xxs => true,
        Q2K => target == Target::Q2KS,
        _ => false,
    }
}

/// Returns whether a layer is in the first or the last eighth, or every third in between.
fn more_bits(layer: usize, layers: usize) -> bool {
    layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2
}

fn is_quantized(tensor: &Tensor<'_>, options: &Options<'_>) -> bool {
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
        DType::Q1_0 | DType::Q2_0 | DType::Q2K | DType::Q3K => DType::Q4_0,
        DType::Tq1_0 | DType::Tq2_0 => DType::Q4_0,
        DType::Iq1S | DType::Iq1M | DType::Iq2Xxs | DType::Iq2Xs | DType::Iq2S => DType::Iq4Nl,
        DType::Iq3Xxs | DType::Iq3S | DType::Iq4Xs => DType::Iq4Nl,
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
