//! Partial results of queries: `dim` values that are not divided by their sum of probabilities yet,
//! the maximum of the scores, and that sum.

use crate::{
    array::map,
    hadamard::mix_rows,
    isa::{Cpu, Isa, Kernel},
    vector::exp,
};

/// Returns the number of floats of a query's partial result: `dim` values, maximum and sum.
pub const fn partial_len(dim: usize) -> usize {
    dim + 2
}

/// Resets partials to the result of no keys.
pub fn clear(partials: &mut [f32], dim: usize) {
    partials.fill(0.0);
    for partial in partials.chunks_exact_mut(partial_len(dim)) {
        partial[dim] = f32::NEG_INFINITY;
    }
}

/// Scales a partial by `factor`, `e^(old maximum - maximum)`, and adds `sum` to its sum. The caller
/// still has to add the values that belong to `sum`.
#[inline(always)]
pub(super) fn rescale<I: Isa>(isa: I, partial: &mut [f32], factor: f32, maximum: f32, sum: f32) {
    let Some((values, last)) = partial.split_last_chunk_mut() else { return };
    let factors = isa.wide_splat(factor);
    for values in values.as_chunks_mut().0 {
        *values = isa.wide_to_f32s(isa.wide_mul(isa.wide_load_f32(values), factors));
    }
    *last = [maximum, last[1] * factor + sum];
}

/// Adds partial `from` to partial `into`, as if its query had attended to the pages of both. A
/// partial without keys leaves every bit of the other unchanged.
pub fn merge(cpu: Cpu, into: &mut [f32], from: &[f32]) {
    cpu.call(Merge { into, from });
}

struct Merge<'a> {
    into: &'a mut [f32],
    from: &'a [f32],
}

impl Kernel for Merge<'_> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Merge { into, from } = self;
        let dim = into.len() - 2;
        let (a, b) = (into[dim], from[dim]);
        if b == f32::NEG_INFINITY {
            return;
        }
        if a == f32::NEG_INFINITY {
            return into.copy_from_slice(from);
        }
        let maximum = a.max(b);
        let [wa, wb] = map(
            [a, b],
            #[inline(always)]
            |old| isa.wide_to_f32s(exp(isa, isa.wide_splat(old - maximum)))[0],
        );
        rescale(isa, into, wa, maximum, from[dim + 1] * wb);
        let weight = isa.wide_splat(wb);
        for (to, from) in into[..dim].as_chunks_mut().0.iter_mut().zip(from.as_chunks().0) {
            let from = isa.wide_load_f32(from);
            *to = isa.wide_to_f32s(isa.wide_mul_add(from, weight, isa.wide_load_f32(to)));
        }
    }
}

/// Writes a query's result to `out`: the partial's values from `from` on, divided by its sum.
/// Overwrites the partial. `mixed` is whether rows of values were mixed.
pub fn finish(cpu: Cpu, mixed: bool, from: usize, partial: &mut [f32], out: &mut [f32]) {
    let dim = partial.len() - 2;
    if mixed {
        mix_rows(cpu, &mut partial[..dim], dim);
    }
    let inverse = 1.0 / partial[dim + 1];
    for (out, value) in out.iter_mut().zip(&partial[from..dim]) {
        *out = value * inverse;
    }
}
