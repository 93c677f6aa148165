//! Few tokens: each row of weights is read once, as it is stored.
//!
//! One token is multiplied with weights that are unpacked in registers (`single`), several with those
//! of a span that is unpacked for all of them (`together`), and floating-point weights are converted
//! for a tile of tokens (`floats`). The sums of a token do not depend on the other tokens.
//!
//! Two rows are read side by side, from places far apart: a core prefetches each such stream
//! separately, and a single stream uses only a small part of the memory bandwidth of a core.

mod floats;
mod single;
mod together;

use bytemuck::from_bytes;

use crate::{
    format::{Format, spans, tail},
    isa::{Isa, LANES},
    product::{Matrix, Output, Product},
};

pub(crate) use floats::FloatDot;
pub(crate) use single::Dot;
pub(crate) use together::{Arranged, Together};

/// The number of rows that are read side by side.
const STREAMS: usize = 2;

/// The distance in bytes between a read and the prefetch that goes with it: more than a stream
/// reads during one memory access. Prefetches are explicit because the unpacking between two cache
/// lines is too long for out-of-order execution to reach the next read.
const AHEAD: usize = 2048;

/// One row of weights, and the bytes to prefetch meanwhile.
#[derive(Clone, Copy)]
struct Row<'a> {
    bytes: &'a [u8],
    /// The row and all that follow it.
    onward: &'a [u8],
    /// The bytes to prefetch, or nothing.
    ahead: &'a [u8],
}

impl<'a> Row<'a> {
    #[inline(always)]
    fn new(weights: &Matrix<'a>, row: usize, token: usize) -> Row<'a> {
        // For tokens after the first, the row is in the CPU's cache.
        let onward = weights.rows_from(row);
        let ahead = onward.get(AHEAD..).filter(|_| token == 0);
        Row { bytes: weights.row(row), onward, ahead: ahead.unwrap_or_default() }
    }
}

/// A product of several rows with `N` tokens.
trait Dots<const N: usize> {
    /// Returns the dot products of each row with tokens `first .. first + N`.
    fn dots<const R: usize>(&self, rows: [Row<'_>; R], first: usize) -> [[f32; N]; R];
}

/// Calls `multiply` with up to 16 rows of each stream at a time; multiplies rows that are left with
/// one token after the other.
#[inline(always)]
fn multiply_rows(
    product: Product<'_>,
    one: &impl Dots<1>,
    mut multiply: impl FnMut(&Block<'_>, &mut dyn Output),
) {
    let Product { weights, rows, input, out, .. } = product;
    let length = rows.len() / STREAMS;
    for first in (0..length).step_by(LANES) {
        let places = [0, 1].map(|s| rows.start + s * length + first);
        multiply(&Block { weights, places, count: LANES.min(length - first) }, out);
    }
    for row in rows.start + STREAMS * length..rows.end {
        for token in 0..input.tokens {
            let [sums] = one.dots([Row::new(weights, row, token)], token);
            out.put(token, row, &sums);
        }
    }
}

/// Up to 16 rows from each of several places.
struct Block<'a> {
    weights: &'a Matrix<'a>,
    /// The first row at each place.
    places: [usize; STREAMS],
    count: usize,
}

impl Block<'_> {
    /// Multiplies the rows with tokens `first .. first + N`.
    #[inline(always)]
    fn multiply<const N: usize>(&self, dots: &impl Dots<N>, first: usize, out: &mut dyn Output) {
        let mut values = [[[0.0; LANES]; STREAMS]; N];
        for i in 0..self.count {
            let mut side_by_side = [Row { bytes: &[], onward: &[], ahead: &[] }; STREAMS];
            for s in 0..STREAMS {
                side_by_side[s] = Row::new(self.weights, self.places[s] + i, first);
            }
            let sums = dots.dots(side_by_side, first);
            for s in 0..STREAMS {
                for t in 0..N {
                    values[t][s][i] = sums[s][t];
                }
            }
        }
        for t in 0..N {
            for s in 0..STREAMS {
                out.put(first + t, self.places[s], &values[t][s][..self.count]);
            }
        }
    }
}

/// Prefetches the cache lines of `ahead[i * bytes..][..bytes]`.
#[inline(always)]
fn prefetch<I: Isa>(isa: I, ahead: &[u8], i: usize, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        isa.prefetch(ahead, i * bytes + line);
    }
}

/// Returns the span that begins after a row's whole spans: in place, where it includes the first
/// blocks of the next row, or as a copy padded with zeros at the end of the matrix.
#[inline(always)]
fn last<'s, F: Format>(row: &Row<'s>, copy: &'s mut Option<F::Span>) -> &'s F::Span {
    let (whole, rest) = spans::<F>(row.bytes);
    let start = size_of_val(whole);
    match row.onward.get(start..start + size_of::<F::Span>()) {
        Some(place) => from_bytes(place),
        None => copy.insert(tail::<F>(rest)),
    }
}
