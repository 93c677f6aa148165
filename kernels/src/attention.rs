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
//! rounded to 8 bits, as activations are for quantized weights. Values are always weighted in
//! single precision.
//!
//! Keys that are stored before rotation are rotated as they are read ([`Rotation`]), in single
//! precision for every cache type.

mod block;
mod few;
mod many;
mod queries;
mod rotating;
mod rotation;
mod transposed;

use std::ops::Range;

use bytemuck::{Pod, Zeroable, cast_slice_mut};

pub use self::rotation::Rotation;

pub use self::queries::faster_regime;
use self::queries::{Prepared, are_integers};
use crate::{
    array::map,
    cache::{self, CacheType},
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
#[derive(Clone, Copy)]
pub struct Queries<'a> {
    /// (heads, queries, dim), scaled by 1 / sqrt(head_dim) or the scale of the model.
    pub queries: &'a [f32],
    /// The order of the sums.
    pub regime: Regime,
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
    /// Rows of the cache as floats: (PAGE, dim). A few queries use only the first rows, for keys
    /// that do not rotate by whole units ([`Rotation::is_by_units`]).
    rows: Vec<Lanes>,
}

impl Scratch {
    /// Creates buffers for up to `queries` queries of `dim` values, counted over all heads.
    pub fn new(queries: usize, dim: usize) -> Self {
        let zero = Lanes([0.0; LANES]);
        Scratch {
            queries: Prepared::new(queries, dim),
            scores: vec![zero; queries.div_ceil(LANES) * PAGE],
            rows: vec![zero; PAGE * dim.div_ceil(LANES)],
        }
    }

    /// Stores the queries for following calls of [`attend`], whose keys have the format `keys` and
    /// are rotated as they are read if `rotating`.
    pub fn prepare(&mut self, cpu: Cpu, queries: Queries<'_>, keys: CacheType, rotating: bool) {
        self.queries.fill(cpu, queries, are_integers(keys, rotating));
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
/// rotated by `rotation`, or used as they are stored if it is `None`. `next` holds the keys of the
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
    let ranges = visible.iter().filter(|v| !v.is_empty());
    let (Some(start), Some(end)) =
        (ranges.clone().map(|v| v.start).min(), ranges.map(|v| v.end).max())
    else {
        return;
    };
    let Scratch { queries, scores, rows } = scratch;
    assert_eq!(visible.len(), queries.count);
    assert_eq!(are_integers(keys.dtype, rotation.is_some()), queries.quantized);
    let page = &Page { queries, visible, span: start..end };
    if queries.regime == Regime::Many {
        let scores = scores.as_chunks_mut().0;
        let scoring = many::Scores { page, keys: keys.bytes, rotation, rows, scores };
        cache::run(cpu, keys.dtype, scoring);
        cpu.call(many::Softmax { page, scores, partials });
        let weighing = many::Values { page, values: values.bytes, rows, scores, partials };
        cache::run(cpu, values.dtype, weighing);
    } else {
        let scores = cast_slice_mut::<_, f32>(scores).as_chunks_mut().0;
        let scoring =
            few::Scores { page, keys: keys.bytes, next: values.bytes, rotation, rows, scores };
        cache::run(cpu, keys.dtype, scoring);
        cpu.call(few::Softmax { page, scores, partials });
        let weighing = few::Values { page, values: values.bytes, next, scores, partials };
        cache::run(cpu, values.dtype, weighing);
    }
}

/// The queries that attend to a page, and the positions that they attend to.
struct Page<'a> {
    queries: &'a Prepared,
    /// The positions that each query of a head attends to.
    visible: &'a [Range<usize>],
    /// The smallest range that contains all of `visible`.
    span: Range<usize>,
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

/// Writes the result of a partial to `out`: its first `out.len()` values, divided by its sum.
pub fn finish(partial: &[f32], out: &mut [f32]) {
    let inverse = 1.0 / partial[partial.len() - 1];
    for (out, value) in out.iter_mut().zip(partial) {
        *out = value * inverse;
    }
}
