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
//! Queries that attend to the same keys (a group of query heads, for neighbouring tokens) are
//! computed together. In [`Regime::Few`], rows of the cache are used as they are stored (`few`). In
//! [`Regime::Many`], rows are unpacked once and multiplied by tiles (`many`). With a floating-point
//! cache, scores are computed in single precision; for quantized keys, queries are rounded to 8
//! bits, as activations are for quantized weights. Values are weighted in single precision. Many
//! queries can be computed in 8 bits ([`attend_in_eight_bits`]), if there are enough of them to
//! make rounding keys and values worth it.
//!
//! Keys that are stored before rotation are rotated when they are used ([`Rotation`]), in single
//! precision for every cache type. Keys can be stored without their bias. It is then added when
//! they are used, or as its own part of the scores of a few queries (`bias`).
//!
//! Rows of some cache types are mixed before they are rounded ([`CacheType::is_mixed`]): multiplied
//! by a Hadamard matrix. Keys that rotate when they are used are not, since multiplying these back
//! would take longer than all else. Queries are also mixed where scores are computed from the
//! integers of mixed keys, and so are the results of mixed values.
//!
//! Attention to a part of the keys estimates from summaries which blocks of them matter
//! (`summary`).

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

use std::ops::Range;

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
    cache::{self, CacheType},
    isa::{Cpu, LANES},
    regime::Regime,
};

/// The number of positions of a page.
pub const PAGE: usize = 256;

/// The keys or values in a page, of one KV head or of several neighbouring ones. A row holds one
/// head's key or value at one position.
#[derive(Clone, Copy)]
pub struct CacheRows<'a> {
    /// The format of the rows.
    pub dtype: CacheType,
    /// The rows: (heads, positions, row bytes).
    pub bytes: &'a [u8],
}

/// Queries that attend to the same keys, or equally many queries for each of several KV heads.
pub struct Queries<'a> {
    /// (heads, queries, dim), scaled by 1 / sqrt(head_dim) or the scale of the model. They are mixed
    /// in place if scores are computed from the integers of mixed keys.
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
    /// The first element of a row of values that is summed, a multiple of [`cache::UNIT`]: more than
    /// 0 if rows hold keys and values together, and values are their last elements.
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
    /// Rows of the cache as floats: (PAGE, dim). A few queries use only the first rows: for
    /// keys that are not read unit by unit ([`Rotation::is_by_units`]), transposed keys, and products
    /// with biases.
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
    pub fn new(queries: usize, dim: usize) -> Self {
        let zero = Lanes([0.0; LANES]);
        Scratch {
            queries: Prepared::new(queries, dim),
            scores: vec![zero; queries.div_ceil(LANES) * PAGE],
            rows: vec![zero; PAGE * dim.div_ceil(LANES)],
            panel: vec![zero; dim],
            keys: RoundedKeys::new(dim),
            values: RoundedValues::new(dim),
        }
    }

    /// Stores the queries for following calls of [`attend`], with keys of the format `keys`.
    pub fn prepare(&mut self, cpu: Cpu, queries: Queries<'_>, keys: CacheType, reading: Reading) {
        self.queries.fill(cpu, queries, keys, reading, &mut self.panel);
    }
}

/// Adds a page to the partials (heads, queries, [`partial_len`]) of the queries that `scratch` was
/// prepared with.
///
/// `visible` holds for each query of a head the positions of the page that it attends to. Keys are
/// rotated by `rotation`, or used as they are stored if it is `None`. `next` holds the keys of the
/// next page, to prefetch their first bytes, or is empty.
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
        return attend_many(cpu, visible, keys, rotation, values, false, scratch, partials);
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

/// Adds a page to the partials like [`attend`], with products in 8 bits, except those with keys or
/// values in single precision. The queries were stored for it ([`Queries::eight_bits`]).
pub fn attend_in_eight_bits(
    cpu: Cpu,
    visible: &[Range<usize>],
    keys: CacheRows<'_>,
    rotation: Option<Rotation<'_>>,
    values: CacheRows<'_>,
    scratch: &mut Scratch,
    partials: &mut [f32],
) {
    assert!(scratch.queries.eight_bits);
    attend_many(cpu, visible, keys, rotation, values, true, scratch, partials);
}

/// Adds a page to the partials of many queries.
#[expect(clippy::too_many_arguments, reason = "a page, its queries, and the precision")]
fn attend_many(
    cpu: Cpu,
    visible: &[Range<usize>],
    keys: CacheRows<'_>,
    rotation: Option<Rotation<'_>>,
    values: CacheRows<'_>,
    eight_bits: bool,
    scratch: &mut Scratch,
    partials: &mut [f32],
) {
    let Scratch { queries, scores, rows, panel, keys: rounded_keys, values: rounded_values } =
        scratch;
    queries.check(visible, keys.dtype, Reading::of(rotation));
    let Some(page) = &Page::new(queries, 0, visible) else { return };
    let rounds = |rows: CacheRows<'_>| eight_bits && rows.dtype != CacheType::F32;
    if rounds(keys) {
        let (keys, dtype, rounded) = (keys.bytes, keys.dtype, &mut *rounded_keys);
        let rounding = eight_bits::RoundKeys { page, keys, rotation, rows, panel, rounded };
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
    /// Returns the page for the queries from `first` on; `None` if they attend to no position of it.
    fn new(queries: &'a Prepared, first: usize, visible: &'a [Range<usize>]) -> Option<Self> {
        let ranges = visible.iter().filter(|v| !v.is_empty());
        let (start, end) = (ranges.clone().map(|v| v.start).min()?, ranges.map(|v| v.end).max()?);
        Some(Page { queries, first, visible, span: start..end })
    }
}
