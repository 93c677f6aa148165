//! Many tokens, quantized weights: 128 or 256 rows by 1024 columns at a time are unpacked into
//! panels with a row in each lane. A register tile multiplies one or two panels with a few tokens
//! at a time. (With AVX-512: 256 rows, 6 tokens and 2 panels. For few tokens: fewer rows.)
//!
//! ```text
//! for each 256 rows:  for each 1024 columns:  unpack them into panels         (in the L2 cache)
//!   for each 6 tokens:                                                        (in the L1 cache)
//!     for each 2 panels:  for each 32 columns:  acc[token] += scale * (panel . token)
//! ```
//! Lanes are never combined, so there is no reduction at the end, and the bits do not depend on the
//! instruction set. Accumulators are stored unchanged between blocks of columns, so the bits do not
//! depend on the block size either.
//!
//! An integer sum `s` becomes a float without a conversion. Adding `s` to the bits of [`FLOATED`]
//! gives the bits of `FLOATED + s`, and a fused multiply-add subtracts `FLOATED * scale`. This
//! product is exact, since a scale has few bits, so the result is `s * scale`, rounded once.

use std::{array::from_fn, collections::TryReserveError, marker::PhantomData, ops::Range};

use crate::{
    activations::Span,
    buffer::filled,
    format::{Format, Quants, SPAN},
    isa::{CacheLine, Isa, Kernel, LANES},
    operands::{Input, Output, Product},
    panel::{FOURS, GROUPS, STRIDE_MAX, dots, part, parts, stride, unpack},
    tile::{Tile, tiles},
};

/// The float that integer sums are added to: `1.5 * 2^23`. The last bit of all floats within `2^22`
/// of it is worth 1. The magnitude of a sum is less than `32 * 128 * 128 < 2^22`.
const FLOATED: f32 = 12582912.0;

/// The number of tiles of panels to multiply with the same tokens in the L1 cache.
const TILES: usize = 8;
/// Maximum panels of these tiles.
const PANELS: usize = 2 * TILES;
/// The number of spans of columns to unpack at a time. Prefetches are as many spans ahead.
const SPANS: usize = 4;
/// Up to this number of tokens, only one tile is unpacked at a time. Its panels stay in the L1 cache,
/// and memory is read at shorter intervals.
const FEW: usize = 32;
/// The largest number of cache lines of a span of a panel.
const SPAN_LINES: usize = GROUPS * STRIDE_MAX;

/// A worker thread's buffers for products with quantized weights of many tokens.
#[derive(Default)]
pub(crate) struct Scratch {
    /// (panels, spans, cache lines)
    panels: Vec<CacheLine>,
    /// (tokens, panels)
    sums: Vec<CacheLine>,
}

impl Scratch {
    /// Returns the number of bytes of [`Scratch::for_tokens`].
    pub(crate) const fn bytes(tokens: usize) -> usize {
        PANELS * (SPANS * SPAN_LINES + tokens) * size_of::<CacheLine>()
    }

    /// Creates buffers for up to `tokens` tokens.
    pub(crate) fn for_tokens(tokens: usize) -> Result<Self, TryReserveError> {
        Ok(Scratch {
            panels: filled(bytemuck::Zeroable::zeroed(), PANELS * SPANS * SPAN_LINES)?,
            sums: filled(bytemuck::Zeroable::zeroed(), tokens * PANELS)?,
        })
    }
}

/// Products of rows of quantized weights with each token.
pub(crate) struct Gemm<'a, F>(
    pub(crate) Product<'a>,
    pub(crate) &'a mut Scratch,
    pub(crate) PhantomData<F>,
);

