//! Element-wise operations between products, RMS norm, and rotation.

use crate::isa::{Cpu, Isa, Kernel, LANES};

/// Computes `e^x`, to about one unit in the last place; exactly 0 below -87.7, and at most `e^88`.
///
/// (The algorithm of Cephes' `expf`: the argument is reduced by multiples of ln 2, and the
/// exponential of the remainder is a polynomial.)
#[inline(always)]
pub fn exp<I: Isa>(isa: I, x: I::WideFloats) -> I::WideFloats {
    let x = isa.wide_min(isa.wide_max(x, isa.wide_splat(-88.0)), isa.wide_splat(88.0));
    let n = isa.wide_round(isa.wide_mul(x, isa.wide_splat(std::f32::consts::LOG2_E)));
    let r = isa.wide_neg_mul_add(n, isa.wide_splat(0.693_359_4), x);
    let r = isa.wide_neg_mul_add(n, isa.wide_splat(-2.121_944_4e-4), r);
    let mut p = isa.wide_splat(1.987_569_1e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = isa.wide_mul_add(p, r, isa.wide_splat(c));
    }
    let p = isa.wide_mul_add(p, isa.wide_mul(r, r), isa.wide_add(r, isa.wide_splat(1.0)));
    isa.wide_mul(p, isa.wide_power_of_two(n))
}

/// Computes `1 / (1 + e^-x)`.
#[inline(always)]
fn sigmoid<I: Isa>(isa: I, x: I::WideFloats) -> I::WideFloats {
    let one = isa.wide_splat(1.0);
    isa.wide_div(one, isa.wide_add(one, exp(isa, isa.wide_mul(x, isa.wide_splat(-1.0)))))
}

/// Returns floats `N i .. N i + N` of `x`, padded with zeros past the end.
#[inline(always)]
fn lanes<const N: usize>(x: &[f32], i: usize) -> [f32; N] {
    let rest = &x[N * i..];
    rest.first_chunk().copied().unwrap_or_else(|| {
        let mut padded = [0.0; N];
        padded[..rest.len()].copy_from_slice(rest);
        padded
    })
}

/// Writes floats `N i .. N i + N` of `x`, except for those past the end.
#[inline(always)]
fn put<const N: usize>(x: &mut [f32], i: usize, values: [f32; N]) {
    let rest = &mut x[N * i..];
    match rest.first_chunk_mut() {
        Some(whole) => *whole = values,
        None => rest.copy_from_slice(&values[..rest.len()]),
    }
}

/// Computes the RMS norm in place: `x = x * weight / sqrt(mean(x^2) + epsilon)`.
pub fn rms_norm(cpu: Cpu, x: &mut [f32], weight: &[f32], epsilon: f32) {
    assert_eq!(x.len(), weight.len());
    cpu.call(RmsNorm { x, weight, epsilon });
}

struct RmsNorm<'a> {
    x: &'a mut [f32],
    weight: &'a [f32],
    epsilon: f32,
}

impl Kernel for RmsNorm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let n = self.x.len();
        let mut sums = [isa.splat_f32(0.0); 4];
        for i in 0..n.div_ceil(8) {
            let v = isa.load_f32(&lanes(self.x, i));
            sums[i % 4] = isa.mul_add(v, v, sums[i % 4]);
        }
        let sum = isa.sum(isa.add(isa.add(sums[0], sums[1]), isa.add(sums[2], sums[3])));
        let scale = isa.splat_f32(1.0 / (sum / n as f32 + self.epsilon).sqrt());
        for i in 0..n.div_ceil(8) {
            let v = isa.mul(isa.load_f32(&lanes(self.x, i)), scale);
            let v = isa.mul(v, isa.load_f32(&lanes(self.weight, i)));
            put(self.x, i, isa.to_f32s(v));
        }
    }
}

/// An operation on each element of `x` and the element of `y` at the same index.
trait ElementWise {
    fn apply<I: Isa>(&self, isa: I, x: I::WideFloats, y: I::WideFloats) -> I::WideFloats;
}

struct Map<'a, E> {
    x: &'a mut [f32],
    y: &'a [f32],
    op: E,
}

impl<E: ElementWise> Kernel for Map<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        assert_eq!(self.x.len(), self.y.len());
        for i in 0..self.x.len().div_ceil(LANES) {
            let (x, y) =
                (isa.wide_load_f32(&lanes(self.x, i)), isa.wide_load_f32(&lanes(self.y, i)));
            put(self.x, i, isa.wide_to_f32s(self.op.apply(isa, x, y)));
        }
    }
}

/// Computes `x += y`.
pub fn add(cpu: Cpu, x: &mut [f32], y: &[f32]) {
    struct Add;
    impl ElementWise for Add {
        #[inline(always)]
        fn apply<I: Isa>(&self, isa: I, x: I::WideFloats, y: I::WideFloats) -> I::WideFloats {
            isa.wide_add(x, y)
        }
    }
    cpu.call(Map { x, y, op: Add });
}

/// The activation function of a gated feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x / (1 + e^-x)`.
    Silu,
    /// The tanh approximation of GELU.
    GeluTanh,
}

