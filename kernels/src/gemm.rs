//! Many tokens: 16 rows are unpacked once into a panel whose lanes are rows, and a register tile
//! multiplies the panel with a few tokens at a time.
//!
//! ```text
//! for each 16 rows:    unpack them into the panel
//!   for each 8 tokens: for each 32 columns: acc[token] += scale * (panel . token)   (16 rows at once)
//! ```
//! Lanes never meet, so there is no reduction at the end and no machine differs from another.

use std::{array::from_fn, marker::PhantomData, ops::Range};

use bytemuck::{Pod, Zeroable, cast_slice};

use crate::{
    activations::Span,
    format::{FloatFormat, Format, spans},
    isa::{Isa, Kernel, LANES},
    product::{Input, Matrix, Output},
    tile::{Tile, float_tile, tiles},
};

/// 32 columns of 16 rows; lane `r` of every vector belongs to row `r`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct PanelGroup {
    /// Columns `4 j ..` of all rows.
    quants: [[u8; 4 * LANES]; 8],
    /// For the first and the last 16 columns.
    scale: [[f32; LANES]; 2],
    offset: [[f32; LANES]; 2],
}

/// Rows of quantized weights times each token.
pub struct Gemm<'a, F> {
    weights: &'a Matrix<'a>,
    rows: Range<usize>,
    input: Input<'a>,
    panel: &'a mut [PanelGroup],
    out: &'a mut dyn Output,
    format: PhantomData<F>,
}

impl<'a, F> Gemm<'a, F> {
    /// See [`crate::multiply`]; `panel` has columns / 32 groups.
    pub fn new(
        weights: &'a Matrix<'a>,
        rows: Range<usize>,
        input: Input<'a>,
        panel: &'a mut [PanelGroup],
        out: &'a mut dyn Output,
    ) -> Self {
        Gemm { weights, rows, input, panel, out, format: PhantomData }
    }
}

impl<F: Format> Kernel for Gemm<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Gemm { weights, rows, input, panel, out, .. } = self;
        for first in rows.clone().step_by(LANES) {
            let count = LANES.min(rows.end - first);
            for lane in 0..LANES {
                // Lanes without a row repeat the last one; nobody reads them.
                let row = weights.row(first + lane.min(count - 1));
                unpack::<I, F>(isa, row, lane, panel);
            }
            let columns = weights.columns();
            let mut tile = IntTile::<I, F> {
                isa,
                panel,
                input,
                columns,
                first,
                count,
                out,
                format: PhantomData,
            };
            tiles(input.tokens, I::INT_TILE, &mut tile);
        }
    }
}

/// Writes a row into lane `lane` of the panel.
#[inline(always)]
fn unpack<I: Isa, F: Format>(isa: I, row: &[u8], lane: usize, panel: &mut [PanelGroup]) {
    let (whole, tail) = spans::<F>(row);
    let all = whole.iter().chain(tail.as_ref().map(|(span, _)| span));
    for (span, groups) in all.zip(panel.chunks_mut(8)) {
        let scales = F::scales(isa, span);
        let scale = [isa.to_f32s(scales.scale[0]), isa.to_f32s(scales.scale[1])];
        let offset = [isa.to_f32s(scales.offset[0]), isa.to_f32s(scales.offset[1])];
        for (g, group) in groups.iter_mut().enumerate() {
            let mut quants = F::quants(isa, span, g);
            if F::SIGNED {
                quants = isa.xor(quants, isa.splat(I::SIGNED_BIAS));
            }
            let quants = isa.to_bytes(quants);
            for (four, to) in quants.as_chunks::<4>().0.iter().zip(&mut group.quants) {
                to.as_chunks_mut::<4>().0[lane] = *four;
            }
            for h in 0..2 {
                group.scale[h][lane] = scale[h][g];
                group.offset[h][lane] = -offset[h][g];
            }
        }
    }
}

struct IntTile<'a, I, F> {
    isa: I,
    panel: &'a [PanelGroup],
    input: Input<'a>,
    columns: usize,
    first: usize,
    count: usize,
    out: &'a mut dyn Output,
    format: PhantomData<F>,
}

impl<I: Isa, F: Format> Tile for IntTile<'_, I, F> {
    #[inline(always)]
    fn run<const N: usize>(&mut self, token: usize) {
        let isa = self.isa;
        let x: [&[Span]; N] = from_fn(
            #[inline(always)]
            |t| self.input.spans_of(token + t, self.columns),
        );
        let mut acc = [isa.wide_splat(0.0); N];
        for (s, groups) in self.panel.chunks(8).enumerate() {
            let x: [&Span; N] = from_fn(
                #[inline(always)]
                |t| &x[t][s],
            );
            for (g, group) in groups.iter().enumerate() {
                if F::SPLIT {
                    group_tile::<I, F, N>(isa, group, x, g, 0..4, 0, &mut acc);
                    group_tile::<I, F, N>(isa, group, x, g, 4..8, 1, &mut acc);
                } else {
                    group_tile::<I, F, N>(isa, group, x, g, 0..8, 0, &mut acc);
                }
            }
        }
        for (t, acc) in acc.into_iter().enumerate() {
            self.out.put(token + t, self.first, &isa.wide_to_f32s(acc)[..self.count]);
        }
    }
}

