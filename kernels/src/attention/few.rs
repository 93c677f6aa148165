//! A few queries: each row of the cache is read once, as it is stored.

use std::{array::from_fn, marker::PhantomData, ops::Range};

use super::{PAGE, Queries, Rows, partial_len};
use crate::{
    cache::{CacheFormat, CacheVisitor, UNIT},
    isa::{Cpu, Isa, Kernel},
    tile::{Tile, tiles},
};

/// Queries that share a row while it is in registers.
const TILE: usize = 4;

/// Scores of all queries with the keys at positions `span`.
pub(super) fn scores(
    cpu: Cpu,
    q: Queries<'_>,
    keys: Rows<'_>,
    span: Range<usize>,
    scores: &mut [f32],
) {
    keys.dtype.visit(Scores { cpu, q, keys: keys.bytes, span, scores });
}

struct Scores<'a> {
    cpu: Cpu,
    q: Queries<'a>,
    keys: &'a [u8],
    span: Range<usize>,
    scores: &'a mut [f32],
}

impl CacheVisitor for Scores<'_> {
    type Output = ();
    fn visit<C: CacheFormat>(self) {
        self.cpu.call(ScoresOf::<C>(self, PhantomData));
    }
}

struct ScoresOf<'a, C>(Scores<'a>, PhantomData<C>);

impl<C: CacheFormat> Kernel for ScoresOf<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let n = self.0.q.visible.len();
        tiles(n, TILE, &mut ScoreTile::<I, C> { isa, job: self.0, format: PhantomData });
    }
}

struct ScoreTile<'a, I, C> {
    isa: I,
    job: Scores<'a>,
    format: PhantomData<C>,
}

impl<I: Isa, C: CacheFormat> Tile for ScoreTile<'_, I, C> {
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let (isa, dim) = (self.isa, self.job.q.dim);
        let queries: [&[[f32; UNIT]]; N] = from_fn(
            #[inline(always)]
            |t| self.job.q.queries[(first + t) * dim..][..dim].as_chunks().0,
        );
        let row_bytes = dim / UNIT * C::BYTES;
        for position in self.job.span.clone() {
            let row = &self.job.keys[position * row_bytes..][..row_bytes];
            let mut sums = [[isa.splat_f32(0.0); 2]; N];
            for (u, bytes) in row.chunks_exact(C::BYTES).enumerate() {
                let k = C::load(isa, bytes);
                for t in 0..N {
                    let x = queries[t][u].as_chunks::<8>().0;
                    for i in 0..4 {
                        sums[t][i % 2] = isa.mul_add(k[i], isa.load_f32(&x[i]), sums[t][i % 2]);
                    }
                }
            }
            for t in 0..N {
                self.job.scores[(first + t) * PAGE + position] =
                    isa.sum(isa.add(sums[t][0], sums[t][1]));
            }
        }
    }
}

/// Adds the values at positions `span`, weighted by their probabilities, to the partials.
pub(super) fn weighted_values(
    cpu: Cpu,
    q: Queries<'_>,
    values: Rows<'_>,
    span: Range<usize>,
    probabilities: &[f32],
    partials: &mut [f32],
) {
    values.dtype.visit(Values { cpu, q, values: values.bytes, span, probabilities, partials });
}

struct Values<'a> {
    cpu: Cpu,
    q: Queries<'a>,
    values: &'a [u8],
    span: Range<usize>,
    probabilities: &'a [f32],
    partials: &'a mut [f32],
}

impl CacheVisitor for Values<'_> {
    type Output = ();
    fn visit<C: CacheFormat>(self) {
        self.cpu.call(ValuesOf::<C>(self, PhantomData));
    }
}

struct ValuesOf<'a, C>(Values<'a>, PhantomData<C>);

impl<C: CacheFormat> Kernel for ValuesOf<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let n = self.0.q.visible.len();
        tiles(n, TILE, &mut ValueTile::<I, C> { isa, job: self.0, format: PhantomData });
    }
}

struct ValueTile<'a, I, C> {
    isa: I,
    job: Values<'a>,
    format: PhantomData<C>,
}

impl<I: Isa, C: CacheFormat> Tile for ValueTile<'_, I, C> {
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let (isa, dim) = (self.isa, self.job.q.dim);
        let row_bytes = dim / UNIT * C::BYTES;
        for u in 0..dim / UNIT {
            let mut sums = [[isa.splat_f32(0.0); 4]; N];
            for position in self.job.span.clone() {
                let v = C::load(
                    isa,
                    &self.job.values[position * row_bytes + u * C::BYTES..][..C::BYTES],
                );
                for t in 0..N {
                    let p = isa.splat_f32(self.job.probabilities[(first + t) * PAGE + position]);
                    for i in 0..4 {
                        sums[t][i] = isa.mul_add(v[i], p, sums[t][i]);
                    }
                }
            }
            for t in 0..N {
                let partial = &mut self.job.partials[(first + t) * partial_len(dim)..][..dim];
                let to = partial[u * UNIT..][..UNIT].as_chunks_mut::<8>().0;
                for (to, sum) in to.iter_mut().zip(sums[t]) {
                    *to = isa.to_f32s(isa.add(isa.load_f32(to), sum));
                }
            }
        }
    }
}
