//! Attention of several queries over one page of the cache, with an online softmax.
//!
//! ```text
//! partial = (values (dim): 0, maximum: -inf, sum: 0)         for each query
//! for each page:                                             keys, values: (PAGE, dim)
//!   scores  = queries . keys                                 (queries, PAGE)
//!   maximum = max(old maximum, scores)
//!   p       = e^(scores - maximum)                           (queries, PAGE)
//!   values  = values * e^(old maximum - maximum) + p . values of the page
//!   sum     = sum    * e^(old maximum - maximum) + sum of p
//! result    = values / sum
//! ```
//! (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax".) Partials over
//! different pages can be merged, so a long cache can be split among threads.
//!
//! Queries that attend to the same keys are computed together: a group of query heads, for
//! neighbouring tokens. In [`Regime::Few`], rows of the cache are used as stored (`few`). In
//! [`Regime::Many`], rows are unpacked once and multiplied by tiles (`many`).
//!
//! With a floating-point cache, scores are computed in single precision. For quantized keys,
//! queries are rounded to 8 bits, like activations for quantized weights. Values are weighted in
//! single precision. Many queries can also be computed in 8 bits ([`attend_in_eight_bits`]), if
//! there are enough of them to make rounding keys and values worthwhile.
//!
//! Raw keys, which are stored before rotation, are rotated when they are used ([`Rotation`]), in
//! single precision for every cache type. Keys can also be stored without their bias. The bias is
//! then added when they are used, or as a separate part of the scores of a few queries (`bias`).
//!
//! Rows of some cache types are mixed before rounding, which means multiplied by a Hadamard matrix
//! ([`CacheType::is_mixed`]). Raw keys are not mixed, since undoing this would take longer than
//! everything else. If scores are computed from the integers of mixed keys, queries are mixed as
//! well. The results of mixed values are mixed back.
//!
//! Attention to only some blocks of keys chooses these blocks by summaries (`summary`).

mod arcs;
mod bias;
mod block;
mod eight_bits;
mod few;
mod many;
mod partial;
mod queries;
mod rotating;
mod rotation;
mod rounded;
mod softmax;
mod summary;
mod transposed;
mod value_tile;

use std::{collections::TryReserveError, ops::Range};

use bytemuck::{Pod, Zeroable, cast_slice_mut};

pub use self::{
    arcs::Arcs,
    partial::{clear, finish, merge, partial_len},
    queries::faster_regime,
    rotation::{Reading, Rotation},
    summary::{BLOCK, estimate, summarize, summary_bytes},
};
use self::{
    queries::Prepared,
    rounded::{RoundedKeys, RoundedValues},
};
use crate::{
    buffer::filled,
    cache::{self, CacheType},
    isa::{Cpu, LANES},
    regime::Regime,
};

/// The number of positions of a page.
pub const PAGE: usize = 256;

/// The keys or values of a page, for one KV head or several neighbouring heads. A row is one head's
/// key or value at one position.
#[derive(Clone, Copy)]
pub struct CacheRows<'a> {
    /// The format of the rows.
    pub dtype: CacheType,
    /// The rows: (heads, positions, row bytes).
    pub bytes: &'a [u8],
}

/// Queries that attend to the same keys. With several KV heads, each has the same number of
/// queries.
pub struct Queries<'a> {
    /// (heads, queries, dim), scaled by 1 / sqrt(head_dim) or the model's scale. They are mixed in
    /// place if scores are computed from the integers of mixed keys.
    pub queries: &'a mut [f32],
    /// The order of the sums.
    pub regime: Regime,
    /// Whether queries of [`Regime::Many`] are also stored for [`attend_in_eight_bits`].
    pub eight_bits: bool,
    /// The number of KV heads: more than one only in [`Regime::Few`].
    pub heads: usize,
    /// The number of values of a head, including zeros that pad it to a multiple of
    /// [`cache::UNIT`].
    pub dim: usize,
    /// The first element of a row of values to sum, a multiple of [`cache::UNIT`]. It is above 0 if
    /// rows hold keys and values together; the values are then their last elements.
    pub values_from: usize,
    /// The limit `cap` of scores, which become `cap * tanh(score / cap)` (Gemma 2).
    pub soft_cap: Option<f32>,
}

/// Sixteen floats, aligned to a cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Lanes([f32; LANES]);

/// A worker thread's buffers for attention.
pub struct Scratch {
    queries: Prepared,
    /// Scores, then probabilities. A few queries: (queries, PAGE). Many: (queries / 16, PAGE),
    /// where lanes are queries.
    scores: Vec<Lanes>,
    /// Rows of the cache as floats: (PAGE, dim). A few queries use only the first rows: for keys
    /// that are not rotated unit by unit ([`Rotation::is_by_units`]), for transposed keys, and for
    /// products with biases.
    rows: Vec<Lanes>,
    /// Queries or keys before they are rounded: (dim), where lanes are rows.
    panel: Vec<Lanes>,
    /// The keys of the page, rounded.
    keys: RoundedKeys,
    /// The values of the page, rounded.
    values: RoundedValues,
}

