//! Panels: quantized weights of 16 rows, unpacked for many tokens. Lanes are rows.
//!
//! A group (32 columns of 16 rows) takes [`stride`] cache lines of 64 bytes. Eight of them have
//! quants: cache line `j` holds columns `4 j .. 4 j + 4` of all rows, or what [`Isa::panel`]
//! returns instead. Signed quants are followed by a cache line of [`Isa::signed_terms`], if the
//! instruction set has these. Then each part of a group with a separate scale has a cache line of
//! scales, and one of negated offsets if the format has offsets. In a tile of several panels, the
//! cache lines of the same group of all panels are adjacent.

use bytemuck::{from_bytes, must_cast_mut};

use crate::{
    activations::GroupPart,
    array::from_fn,
    format::{Format, Quants, SPAN, spans, tail},
    isa::{CacheLine, Isa, LANES},
};

/// The number of groups of a span.
pub(crate) const GROUPS: usize = 8;
/// The number of cache lines of quants in a group, each with four columns.
pub(crate) const FOURS: usize = 8;
/// The number of rows that are unpacked together.
const EIGHT: usize = 8;

/// Returns the number of parts of a group that have their own scales.
pub(crate) const fn parts<Q: Quants>() -> usize {
    if Q::SPLIT { 2 } else { 1 }
}

/// Returns the part of a group with index `index` among its [`parts`].
pub(crate) const fn part<Q: Quants>(index: usize) -> GroupPart {
    match (Q::SPLIT, index) {
        (false, _) => GroupPart::Whole,
        (true, 0) => GroupPart::First,
        (true, _) => GroupPart::Last,
    }
}

/// Returns the number of cache lines of quants and their terms in a group.
pub(crate) const fn dots<I: Isa, Q: Quants>() -> usize {
    FOURS + if Q::SIGNED && I::SIGNED_TERMS { 1 } else { 0 }
}

/// Returns the number of cache lines of a group.
pub(crate) const fn stride<I: Isa, Q: Quants>() -> usize {
    dots::<I, Q>() + parts::<Q>() * if Q::OFFSET { 2 } else { 1 }
}

/// The largest number of cache lines of a group of any format.
pub(crate) const STRIDE_MAX: usize = FOURS + 4;

/// Unpacks span `span` of 16 rows into panel `w` of the `width` panels in `panels`. It unpacks as
/// many groups as `panels` has. In between, it calls `prefetch` once for each lane.
#[inline(always)]
pub(crate) fn unpack<I: Isa, F: Format>(
    isa: I,
    rows: &[&[u8]; LANES],
    span: usize,
    panels: &mut [CacheLine],
    w: usize,
    width: usize,
    prefetch: impl Fn(usize),
) {
    for (half, rows) in rows.as_chunks::<EIGHT>().0.iter().enumerate() {
        let tails: [F::Span; EIGHT];
        // Rows of 256-weight blocks have only whole spans, so the code for other rows is not
        // compiled.
        let eight = if F::BLOCK == SPAN || (span + 1) * size_of::<F::Span>() <= rows[0].len() {
            from_fn(
                #[inline(always)]
                |r| from_bytes(&rows[r][span * size_of::<F::Span>()..][..size_of::<F::Span>()]),
            )
        } else {
            tails = from_fn(
                #[inline(always)]
                |r| tail::<F>(spans::<F>(rows[r]).1),
            );
            tails.each_ref()
        };
        unpack_eight::<I, F>(
            isa,
            eight,
            half,
            panels,
            w,
            width,
            #[inline(always)]
            |r| prefetch(half * EIGHT + r),
        );
    }
    if dots::<I, F::Quants>() > FOURS {
        for groups in panels.chunks_exact_mut(width * stride::<I, F::Quants>()) {
            let (quants, rest) = groups[w * stride::<I, F::Quants>()..].split_at_mut(FOURS);
            rest[0] = isa.signed_terms(quants);
        }
    }
}

/// Unpacks a span of eight rows into half `half` of the lanes.
#[inline(always)]
fn unpack_eight<I: Isa, F: Format>(
    isa: I,
    rows: [&F::Span; EIGHT],
    half: usize,
    panels: &mut [CacheLine],
    w: usize,
    width: usize,
    prefetch: impl Fn(usize),
) {
    const { assert!(SPAN == GROUPS * 4 * FOURS) };
    let scales = F::scales_of_rows(isa, rows);
    for part in 0..parts::<F::Quants>() {
        for (g, groups) in panels.chunks_exact_mut(width * stride::<I, F::Quants>()).enumerate() {
            let group = &mut groups[w * stride::<I, F::Quants>()..][..stride::<I, F::Quants>()];
            *eight_floats(&mut group[dots::<I, F::Quants>() + part], half) =
                isa.to_f32s(scales.scale[part][g]);
            if F::Quants::OFFSET {
                let line = &mut group[dots::<I, F::Quants>() + parts::<F::Quants>() + part];
                *eight_floats(line, half) =
                    isa.to_f32s(isa.mul(scales.offset[part][g], isa.splat_f32(-1.0)));
            }
        }
    }
    let shared: [_; EIGHT] = from_fn(
        #[inline(always)]
        |r| F::shared(isa, rows[r]),
    );
    let group = width * stride::<I, F::Quants>();
    let pairs = panels.len().div_ceil(2 * group);
    for (pair, groups) in panels.chunks_mut(2 * group).enumerate() {
        // A few rows at a time, since a core waits for few cache lines at once. Prefetching all rows
        // at once made products with Q6_K and Q8_0 slower.
        for r in (pair..EIGHT).step_by(pairs) {
            prefetch(r);
        }
        F::panels(
            isa,
            rows,
            &shared,
            pair,
            #[inline(always)]
            |g, quants| {
                // Rows with an odd number of groups lack the second.
                let lines = groups.get_mut(g * group + w * stride::<I, F::Quants>()..);
                let Some(lines) = lines.and_then(|lines| lines.first_chunk_mut::<FOURS>()) else {
                    return;
                };
                let bias = isa.splat(if F::Quants::SIGNED { I::SIGNED_BIAS } else { 0 });
                for j in 0..FOURS {
                    lines[j].0.as_chunks_mut::<32>().0[half] =
                        isa.to_bytes(isa.xor(quants[j], bias));
                }
            },
        );
    }
}

/// Returns half `half` of a cache line as floats.
#[inline(always)]
fn eight_floats(line: &mut CacheLine, half: usize) -> &mut [f32; EIGHT] {
    &mut must_cast_mut::<CacheLine, [[f32; EIGHT]; 2]>(line)[half]
}
