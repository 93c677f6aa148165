//! Rows rounded to 8 bits, for many queries.
//!
//! ```text
//! queries and keys, in panels of 16 whose lanes are rows:
//!   row   = row - anchor                       keys only
//!   row   = H row                              unless the cache holds H row
//!   scale = largest magnitude / 127
//!   quant = round(row / scale)                 four neighbouring values in a lane
//! values:
//!   scale = largest magnitude / 127
//!   quant = round(row / scale)                 four positions in a lane, lanes are values
//! ```
//! The anchor is the first key of the page that there is. Neighbouring keys have much in common:
//! above all the biases of some models, which are larger than the differences between keys. Products
//! with the anchor are computed in single precision. (SageAttention subtracts the mean, but that is
//! unknown before the page is full.) `H` is a Hadamard matrix ([`crate::hadamard`]). It changes
//! products only by a factor.

use std::{collections::TryReserveError, ops::Range};

use bytemuck::{Zeroable, must_cast_slice_mut};

use super::{Lanes, PAGE};
use crate::{
    array::{from_fn, map},
    buffer::filled,
    hadamard::mix,
    isa::{CacheLine, Isa, Kernel, LANES},
};

/// The number of positions whose probabilities share a scale.
pub(super) const STRIP: usize = 64;
/// The number of groups of four positions of a strip.
pub(super) const FOURS: usize = STRIP / 4;

/// Panels of 16 queries or keys.
pub(super) struct Panels {
    /// (panels, dim / 4): four values of each row.
    pub quants: Vec<CacheLine>,
    /// (panels): the scale of each row.
    pub scales: Vec<Lanes>,
    /// (panels): for each row, the value that cancels [`Isa::SIGNED_BIAS`] in the other factor of a
    /// product.
    pub starts: Vec<[i32; LANES]>,
}

impl Panels {
    /// Creates panels for `rows` rows of `dim` values.
    pub fn new(rows: usize, dim: usize) -> Result<Self, TryReserveError> {
        let panels = rows.div_ceil(LANES);
        Ok(Panels {
            quants: filled(CacheLine::zeroed(), panels * dim / 4)?,
            scales: filled(Lanes::zeroed(), panels)?,
            starts: filled([0; LANES], panels)?,
        })
    }

    /// Rounds a panel (dim, 16 rows), and overwrites it. Its rows may be `mixed` already.
    #[inline(always)]
    pub fn put<I: Isa>(&mut self, isa: I, index: usize, panel: &mut [[f32; LANES]], mixed: bool) {
        let fours = panel.len() / 4;
        let size = if mixed { 1 } else { mix(isa, panel) };
        let largest = isa.wide_to_f32s(largest(isa, panel));
        let inverse = isa.wide_load_f32(&map(
            largest,
            #[inline(always)]
            |largest| inverse(127.0, largest),
        ));
        let mut sums = isa.wide_ints(0);
        let quants = &mut self.quants[index * fours..][..fours];
        for (x, to) in panel.as_chunks::<4>().0.iter().zip(quants) {
            to.0 = isa.wide_bytes(map(
                *x,
                #[inline(always)]
                |x| isa.wide_mul(isa.wide_load_f32(&x), inverse),
            ));
            sums = isa.wide_dot_by_unsigned(sums, isa.wide_load(&to.0), &[1; 4]);
        }
        let sums = isa.wide_to_f32s(isa.wide_to_floats(sums));
        let scale = 1.0 / (127.0 * (size as f32).sqrt());
        for lane in 0..LANES {
            self.scales[index].0[lane] = largest[lane] * scale;
            self.starts[index][lane] = -i32::from(I::SIGNED_BIAS) * sums[lane] as i32;
        }
    }
}

/// Rounds queries.
pub(super) struct RoundQueries<'a> {
    /// (queries, dim)
    pub queries: &'a [f32],
    /// Buffer for a panel: (dim).
    pub panel: &'a mut [Lanes],
    /// The queries as floats, which are multiplied by anchors: (panels, dim), where lanes are
    /// queries.
    pub floats: &'a mut [Lanes],
    /// Whether the queries are mixed.
    pub mixed: bool,
    pub rounded: &'a mut Panels,
}