/// Maximum queries of [`Regime::Many`] that are computed together: their scores stay in the L2
/// cache.
const TOGETHER: usize = 64;

impl Scratch {
    /// Creates buffers for up to `queries` queries of `dim` values, counted over all heads.
    ///
    /// # Errors
    /// If the system has no memory left.
    pub fn new(queries: usize, dim: usize) -> Result<Self, TryReserveError> {
        let zero = Lanes([0.0; LANES]);
        Ok(Scratch {
            queries: Prepared::new(queries, dim)?,
            scores: filled(zero, queries.div_ceil(LANES) * PAGE)?,
            rows: filled(zero, PAGE * dim.div_ceil(LANES))?,
            panel: filled(zero, dim)?,
            keys: RoundedKeys::new(dim)?,
            values: RoundedValues::new(dim)?,
        })
    }

    /// Stores queries for calls of [`attend`] with keys of the format `keys`.
    pub fn prepare(&mut self, cpu: Cpu, queries: Queries<'_>, keys: CacheType, reading: Reading) {
        self.queries.fill(cpu, queries, keys, reading, &mut self.panel);
    }
}

/// Adds a page to the partials (heads, queries, [`partial_len`]) of the prepared queries.
///
/// `visible` has the positions of the page that each query of a head attends to. `rotation` rotates
/// the keys; `None` uses them as stored. `next` has the keys of the next page, to prefetch their
/// first bytes; it may be empty.
///
/// ```
/// use rope_cpu_kernels::{Cpu, Regime, attention::*, cache::{CacheType, store}};
///
/// // One query of 32 values, and two visible positions with equal keys.
/// let (cpu, dim, dtype) = (Cpu::best(), 32, CacheType::F32);
/// let row = dtype.row_bytes(dim);
/// let (keys, mut values) = (vec![0; PAGE * row], vec![0; PAGE * row]);
/// store(cpu, dtype, &[1.0; 32], &mut values[..row]);
/// store(cpu, dtype, &[3.0; 32], &mut values[row..2 * row]);
///
/// let (mut scratch, mut query) = (Scratch::new(1, dim)?, [1.0; 32]);
/// let (regime, queries) = (Regime::Few, &mut query[..]);
/// let queries = Queries {
///     queries, regime, eight_bits: false, heads: 1, dim, values_from: 0, soft_cap: None,
/// };
/// scratch.prepare(cpu, queries, dtype, Reading::Stored);
/// let [keys, values] = [&keys, &values].map(|bytes| CacheRows { dtype, bytes });
/// let mut partial = vec![0.0; partial_len(dim)];
/// clear(&mut partial, dim);
/// attend(cpu, &[0..2], keys, None, values, &[], &mut scratch, &mut partial);
/// let mut out = [0.0; 32];
/// finish(cpu, dtype.is_mixed(), 0, &mut partial, &mut out);
/// assert!((out[0] - 2.0).abs() < 1e-6); // the mean of 1 and 3
/// # Ok::<(), std::collections::TryReserveError>(())
/// ```
#[expect(clippy::too_many_arguments, reason = "a page, its queries, and the next page")]
pub fn attend(
    cpu: Cpu,
    visible: &[Range<usize>],
    keys: CacheRows<'_>,
    rotation: Option<Rotation<'_>>,
    values: CacheRows<'_>,
    next: &[u8],
    scratch: &mut Scratch,
    partials: &mut [f32],
) {
    if scratch.queries.regime == Regime::Many {
        return attend_many(cpu, visible, keys, rotation, values, None, scratch, partials);
    }
    let Scratch { queries, scores, rows, .. } = scratch;
    queries.check(visible, keys.dtype, Reading::of(rotation));
    let Some(page) = &Page::new(queries, 0, visible) else { return };
    let scores = cast_slice_mut::<_, f32>(scores).as_chunks_mut().0;
    let scoring =
        few::Scores { page, keys: keys.bytes, next: values.bytes, rotation, rows, scores };
    cache::run(cpu, keys.dtype, scoring);
    cpu.call(softmax::Few { page, scores, partials });
    let weighing = few::Values { page, values: values.bytes, next, scores, partials };
    cache::run(cpu, values.dtype, weighing);
}

/// Adds a page to the partials like [`attend`], but computes products in 8 bits, except with keys
/// or values in single precision. The queries must have been stored for this
/// ([`Queries::eight_bits`]). Keys are rounded relative to the one at position `anchor` of the page:
/// 0, unless it has no key there.
#[expect(clippy::too_many_arguments, reason = "a page, its queries, and its anchor")]
pub fn attend_in_eight_bits(
    cpu: Cpu,
    visible: &[Range<usize>],
    keys: CacheRows<'_>,
    rotation: Option<Rotation<'_>>,
    anchor: usize,
    values: CacheRows<'_>,
    scratch: &mut Scratch,
    partials: &mut [f32],
) {
    assert!(scratch.queries.eight_bits);
    attend_many(cpu, visible, keys, rotation, values, Some(anchor), scratch, partials);
}

