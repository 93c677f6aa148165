//! What tokens take: bytes read while writing, operations while reading a prompt.

use std::ops::Range;

use rope_cpu_kernels::DType;

use crate::{
    gguf::{Gguf, Tensor},
    kv_cache::CacheType,
    model::{Config, EMBEDDINGS},
    rope::Sight,
};

/// What a model has to do for a token, counted from its tensors and its configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Bytes of all weights.
    pub weights_bytes: u64,
    /// How many weights there are.
    pub parameters: u64,
    /// Bytes of weights that one token of an answer reads: all, but of the table of embeddings one
    /// row, unless it is the output matrix too.
    pub token_bytes: u64,
    /// Weights that each token of a prompt is multiplied with.
    layers: Operations,
    /// Weights that give the logits, which only the last token of a prompt needs.
    output: Operations,
    /// For each layer, the positions that a token sees; `None` for all.
    windows: Vec<Option<usize>>,
    /// Values of all queries of a token, in a layer.
    queries: usize,
    kv_heads: usize,
    head_dim: usize,
}

/// Operations, two for a multiplication and its addition, by the instructions that do them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Operations {
    /// Products of 8-bit integers: those with quantized weights.
    pub integer: f64,
    /// All others: products with weights that are floats, and attention.
    pub float: f64,
}

impl Operations {
    /// All of them.
    pub fn total(&self) -> f64 {
        self.integer + self.float
    }

    fn with_matrix(tensor: &Tensor<'_>) -> Self {
        let operations = 2.0 * tensor.elements() as f64;
        match DType::named(tensor.ggml_type.name).is_some_and(DType::is_quantized) {
            true => Operations { integer: operations, float: 0.0 },
            false => Operations { integer: 0.0, float: operations },
        }
    }

    fn add(&mut self, other: Operations, times: f64) {
        self.integer += times * other.integer;
        self.float += times * other.float;
    }
}

const OUTPUT: &str = "output.weight";

/// `blk.0.ffn_up_exps.weight`, or `blk.0.ffn_up.5.weight` in old files.
fn is_of_experts(name: &str) -> bool {
    let name = name.strip_suffix(".weight").unwrap_or_default();
    name.ends_with("_exps") || name.ends_with(|last: char| last.is_ascii_digit())
}

impl Work {
    /// Counts what the model in `gguf` has to do.
    pub fn new(gguf: &Gguf<'_>, config: &Config) -> Self {
        let tied = gguf.tensor(OUTPUT).is_none();
        let mut work = Work {
            weights_bytes: 0,
            parameters: 0,
            token_bytes: 0,
            layers: Operations::default(),
            output: Operations::default(),
            windows: (0..config.layers).map(|layer| config.layer_window(layer)).collect(),
            queries: config.heads * config.head_dim,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
        };
        for tensor in gguf.tensors() {
            let bytes = tensor.bytes.len() as u64;
            work.weights_bytes += bytes;
            work.parameters += tensor.elements();
            match tensor.name {
                EMBEDDINGS if !tied => work.token_bytes += tensor.row_bytes(),
                EMBEDDINGS => {
                    work.token_bytes += bytes + tensor.row_bytes();
                    work.output = Operations::with_matrix(tensor);
                }
                OUTPUT => {
                    work.token_bytes += bytes;
                    work.output = Operations::with_matrix(tensor);
                }
                name => {
                    // Of the experts' weights, a token meets those of the experts that it goes through.
                    let share = match config.experts {
                        Some(mixture) if is_of_experts(name) => {
                            mixture.used as f64 / mixture.count as f64
                        }
                        _ => 1.0,
                    };
                    work.token_bytes += (bytes as f64 * share) as u64;
                    if tensor.rows() > 1 {
                        work.layers.add(Operations::with_matrix(tensor), share);
                    }
                }
            }
        }
        work
    }

    /// The same where layers without a window of their own see no more than `sight`.
    pub fn within(mut self, sight: &Sight) -> Self {
        let most = sight.near.saturating_add(sight.first);
        for window in &mut self.windows {
            window.get_or_insert(most);
        }
        self
    }

    /// Bytes that writing the tokens at `positions` reads, weights and cache.
    pub fn generation_bytes(
        &self,
        positions: Range<usize>,
        keys: CacheType,
        values: CacheType,
    ) -> f64 {
        let row_bytes = keys.row_bytes(self.head_dim) + values.row_bytes(self.head_dim);
        let cache = self.visible(&positions) * (self.kv_heads * row_bytes) as f64;
        positions.len() as f64 * self.token_bytes as f64 + cache
    }

    /// Operations that reading a prompt at `positions` takes, with the logits of its last token:
    /// every weight of a layer once for each token, and in attention four for each value of a
    /// query and each position that it sees.
    pub fn prompt_operations(&self, positions: Range<usize>) -> Operations {
        let mut operations = self.output;
        operations.add(self.layers, positions.len() as f64);
        operations.float += 4.0 * self.queries as f64 * self.visible(&positions);
        operations
    }

    /// Positions that all tokens at `positions` see, in all layers together.
    fn visible(&self, positions: &Range<usize>) -> f64 {
        // Of all tokens before `end`: 1 + 2 + 3 + .. up to the window, then the window each.
        let until = |end: usize, window: Option<usize>| {
            let growing = end.min(window.unwrap_or(end)) as f64;
            growing * (growing + 1.0) / 2.0 + (end as f64 - growing) * growing
        };
        let layer = |&window| until(positions.end, window) - until(positions.start, window);
        self.windows.iter().map(layer).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rope::Far;

    /// 10 bytes of weights for a token, of which 6 are multiplied; one layer sees all, one 4.
    fn toy() -> Work {
        Work {
            weights_bytes: 14,
            parameters: 14,
            token_bytes: 10,
            layers: Operations { integer: 12.0, float: 0.0 },
            output: Operations { integer: 0.0, float: 8.0 },
            windows: vec![None, Some(4)],
            queries: 6,
            kv_heads: 3,
            head_dim: 32,
        }
    }

    #[test]
    fn layers_with_a_window_see_no_more_than_it() {
        // 1 + 2 + 3 + 4 + 5 + 6, and 1 + 2 + 3 + 4 + 4 + 4.
        assert_eq!(toy().visible(&(0..6)), 21.0 + 18.0);
        assert_eq!(toy().visible(&(0..2)), 3.0 + 3.0);
        assert_eq!(toy().visible(&(5..7)), 6.0 + 7.0 + 4.0 + 4.0);
        assert_eq!(toy().visible(&(9..9)), 0.0);
    }

    #[test]
    fn a_sight_bounds_the_layers_without_a_window() {
        let work = toy().within(&Sight { near: 2, first: 1, far: Far::At(2) });
        assert_eq!(work.windows, [Some(3), Some(4)]);
        assert_eq!(toy().within(&Sight::ALL).visible(&(0..6)), toy().visible(&(0..6)));
    }

    #[test]
    fn a_token_reads_the_weights_and_what_it_sees_of_the_cache() {
        // Keys of 64 bytes and values of 34, for 3 heads.
        let bytes = toy().generation_bytes(5..7, CacheType::F16, CacheType::Q8_0);
        assert_eq!(bytes, (2 * 10 + 21 * 3 * (64 + 34)) as f64);
    }

    #[test]
    fn a_prompt_multiplies_every_weight_and_attends() {
        let Operations { integer, float } = toy().prompt_operations(5..7);
        assert_eq!((integer, float), (24.0, 8.0 + 4.0 * 6.0 * 21.0));
    }
}
