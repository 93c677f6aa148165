//! Few tokens: each row of weights is read once, as stored.
//!
//! For one token, weights are unpacked in registers (`single`). For several tokens, a span of
//! weights is unpacked once for all of them (`together`). Floating-point weights are converted for
//! a tile of tokens (`floats`). A token's sums do not depend on the other tokens.
//!
//! Two rows are read in parallel, from places far apart. A core prefetches each such stream
//! separately, and a single stream uses only a small part of a core's memory bandwidth.

mod floats;
mod single;
mod together;

use std::ops::Range;

use bytemuck::from_bytes;

use crate::{
    format::{Format, spans, tail},
    isa::{Isa, LANES},
    operands::{Matrix, Output},
};

pub(crate) use floats::FloatDot;
pub(crate) use single::Dot;
pub(crate) use together::{Arranged, Together};

/// The number of rows that are read in parallel.
const STREAMS: usize = 2;

/// The distance in bytes between a read and its prefetch. It is more than a stream reads during one
/// memory access. Prefetches are explicit: unpacking one cache line takes so long that out-of-order
/// execution does not reach the next read.
const AHEAD: usize = 2048;

/// One row of weights, and the bytes to prefetch at the same time.
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
        // For later tokens, the row is in the CPU's cache already.
        let onward = weights.rows_from(row);
        let ahead = onward.get(AHEAD..).filter(|_| token == 0);
        Row { bytes: weights.row(row), onward, ahead: ahead.unwrap_or_default() }
    }

    /// Returns the span after the whole spans. It is in place and includes the first blocks of the
    /// next row, or at the end of the matrix it is a copy, padded with zeros.
    #[inline(always)]
    fn last<'s, F: Format>(&'s self, copy: &'s mut Option<F::Span>) -> &'s F::Span {
        let (whole, rest) = spans::<F>(self.bytes);
        let start = size_of_val(whole);
        match self.onward.get(start..start + size_of::<F::Span>()) {
            Some(place) => from_bytes(place),
            None => copy.insert(tail::<F>(rest)),
        }
    }
}

/// A product of a row of each stream with `N` tokens.
trait Dots<const N: usize> {
    /// Returns the dot products of each row with tokens `first .. first + N`.
    fn dots(&self, rows: [Row<'_>; STREAMS], first: usize) -> [[f32; N]; STREAMS];
}

/// Up to 16 rows from each of several places.
struct Block<'a> {
    weights: &'a Matrix<'a>,
    /// The first row at each place.
    places: [usize; STREAMS],
    /// The number of rows at each place.
    count: usize,
    /// The number of different places. It is one for a single remaining row, which is then
    /// multiplied twice, since code for single rows would take long to compile.
    streams: usize,
}

impl<'a> Block<'a> {
    /// Returns all rows of a product in blocks.
    #[inline(always)]
    fn all(weights: &'a Matrix<'a>, rows: Range<usize>) -> impl Iterator<Item = Block<'a>> {
        let length = rows.len() / STREAMS;
        let blocks = (0..length).step_by(LANES).map(
            #[inline(always)]
            move |first| {
                let places = [0, 1].map(|s| rows.start + s * length + first);
                Block { weights, places, count: LANES.min(length - first), streams: STREAMS }
            },
        );
        let left = (rows.start + STREAMS * length..rows.end).map(
            #[inline(always)]
            move |row| Block { weights, places: [row; STREAMS], count: 1, streams: 1 },
        );
        blocks.chain(left)
    }

    /// Returns the `i`-th row at each place, for products with tokens from `token` on.
    #[inline(always)]
    fn rows(&self, i: usize, token: usize) -> [Row<'a>; STREAMS] {
        let mut rows = [Row { bytes: &[], onward: &[], ahead: &[] }; STREAMS];
        for s in 0..STREAMS {
            rows[s] = Row::new(self.weights, self.places[s] + i, token);
        }
        rows
    }

    /// Multiplies the rows with tokens `first .. first + N`.
    #[inline(always)]
    fn multiply<const N: usize>(&self, dots: &impl Dots<N>, first: usize, out: &mut dyn Output) {
        let mut values = [[[0.0; LANES]; STREAMS]; N];
        for i in 0..self.count {
            let sums = dots.dots(self.rows(i, first), first);
            for s in 0..STREAMS {
                for t in 0..N {
                    values[t][s][i] = sums[s][t];
                }
            }
        }
        for t in 0..N {
            self.put(first + t, &values[t], out);
        }
    }

    /// Writes the products of the rows with a token.
    #[inline(always)]
    fn put(&self, token: usize, values: &[[f32; LANES]; STREAMS], out: &mut dyn Output) {
        for (place, values) in self.places.iter().zip(values).take(self.streams) {
            out.put(token, *place, &values[..self.count]);
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

/// A row of each stream, in spans of 256 weights.
struct Spans<'a, F: Format> {
    rows: [Row<'a>; STREAMS],
    whole: [&'a [F::Span]; STREAMS],
}

impl<'a, F: Format> Spans<'a, F> {
    #[inline(always)]
    fn new(rows: [Row<'a>; STREAMS]) -> Self {
        let mut whole = [&[][..]; STREAMS];
        for r in 0..STREAMS {
            whole[r] = spans::<F>(rows[r].bytes).0;
        }
        Spans { rows, whole }
    }

    /// Returns the number of whole spans of a row.
    #[inline(always)]
    fn count(&self) -> usize {
        self.whole[0].len()
    }

    /// Returns whole span `s` of each row, and prefetches as many bytes ahead.
    #[inline(always)]
    fn whole<I: Isa>(&self, isa: I, s: usize) -> [&'a F::Span; STREAMS] {
        let mut w = [&self.whole[0][s]; STREAMS];
        for r in 0..STREAMS {
            prefetch(isa, self.rows[r].ahead, s, size_of::<F::Span>());
            w[r] = &self.whole[r][s];
        }
        w
    }

    /// Returns [`Row::last`] of each row.
    #[inline(always)]
    fn last<'s>(&'s self, copies: &'s mut [Option<F::Span>; STREAMS]) -> [&'s F::Span; STREAMS] {
        let [a, b] = copies;
        [self.rows[0].last::<F>(a), self.rows[1].last::<F>(b)]
    }
}
