//! Many queries: a page is unpacked into panels once, and multiplied by tiles.

use std::{array::from_fn, marker::PhantomData, ops::Range};

use super::{PAGE, Queries, Rows, partial_len};
use crate::{
    cache::{CacheFormat, CacheVisitor, UNIT, load_32},
    isa::{Cpu, Isa, Kernel, LANES},
    tile::{Tile, float_tile, tiles},
};

/// Scores of all queries with the keys at positions `span` (and their neighbours, to whole lanes).
pub(super) fn scores(
    cpu: Cpu,
    q: Queries<'_>,
    keys: Rows<'_>,
    span: Range<usize>,
    panel: &mut [[f32; LANES]],
    scores: &mut [f32],
) {
    let span = span.start / LANES * LANES..span.end;
    let panel = &mut panel[..PAGE / LANES * q.dim];
    keys.dtype.visit(Unpack {
        cpu,
        rows: keys.bytes,
        span: span.clone(),
        dim: q.dim,
        lanes: Lanes::Positions,
        panel,
    });
    cpu.call(Scores { q, span, panel, scores });
}

/// Adds the values at positions `span`, weighted by their probabilities, to the partials.
pub(super) fn weighted_values(
    cpu: Cpu,
    q: Queries<'_>,
    values: Rows<'_>,
    span: Range<usize>,
    panel: &mut [[f32; LANES]],
    probabilities: &[f32],
    partials: &mut [f32],
) {
    let panel = &mut panel[..PAGE / LANES * q.dim];
    values.dtype.visit(Unpack {
        cpu,
        rows: values.bytes,
        span: span.clone(),
        dim: q.dim,
        lanes: Lanes::Values,
        panel,
    });
    cpu.call(WeightedValues { q, span, panel, probabilities, partials });
}

/// What lies side by side in a panel.
#[derive(Clone, Copy)]
enum Lanes {
    /// 16 positions: entry `position / 16 * dim + value`.
    Positions,
    /// 16 values of a row: entry `value / 16 * PAGE + position`.
    Values,
}

struct Unpack<'a> {
    cpu: Cpu,
    rows: &'a [u8],
    span: Range<usize>,
    dim: usize,
    lanes: Lanes,
    panel: &'a mut [[f32; LANES]],
}

impl CacheVisitor for Unpack<'_> {
    type Output = ();
    fn visit<C: CacheFormat>(self) {
        self.cpu.call(UnpackFrom::<C>(self, PhantomData));
    }
}

struct UnpackFrom<'a, C>(Unpack<'a>, PhantomData<C>);

impl<C: CacheFormat> Kernel for UnpackFrom<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Unpack { rows, span, dim, lanes, panel, .. } = self.0;
        let row_bytes = dim / UNIT * C::BYTES;
        for position in span {
            let row = &rows[position * row_bytes..][..row_bytes];
            for (u, bytes) in row.chunks_exact(C::BYTES).enumerate() {
                let values = load_32::<I, C>(isa, bytes);
                match lanes {
                    Lanes::Positions => {
                        let to = &mut panel[position / LANES * dim + u * UNIT..][..UNIT];
                        for (to, x) in to.iter_mut().zip(values) {
                            to[position % LANES] = x;
                        }
                    }
                    Lanes::Values => {
                        for (h, sixteen) in values.as_chunks::<LANES>().0.iter().enumerate() {
                            panel[(UNIT / LANES * u + h) * PAGE + position] = *sixteen;
                        }
                    }
                }
            }
        }
    }
}

struct Scores<'a> {
    q: Queries<'a>,
    span: Range<usize>,
    panel: &'a [[f32; LANES]],
    scores: &'a mut [f32],
}

impl Kernel for Scores<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let dim = self.q.dim;
        for position in self.span.clone().step_by(LANES) {
            let panel = &self.panel[position / LANES * dim..][..dim];
            let (q, scores) = (self.q, &mut *self.scores);
            let mut tile = ScoreTile { isa, q, panel, position, scores };
            tiles(q.visible.len(), I::FLOAT_TILE, &mut tile);
        }
    }
}

struct ScoreTile<'a, I> {
    isa: I,
    q: Queries<'a>,
    panel: &'a [[f32; LANES]],
    position: usize,
    scores: &'a mut [f32],
}

impl<I: Isa> Tile for ScoreTile<'_, I> {
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let (isa, dim) = (self.isa, self.q.dim);
        let x: [&[f32]; N] = from_fn(
            #[inline(always)]
            |t| &self.q.queries[(first + t) * dim..][..dim],
        );
        let acc = float_tile(isa, self.panel, x, [isa.wide_splat(0.0); N]);
        for (t, acc) in acc.into_iter().enumerate() {
            let to = &mut self.scores[(first + t) * PAGE + self.position..][..LANES];
            to.copy_from_slice(&isa.wide_to_f32s(acc));
        }
    }
}

struct WeightedValues<'a> {
    q: Queries<'a>,
    span: Range<usize>,
    panel: &'a [[f32; LANES]],
    probabilities: &'a [f32],
    partials: &'a mut [f32],
}

impl Kernel for WeightedValues<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let WeightedValues { q, span, panel, probabilities, partials } = self;
        for value in (0..q.dim).step_by(LANES) {
            let panel = &panel[value / LANES * PAGE..][span.clone()];
            let (start, partials) = (span.start, &mut *partials);
            let mut tile =
                ValueTile { isa, dim: q.dim, panel, start, value, probabilities, partials };
            tiles(q.visible.len(), I::FLOAT_TILE, &mut tile);
        }
    }
}

struct ValueTile<'a, I> {
    isa: I,
    dim: usize,
    panel: &'a [[f32; LANES]],
    start: usize,
    value: usize,
    probabilities: &'a [f32],
    partials: &'a mut [f32],
}

impl<I: Isa> Tile for ValueTile<'_, I> {
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let isa = self.isa;
        let x: [&[f32]; N] = from_fn(
            #[inline(always)]
            |t| &self.probabilities[(first + t) * PAGE + self.start..][..self.panel.len()],
        );
        let at = |t| (first + t) * partial_len(self.dim) + self.value;
        let mut acc = [isa.wide_splat(0.0); N];
        for t in 0..N {
            if let Some(values) = self.partials[at(t)..].first_chunk() {
                acc[t] = isa.wide_load_f32(values);
            }
        }
        let acc = float_tile(isa, self.panel, x, acc);
        for (t, acc) in acc.into_iter().enumerate() {
            self.partials[at(t)..][..LANES].copy_from_slice(&isa.wide_to_f32s(acc));
        }
    }
}
