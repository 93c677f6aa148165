//! Computes the memory of a model and a context before it is allocated.

mod fit;

use std::fmt;

use rope_cpu_kernels::{
    attention::{BLOCK, summary_bytes},
    cache::UNIT,
};

pub use self::fit::TooLarge;
pub(super) use self::fit::expert_bytes;
use super::{
    Assistant, Attention, Model, Options,
    allocator::{Allocator, Amount},
    attention::PART,
    experts, sparse,
    state::{LOGIT_ROWS, State},
};
use crate::kv_cache::{CacheType, PAGE, states_max};

/// The bytes of the program itself and of the file's header.
const PROGRAM_BYTES: usize = 16 << 20;

/// The bytes of a thread besides its buffers.
const THREAD_BYTES: usize = 64 << 10;

/// The dimensions of a model that determine its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The bytes of all weights, mapped from the file.
    pub weights_bytes: u64,
    /// The bytes of the experts among them, which can be read from the file where tokens choose them.
    pub experts_bytes: u64,
    /// The bytes of the experts that must be in memory at a time.
    pub experts_least: u64,
    /// The keys and values of each layer that stores some.
    pub layers: Vec<Cache>,
    /// The bytes of the states of all recurrent layers, at one length of a sequence.
    pub state_bytes: usize,
    /// The bytes of buffers for each token of a micro-batch.
    pub token_bytes: u64,
    /// The bytes of buffers of constant size, such as the logits.
    pub fixed_bytes: u64,
    /// The bytes of buffers for each position of the context: cos/sin tables, and partial results
    /// of attention.
    pub position_bytes: u64,
}

/// The keys and values of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The sliding window in tokens; `None` if the layer attends to the whole context.
    pub window: Option<usize>,
    /// The number of KV heads.
    pub kv_heads: usize,
    /// The elements of a head's key.
    pub key_dim: usize,
    /// The elements of a head's value; 0 if values are a part of keys.
    pub value_dim: usize,
    /// Whether sparse attention needs summaries of the keys.
    pub summaries: bool,
}

/// The options of a run that determine its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The context of a sequence in positions.
    pub context: usize,
    /// The number of sequences with a context each.
    pub sequences: usize,
    /// The number of first positions that all sequences share.
    pub shared: usize,
    /// Whether the context rolls: old tokens are removed after each micro-batch.
    pub rolling: bool,
    /// The number of prompt tokens computed in one pass.
    pub micro_batch: usize,
    /// The type that keys are stored in.
    pub keys: CacheType,
    /// The type that values are stored in.
    pub values: CacheType,
    /// Whether answers or prompts have sparse attention (see [`Options`](super::Options)).
    pub sparse: bool,
}

impl Request {
    /// Returns the request of one sequence of an engine with `options`. Its context does not roll.
    pub fn of(options: &Options) -> Self {
        Request {
            context: options.context,
            sequences: 1,
            shared: 0,
            rolling: false,
            micro_batch: options.micro_batch,
            keys: options.keys,
            values: options.values,
            sparse: options.sparse().iter().any(Option::is_some),
        }
    }
}

/// The memory that a run needs, in bytes. Sums that overflow saturate at `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The weights: pages of the file that the system caches while it has free memory.
    pub weights: u64,
    /// The keys of all positions, and the summaries of sparse attention.
    pub keys: u64,
    /// The values of all positions.
    pub values: u64,
    /// The states of recurrent layers, snapshots included.
    pub states: u64,
    /// All buffers.
    pub buffers: u64,
}

impl Need {
    /// Returns the sum of all parts.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.cache()).saturating_add(self.buffers)
    }

    /// Returns the sum of what sequences need: keys, values and states.
    pub fn cache(&self) -> u64 {
        self.keys.saturating_add(self.values).saturating_add(self.states)
    }

    /// Formats the parts: `weights 94.0 MiB, keys (f16) 180.0 MiB, ..`.
    pub fn parts(&self, request: &Request) -> String {
        let states = match self.states {
            0 => String::new(),
            states => format!("states {}, ", Bytes(states)),
        };
        format!(
            "weights {}, keys ({}) {}, values ({}) {}, {states}buffers {}",
            Bytes(self.weights),
            request.keys.name(),
            Bytes(self.keys),
            request.values.name(),
            Bytes(self.values),
            Bytes(self.buffers),
        )
    }
}

