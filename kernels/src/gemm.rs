//! Many tokens, quantized weights: 64 rows by 1024 columns at a time are unpacked into panels whose
//! lanes are rows, and a register tile multiplies each panel with a few tokens at a time.
//!
//! ```text
//! for each 64 rows:  for each 1024 columns:  unpack them into four panels     (in the L2 cache)
//!   for each 8 tokens:                                                        (in the L1 cache)
//!     for each panel:  for each 32 columns:  acc[token] += scale * (panel . token)
//! ```
//! Lanes never meet, so there is no reduction at the end and no machine differs from another. An
//! accumulator that waits for its next columns is kept as it is, so the blocks change no bit.

use std::{array::from_fn, marker::PhantomData, ops::Range};

use crate::{
    activations::{Part, Span},
    format::{Format, Quants, SPAN},
    isa::{Isa, Kernel, LANES, Line},
    panel::{FOURS, GROUPS, STRIDE_MAX, parts, stride, unpack},
    product::{Input, Output, Product},
    tile::{Tile, tiles},
};

/// Panels that share the tokens in the L1 cache.
const PANELS: usize = 4;
/// Spans of columns that are unpacked at a time.
const SPANS: usize = 4;
/// Lines that a span of a panel takes at most.
const SPAN_LINES: usize = GROUPS * STRIDE_MAX;

/// What one thread needs.
pub(crate) struct Scratch {
    /// (panels, spans, lines)
    panels: Vec<Line>,
    /// (tokens, panels)
    sums: Vec<[f32; LANES]>,
}

impl Scratch {
    pub(crate) const fn bytes(tokens: usize) -> usize {
        PANELS * (SPANS * SPAN_LINES * size_of::<Line>() + tokens * size_of::<[f32; LANES]>())
    }

    pub(crate) fn for_tokens(tokens: usize) -> Self {
        Scratch {
            panels: vec![bytemuck::Zeroable::zeroed(); PANELS * SPANS * SPAN_LINES],
            sums: vec![[0.0; LANES]; tokens * PANELS],
        }
    }
}

/// Rows of quantized weights times each token.
pub(crate) struct Gemm<'a, F>(pub(crate) Product<'a>, pub(crate) PhantomData<F>);

impl<F: Format> Kernel for Gemm<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        const { assert!(F::CENTER == 0 || !(F::Quants::OFFSET || F::Quants::SIGNED)) };
        let Product { weights, rows, input, scratch, out } = self.0;
        let Scratch { panels, sums } = &mut scratch.gemm;
        let columns = weights.columns();
        for first in rows.clone().step_by(PANELS * LANES) {
            let rows = first..rows.end.min(first + PANELS * LANES);
            let all = columns.div_ceil(SPAN);
            for start in (0..all).step_by(SPANS) {
                let end = all.min(start + SPANS);
                let groups = (columns.min(end * SPAN) - start * SPAN) / 32;
                for (p, panel) in
                    rows.clone().step_by(LANES).zip(panels.chunks_mut(SPANS * SPAN_LINES))
                {
                    // Lanes without a row repeat the last one; nobody reads them.
                    let rows: [&[u8]; LANES] = from_fn(
                        #[inline(always)]
                        |lane| weights.row((p + lane).min(rows.end - 1)),
                    );
                    let panel = &mut panel[..groups * stride::<F::Quants>()];
                    for (s, panel) in panel.chunks_mut(GROUPS * stride::<F::Quants>()).enumerate() {
                        unpack::<I, F>(isa, &rows, start + s, panel);
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
                    last: end == all,
                    sums,
                    out,
                    quants: PhantomData,
                });
            }
        }
    }
}

/// Unpacked panels times each token: the same code for all formats of the same kind of quants.
struct Panels<'a, Q> {
    lines: &'a [Line],
    /// Groups of columns in each panel.
    groups: usize,
    /// The quant that stands for zero.
    center: i32,
    input: Input<'a>,
    columns: usize,
    /// The spans of the input that the panels' columns are.
    spans: Range<usize>,
    rows: Range<usize>,
    /// Whether no columns follow.
    last: bool,
    sums: &'a mut [[f32; LANES]],
    out: &'a mut dyn Output,
    quants: PhantomData<Q>,
}

impl<Q: Quants> Kernel for Panels<'_, Q> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        tiles(self.input.tokens, I::INT_TILE, &mut IntTile { isa, panels: self });
    }
}

struct IntTile<'a, I, Q> {
    isa: I,
    panels: Panels<'a, Q>,
}

