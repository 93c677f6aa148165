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
//! Queries that attend to the same keys (those of a group of query heads, and of neighbouring
//! tokens) are computed together. In [`Regime::Few`], rows of the cache are read as they are stored
//! (`few`); in [`Regime::Many`], rows are unpacked once and multiplied by tiles (`many`). With a
//! floating-point cache, scores are computed in single precision; for quantized keys, queries are
//! rounded to 8 bits, as activations are for quantized weights. Values are weighted in single
//! precision. Many queries can be computed in 8 bits ([`attend_in_eight_bits`]), if they are enough
//! that rounding keys and values for them is worth it.
//!
//! Keys that are stored before rotation are rotated as they are read ([`Rotation`]), in single
//! precision for every cache type. Keys can be stored without their bias, which is added as they
//! are read, or as its own part of the scores of a few queries (`bias`).
//!
//! Rows of some cache types are mixed, multiplied by a Hadamard matrix, before they are rounded
//! ([`CacheType::is_mixed`]), except keys that rotate as they are read: multiplying these back would
//! take longer than all else. Queries are mixed, too, where scores are computed from the integers of
//! mixed keys, and so are the results of mixed values.

mod bias;
mod block;
mod eight_bits;
mod few;
mod many;
mod queries;
mod rotating;
mod rotation;
mod rounded;
mod transposed;

use std::ops::Range;

use bytemuck::{Pod, Zeroable, cast_slice_mut};

pub use self::{
    bias::Arcs,
    rotation::{Reading, Rotation},
};

pub use self::queries::faster_regime;
use self::{
    queries::Prepared,
    rounded::{RoundedKeys, RoundedValues},
};
use crate::{
    array::map,
    cache::{self, CacheType},
    hadamard::mix_rows,
    isa::{Cpu, Isa, Kernel, LANES},
    regime::Regime,
    vector::exp,
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
    /// Whether queries of [`Regime::Many`] are stored for [`attend_in_eight_bits`], too.
    pub eight_bits: bool,
    /// The number of KV heads: more than one only in [`Regime::Few`].
    pub heads: usize,
    /// The number of values of a head, including zeros that pad it to a multiple of
    /// [`cache::UNIT`].
    pub dim: usize,
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

/// The most queries of [`Regime::Many`] that are computed together, so that their scores stay in the
/// L2 cache.
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

    /// Stores the queries for following calls of [`attend`], whose keys have the format `keys`.
    pub fn prepare(&mut self, cpu: Cpu, queries: Queries<'_>, keys: CacheType, reading: Reading) {
        self.queries.fill(cpu, queries, keys, reading, &mut self.panel);
    }
}

/// Returns the number of floats of a query's partial result: `dim` values, maximum and sum.
pub const fn partial_len(dim: usize) -> usize {
    dim + 2
}

/// Resets partials to those of no keys.
pub fn clear(partials: &mut [f32], dim: usize) {
    partials.fill(0.0);
    for partial in partials.chunks_exact_mut(partial_len(dim)) {
        partial[dim] = f32::NEG_INFINITY;
    }
}

/// Adds a page to the partials (heads, queries, [`partial_len`]) of the queries that `scratch` was
/// prepared with.
///
/// `visible` holds for each query of a head the positions of the page that it attends to. Keys are
/// read as `rotation` describes, or as they are stored if it is `None`. `next` holds the keys of the
/// next page, whose first bytes are prefetched, or is empty.
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
    cpu.call(few::Softmax { page, scores, partials });
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
        cpu.call(many::Softmax { page, scores, partials });
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

/// Adds partial `from` to partial `into`, as if its query had attended to the pages of both. A
/// partial of no keys changes no bit of the other.
pub fn merge(cpu: Cpu, into: &mut [f32], from: &[f32]) {
    cpu.call(Merge { into, from });
}

struct Merge<'a> {
    into: &'a mut [f32],
    from: &'a [f32],
}

impl Kernel for Merge<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let dim = self.into.len() - 2;
        let (a, b) = (self.into[dim], self.from[dim]);
        if b == f32::NEG_INFINITY {
            return;
        }
        if a == f32::NEG_INFINITY {
            return self.into.copy_from_slice(self.from);
        }
        let maximum = a.max(b);
        let [wa, wb] = map(
            [a, b],
            #[inline(always)]
            |old| exp(isa, isa.wide_splat(old - maximum)),
        );
        let to = self.into[..dim].as_chunks_mut().0;
        for (to, from) in to.iter_mut().zip(self.from.as_chunks().0) {
            let scaled = isa.wide_mul(isa.wide_load_f32(to), wa);
            *to = isa.wide_to_f32s(isa.wide_mul_add(isa.wide_load_f32(from), wb, scaled));
        }
        self.into[dim] = maximum;
        let [wa, wb] = [isa.wide_to_f32s(wa)[0], isa.wide_to_f32s(wb)[0]];
        self.into[dim + 1] = self.into[dim + 1] * wa + self.from[dim + 1] * wb;
    }
}

/// Writes the result of a partial, which is overwritten, to `out`: its first `out.len()` values,
/// divided by its sum. `values` is the format of the values.
pub fn finish(cpu: Cpu, values: CacheType, partial: &mut [f32], out: &mut [f32]) {
    let dim = partial.len() - 2;
    if values.is_mixed() {
        mix_rows(cpu, &mut partial[..dim], dim);
    }
    let inverse = 1.0 / partial[dim + 1];
    for (out, value) in out.iter_mut().zip(&*partial) {
        *out = value * inverse;
    }
}
