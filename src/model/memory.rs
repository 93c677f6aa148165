//! The memory that a model and a context need, computed before it is allocated.

use std::fmt;

use rope_cpu_kernels::cache::UNIT;
use thiserror::Error;

use super::{
    Attention, Model,
    allocator::{Allocator, Amount},
    attention::PART,
    state::State,
};
use crate::{
    kv_cache::{self, CacheType},
    platform::memory::{Available, Limit},
    settings::Setting,
};

/// The positions by which the KV cache grows.
pub const PAGE: usize = kv_cache::POSITIONS;

/// The bytes of the program itself and of the file's header.
const PROGRAM_BYTES: usize = 16 << 20;

/// The bytes of a thread besides its buffers.
const THREAD_BYTES: usize = 64 << 10;

/// The dimensions of a model that determine its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The bytes of all weights, mapped from the file.
    pub weights_bytes: u64,
    /// The number of layers that attend to the whole context.
    pub global_layers: usize,
    /// The number of layers that attend to the last `window` tokens.
    pub window_layers: usize,
    /// The sliding window in tokens; 0 if no layer has one.
    pub window: usize,
    /// The number of KV heads in each layer.
    pub kv_heads: usize,
    /// The elements of a head's key.
    pub key_dim: usize,
    /// The elements of a head's value.
    pub value_dim: usize,
    /// The bytes of buffers for each token of a micro-batch.
    pub token_bytes: u64,
    /// The bytes of buffers of constant size, such as the logits.
    pub fixed_bytes: u64,
    /// The bytes of buffers for each position of the context: cos/sin tables, and partial results
    /// of attention.
    pub position_bytes: u64,
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
    /// The number of tokens computed in one pass while a prompt is read.
    pub micro_batch: usize,
    /// The type that keys are stored in.
    pub keys: CacheType,
    /// The type that values are stored in.
    pub values: CacheType,
}

/// The memory that a run needs, in bytes. Sums that overflow saturate at `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The weights: pages of the file that the system caches while it has free memory.
    pub weights: u64,
    /// The keys of all positions.
    pub keys: u64,
    /// The values of all positions.
    pub values: u64,
    /// All buffers.
    pub buffers: u64,
}

impl Need {
    /// Returns the sum of all parts.
    pub fn total(&self) -> u64 {
        [self.weights, self.keys, self.values, self.buffers]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

impl Shape {
    /// Returns the shape of a model whose weights have `weights_bytes`, adapters included, computed
    /// by `threads` threads.
    ///
    /// The bytes of buffers are upper bounds of those that the forward pass allocates.
    pub fn of(model: &Model, weights_bytes: u64, threads: usize) -> Self {
        let config = model.config();
        let window_layers =
            config.layers.iter().filter(|layer| layer.attention.window.is_some()).count();
        let window = config.layers.iter().filter_map(|layer| layer.attention.window).max();
        let Attention { kv_heads, head_dim, n_rot, .. } = *config.attention();
        let mut buffers = Allocator::counting(threads);
        State::new(&mut buffers, config, model.weights(), head_dim.next_multiple_of(UNIT));
        let Amount { fixed, per_token, per_part } = buffers.bytes();
        // For each token: its text, its entry in the vocabulary's index, its rank or score.
        let tokenizer = 256 * config.vocabulary;
        let tables = 1 + usize::from(window.is_some());
        Shape {
            weights_bytes,
            global_layers: config.layers.len() - window_layers,
            window_layers,
            window: window.unwrap_or(0),
            kv_heads,
            key_dim: head_dim,
            value_dim: head_dim,
            token_bytes: per_token as u64,
            // The last part of a context counts as a whole.
            fixed_bytes: (fixed + per_part + threads * THREAD_BYTES + tokenizer + PROGRAM_BYTES)
                as u64,
            position_bytes: (tables * n_rot * 4 + per_part.div_ceil(PART)) as u64,
        }
    }

    /// Returns the memory that `request` needs.
    pub fn need(&self, request: &Request) -> Need {
        // The first tokens and the last ones, which may both begin within a page, and a
        // micro-batch.
        let more = if request.rolling { request.micro_batch.saturating_add(2 * PAGE) } else { 0 };
        let sequences = request.sequences as u64;
        let global = pages(request.context.saturating_add(more));
        let shared = (request.shared.min(request.context) / PAGE * PAGE) as u64;
        // A window layer holds the keys from the first one that the oldest query of a micro-batch
        // attends to, which may begin within a page.
        let window = self.window.saturating_add(request.micro_batch).saturating_add(PAGE - 1);
        let window = pages(request.context.min(window));
        let all_global = product(&[global - shared, sequences]).saturating_add(shared);
        let rows = product(&[self.global_layers as u64, all_global])
            .saturating_add(product(&[self.window_layers as u64, window, sequences]))
            .saturating_mul(self.kv_heads as u64);
        let row_bytes = |cache: CacheType, values| cache.row_bytes(values) as u64;
        let tokens = request.context.saturating_mul(request.sequences);
        let micro_batch = request.micro_batch.min(tokens) as u64;
        Need {
            weights: self.weights_bytes,
            keys: rows.saturating_mul(row_bytes(request.keys, self.key_dim)),
            values: rows.saturating_mul(row_bytes(request.values, self.value_dim)),
            buffers: product(&[self.token_bytes, micro_batch])
                .saturating_add(product(&[self.position_bytes, global]))
                .saturating_add(self.fixed_bytes),
        }
    }

    /// Returns the largest context up to `context_max` with which `request` fits in `bytes`: a
    /// whole number of pages if it is less than `context_max`, and 0 if not even one page fits.
    pub fn largest_context(&self, request: &Request, context_max: usize, bytes: u64) -> usize {
        let fits = |context| self.need(&Request { context, ..*request }).total() <= bytes;
        if fits(context_max) {
            return context_max;
        }
        // The need grows with the pages: `low` of them fit, `high` do not.
        let (mut low, mut high) = (0, context_max.div_ceil(PAGE));
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle * PAGE) { low = middle } else { high = middle }
        }
        low * PAGE
    }

