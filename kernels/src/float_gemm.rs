//! Many tokens, floating-point weights: 16 rows at a time are unpacked into a panel with a row in
//! each lane. A register tile multiplies the panel with a few tokens at a time.
//!
//! ```text
//! for each 16 rows:  unpack them into a panel (columns) of 16 lanes
//!   for each tile of a few tokens:
//!     out[token][16 rows] = sum over columns of panel[column] * x[token][column]
//! ```

use std::{array::from_fn, marker::PhantomData};

use bytemuck::cast_slice;

use crate::{
    format::FloatFormat,
    isa::{Isa, Kernel, LANES},
    operands::{Input, Output, Product},
    tile::{Tile, float_tile, tiles},
};

/// Products of rows of floating-point weights with each token. Its buffer is a panel: (columns),
/// where lanes are rows.
pub(crate) struct FloatGemm<'a, F>(
    pub(crate) Product<'a>,
    pub(crate) &'a mut [[f32; LANES]],
    pub(crate) PhantomData<F>,
);

impl<F: FloatFormat> Kernel for FloatGemm<'_, F> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Product { weights, rows, input, out } = self.0;
        let panel = &mut self.1[..weights.columns()];
        for first in rows.clone().step_by(LANES) {
            let count = LANES.min(rows.end - first);
            for lane in 0..LANES {
                let row = weights.row(first + lane.min(count - 1));
                unpack_floats::<I, F>(isa, cast_slice(row), lane, panel);
            }
            let columns = weights.columns();
            let mut tile = RowsTile { isa, panel, input, columns, first, count, out };
            tiles(input.tokens, &mut tile);
        }
    }
}

/// Writes a row as floats into lane `lane` of a panel.
#[inline(always)]
fn unpack_floats<I: Isa, F: FloatFormat>(
    isa: I,
    row: &[F::Element],
    lane: usize,
    panel: &mut [[f32; LANES]],
) {
    let (eights, rest) = row.as_chunks::<8>();
    for (w, to) in eights.iter().zip(panel.as_chunks_mut::<8>().0) {
        let values = isa.to_f32s(F::load(isa, w));
        for i in 0..8 {
            to[i][lane] = values[i];
        }
    }
    for (w, to) in rest.iter().zip(&mut panel[8 * eights.len()..]) {
        to[lane] = F::decode(*w);
    }
}

/// Products of a panel of `count` rows, from row `first` on, with a few tokens.
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
    const LARGEST: usize = I::FLOAT_TILE;
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
