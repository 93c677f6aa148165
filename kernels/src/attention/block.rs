//! Rows of a page in the order in which a few queries read them.

use std::ops::Range;

use bytemuck::cast_slice;

use super::{PAGE, Page, queries::Prepared};
use crate::{
    cache::{CacheFormat, UNIT},
    isa::Isa,
};

/// Positions whose rows are read together.
pub const ROWS: usize = 8;
/// Places of a page that are read in turn: a core fetches each such stream by itself.
const STREAMS: usize = 2;
/// Bytes of each stream that are asked for ahead of their use: not all at once, which would leave the
/// core nothing to wait with, but a line with each that is read.
const AHEAD: usize = 2560;

/// Rows of the cache that are read together.
pub struct Block<'a, U> {
    /// Of the first row.
    pub position: usize,
    /// (up to [`ROWS`], units)
    pub units: &'a [U],
    /// What is on its way from memory meanwhile, unit by unit.
    pub next: &'a [u8],
}

impl<U> Block<'_, U> {
    /// Asks for a unit of what comes next.
    #[inline(always)]
    pub fn prefetch<I: Isa>(&self, isa: I, unit: usize) {
        for line in (0..size_of::<U>()).step_by(64) {
            isa.prefetch(self.next, unit * size_of::<U>() + line);
        }
    }
}

impl Page<'_> {
    /// The rows of each head among `bytes`, after the first of its queries and before what is read
    /// next, at last `next`.
    #[inline(always)]
    pub fn heads<'a>(
        &self,
        bytes: &'a [u8],
        next: &'a [u8],
    ) -> impl Iterator<Item = (usize, &'a [u8], &'a [u8])> {
        let Prepared { heads, count, .. } = *self.queries;
        let len = bytes.len() / heads;
        (0..heads).map(
            #[inline(always)]
            move |head| {
                let (rows, rest) = bytes[head * len..].split_at(len);
                (head * count, rows, if rest.is_empty() { next } else { rest })
            },
        )
    }

    /// The rows that any query sees, [`ROWS`] at a time (the last may be fewer), from [`STREAMS`]
    /// places in turn. What comes next in each place, at last that of `next`, can be asked for.
    #[inline(always)]
    pub fn blocks<'a, C: CacheFormat>(
        &self,
        bytes: &'a [u8],
        next: &'a [u8],
    ) -> impl Iterator<Item = Block<'a, C::Unit>> {
        let units = self.queries.dim / UNIT;
        let row_bytes = units * size_of::<C::Unit>();
        let all: &[C::Unit] = cast_slice(bytes);
        let Range { start, end } = self.span;
        let count = (end - start).div_ceil(ROWS);
        let stream = count / STREAMS;
        (0..count).map(
            #[inline(always)]
            move |i| {
                let (turn, place) = (i / STREAMS, i % STREAMS);
                let block = if turn < stream { place * stream + turn } else { i };
                let position = start + block * ROWS;
                let at = position * row_bytes + AHEAD;
                let beyond = at.checked_sub((start + (place + 1) * stream * ROWS) * row_bytes);
                let (from, at) = match beyond {
                    None => (bytes, at),
                    Some(beyond) => (next, place * stream * ROWS * row_bytes + beyond),
                };
                Block {
                    position,
                    units: &all[position * units..end.min(position + ROWS) * units],
                    next: from.get(at..).unwrap_or_default(),
                }
            },
        )
    }
}

/// Writes the sums of `count` positions, the first of which is `position`.
#[inline(always)]
pub fn write_scores<I: Isa, const N: usize>(
    isa: I,
    sums: &[[I::Floats; ROWS]; N],
    count: usize,
    position: usize,
    scores: &mut [[f32; PAGE]],
) {
    for (sums, scores) in sums.iter().zip(scores) {
        let sums = isa.to_f32s(isa.sums(*sums));
        match scores[position..].first_chunk_mut() {
            Some(all) if count == ROWS => *all = sums,
            _ => scores[position..][..count].copy_from_slice(&sums[..count]),
        }
    }
}