impl Shape {
    /// Returns the shape of a model with `weights_bytes` of weights, adapters included, computed by
    /// `threads` threads. With `predict`, its predictor follows sequences
    /// ([`Options::predict`](super::Options)).
    ///
    /// The bytes of buffers are upper bounds of those that the forward pass allocates.
    pub fn of(model: &Model, weights_bytes: u64, threads: usize, predict: bool) -> Self {
        let config = model.config();
        let predictor = config.predictor.as_ref().filter(|_| predict);
        let layers = config.layers.iter().chain(predictor).enumerate().filter_map(|(i, layer)| {
            let attention = layer.attention.as_ref()?;
            let Attention { kv_heads, head_dim, window, latent, shared_with, .. } = *attention;
            let value_dim = if latent.is_some() { 0 } else { head_dim };
            let summaries = i < config.layers.len() && sparse::serves(config, i);
            let cache = Cache { window, kv_heads, key_dim: head_dim, value_dim, summaries };
            shared_with.is_none().then_some(cache)
        });
        let layers: Vec<_> = layers.collect();
        let n_rot = config.attention_max(|attention| attention.n_rot);
        let mut buffers = Allocator::counting(threads);
        let inputs = predictor.map_or(0, |_| 2 * config.embedding);
        State::new(&mut buffers, config, model.weights(), inputs);
        let output_bytes = config.embedding * size_of::<f32>();
        let Amount { fixed, per_token, per_part } = buffers.bytes();
        // For each token: its text, its entry in the vocabulary's index, its rank or score.
        let tokenizer = 256 * config.vocabulary;
        let tables = 1 + usize::from(layers.iter().any(|layer| layer.window.is_some()));
        let experts = experts::bytes_by_layer(model.weights());
        Shape {
            experts_bytes: experts.iter().sum(),
            experts_least: experts::least(&experts),
            weights_bytes: weights_bytes + predictor.map_or(0, |_| model.predictor_bytes()),
            layers,
            state_bytes: config.state_bytes() + predictor.map_or(0, |_| output_bytes),
            token_bytes: per_token as u64,
            // The last part of a context counts as a whole.
            fixed_bytes: (fixed + per_part + threads * THREAD_BYTES + tokenizer + PROGRAM_BYTES)
                as u64,
            position_bytes: (tables * n_rot * 4 + per_part.div_ceil(PART)) as u64,
        }
    }

    /// Returns the shape with an assistant, computed by `threads` threads.
    pub fn assisted(mut self, assistant: &Assistant, threads: usize) -> Self {
        let mut buffers = Allocator::counting(threads);
        assistant.state(&mut buffers);
        let Amount { fixed, per_token, per_part } = buffers.bytes();
        let outputs = assistant.weights().output.width * size_of::<f32>() * (1 + LOGIT_ROWS);
        self.weights_bytes += assistant.weights_bytes();
        self.fixed_bytes += (fixed + per_token + per_part + outputs) as u64;
        self.position_bytes += per_part.div_ceil(PART) as u64;
        self
    }

    /// Returns the shape with sliding windows that retain the keys of `tokens` more tokens.
    pub fn retaining(mut self, tokens: usize) -> Self {
        for window in self.layers.iter_mut().filter_map(|layer| layer.window.as_mut()) {
            *window = window.saturating_add(tokens);
        }
        self
    }

