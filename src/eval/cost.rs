//! Counts the cost of tokens: bytes read from memory in generation, operations in prompt processing.

use std::ops::Range;

use rope_cpu_kernels::DType;

use crate::{
    gguf::Tensor,
    kv_cache::CacheType,
    model::{self, EMBEDDINGS, LAYER_EMBEDDINGS, Model},
    rope::Visibility,
};

/// The cost of a model's tokens, counted from its tensors and its configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The size of all weights in bytes.
    pub weights_bytes: u64,
    /// The number of weights.
    pub parameters: u64,
    /// The bytes of weights that are read to generate one token: all weights, but only one row of
    /// the embeddings unless they are also the output matrix, and of the layers' own inputs.
    pub token_bytes: u64,
    /// The operations of each prompt token, with the weights of the layers.
    layers: Operations,
    /// The operations of each token of a prompt's last micro-batch with the weights after the last
    /// layer that stores keys and values.
    ending: Operations,
    /// The number of tokens of the last micro-batch from which its last token gets a separate step.
    apart_from: Option<usize>,
    /// The operations that only the last prompt token requires: with the output matrix, and with the
    /// feed-forward network after the last attention.
    output: Operations,
    attention: Vec<Attention>,
    /// The size of the states of recurrent layers in bytes.
    state_bytes: usize,
}

/// The attention of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Attention {
    /// The number of positions that a token attends to; `None` for all.
    window: Option<usize>,
    /// The number of values of a token's queries.
    queries: usize,
    kv_heads: usize,
    head_dim: usize,
    /// Whether values are a part of keys, read with them.
    values_in_keys: bool,
    /// Whether only the last micro-batch of a prompt attends.
    ending: bool,
}

/// Numbers of operations by the kind of instruction. A multiplication and its addition count as
/// two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Operations {
    /// The operations on 8-bit integers: products with quantized weights.
    pub integer: f64,
    /// The operations on floats: products with float weights.
    pub float: f64,
    /// The operations of attention, half of them with keys and half with values: on 8-bit integers,
    /// or on floats if the cache stores these in single precision.
    pub attention: f64,
}

impl Operations {
    /// Returns the total number of operations.
    pub fn total(&self) -> f64 {
        self.integer + self.float + self.attention
    }

    fn with_matrix(tensor: &Tensor<'_>) -> Self {
        let operations = 2.0 * tensor.elements() as f64;
        match DType::named(tensor.ggml_type.name).is_some_and(DType::is_quantized) {
            true => Operations { integer: operations, ..Operations::default() },
            false => Operations { float: operations, ..Operations::default() },
        }
    }

    fn add(&mut self, other: Operations, times: f64) {
        self.integer += times * other.integer;
        self.float += times * other.float;
        self.attention += times * other.attention;
    }
}

const OUTPUT: &str = "output.weight";

/// Returns whether a tensor holds experts: `blk.0.ffn_up_exps.weight`, or `blk.0.ffn_up.5.weight`
/// in old files.
fn is_expert_tensor(name: &str) -> bool {
    let name = name.strip_suffix(".weight").unwrap_or_default();
    let numbered = name.ends_with(|last: char| last.is_ascii_digit()) && !name.contains("norm");
    name.ends_with("_exps") || numbered
}