    /// Returns the default context: the trained length `context_train`, or the largest context that
    /// fits if that is less, but at least a page.
    pub fn default_context(&self, request: &Request, context_train: usize, bytes: u64) -> usize {
        self.largest_context(request, context_train, bytes).max(PAGE.min(context_train))
    }

    /// Returns the types for keys and values with which `request` would fit in `bytes`, the most
    /// precise first. Keys lose more accuracy than values by coarser storage.
    pub fn fitting_types(&self, request: &Request, bytes: u64) -> Vec<(CacheType, CacheType)> {
        use CacheType::{F16, Q4_0, Q5_0, Q8_0};
        [(F16, F16), (Q8_0, Q8_0), (Q8_0, Q5_0), (Q5_0, Q5_0), (Q5_0, Q4_0), (Q4_0, Q4_0)]
            .into_iter()
            .filter(|&(keys, values)| {
                self.need(&Request { keys, values, ..*request }).total() <= bytes
            })
            .collect()
    }

    /// Checks that `request` fits in the available memory, and returns the memory it needs.
    ///
    /// # Errors
    /// If it does not fit. The error contains the context and the cache types that would.
    pub fn check(&self, request: &Request, available: Available) -> Result<Need, TooLarge> {
        let need = self.need(request);
        if need.total() <= available.bytes {
            return Ok(need);
        }
        Err(TooLarge {
            request: *request,
            need,
            available,
            context: self.largest_context(request, request.context, available.bytes),
            types: self.fitting_types(request, available.bytes),
        })
    }
}

/// Rounds positions up to whole pages.
fn pages(positions: usize) -> u64 {
    (positions as u64).div_ceil(PAGE as u64).saturating_mul(PAGE as u64)
}

fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product, factor| product.saturating_mul(*factor))
}

/// An error for a run that needs more memory than is available, with the settings that would fit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct TooLarge {
    /// The rejected request.
    pub request: Request,
    /// The memory that it needs.
    pub need: Need,
    /// The available memory.
    pub available: Available,
    /// The largest context that fits with the same types; 0 if none does.
    pub context: usize,
    /// The types with which the requested context would fit.
    pub types: Vec<(CacheType, CacheType)>,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { context, sequences, .. } = self.request;
        let need = Bytes(self.need.total());
        match sequences {
            1 => write!(f, "a context of {context} tokens needs {need}, ")?,
            _ => write!(f, "{sequences} contexts of {context} tokens need {need}, ")?,
        }
        write!(f, "but {} is available", Bytes(self.available.bytes))?;
        match self.available.limit {
            Limit::Machine => {}
            Limit::Cgroup => write!(f, " within the limit of the control group")?,
            Limit::Process => write!(f, " within the limits of this process (ulimit -v, -d)")?,
        }
        write!(f, ": {}.", self.need.parts(&self.request))?;
        match self.context {
            0 => write!(f, " No context fits with these cache types.")?,
            largest => write!(
                f,
                " The largest context that fits is {largest} ({} {largest}).",
                Setting::CONTEXT
            )?,
        }
        if let Some(((keys, values), more)) = self.types.split_first() {
            let (keys, values) = (keys.name(), values.name());
            let (k, v) = (Setting::CACHE_TYPE_K, Setting::CACHE_TYPE_V);
            write!(f, " This one would fit with {k} {keys} {v} {values}")?;
            for (keys, values) in more {
                write!(f, " or {k} {} {v} {}", keys.name(), values.name())?;
            }
            write!(f, ".")?;
        }
        Ok(())
    }
}