/// Computes `gate = activation(gate) * up`.
pub fn gate(cpu: Cpu, activation: Activation, gate: &mut [f32], up: &[f32]) {
    struct Silu;
    impl ElementWise for Silu {
        #[inline(always)]
        fn apply<I: Isa>(&self, isa: I, x: I::WideFloats, up: I::WideFloats) -> I::WideFloats {
            isa.wide_mul(isa.wide_mul(x, sigmoid(isa, x)), up)
        }
    }
    // 0.5 x (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
    struct GeluTanh;
    impl ElementWise for GeluTanh {
        #[inline(always)]
        fn apply<I: Isa>(&self, isa: I, x: I::WideFloats, up: I::WideFloats) -> I::WideFloats {
            let cube = isa.wide_mul(isa.wide_mul(x, x), isa.wide_splat(0.044_715));
            let u = isa.wide_mul(isa.wide_mul_add(cube, x, x), isa.wide_splat(2.0 * 0.797_884_6));
            isa.wide_mul(isa.wide_mul(x, sigmoid(isa, u)), up)
        }
    }
    match activation {
        Activation::Silu => cpu.call(Map { x: gate, y: up, op: Silu }),
        Activation::GeluTanh => cpu.call(Map { x: gate, y: up, op: GeluTanh }),
    }
}

/// Computes `x = cap * tanh(x / cap)`.
pub fn soft_cap(cpu: Cpu, x: &mut [f32], cap: f32) {
    cpu.call(SoftCap { x, cap });
}

struct SoftCap<'a> {
    x: &'a mut [f32],
    cap: f32,
}

impl Kernel for SoftCap<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for i in 0..self.x.len().div_ceil(LANES) {
            let x = isa.wide_load_f32(&lanes(self.x, i));
            put(self.x, i, isa.wide_to_f32s(soft_capped(isa, x, self.cap)));
        }
    }
}

/// Computes `cap * tanh(x / cap)`, with tanh y = 2 sigmoid(2y) - 1.
#[inline(always)]
pub(crate) fn soft_capped<I: Isa>(isa: I, x: I::WideFloats, cap: f32) -> I::WideFloats {
    let s = sigmoid(isa, isa.wide_mul(x, isa.wide_splat(2.0 / cap)));
    isa.wide_mul_add(s, isa.wide_splat(2.0 * cap), isa.wide_splat(-cap))
}

/// Rotates a head, whose pairs are elements `i` and `i + n/2` for `n = row.len()`, by the angles
/// whose cosines and sines are `row[i]` and `row[n/2 + i]`. Elements past `n` do not change.
pub fn rotate(cpu: Cpu, head: &mut [f32], row: &[f32]) {
    cpu.call(Rotate { head, row });
}

struct Rotate<'a> {
    head: &'a mut [f32],
    row: &'a [f32],
}

impl Kernel for Rotate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        rotated(isa, self.head, self.row);
    }
}

/// Rotates a head as [`rotate`] does, within a kernel.
#[inline(always)]
pub(crate) fn rotated<I: Isa>(isa: I, head: &mut [f32], row: &[f32]) {
    let half = row.len() / 2;
    let (a, b) = head[..row.len()].split_at_mut(half);
    for i in 0..half.div_ceil(LANES) {
        let [x, y] = rotated_pairs(isa, a, b, row, i);
        put(a, i, isa.wide_to_f32s(x));
        put(b, i, isa.wide_to_f32s(y));
    }
}

/// Adds `other`, rotated as [`rotate`] does, to a head.
#[inline(always)]
pub(crate) fn add_rotated<I: Isa>(isa: I, head: &mut [f32], other: &[f32], row: &[f32]) {
    let half = row.len() / 2;
    let (pairs, rest) = head.split_at_mut(row.len());
    let (a, b) = pairs.split_at_mut(half);
    for i in 0..half.div_ceil(LANES) {
        let sums = rotated_pairs(isa, &other[..half], &other[half..row.len()], row, i);
        for (x, sum) in [&mut *a, &mut *b].into_iter().zip(sums) {
            let sum = isa.wide_add(isa.wide_load_f32(&lanes(x, i)), sum);
            put(x, i, isa.wide_to_f32s(sum));
        }
    }
    rest.iter_mut().zip(&other[row.len()..]).for_each(
        #[inline(always)]
        |(x, other)| *x += other,
    );
}

/// Returns pairs `16 i .. 16 i + 16`, whose elements are `a` and `b`, rotated by `row`.
#[inline(always)]
fn rotated_pairs<I: Isa>(
    isa: I,
    a: &[f32],
    b: &[f32],
    row: &[f32],
    i: usize,
) -> [I::WideFloats; 2] {
    let (cos, sin) = row.split_at(row.len() / 2);
    let (x, y) = (isa.wide_load_f32(&lanes(a, i)), isa.wide_load_f32(&lanes(b, i)));
    let (c, s) = (isa.wide_load_f32(&lanes(cos, i)), isa.wide_load_f32(&lanes(sin, i)));
    [isa.wide_neg_mul_add(y, s, isa.wide_mul(x, c)), isa.wide_mul_add(x, s, isa.wide_mul(y, c))]
}