/// Adds the products of the `fours` of a group, which share the scales of half `h`.
#[inline(always)]
fn group_tile<I: Isa, F: Format, const N: usize>(
    isa: I,
    group: &PanelGroup,
    x: [&Span; N],
    g: usize,
    fours: Range<usize>,
    h: usize,
    acc: &mut [I::WideFloats; N],
) {
    const { assert!(!(F::SIGNED && F::SPLIT)) };
    let mut sums: [I::WideInts; N] = from_fn(
        #[inline(always)]
        |t| {
            if F::SIGNED {
                isa.wide_ints(-i32::from(I::SIGNED_BIAS) * x[t].quant_sum[g])
            } else {
                isa.wide_ints(0)
            }
        },
    );
    for j in fours {
        let w = isa.wide_load(&group.quants[j]);
        for t in 0..N {
            let a = &x[t].quants[g].as_chunks::<4>().0[j];
            sums[t] = if F::SIGNED {
                isa.wide_dot_signed(sums[t], w, a)
            } else {
                isa.wide_dot_unsigned(sums[t], w, a)
            };
        }
    }
    let (scale, offset) = (isa.wide_load_f32(&group.scale[h]), isa.wide_load_f32(&group.offset[h]));
    for t in 0..N {
        let scale = isa.wide_mul(scale, isa.wide_splat(x[t].scale[g]));
        acc[t] = isa.wide_mul_add(isa.wide_to_floats(sums[t]), scale, acc[t]);
        if F::OFFSET {
            let sum = if F::SPLIT { x[t].sums[h][g] } else { x[t].sums[0][g] + x[t].sums[1][g] };
            acc[t] = isa.wide_mul_add(offset, isa.wide_splat(sum), acc[t]);
        }
    }
}

/// Rows of floating-point weights times each token.
pub struct FloatGemm<'a, F> {
    weights: &'a Matrix<'a>,
    rows: Range<usize>,
    input: Input<'a>,
    panel: &'a mut [[f32; LANES]],
    out: &'a mut dyn Output,
    format: PhantomData<F>,
}

impl<'a, F> FloatGemm<'a, F> {
    /// See [`crate::multiply`]; `panel` has as many entries as there are columns.
    pub fn new(
        weights: &'a Matrix<'a>,
        rows: Range<usize>,
        input: Input<'a>,
        panel: &'a mut [[f32; LANES]],
        out: &'a mut dyn Output,
    ) -> Self {
        FloatGemm { weights, rows, input, panel, out, format: PhantomData }
    }
}

impl<F: FloatFormat> Kernel for FloatGemm<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let FloatGemm { weights, rows, input, panel, out, .. } = self;
        for first in rows.clone().step_by(LANES) {
            let count = LANES.min(rows.end - first);
            for lane in 0..LANES {
                let row = weights.row(first + lane.min(count - 1));
                unpack_floats::<I, F>(isa, cast_slice(row), lane, panel);
            }
            let columns = weights.columns();
            let mut tile = RowsTile { isa, panel, input, columns, first, count, out };
            tiles(input.tokens, I::FLOAT_TILE, &mut tile);
        }
    }
}

#[inline(always)]
fn unpack_floats<I: Isa, F: FloatFormat>(
    isa: I,
    row: &[F::Element],
    lane: usize,
    panel: &mut [[f32; LANES]],
) {
    let (eights, rest) = row.as_chunks::<8>();
    for (w, to) in eights.iter().zip(panel.chunks_mut(8)) {
        for (w, to) in isa.to_f32s(F::load(isa, w)).into_iter().zip(to) {
            to[lane] = w;
        }
    }
    for (w, to) in rest.iter().zip(&mut panel[8 * eights.len()..]) {
        to[lane] = F::decode(*w);
    }
}

struct RowsTile<'a, I> {
    isa: I,
    panel: &'a [[f32; LANES]],
    input: Input<'a>,
    columns: usize,
    first: usize,
    count: usize,
    out: &'a mut dyn Output,
}

impl<I: Isa> Tile for RowsTile<'_, I> {
    #[inline(always)]
    fn run<const N: usize>(&mut self, token: usize) {
        let isa = self.isa;
        let x: [&[f32]; N] = from_fn(
            #[inline(always)]
            |t| self.input.floats_of(token + t, self.columns),
        );
        let acc = float_tile(isa, self.panel, x, [isa.wide_splat(0.0); N]);
        for (t, acc) in acc.into_iter().enumerate() {
            self.out.put(token + t, self.first, &isa.wide_to_f32s(acc)[..self.count]);
        }
    }
}