impl<F: Format> Kernel for Gemm<'_, F> {
    const PANELS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        const { assert!(F::CENTER == 0 || !(F::Quants::OFFSET || F::Quants::SIGNED)) };
        const { assert!(F::Quants::SIGNED || F::Quants::BITS <= 7) };
        let Product { weights, rows, input, out } = self.0;
        let Scratch { panels, sums } = self.1;
        let (columns, width) = (weights.columns(), I::TILE_PANELS);
        let block = width * LANES * if input.tokens > FEW { TILES } else { 1 };
        let size = size_of::<F::Span>();
        let (all, row_bytes) = (rows, weights.row_bytes());
        let bytes = weights.part(all.clone()).bytes();
        for first in all.clone().step_by(block) {
            let rows = first..all.end.min(first + block);
            let span_count = columns.div_ceil(SPAN);
            for start in (0..span_count).step_by(SPANS) {
                let end = span_count.min(start + SPANS);
                let groups = (columns.min(end * SPAN) - start * SPAN) / 32;
                for (p, row) in rows.clone().step_by(LANES).enumerate() {
                    // Lanes without a row repeat the last row. Their products are not used.
                    let rows: [&[u8]; LANES] = from_fn(
                        #[inline(always)]
                        |lane| weights.row((row + lane).min(rows.end - 1)),
                    );
                    let (first, w) = (p / width * width, p % width);
                    let panels = &mut panels[first * SPANS * SPAN_LINES..];
                    let panels = &mut panels[..groups * width * stride::<I, F::Quants>()];
                    let spans = panels.chunks_mut(GROUPS * width * stride::<I, F::Quants>());
                    for (s, panels) in spans.enumerate() {
                        // After the last span of a row, prefetch the first span of the next rows.
                        let (mut next, mut row) = (start + s + SPANS, row);
                        if next >= span_count {
                            (next, row) = (next - span_count, row + block);
                        }
                        let next = (row - all.start) * row_bytes + next * size;
                        unpack::<I, F>(
                            isa,
                            &rows,
                            start + s,
                            panels,
                            w,
                            width,
                            #[inline(always)]
                            |lane| prefetch(isa, bytes, next + lane * row_bytes, size),
                        );
                    }
                }
                isa.call(Panels::<F::Quants> {
                    lines: &*panels,
                    groups,
                    center: i32::from(F::CENTER),
                    input,
                    columns,
                    spans: start..end,
                    rows: rows.clone(),
                    last: end == span_count,
                    sums,
                    out,
                    quants: PhantomData,
                });
            }
        }
    }
}

/// Prefetches `len` bytes, a constant, from `bytes[at]` on. Does nothing if there are fewer.
#[inline(always)]
fn prefetch<I: Isa>(isa: I, bytes: &[u8], at: usize, len: usize) {
    if let Some(bytes) = bytes.get(at..).and_then(|bytes| bytes.get(..len)) {
        for line in (0..len).step_by(64) {
            isa.prefetch(bytes, line);
        }
    }
}

/// Products of unpacked panels with each token. Formats with the same kind of quants share this
/// code.
struct Panels<'a, Q> {
    lines: &'a [CacheLine],
    /// The number of groups of columns in each panel.
    groups: usize,
    /// The quant that represents zero.
    center: i32,
    input: Input<'a>,
    columns: usize,
    /// The spans of the input that are multiplied with the panels' columns.
    spans: Range<usize>,
    rows: Range<usize>,
    /// Whether these are the last columns.
    last: bool,
    sums: &'a mut [CacheLine],
    out: &'a mut dyn Output,
    quants: PhantomData<Q>,
}

impl<Q: Quants> Kernel for Panels<'_, Q> {
    const PANELS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let tokens = self.input.tokens;
        if const { I::TILE_PANELS == 2 } {
            tiles(tokens, &mut IntTile::<I, Q, 2> { isa, panels: self });
        } else {
            tiles(tokens, &mut IntTile::<I, Q, 1> { isa, panels: self });
        }
    }
}

/// Products of `W` panels side by side with a few tokens.
struct IntTile<'a, I, Q, const W: usize> {
    isa: I,
    panels: Panels<'a, Q>,
}