    /// Returns the memory that `request` needs.
    pub fn need(&self, request: &Request) -> Need {
        // The first tokens and the last ones, which may both start within a page, and a
        // micro-batch.
        let more = if request.rolling { request.micro_batch.saturating_add(2 * PAGE) } else { 0 };
        let sequences = request.sequences as u64;
        let global = pages(request.context.saturating_add(more));
        let shared = (request.shared.min(request.context) / PAGE * PAGE) as u64;
        let all_global = product(&[global - shared, sequences]).saturating_add(shared);
        let rows = |window: Option<usize>| {
            let Some(window) = window else { return all_global };
            // The layer holds the keys from the first one that the oldest query of a micro-batch
            // attends to. It may be within a page.
            let window = window.saturating_add(request.micro_batch).saturating_add(PAGE - 1);
            product(&[pages(request.context.min(window)), sequences])
        };
        let of_layers = |cache: CacheType, dim: fn(&Cache) -> usize| {
            let layers = self.layers.iter().map(|layer| {
                let row_bytes = cache.row_bytes(dim(layer));
                product(&[rows(layer.window), layer.kv_heads as u64, row_bytes as u64])
            });
            layers.fold(0, u64::saturating_add)
        };
        let summaries = self.layers.iter().filter(|layer| request.sparse && layer.summaries);
        let summaries = summaries.map(|layer| {
            let bytes = layer.kv_heads * summary_bytes(layer.key_dim.next_multiple_of(UNIT));
            product(&[rows(layer.window) / BLOCK as u64, bytes as u64])
        });
        let summaries = summaries.fold(0, u64::saturating_add);
        let tokens = request.context.saturating_mul(request.sequences);
        let micro_batch = request.micro_batch.min(tokens) as u64;
        Need {
            weights: self.weights_bytes,
            keys: of_layers(request.keys, |layer| layer.key_dim).saturating_add(summaries),
            values: of_layers(request.values, |layer| layer.value_dim),
            states: product(&[
                sequences,
                states_max(self.state_bytes) as u64,
                self.state_bytes as u64,
            ]),
            buffers: product(&[self.token_bytes, micro_batch])
                .saturating_add(product(&[self.position_bytes, global]))
                .saturating_add(self.fixed_bytes),
        }
    }
}

/// Rounds positions up to whole pages.
fn pages(positions: usize) -> u64 {
    (positions as u64).div_ceil(PAGE as u64).saturating_mul(PAGE as u64)
}

fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product, factor| product.saturating_mul(*factor))
}