impl<I: Isa, Q: Quants> Tile for IntTile<'_, I, Q> {
    #[inline(always)]
    fn run<const N: usize>(&mut self, token: usize) {
        let IntTile { isa, panels } = self;
        let (isa, input, columns) = (*isa, panels.input, panels.columns);
        let x: [&[Span]; N] = from_fn(
            #[inline(always)]
            |t| &input.spans_of(token + t, columns)[panels.spans.clone()],
        );
        let lines = panels.lines.chunks(SPANS * SPAN_LINES);
        for (p, (row, panel)) in panels.rows.clone().step_by(LANES).zip(lines).enumerate() {
            let mut acc = [isa.wide_splat(0.0); N];
            if panels.spans.start > 0 {
                for t in 0..N {
                    acc[t] = isa.wide_load_f32(&panels.sums[(token + t) * PANELS + p]);
                }
            }
            let panel = &panel[..panels.groups * stride::<Q>()];
            for (s, panel) in panel.chunks(GROUPS * stride::<Q>()).enumerate() {
                let x: [&Span; N] = from_fn(
                    #[inline(always)]
                    |t| &x[t][s],
                );
                span_tile::<I, Q, N>(isa, panel, x, panels.center, &mut acc);
            }
            let count = LANES.min(panels.rows.end - row);
            for (t, acc) in acc.into_iter().enumerate() {
                let acc = isa.wide_to_f32s(acc);
                if panels.last {
                    panels.out.put(token + t, row, &acc[..count]);
                } else {
                    panels.sums[(token + t) * PANELS + p] = acc;
                }
            }
        }
    }
}

/// Adds the products of a span of a panel.
#[inline(always)]
fn span_tile<I: Isa, Q: Quants, const N: usize>(
    isa: I,
    panel: &[Line],
    x: [&Span; N],
    center: i32,
    acc: &mut [I::WideFloats; N],
) {
    if Q::SPLIT {
        // What the integer sums begin with takes care of the center.
        let starts =
            [starts::<I, Q, N>(x, center, Part::First), starts::<I, Q, N>(x, center, Part::Last)];
        for (g, lines) in panel.chunks_exact(stride::<Q>()).enumerate() {
            part_tile::<I, Q, N>(isa, lines, x, g, Part::First, &starts[0], acc);
            part_tile::<I, Q, N>(isa, lines, x, g, Part::Last, &starts[1], acc);
        }
    } else {
        let starts = starts::<I, Q, N>(x, center, Part::Whole);
        for (g, lines) in panel.chunks_exact(stride::<Q>()).enumerate() {
            part_tile::<I, Q, N>(isa, lines, x, g, Part::Whole, &starts, acc);
        }
    }
}

/// `-center * sum of the activations' quants`, for each group of a part.
#[inline(always)]
fn starts<I: Isa, Q: Quants, const N: usize>(
    x: [&Span; N],
    center: i32,
    part: Part,
) -> [[i32; GROUPS]; N] {
    // Most are known to the compiler.
    let center = match (Q::SIGNED, Q::OFFSET) {
        (true, _) => i32::from(I::SIGNED_BIAS),
        (_, true) => 0,
        _ => center,
    };
    from_fn(
        #[inline(always)]
        |t| x[t].quant_sums[part as usize].map(|sum| -center * sum),
    )
}

/// Adds the products of a part of a group, whose columns share their scales.
#[inline(always)]
fn part_tile<I: Isa, Q: Quants, const N: usize>(
    isa: I,
    lines: &[Line],
    x: [&Span; N],
    g: usize,
    part: Part,
    starts: &[[i32; GROUPS]; N],
    acc: &mut [I::WideFloats; N],
) {
    const { assert!(!(Q::SIGNED && (Q::SPLIT || Q::OFFSET))) };
    let (fours, index) = match part {
        Part::First => (0..FOURS / 2, 0),
        Part::Last => (FOURS / 2..FOURS, 1),
        Part::Whole => (0..FOURS, 0),
    };
    let a: [&[[u8; 4]]; N] = from_fn(
        #[inline(always)]
        |t| &x[t].quants[g].as_chunks::<4>().0[fours.clone()],
    );
    let start: [i32; N] = from_fn(
        #[inline(always)]
        |t| starts[t][g],
    );
    let sums = if Q::SIGNED {
        isa.wide_dots_signed(&lines[fours], a, start)
    } else {
        isa.wide_dots_unsigned(Q::BITS, &lines[fours], a, start)
    };
    let scale = isa.wide_load_f32(lines[FOURS + index].floats());
    for t in 0..N {
        let scale = isa.wide_mul(scale, isa.wide_splat(x[t].scale[g]));
        acc[t] = isa.wide_mul_add(isa.wide_to_floats(sums[t]), scale, acc[t]);
    }
    if Q::OFFSET {
        let offset = isa.wide_load_f32(lines[FOURS + parts::<Q>() + index].floats());
        for t in 0..N {
            let sum = isa.wide_splat(x[t].sums[part as usize][g]);
            acc[t] = isa.wide_mul_add(offset, sum, acc[t]);
        }
    }
}
