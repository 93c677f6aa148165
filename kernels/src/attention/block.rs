//! The order in which a few queries read the rows of a page.
//!
//! ```text
//! a page of 256 rows:   block 0, block 16, block 1, block 17, ...      blocks of 8 rows
//!                       one of two streams alternately
//! with block b:         prefetch AHEAD bytes after block b, in its stream;
//!                       after the end of the stream, in the rows that are read next
//! ```

use std::ops::Range;

use bytemuck::cast_slice;

use super::{PAGE, Page, queries::Prepared};
use crate::{
    cache::{CacheFormat, UNIT},
    isa::Isa,
};

/// The number of rows that are read together.
pub const ROWS: usize = 8;
/// The number of places in a page that are read alternately. A core prefetches each stream
/// separately.
const STREAMS: usize = 2;
/// The distance in bytes between a read and its prefetch. Each read prefetches one unit:
/// prefetching many at once would occupy all line fill buffers of the core.
const AHEAD: usize = 2560;

/// Rows of the cache that are read together, and the bytes to prefetch at the same time.
pub struct Block<'a, U> {
    /// The position of the first row.
    pub position: usize,
    /// (up to [`ROWS`], units)
    pub units: &'a [U],
    /// The bytes to prefetch, unit by unit.
    pub next: &'a [u8],
}

impl<U> Block<'_, U> {
    /// Prefetches unit `unit` of the next bytes.
    #[inline(always)]
    pub fn prefetch<I: Isa>(&self, isa: I, unit: usize) {
        for line in (0..size_of::<U>()).step_by(64) {
            isa.prefetch(self.next, unit * size_of::<U>() + line);
        }
    }
}

impl Page<'_> {
    /// Returns for each KV head in `bytes`: its first query, its rows, and the bytes that are read
    /// next. These are the following heads, or `next` for the last head.
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

    /// Returns the rows of the span in blocks of [`ROWS`] rows of the page. The first and the last
    /// block may have fewer. Blocks come from [`STREAMS`] places alternately, in an order that does
    /// not depend on the span. The bytes to prefetch are later in the same stream, and after its
    /// end in the corresponding stream of the same span of `next`.
    #[inline(always)]
    pub fn blocks<'a, C: CacheFormat>(
        &self,
        bytes: &'a [u8],
        next: &'a [u8],
    ) -> impl Iterator<Item = Block<'a, C::Unit>> {
        const STREAM_BLOCKS: usize = PAGE / ROWS / STREAMS;
        const STREAM_ROWS: usize = STREAM_BLOCKS * ROWS;
        let units = self.queries.dim / UNIT;
        let row_bytes = units * size_of::<C::Unit>();
        let all: &[C::Unit] = cast_slice(bytes);
        let Range { start, end } = self.span;
        (0..STREAMS * STREAM_BLOCKS).filter_map(
            #[inline(always)]
            move |i| {
                let (turn, stream) = (i / STREAMS, i % STREAMS);
                let first = stream * STREAM_ROWS + turn * ROWS;
                let (position, last) = (first.max(start), end.min(first + ROWS));
                if position >= last {
                    return None;
                }
                let at = position * row_bytes + AHEAD;
                let stream_end = end.min((stream + 1) * STREAM_ROWS) * row_bytes;
                let (from, at) = match at.checked_sub(stream_end) {
                    None => (bytes, at),
                    Some(beyond) => (next, start.max(stream * STREAM_ROWS) * row_bytes + beyond),
                };
                Some(Block {
                    position,
                    units: &all[position * units..last * units],
                    next: from.get(at..).unwrap_or_default(),
                })
            },
        )
    }
}

/// Writes the scores of `N` queries with `count` positions from `position` on: the sums over the
/// lanes of `sums`.
#[inline(always)]
pub fn write_scores<I: Isa, const N: usize>(
    isa: I,
    sums: &[[I::Floats; ROWS]; N],
    count: usize,
    position: usize,
    scores: &mut [[f32; PAGE]],
) {
    for t in 0..N {
        let (sums, scores) = (isa.to_f32s(isa.sums(&sums[t])), &mut scores[t]);
        match scores[position..].first_chunk_mut() {
            Some(all) if count == ROWS => *all = sums,
            _ => scores[position..][..count].copy_from_slice(&sums[..count]),
        }
    }
}