/// A number of bytes, displayed with a unit: `94.2 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        let mut size = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // 1023.95 would be displayed as 1024.0 of its unit.
        while size >= 1023.95 && unit + 1 < UNITS.len() {
            size /= 1024.0;
            unit += 1;
        }
        write!(f, "{size:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::memory::{Available, Limit};
    use CacheType::{F16, F32, Q4_0, Q8_0};

    /// Returns the shape of SmolLM2-135M: 30 layers, 3 KV heads of 64 elements.
    pub(super) fn smollm2() -> Shape {
        Shape {
            weights_bytes: 96_000_000,
            experts_bytes: 0,
            experts_least: 0,
            layers: layers(30, None),
            state_bytes: 0,
            token_bytes: 1000,
            fixed_bytes: 500,
            position_bytes: 256,
        }
    }

    /// Returns layers with 3 KV heads of 64 elements.
    fn layers(count: usize, window: Option<usize>) -> Vec<Cache> {
        vec![Cache { window, kv_heads: 3, key_dim: 64, value_dim: 64, summaries: true }; count]
    }

    pub(super) fn request(context: usize, keys: CacheType, values: CacheType) -> Request {
        let (sequences, shared) = (1, 0);
        let (rolling, micro_batch, sparse) = (false, 512, false);
        Request { context, sequences, shared, rolling, micro_batch, keys, values, sparse }
    }

    pub(super) fn machine(bytes: u64) -> Available {
        Available { bytes, limit: Limit::Machine }
    }

    #[test]
    fn a_cache_is_layers_times_heads_times_rows() {
        let need = smollm2().need(&request(16384, F16, Q8_0));
        assert_eq!(need.weights, 96_000_000);
        assert_eq!(need.keys, 30 * 3 * 16384 * 64 * 2);
        assert_eq!(need.values, 30 * 3 * 16384 * (64 / 32 * 34));
        assert_eq!(need.buffers, 512 * 1000 + 16384 * 256 + 500);
        assert_eq!(need.total(), need.weights + need.keys + need.values + need.buffers);
    }

    #[test]
    fn summaries_of_sparse_attention_count_as_keys() {
        let dense = request(16384, F16, Q8_0);
        let sparse = Request { sparse: true, ..dense };
        let [without, with] = [dense, sparse].map(|request| smollm2().need(&request).keys);
        // A mean and a spread of 64 elements in f16 for 32 positions.
        assert_eq!(with - without, 30 * 3 * (16384 / 32) * 2 * 64 * 2);
    }

    #[test]
    fn contexts_fill_whole_pages() {
        let keys = |context| smollm2().need(&request(context, F32, Q4_0)).keys;
        assert_eq!(keys(1), 30 * 3 * 256 * 64 * 4);
        assert_eq!(keys(256), keys(1));
        assert_eq!(keys(257), 2 * keys(1));
    }

    #[test]
    fn window_layers_hold_the_window_and_a_micro_batch() {
        let shape =
            Shape { layers: [layers(3, None), layers(15, Some(512))].concat(), ..smollm2() };
        let keys = |context| shape.need(&request(context, F16, F16)).keys;
        let row = 3 * 64 * 2;
        assert_eq!(keys(32768), (3 * 32768 + 15 * 1280) * row);
        // Not more than the context if that is shorter.
        assert_eq!(keys(600), (3 + 15) * 768 * row);
        let retaining = shape.clone().retaining(1024);
        let keys = retaining.need(&request(32768, F16, F16)).keys;
        assert_eq!(keys, (3 * 32768 + 15 * 2304) * row);
    }

    #[test]
    fn layers_count_their_own_heads() {
        let wide =
            Cache { window: None, kv_heads: 1, key_dim: 96, value_dim: 32, summaries: false };
        let shape = Shape { layers: [layers(2, Some(256)), vec![wide]].concat(), ..smollm2() };
        let need = shape.need(&request(4096, F16, Q8_0));
        assert_eq!(need.keys, 2 * 3 * 1024 * 64 * 2 + 4096 * 96 * 2);
        assert_eq!(need.values, 2 * 3 * 1024 * 2 * 34 + 4096 * 34);
    }

    #[test]
    fn states_and_their_snapshots_count_for_each_sequence() {
        let hybrid = Shape { state_bytes: 64 << 20, ..smollm2() };
        let request = Request { sequences: 3, ..request(4096, F16, F16) };
        let (without, with) = (smollm2().need(&request), hybrid.need(&request));
        // Eight snapshots, the states before two steps, and three of a step with two removable tokens.
        assert_eq!(with.states, 3 * (8 + 2 + 3) * (64 << 20));
        assert_eq!(with.total() - without.total(), with.states);
        assert!(with.parts(&request).contains(", states 2.4 GiB, buffers"));
        assert!(!without.parts(&request).contains("states"));
    }

    #[test]
    fn a_rolling_context_also_holds_a_micro_batch() {
        let keys = |rolling| smollm2().need(&Request { rolling, ..request(4096, F16, F16) }).keys;
        assert_eq!(keys(true) - keys(false), 30 * 3 * (512 + 2 * 256) * 64 * 2);
    }

    #[test]
    fn sequences_have_a_context_each_and_share_whole_pages() {
        let one = request(600, F16, F16);
        let four = Request { sequences: 4, ..one };
        let shape =
            Shape { layers: [layers(30, None), layers(15, Some(256))].concat(), ..smollm2() };
        let row = 3 * 64 * 2;
        assert_eq!(shape.need(&four).keys, 4 * shape.need(&one).keys);
        let forks = Request { shared: 511, ..four };
        assert_eq!(shape.need(&forks).keys, (30 * (256 + 4 * 512) + 15 * 4 * 768) * row);
        // The sequences fill a micro-batch together.
        let buffers =
            |sequences| shape.need(&Request { sequences, ..request(100, F16, F16) }).buffers;
        assert_eq!(buffers(4) - buffers(1), 300 * 1000);
        let error = shape.check(&four, machine(0)).unwrap_err().to_string();
        assert!(error.starts_with("4 contexts of 600 tokens need "), "{error}");
    }

    #[test]
    fn sizes_beyond_measure_saturate() {
        let request = Request { micro_batch: usize::MAX, ..request(usize::MAX, F32, F32) };
        assert_eq!(smollm2().need(&request).total(), u64::MAX);
        let largest = smollm2().largest_context(&request, usize::MAX, 1 << 30);
        assert!(largest < 1 << 20, "{largest}");
    }

    #[test]
    fn bytes_read_well() {
        for (bytes, shown) in
            [(0, "0.0 KiB"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"), ((1 << 30) - 1, "1.0 GiB")]
        {
            assert_eq!(Bytes(bytes).to_string(), shown);
        }
    }
}