/// Returns the scores of the prepared queries with the keys of a page, (heads, queries), before a
/// limit and the softmax. Only the scores of `visible` positions are computed. The queries must have
/// been prepared for [`Regime::Few`].
///
/// ```
/// use rope_cpu_kernels::{Cpu, Regime, attention::*, cache::{CacheType, store}};
///
/// let (cpu, dim, dtype) = (Cpu::best(), 32, CacheType::F32);
/// let mut bytes = vec![0; PAGE * dtype.row_bytes(dim)];
/// store(cpu, dtype, &[2.0; 32], &mut bytes[..dtype.row_bytes(dim)]);
/// let (mut scratch, mut query, regime) = (Scratch::new(1, dim)?, [1.0; 32], Regime::Few);
/// let queries = &mut query[..];
/// let queries = Queries {
///     queries, regime, eight_bits: false, heads: 1, dim, values_from: 0, soft_cap: None,
/// };
/// scratch.prepare(cpu, queries, dtype, Reading::Stored);
/// let keys = CacheRows { dtype, bytes: &bytes };
/// assert_eq!(scores(cpu, &[0..1], keys, None, &mut scratch)[0][0], 64.0);
/// # Ok::<(), std::collections::TryReserveError>(())
/// ```
pub fn scores<'s>(
    cpu: Cpu,
    visible: &[Range<usize>],
    keys: CacheRows<'_>,
    rotation: Option<Rotation<'_>>,
    scratch: &'s mut Scratch,
) -> &'s [[f32; PAGE]] {
    let Scratch { queries, scores, rows, .. } = scratch;
    queries.check(visible, keys.dtype, Reading::of(rotation));
    assert!(queries.regime == Regime::Few);
    let scores = cast_slice_mut::<_, f32>(scores).as_chunks_mut().0;
    if let Some(page) = &Page::new(queries, 0, visible) {
        let (keys, dtype, next) = (keys.bytes, keys.dtype, &[]);
        cache::run(cpu, dtype, few::Scores { page, keys, next, rotation, rows, scores });
    }
    &scores[..queries.heads * queries.count]
}

/// Adds a page to the partials of many queries, in 8 bits if there is an `anchor`.
#[expect(clippy::too_many_arguments, reason = "a page, its queries, and the precision")]
fn attend_many(
    cpu: Cpu,
    visible: &[Range<usize>],
    keys: CacheRows<'_>,
    rotation: Option<Rotation<'_>>,
    values: CacheRows<'_>,
    anchor: Option<usize>,
    scratch: &mut Scratch,
    partials: &mut [f32],
) {
    let Scratch { queries, scores, rows, panel, keys: rounded_keys, values: rounded_values } =
        scratch;
    queries.check(visible, keys.dtype, Reading::of(rotation));
    let Some(page) = &Page::new(queries, 0, visible) else { return };
    let rounds = |rows: CacheRows<'_>| anchor.is_some() && rows.dtype != CacheType::F32;
    if let Some(anchor) = anchor.filter(|_| rounds(keys)) {
        let (keys, dtype, rounded) = (keys.bytes, keys.dtype, &mut *rounded_keys);
        let rounding = eight_bits::RoundKeys { page, keys, rotation, anchor, rows, panel, rounded };
        cache::run(cpu, dtype, rounding);
    }
    if rounds(values) {
        let (values, dtype, rounded) = (values.bytes, values.dtype, &mut *rounded_values);
        cache::run(cpu, dtype, eight_bits::RoundValues { page, values, rows, rounded });
    }
    let partials = partials.chunks_mut(TOGETHER * partial_len(queries.dim));
    for (i, (visible, partials)) in visible.chunks(TOGETHER).zip(partials).enumerate() {
        let Some(page) = &Page::new(queries, i * TOGETHER, visible) else { continue };
        let scores = scores.as_chunks_mut().0;
        if rounds(keys) {
            cpu.call(eight_bits::Scores { page, keys: rounded_keys, scores });
        } else {
            let scoring = many::Scores { page, keys: keys.bytes, rotation, rows, scores };
            cache::run(cpu, keys.dtype, scoring);
        }
        cpu.call(softmax::Many { page, scores, partials });
        if rounds(values) {
            cpu.call(eight_bits::Values { page, values: rounded_values, scores, partials });
        } else {
            let weighing = many::Values { page, values: values.bytes, rows, scores, partials };
            cache::run(cpu, values.dtype, weighing);
        }
    }
}

/// The queries that attend to a page, and the positions that they attend to.
struct Page<'a> {
    queries: &'a Prepared,
    /// The first of the queries, a multiple of [`LANES`].
    first: usize,
    /// The positions that each query of a head attends to.
    visible: &'a [Range<usize>],
    /// The smallest range that contains all of `visible`.
    span: Range<usize>,
}

impl<'a> Page<'a> {
    /// Returns the page for the queries from `first` on; `None` if none of its positions is visible
    /// to them.
    fn new(queries: &'a Prepared, first: usize, visible: &'a [Range<usize>]) -> Option<Self> {
        let ranges = visible.iter().filter(|v| !v.is_empty());
        let (start, end) = (ranges.clone().map(|v| v.start).min()?, ranges.map(|v| v.end).max()?);
        Some(Page { queries, first, visible, span: start..end })
    }
}
