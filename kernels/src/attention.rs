//! Attention of a few queries over one page of the cache, with an online softmax.
//!
//! ```text
//! partial = (values 0, maximum -inf, sum 0)            one for each query
//! for each page:
//!   scores  = queries . keys
//!   maximum = max(old maximum, scores);  probabilities = e^(scores - maximum)
//!   values  = values e^(old maximum - maximum) + probabilities . values of the page;  sum likewise
//! result    = values / sum
//! ```
//! (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax".) Partials over
//! different pages can be merged, so a long cache can be split among threads.
//!
//! Queries that read the same keys (those of a group of heads, and of neighbouring tokens) come
//! together. In [`Regime::Few`] they read each row of the cache as it is (`few`); in
//! [`Regime::Many`] rows are unpacked once and multiplied by tiles (`many`). With a cache of floats, scores are computed in
//! single precision; for quantized keys, queries are rounded to 8 bits, as activations are for
//! quantized weights. The weighted values are in single precision always.
//!
//! Keys may be stored before rotation ([`Rotation`]): then they are rotated as they are read, in
//! single precision whatever the cache.

mod block;
mod few;
mod many;
mod queries;
mod rotating;
mod rotation;

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

/// Positions of a page.
pub const PAGE: usize = 256;

/// Keys or values in a page, of one head or of neighbouring ones: a row of the cache for each
/// position.
#[derive(Clone, Copy)]
pub struct CacheRows<'a> {
    /// How they are stored.
    pub dtype: CacheType,
    /// (heads, positions, row bytes)
    pub bytes: &'a [u8],
}

/// Queries that read the same keys, or as many for each of several heads of keys.
#[derive(Clone, Copy)]
pub struct Queries<'a> {
    /// (heads, queries, dim), scaled by 1 / sqrt(head_dim) or what the model asks for.
    pub queries: &'a [f32],
    /// The order of the sums.
    pub regime: Regime,
    /// Heads of keys: more than one only in [`Regime::Few`].
    pub heads: usize,
    /// Values of a head, filled up with zeros to a multiple of [`cache::UNIT`].
    pub dim: usize,
    /// Limits scores to +-cap by tanh (Gemma 2).
    pub soft_cap: Option<f32>,
}

/// Sixteen floats, aligned so that they are read at once.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Lanes([f32; LANES]);

/// What one thread needs while it attends.
pub struct Scratch {
    queries: Prepared,
    /// A few queries: (queries, PAGE). Many: (queries / 16, PAGE), lanes being queries.
    scores: Vec<Lanes>,
    /// Rows of the cache as floats: (PAGE, dim). A few queries use the first ones, for keys that
    /// rotate by no whole units.
    rows: Vec<Lanes>,
}

impl Scratch {
    /// Scratch for up to `queries` of `dim` values, those of all heads.
    pub fn new(queries: usize, dim: usize) -> Self {
        let line = Lanes([0.0; LANES]);
        Scratch {
            queries: Prepared::new(queries, dim),
            scores: vec![line; queries.div_ceil(LANES) * PAGE],
            rows: vec![line; PAGE * dim.div_ceil(LANES)],
        }
    }

    /// Takes the queries that [`attend`] will compare with keys stored as `keys`, which it will
    /// rotate if `rotating`.
    pub fn prepare(&mut self, cpu: Cpu, queries: Queries<'_>, keys: CacheType, rotating: bool) {
        self.queries.fill(cpu, queries, are_integers(keys, rotating));
    }
}

/// Floats of one query's partial result: its values, then maximum and sum.
pub const fn partial_len(dim: usize) -> usize {
    dim + 2
}

/// Makes partials that have seen nothing.
pub fn clear(partials: &mut [f32], dim: usize) {
    partials.fill(0.0);
    for partial in partials.chunks_exact_mut(partial_len(dim)) {
        partial[dim] = f32::NEG_INFINITY;
    }
}

/// Adds a page to the partials (heads, queries, [`partial_len`]) of the queries that `scratch` was
/// prepared with. `visible` says which positions of the page each query of a head sees. Keys are
/// rotated by `rotation`, or compared as they are stored. The beginnings of `next`, the keys of the
/// next page or nothing, are on their way from memory at the end.
#[expect(clippy::too_many_arguments, reason = "a page, what it is read with, and what comes after")]
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
    let seen = visible.iter().filter(|v| !v.is_empty());
    let (Some(start), Some(end)) = (seen.clone().map(|v| v.start).min(), seen.map(|v| v.end).max())
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

/// What is done with one page.
struct Page<'a> {
    queries: &'a Prepared,
    /// The positions that each query sees.
    visible: &'a [Range<usize>],
    /// Those that any query sees.
    span: Range<usize>,
}

/// Adds partial `from` to partial `into`, as if one query had seen the pages of both. A partial that
/// has seen nothing changes no bit of the other.
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

/// The result of a partial: as many of its values as `out` takes, divided by their sum.
pub fn finish(partial: &[f32], out: &mut [f32]) {
    let inverse = 1.0 / partial[partial.len() - 1];
    for (out, value) in out.iter_mut().zip(partial) {
        *out = value * inverse;
    }
}