impl Need {
    /// Formats the parts: `weights 94.0 MiB, keys (f16) 180.0 MiB, ..`.
    pub fn parts(&self, request: &Request) -> String {
        format!(
            "weights {}, keys ({}) {}, values ({}) {}, buffers {}",
            Bytes(self.weights),
            request.keys.name(),
            Bytes(self.keys),
            request.values.name(),
            Bytes(self.values),
            Bytes(self.buffers),
        )
    }
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
    use CacheType::{F16, F32, Q4_0, Q5_0, Q8_0};

    /// Returns the shape of SmolLM2-135M: 30 layers, 3 KV heads of 64 elements.
    fn smollm2() -> Shape {
        Shape {
            weights_bytes: 96_000_000,
            global_layers: 30,
            window_layers: 0,
            window: 0,
            kv_heads: 3,
            key_dim: 64,
            value_dim: 64,
            token_bytes: 1000,
            fixed_bytes: 500,
            position_bytes: 256,
        }
    }

    fn request(context: usize, keys: CacheType, values: CacheType) -> Request {
        let (sequences, shared) = (1, 0);
        Request { context, sequences, shared, rolling: false, micro_batch: 512, keys, values }
    }

    fn machine(bytes: u64) -> Available {
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
    fn contexts_fill_whole_pages() {
        let keys = |context| smollm2().need(&request(context, F32, Q4_0)).keys;
        assert_eq!(keys(1), 30 * 3 * 256 * 64 * 4);
        assert_eq!(keys(256), keys(1));
        assert_eq!(keys(257), 2 * keys(1));
    }

    #[test]
    fn window_layers_hold_the_window_and_a_micro_batch() {
        let shape = Shape { global_layers: 3, window_layers: 15, window: 512, ..smollm2() };
        let keys = |context| shape.need(&request(context, F16, F16)).keys;
        let row = 3 * 64 * 2;
        assert_eq!(keys(32768), (3 * 32768 + 15 * 1280) * row);
        // Not more than the context if that is shorter.
        assert_eq!(keys(600), (3 + 15) * 768 * row);
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
        let shape = Shape { window_layers: 15, window: 256, ..smollm2() };
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
    fn the_largest_context_fits_and_one_page_more_does_not() {
        let shape = smollm2();
        for bytes in [0, 96_000_000, 97_000_000, 150_000_000, 1_000_000_000, 10_000_000_000] {
            let request = request(1 << 17, F16, F16);
            let largest = shape.largest_context(&request, 1 << 17, bytes);
            let total = |context| shape.need(&Request { context, ..request }).total();
            assert!(largest == 0 || total(largest) <= bytes, "{bytes}: {largest}");
            assert!(largest == 1 << 17 || total(largest + 1) > bytes, "{bytes}: {largest}");
        }
        // A context that fits is not rounded.
        assert_eq!(shape.largest_context(&request(1, F16, F16), 1000, u64::MAX), 1000);
    }

    #[test]
    fn the_default_context_is_as_trained_or_as_fits() {
        let request = request(0, F16, F16);
        let context = |bytes| smollm2().default_context(&request, 8192, bytes);
        assert_eq!(context(u64::MAX), 8192);
        assert_eq!(context(200_000_000), 4352);
        assert_eq!(context(0), PAGE);
        assert_eq!(smollm2().default_context(&request, 100, 0), 100);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let shape = smollm2();
        let request = request(16384, F16, F16);
        let q8 = shape.need(&Request { keys: Q8_0, values: Q8_0, ..request }).total();
        let error = shape.check(&request, machine(q8)).unwrap_err();
        assert_eq!(
            error.types,
            [(Q8_0, Q8_0), (Q8_0, Q5_0), (Q5_0, Q5_0), (Q5_0, Q4_0), (Q4_0, Q4_0)]
        );
        assert_eq!(error.context, 8704);
        let message = error.to_string();
        for part in [
            "16384 tokens needs 456.0 MiB",
            "is available:",
            "(`context` 8704)",
            "`cache_type_k` q8_0",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(shape.check(&request, machine(error.need.total())).is_ok());

        let error =
            shape.check(&request, Available { bytes: 5, limit: Limit::Cgroup }).unwrap_err();
        assert!(error.types.is_empty() && error.context == 0);
        let message = error.to_string();
        assert!(message.contains("limit of the control group"), "{message}");
        assert!(message.contains("No context fits"), "{message}");
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
