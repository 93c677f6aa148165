//! A state that maps keys to values. Each token changes it by one of two rules: the gated delta
//! rule (Yang et al., "Gated Delta Networks", arXiv:2412.06464, equation 10), or the rule of Mamba
//! 2 (Dao and Gu, "Transformers are SSMs", arXiv:2405.21060, equation 2).
//!
//! For each token of a head with the state `S`
//!
//! ```text
//! S = a S                     forget: a is the decay, from 0 to 1
//! d = b (v - S k)             delta rule: the part of the value that S does not predict
//! d = b v                     Mamba 2
//! S = S + d k^T               learn: b is the rate
//! o = S q                     look up
//! ```
//!
//! The kernel computes `S k` and `S q` of the old state in one pass over it, and the new state in
//! another: `o = a S q + (k q) d`. Rows of `S` are independent, and are next to each other in
//! lanes.

use crate::{
    isa::{Cpu, Isa, Kernel, LANES},
    vector::lanes,
};

/// How a token changes a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The gated delta rule.
    Delta,
    /// The rule of Mamba 2.
    Mamba2,
}

/// Consecutive tokens of one head, as columns of a buffer.
#[derive(Clone, Copy)]
pub struct ScanTokens<'a> {
    /// The buffer, (tokens, width).
    pub rows: &'a [f32],
    /// The number of columns.
    pub width: usize,
    /// The first column of the queries.
    pub query: usize,
    /// The first column of the keys.
    pub key: usize,
    /// The first column of the [`LANES`] values.
    pub value: usize,
    /// The column of the decays.
    pub decay: usize,
    /// The column of the rates.
    pub rate: usize,
}

/// Computes [`LANES`] outputs of each token, and advances their part of the state. The state has a
/// row for each element of a key.
///
/// ```
/// use rope_cpu_kernels::{Cpu, isa::LANES, recurrence::{Rule, ScanTokens, scan}};
///
/// // A key of one element. Columns: query, key, 16 values, decay, rate.
/// let mut rows = [2.0; 20];
/// (rows[0], rows[1], rows[18], rows[19]) = (1.0, 1.0, 1.0, 0.5);
/// let tokens = ScanTokens { rows: &rows, width: 20, query: 0, key: 1, value: 2, decay: 18, rate: 19 };
/// let (mut state, mut out) = ([[0.0; LANES]], [[0.0; LANES]]);
/// scan(Cpu::best(), Rule::Delta, &mut state, tokens, &mut out);
/// assert_eq!((state[0][0], out[0][0]), (1.0, 1.0)); // 0.5 * (2 - 0)
/// ```
pub fn scan(
    cpu: Cpu,
    rule: Rule,
    state: &mut [[f32; LANES]],
    tokens: ScanTokens<'_>,
    out: &mut [[f32; LANES]],
) {
    match rule {
        Rule::Delta => cpu.call(Scan::<true> { state, tokens, out }),
        Rule::Mamba2 => cpu.call(Scan::<false> { state, tokens, out }),
    }
}

struct Scan<'a, const DELTA: bool> {
    state: &'a mut [[f32; LANES]],
    tokens: ScanTokens<'a>,
    out: &'a mut [[f32; LANES]],
}

impl<const DELTA: bool> Kernel for Scan<'_, DELTA> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Scan { state, tokens: ScanTokens { rows, width, query, key, value, decay, rate }, out } =
            self;
        let dim = state.len();
        for (row, out) in rows.chunks_exact(width).zip(out) {
            let (q, k) = (&row[query..][..dim], &row[key..][..dim]);
            let v = isa.wide_load_f32(&lanes(&row[value..][..LANES], 0));
            // Separate even and odd rows, so that additions do not wait for each other.
            let mut keyed = [isa.wide_splat(0.0); 2];
            let mut queried = [isa.wide_splat(0.0); 2];
            for (i, state) in state.iter().enumerate() {
                let state = isa.wide_load_f32(state);
                if DELTA {
                    keyed[i % 2] = isa.wide_mul_add(state, isa.wide_splat(k[i]), keyed[i % 2]);
                }
                queried[i % 2] = isa.wide_mul_add(state, isa.wide_splat(q[i]), queried[i % 2]);
            }
            let keyed = isa.wide_add(keyed[0], keyed[1]);
            let queried = isa.wide_add(queried[0], queried[1]);
            let a = isa.wide_splat(row[decay]);
            let new = if DELTA { isa.wide_neg_mul_add(a, keyed, v) } else { v };
            let new = isa.wide_mul(isa.wide_splat(row[rate]), new);
            let sum = isa.wide_mul(isa.wide_splat(dot(isa, k, q)), new);
            *out = isa.wide_to_f32s(isa.wide_mul_add(a, queried, sum));
            for (state, k) in state.iter_mut().zip(k) {
                let old = isa.wide_mul(a, isa.wide_load_f32(state));
                *state = isa.wide_to_f32s(isa.wide_mul_add(isa.wide_splat(*k), new, old));
            }
        }
    }
}

/// Computes the product of two vectors.
#[inline(always)]
fn dot<I: Isa>(isa: I, x: &[f32], y: &[f32]) -> f32 {
    let mut sums = [isa.splat_f32(0.0); 2];
    for i in 0..x.len().div_ceil(8) {
        let (x, y) = (isa.load_f32(&lanes(x, i)), isa.load_f32(&lanes(y, i)));
        sums[i % 2] = isa.mul_add(x, y, sums[i % 2]);
    }
    isa.sum(isa.add(sums[0], sums[1]))
}