impl Cost {
    /// Counts the cost of a model.
    pub fn new(model: &Model) -> Self {
        let (gguf, config) = (model.gguf(), model.config());
        let tied = gguf.tensor(OUTPUT).is_none();
        let layers = config.layers.len();
        let tail: Vec<_> =
            (model.tail()..layers).map(|layer| format!("blk.{layer}.ffn_")).collect();
        let stored = model.last_stored();
        let ending = ["ffn_", "attn_output"].map(|part| format!("blk.{stored}.{part}"));
        let later = (stored + 1..layers).map(|layer| format!("blk.{layer}."));
        let ending: Vec<_> = ending.into_iter().chain(later).collect();
        let attention = config.layers.iter().enumerate().filter_map(|(layer, one)| {
            let attention = Attention::from(one.attention?);
            Some(Attention { ending: layer >= stored, ..attention })
        });
        let mut cost = Cost {
            weights_bytes: 0,
            parameters: 0,
            token_bytes: 0,
            layers: Operations::default(),
            ending: Operations::default(),
            apart_from: model.apart_from(),
            output: Operations::default(),
            attention: attention.collect(),
            state_bytes: config.state_bytes(),
        };
        for tensor in gguf.tensors() {
            let bytes = tensor.bytes.len() as u64;
            cost.weights_bytes += bytes;
            cost.parameters += tensor.elements();
            match tensor.name {
                name if config.skips(name) => {}
                EMBEDDINGS if !tied => cost.token_bytes += tensor.row_bytes(),
                LAYER_EMBEDDINGS => cost.token_bytes += tensor.row_bytes(),
                EMBEDDINGS => {
                    cost.token_bytes += bytes + tensor.row_bytes();
                    cost.output.add(Operations::with_matrix(tensor), 1.0);
                }
                OUTPUT => {
                    cost.token_bytes += bytes;
                    cost.output.add(Operations::with_matrix(tensor), 1.0);
                }
                name => {
                    // A token uses only the weights of the experts selected for it.
                    let share = match config.mixture() {
                        Some(mixture) if is_expert_tensor(name) => {
                            mixture.used as f64 / mixture.count as f64
                        }
                        _ => 1.0,
                    };
                    cost.token_bytes += (bytes as f64 * share) as u64;
                    if tensor.rows() > 1 {
                        let is_in =
                            |starts: &[String]| starts.iter().any(|one| name.starts_with(one));
                        let part = match name {
                            _ if is_in(&tail) => &mut cost.output,
                            _ if is_in(&ending) => &mut cost.ending,
                            _ => &mut cost.layers,
                        };
                        part.add(Operations::with_matrix(tensor), share);
                    }
                }
            }
        }
        cost
    }

    /// Limits the layers without a sliding window to the keys in `visibility`.
    pub fn within(mut self, visibility: &Visibility) -> Self {
        let most = visibility.near.saturating_add(visibility.first);
        for layer in &mut self.attention {
            layer.window.get_or_insert(most);
        }
        self
    }

    /// Returns the bytes of weights and KV cache that are read to generate the tokens at
    /// `positions`. Each token reads and writes the states of recurrent layers.
    pub fn generation_bytes(
        &self,
        positions: Range<usize>,
        keys: CacheType,
        values: CacheType,
    ) -> f64 {
        let layers = self.attention.iter().map(|layer| {
            let values = if layer.values_in_keys { 0 } else { values.row_bytes(layer.head_dim) };
            let row_bytes = keys.row_bytes(layer.head_dim) + values;
            layer.visible(&positions) * (layer.kv_heads * row_bytes) as f64
        });
        let token_bytes = self.token_bytes as f64 + 2.0 * self.state_bytes as f64;
        positions.len() as f64 * token_bytes + layers.sum::<f64>()
    }

    /// Returns the operations for a prompt at `positions`, with the logits of its last token. A
    /// micro-batch has `micro_batch` tokens.
    ///
    /// Each weight of a layer is used once per token, except for those after the last layer that
    /// stores keys and values. Attention takes four operations for each value of a query and each
    /// position that it attends to.
    pub fn prompt_operations(&self, positions: Range<usize>, micro_batch: usize) -> Operations {
        let last = (positions.len().max(1) - 1) % micro_batch.max(1) + 1;
        let last = match self.apart_from.is_some_and(|least| last > least) {
            true => 1,
            false => last,
        };
        let last = positions.end.saturating_sub(last).max(positions.start)..positions.end;
        let mut operations = self.output;
        operations.add(self.layers, positions.len() as f64);
        operations.add(self.ending, last.len() as f64);
        let layers = self.attention.iter().map(|layer| {
            let positions = if layer.ending { &last } else { &positions };
            4.0 * layer.queries as f64 * layer.visible(positions)
        });
        operations.attention = layers.sum();
        operations
    }
}

impl Attention {
    /// Returns the number of positions that the tokens at `positions` attend to.
    fn visible(&self, positions: &Range<usize>) -> f64 {
        // For the tokens before `end`: 1 + 2 + 3 + .. up to the window, then the window for each.
        let until = |end: usize| {
            let growing = end.min(self.window.unwrap_or(end)) as f64;
            growing * (growing + 1.0) / 2.0 + (end as f64 - growing) * growing
        };
        until(positions.end) - until(positions.start)
    }
}