impl Kernel for RoundQueries<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let RoundQueries { queries, panel, floats, mixed, rounded } = self;
        let dim = panel.len();
        let panel: &mut [[f32; LANES]] = must_cast_slice_mut(panel);
        let floats: &mut [[f32; LANES]] = must_cast_slice_mut(floats);
        let panels = queries.chunks(LANES * dim).zip(floats.chunks_exact_mut(dim));
        for (index, (queries, floats)) in panels.enumerate() {
            if queries.len() == LANES * dim {
                transpose(isa, queries, panel);
            } else {
                panel.as_flattened_mut().fill(0.0);
                for (lane, query) in queries.chunks_exact(dim).enumerate() {
                    for (x, to) in query.iter().zip(&mut *panel) {
                        to[lane] = *x;
                    }
                }
            }
            floats.copy_from_slice(panel);
            rounded.put(isa, index, panel, mixed);
            for four in &mut rounded.quants[index * dim / 4..][..dim / 4] {
                for byte in &mut four.0 {
                    *byte ^= I::SIGNED_BIAS;
                }
            }
        }
    }
}

/// The keys of a page.
pub(super) struct RoundedKeys {
    /// The keys minus the anchor.
    pub panels: Panels,
    /// The first key of the page: (dim).
    pub anchor: Vec<f32>,
}

impl RoundedKeys {
    pub fn new(dim: usize) -> Result<Self, TryReserveError> {
        Ok(RoundedKeys { panels: Panels::new(PAGE, dim)?, anchor: filled(0.0, dim)? })
    }
}

/// The values of a page.
pub(super) struct RoundedValues {
    /// (strips, dim / 16, [`FOURS`]): 16 values at each of four positions.
    pub quants: Vec<CacheLine>,
    /// The scale of each position's values; 0 for positions that are not read.
    pub scales: Vec<f32>,
}

impl RoundedValues {
    pub fn new(dim: usize) -> Result<Self, TryReserveError> {
        let lines = PAGE / 4 * dim.div_ceil(LANES);
        Ok(RoundedValues {
            quants: filled(CacheLine::zeroed(), lines)?,
            scales: filled(0.0, PAGE)?,
        })
    }

    /// Rounds the values `rows` (4, dim) of four positions, from vector `first` on. Skips positions
    /// outside of `span`.
    #[inline(always)]
    pub fn put<I: Isa>(
        &mut self,
        isa: I,
        four: usize,
        span: &Range<usize>,
        rows: &[[f32; LANES]],
        first: usize,
    ) {
        let vectors = rows.len() / 4;
        let mut inverses = [isa.wide_splat(0.0); 4];
        for (i, row) in rows.chunks_exact(vectors).enumerate() {
            let position = 4 * four + i;
            if span.contains(&position) {
                let [a, b] = isa.wide_halves(largest(isa, &row[first..]));
                let largest = isa.max_lane(isa.max(a, b));
                self.scales[position] = largest / 127.0;
                inverses[i] = isa.wide_splat(inverse(127.0, largest));
            }
        }
        let (strip, at) = (four / FOURS, four % FOURS);
        for v in first..vectors {
            self.quants[(strip * vectors + v) * FOURS + at].0 = isa.wide_bytes(from_fn(
                #[inline(always)]
                |i| isa.wide_mul(isa.wide_load_f32(&rows[i * vectors + v]), inverses[i]),
            ));
        }
    }
}

/// Returns `steps / largest`, or 0 where that may be infinite.
#[inline(always)]
pub(super) fn inverse(steps: f32, largest: f32) -> f32 {
    if largest >= 256.0 * f32::MIN_POSITIVE { steps / largest } else { 0.0 }
}

/// Returns the largest magnitude in each lane.
#[inline(always)]
fn largest<I: Isa>(isa: I, x: &[[f32; LANES]]) -> I::WideFloats {
    let mut largest = isa.wide_splat(0.0);
    for x in x {
        let x = isa.wide_load_f32(x);
        let minus = isa.wide_mul(x, isa.wide_splat(-1.0));
        largest = isa.wide_max(largest, isa.wide_max(x, minus));
    }
    largest
}

/// Transposes `rows` (16, dim) to `panel` (dim), where lanes are rows. `dim` is a multiple of 8.
#[inline(always)]
pub(super) fn transpose<I: Isa>(isa: I, rows: &[f32], panel: &mut [[f32; LANES]]) {
    let dim = panel.len();
    for half in 0..2 {
        let rows = &rows[8 * half * dim..][..8 * dim];
        for (block, panel) in panel.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let columns = isa.transpose_floats(from_fn(
                #[inline(always)]
                |row| isa.load_f32(&rows[row * dim..][..dim].as_chunks().0[block]),
            ));
            for i in 0..8 {
                panel[i][8 * half..][..8].copy_from_slice(&isa.to_f32s(columns[i]));
            }
        }
    }
}