impl<I: Isa, Q: Quants, const W: usize> Tile for IntTile<'_, I, Q, W> {
    const LARGEST: usize = I::INT_TILE;
    #[inline(always)]
    fn run<const N: usize>(&mut self, token: usize) {
        let IntTile { isa, panels } = self;
        let (isa, input, columns) = (*isa, panels.input, panels.columns);
        let x: [&[Span]; N] = from_fn(
            #[inline(always)]
            |t| &input.spans_of(token + t, columns)[panels.spans.clone()],
        );
        let mut arranged = [[[[0; 32]; GROUPS]; SPANS]; N];
        if const { I::ARRANGES_TOKENS } {
            for s in 0..panels.spans.len() {
                for g in 0..GROUPS {
                    let tokens: [[u8; 32]; N] = isa.arrange(from_fn(
                        #[inline(always)]
                        |t| &x[t][s].quants[g],
                    ));
                    for t in 0..N {
                        arranged[t][s][g] = tokens[t];
                    }
                }
            }
        }
        // Start the integer sums at minus the effect of the center: `center` times the sum of the
        // token's quants, for each span, part, token and group.
        let mut starts = [[[[0; GROUPS]; N]; 2]; SPANS];
        if !Q::OFFSET {
            let center = if Q::SIGNED { i32::from(I::SIGNED_BIAS) } else { panels.center };
            for (s, starts) in starts.iter_mut().enumerate().take(panels.spans.len()) {
                for t in 0..N {
                    for index in 0..parts::<Q>() {
                        let sums = &x[t][s].quant_sums[part::<Q>(index) as usize];
                        starts[index][t] = sums.map(|sum| FLOATED.to_bits() as i32 - center * sum);
                    }
                }
            }
        }
        let lines = panels.lines.chunks(W * SPANS * SPAN_LINES);
        let rows = panels.rows.clone().step_by(W * LANES);
        for (p, (row, lines)) in rows.zip(lines).enumerate() {
            let lines = &lines[..panels.groups * W * stride::<I, Q>()];
            let sums = &mut panels.sums[token * PANELS + p * W..];
            let mut acc = [[isa.wide_splat(0.0); N]; W];
            if panels.spans.start > 0 {
                for w in 0..W {
                    for t in 0..N {
                        acc[w][t] = isa.wide_load_f32(sums[t * PANELS + w].floats());
                    }
                }
            }
            // Loop over spans, so that indices within a span need no division.
            for (s, lines) in (0..SPANS).zip(lines.chunks(GROUPS * W * stride::<I, Q>())) {
                let x: [&Span; N] = from_fn(
                    #[inline(always)]
                    |t| &x[t][s],
                );
                for (g, lines) in (0..GROUPS).zip(lines.chunks_exact(W * stride::<I, Q>())) {
                    let quants: [&[u8; 32]; N] = from_fn(
                        #[inline(always)]
                        |t| match I::ARRANGES_TOKENS {
                            true => &arranged[t][s][g],
                            false => &x[t].quants[g],
                        },
                    );
                    group_tile::<I, Q, W, N>(isa, lines, x, quants, g, &starts[s], &mut acc);
                }
            }
            for w in 0..W {
                for t in 0..N {
                    *sums[t * PANELS + w].floats_mut() = isa.wide_to_f32s(acc[w][t]);
                }
            }
            for w in 0..W {
                // If the number of panels is not a multiple of `W`, the last product is not used.
                let row = row + w * LANES;
                let count = LANES.min(panels.rows.end.saturating_sub(row));
                for t in 0..N {
                    if panels.last && count > 0 {
                        panels.out.put(token + t, row, &sums[t * PANELS + w].floats()[..count]);
                    }
                }
            }
        }
    }
}

/// Adds the products of one group of each panel to `acc`.
#[inline(always)]
fn group_tile<I: Isa, Q: Quants, const W: usize, const N: usize>(
    isa: I,
    panels: &[CacheLine],
    x: [&Span; N],
    quants: [&[u8; 32]; N],
    g: usize,
    starts: &[[[i32; GROUPS]; N]; 2],
    acc: &mut [[I::WideFloats; N]; W],
) {
    const { assert!(!(Q::SIGNED && (Q::SPLIT || Q::OFFSET))) };
    let lines: [&[CacheLine]; W] = from_fn(
        #[inline(always)]
        |w| &panels[w * stride::<I, Q>()..][..stride::<I, Q>()],
    );
    let fours = FOURS / parts::<Q>();
    for index in 0..parts::<Q>() {
        let a: [&[[u8; 4]]; N] = from_fn(
            #[inline(always)]
            |t| &quants[t].as_chunks::<4>().0[fours * index..][..fours],
        );
        let start: [i32; N] = from_fn(
            #[inline(always)]
            |t| if Q::OFFSET { FLOATED.to_bits() as i32 } else { starts[index][t][g] },
        );
        let w: [&[CacheLine]; W] = from_fn(
            #[inline(always)]
            |w| &lines[w][fours * index..][..fours + dots::<I, Q>() - FOURS],
        );
        let sums = isa.panel_dots(Q::SIGNED, Q::BITS, w, a, start);
        for w in 0..W {
            let scale = isa.wide_load_f32(lines[w][dots::<I, Q>() + index].floats());
            let floated = isa.wide_mul(scale, isa.wide_splat(-FLOATED));
            for t in 0..N {
                let product = isa.wide_mul_add(isa.wide_from_bits(sums[w][t]), scale, floated);
                acc[w][t] = isa.wide_mul_add(product, isa.wide_splat(x[t].scale[g]), acc[w][t]);
            }
            if Q::OFFSET {
                let offset = &lines[w][dots::<I, Q>() + parts::<Q>() + index];
                let offset = isa.wide_load_f32(offset.floats());
                for t in 0..N {
                    let sum = isa.wide_splat(x[t].sums[part::<Q>(index) as usize][g]);
                    acc[w][t] = isa.wide_mul_add(offset, sum, acc[w][t]);
                }
            }
        }
    }
}