impl From<model::Attention> for Attention {
    fn from(attention: model::Attention) -> Self {
        let model::Attention { window, kv_heads, head_dim, .. } = attention;
        let values_in_keys = attention.latent.is_some();
        let queries = attention.query_width();
        Attention { window, queries, kv_heads, head_dim, values_in_keys, ending: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rope::FarKeys;

    /// Returns a model with 10 bytes of weights per token; 6 of them are multiplied. One layer
    /// attends to all positions, the other to 4.
    fn toy() -> Cost {
        Cost {
            weights_bytes: 14,
            parameters: 14,
            token_bytes: 10,
            layers: Operations { integer: 12.0, ..Operations::default() },
            ending: Operations { integer: 100.0, ..Operations::default() },
            apart_from: None,
            output: Operations { float: 8.0, ..Operations::default() },
            attention: [None, Some(4)].map(layer).to_vec(),
            state_bytes: 0,
        }
    }

    fn layer(window: Option<usize>) -> Attention {
        Attention {
            window,
            queries: 6,
            kv_heads: 3,
            head_dim: 32,
            values_in_keys: false,
            ending: false,
        }
    }

    #[test]
    fn a_window_bounds_the_visible_positions() {
        let visible = |positions| [None, Some(4)].map(|window| layer(window).visible(&positions));
        // 1 + 2 + 3 + 4 + 5 + 6, and 1 + 2 + 3 + 4 + 4 + 4.
        assert_eq!(visible(0..6), [21.0, 18.0]);
        assert_eq!(visible(0..2), [3.0, 3.0]);
        assert_eq!(visible(5..7), [6.0 + 7.0, 4.0 + 4.0]);
        assert_eq!(visible(9..9), [0.0, 0.0]);
    }

    #[test]
    fn a_visibility_bounds_the_layers_without_a_window() {
        let cost = toy().within(&Visibility { near: 2, first: 1, far: FarKeys::AtDistance(2) });
        assert_eq!(cost.attention, [Some(3), Some(4)].map(layer));
        let all = toy().within(&Visibility::ALL);
        assert_eq!(all.prompt_operations(0..6, 512), toy().prompt_operations(0..6, 512));
    }

    #[test]
    fn a_token_reads_the_weights_and_what_it_sees_of_the_cache() {
        // Keys of 64 bytes and values of 34, for 3 heads.
        let bytes = |cost: &Cost| cost.generation_bytes(5..7, CacheType::F16, CacheType::Q8_0);
        let mut cost = toy();
        assert_eq!(bytes(&cost), (2 * 10 + 21 * 3 * (64 + 34)) as f64);
        cost.attention[1] = Attention { kv_heads: 1, head_dim: 64, ..cost.attention[1] };
        assert_eq!(bytes(&cost), (2 * 10 + (13 * 3 + 8 * 2) * (64 + 34)) as f64);
        cost.state_bytes = 5;
        assert_eq!(bytes(&cost), (2 * (10 + 2 * 5) + (13 * 3 + 8 * 2) * (64 + 34)) as f64);
    }

    #[test]
    fn a_prompt_multiplies_every_weight_and_attends() {
        let operations = |cost: &Cost, micro_batch| {
            let all = cost.prompt_operations(5..8, micro_batch);
            (all.integer, all.float, all.attention)
        };
        let mut cost = toy();
        let all = 4.0 * 6.0 * ((6.0 + 7.0 + 8.0) + 3.0 * 4.0);
        assert_eq!(operations(&cost, 512), (36.0 + 300.0, 8.0, all));
        // Two tokens, of which one also has the layers after the last keys and values.
        assert_eq!(operations(&cost, 2), (36.0 + 100.0, 8.0, all));
        let apart = Cost { apart_from: Some(2), ..cost.clone() };
        assert_eq!(operations(&apart, 512), (36.0 + 100.0, 8.0, all));
        cost.attention[1].ending = true;
        assert_eq!(operations(&cost, 2).2, 4.0 * 6.0 * ((6.0 + 7.0 + 8.0) + 4.0));
    }
}
