//! Panels: quantized weights unpacked for many tokens, so that the lanes of every vector are rows.
//!
//! Each 32 columns of 16 rows take [`stride`] lines of 64 bytes: eight of quants (line `j` has
//! columns `4 j ..` of all rows), one of scales for each part of a group that has its own, and
//! likewise of offsets. Where a tile has several panels, the lines of a group of each follow one
//! another.

use bytemuck::must_cast_mut;

use crate::{
    activations::GroupPart,
    array::from_fn,
    format::{Format, Quants, SPAN, spans, tail},
    isa::{CacheLine, Isa, LANES},
};

/// Groups of a span.
pub(crate) const GROUPS: usize = 8;
/// Lines of quants in a group.
pub(crate) const FOURS: usize = 8;
/// Rows that are unpacked together.
const EIGHT: usize = 8;

/// Parts of a group that have scales of their own.
pub(crate) const fn parts<Q: Quants>() -> usize {
    if Q::SPLIT { 2 } else { 1 }
}

/// The one of [`parts`] that is at `index`.
pub(crate) const fn part<Q: Quants>(index: usize) -> GroupPart {
    match (Q::SPLIT, index) {
        (false, _) => GroupPart::Whole,
        (true, 0) => GroupPart::First,
        (true, _) => GroupPart::Last,
    }
}

/// Lines of a group.
pub(crate) const fn stride<Q: Quants>() -> usize {
    FOURS + parts::<Q>() * if Q::OFFSET { 2 } else { 1 }
}

/// The lines of a group at most, in any format.
pub(crate) const STRIDE_MAX: usize = FOURS + 4;

/// Unpacks span `span` of 16 rows into panel `w` of the `width` in `panels`, whose groups are those
/// that the rows have there.
#[inline(always)]
pub(crate) fn unpack<I: Isa, F: Format>(
    isa: I,
    rows: &[&[u8]; LANES],
    span: usize,
    panels: &mut [CacheLine],
    w: usize,
    width: usize,
) {
    for (half, rows) in rows.as_chunks::<EIGHT>().0.iter().enumerate() {
        // Rows of large blocks are whole spans: no code for the others.
        if F::BLOCK == SPAN || span < spans::<F>(rows[0]).0.len() {
            let whole: [&F::Span; EIGHT] = from_fn(
                #[inline(always)]
                |r| &spans::<F>(rows[r]).0[span],
            );
            unpack_eight::<I, F>(isa, whole, half, panels, w, width);
        } else {
            let tails: [F::Span; EIGHT] = from_fn(
                #[inline(always)]
                |r| tail::<F>(spans::<F>(rows[r]).1),
            );
            unpack_eight::<I, F>(isa, tails.each_ref(), half, panels, w, width);
        }
    }
}

/// Unpacks a span of eight rows into one half of the lanes.
#[inline(always)]
fn unpack_eight<I: Isa, F: Format>(
    isa: I,
    rows: [&F::Span; EIGHT],
    half: usize,
    panels: &mut [CacheLine],
    w: usize,
    width: usize,
) {
    const { assert!(SPAN == GROUPS * 4 * FOURS) };
    let scales: [_; EIGHT] = from_fn(
        #[inline(always)]
        |r| F::scales(isa, rows[r]),
    );
    for part in 0..parts::<F::Quants>() {
        let scale = isa.transpose_floats(from_fn(
            #[inline(always)]
            |r| scales[r].scale[part],
        ));
        let offset = isa.transpose_floats(from_fn(
            #[inline(always)]
            |r| scales[r].offset[part],
        ));
        for (g, groups) in panels.chunks_exact_mut(width * stride::<F::Quants>()).enumerate() {
            let group = &mut groups[w * stride::<F::Quants>()..][..stride::<F::Quants>()];
            *eight_floats(&mut group[FOURS + part], half) = isa.to_f32s(scale[g]);
            if F::Quants::OFFSET {
                let line = &mut group[FOURS + parts::<F::Quants>() + part];
                *eight_floats(line, half) = isa.to_f32s(isa.mul(offset[g], isa.splat_f32(-1.0)));
            }
        }
    }
    let shared: [_; EIGHT] = from_fn(
        #[inline(always)]
        |r| F::shared(isa, rows[r]),
    );
    for (g, groups) in panels.chunks_exact_mut(width * stride::<F::Quants>()).enumerate() {
        let group = &mut groups[w * stride::<F::Quants>()..][..stride::<F::Quants>()];
        let fours = isa.transpose(from_fn(
            #[inline(always)]
            |r| {
                let quants = F::quants(isa, rows[r], shared[r], g);
                if F::Quants::SIGNED { isa.xor(quants, isa.splat(I::SIGNED_BIAS)) } else { quants }
            },
        ));
        for (four, line) in fours.into_iter().zip(group) {
            line.0.as_chunks_mut::<32>().0[half] = isa.to_bytes(four);
        }
    }
}

#[inline(always)]
fn eight_floats(line: &mut CacheLine, half: usize) -> &mut [f32; EIGHT] {
    &mut must_cast_mut::<CacheLine, [[f32; EIGHT]; 2]>(line)[half]
}
