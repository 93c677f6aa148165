//! Element-wise operations between products, norms, and rotation.

mod activation;

pub use self::activation::{Activation, Ungated, activate, gate};
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
pub(crate) fn lanes<const N: usize>(x: &[f32], i: usize) -> [f32; N] {
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
///
/// ```
/// use rope_cpu_kernels::{Cpu, vector::rms_norm};
///
/// let mut x = [3.0, 4.0];
/// rms_norm(Cpu::best(), &mut x, &[1.0, 2.0], 0.0);
/// let rms = (12.5f32).sqrt(); // of 3 and 4
/// assert!((x[0] - 3.0 / rms).abs() < 1e-6 && (x[1] - 2.0 * 4.0 / rms).abs() < 1e-6);
/// ```
pub fn rms_norm(cpu: Cpu, x: &mut [f32], weight: &[f32], epsilon: f32) {
    assert_eq!(x.len(), weight.len());
    cpu.call(RmsNorm { x, weight, epsilon });
}

/// Computes a layer norm in place (Ba et al., arXiv:1607.06450, equation 4, without a bias):
/// `x = (x - mean(x)) * weight / sqrt(variance(x) + epsilon)`.
///
/// ```
/// use rope_cpu_kernels::{Cpu, vector::layer_norm};
///
/// let mut x = [1.0, 3.0];
/// layer_norm(Cpu::best(), &mut x, &[1.0, 1.0], 0.0);
/// assert_eq!(x, [-1.0, 1.0]);
/// ```
pub fn layer_norm(cpu: Cpu, x: &mut [f32], weight: &[f32], epsilon: f32) {
    let mean = cpu.call(Sum(x)) / x.len() as f32;
    x.iter_mut().for_each(|x| *x -= mean);
    rms_norm(cpu, x, weight, epsilon);
}

/// Normalizes a vector in place: `x = scale * x / sqrt(sum(x^2) + epsilon)`.
pub fn normalize(cpu: Cpu, x: &mut [f32], scale: f32, epsilon: f32) {
    cpu.call(Normalize { x, scale, epsilon });
}

struct Normalize<'a> {
    x: &'a mut [f32],
    scale: f32,
    epsilon: f32,
}

impl Kernel for Normalize<'_> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let scale = self.scale / (squares(isa, self.x) + self.epsilon).sqrt();
        let scale = isa.splat_f32(scale);
        for i in 0..self.x.len().div_ceil(8) {
            let v = isa.mul(isa.load_f32(&lanes(self.x, i)), scale);
            put(self.x, i, isa.to_f32s(v));
        }
    }
}

/// Returns the sum of squares.
#[inline(always)]
fn squares<I: Isa>(isa: I, x: &[f32]) -> f32 {
    let mut sums = [isa.splat_f32(0.0); 4];
    for i in 0..x.len().div_ceil(8) {
        let v = isa.load_f32(&lanes(x, i));
        sums[i % 4] = isa.mul_add(v, v, sums[i % 4]);
    }
    isa.sum(isa.add(isa.add(sums[0], sums[1]), isa.add(sums[2], sums[3])))
}

struct Sum<'a>(&'a [f32]);

impl Kernel for Sum<'_> {
    const FLOATS: bool = true;
    type Output = f32;
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> f32 {
        let mut sums = [isa.splat_f32(0.0); 4];
        for i in 0..self.0.len().div_ceil(8) {
            sums[i % 4] = isa.add(isa.load_f32(&lanes(self.0, i)), sums[i % 4]);
        }
        isa.sum(isa.add(isa.add(sums[0], sums[1]), isa.add(sums[2], sums[3])))
    }
}

struct RmsNorm<'a> {
    x: &'a mut [f32],
    weight: &'a [f32],
    epsilon: f32,
}

impl Kernel for RmsNorm<'_> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let n = self.x.len();
        let mean = squares(isa, self.x) / n as f32;
        let scale = isa.splat_f32(1.0 / (mean + self.epsilon).sqrt());
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
    const FLOATS: bool = true;
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

/// Adds `y` to `x`.
///
/// ```
/// use rope_cpu_kernels::{Cpu, vector::add};
///
/// let mut x = [1.0, 2.0];
/// add(Cpu::best(), &mut x, &[3.0, 4.0]);
/// assert_eq!(x, [4.0, 6.0]);
/// ```
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

/// A function of each element.
trait Function: Copy {
    fn apply<I: Isa>(self, isa: I, x: I::WideFloats) -> I::WideFloats;
}

struct Apply<'a, F> {
    x: &'a mut [f32],
    function: F,
}

impl<F: Function> Kernel for Apply<'_, F> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for i in 0..self.x.len().div_ceil(LANES) {
            let x = isa.wide_load_f32(&lanes(self.x, i));
            put(self.x, i, isa.wide_to_f32s(self.function.apply(isa, x)));
        }
    }
}

/// Limits the elements of `x` smoothly to below `cap`: `x = cap * tanh(x / cap)`.
pub fn soft_cap(cpu: Cpu, x: &mut [f32], cap: f32) {
    #[derive(Clone, Copy)]
    struct SoftCap(f32);
    impl Function for SoftCap {
        #[inline(always)]
        fn apply<I: Isa>(self, isa: I, x: I::WideFloats) -> I::WideFloats {
            soft_capped(isa, x, self.0)
        }
    }
    cpu.call(Apply { x, function: SoftCap(cap) });
}

/// Computes `cap * tanh(x / cap)`, with tanh y = 2 sigmoid(2y) - 1.
#[inline(always)]
pub(crate) fn soft_capped<I: Isa>(isa: I, x: I::WideFloats, cap: f32) -> I::WideFloats {
    let s = sigmoid(isa, isa.wide_mul(x, isa.wide_splat(2.0 / cap)));
    isa.wide_mul_add(s, isa.wide_splat(2.0 * cap), isa.wide_splat(-cap))
}

/// Rotates the first `n = row.len()` elements of a head. A pair is elements `i` and `i + n/2`. The
/// cosine and sine of its angle are `row[i]` and `row[n/2 + i]`. Elements from `n` on do not
/// change.
///
/// ```
/// use rope_cpu_kernels::{Cpu, vector::rotate};
///
/// let mut head = [1.0, 2.0, 0.0, 0.0, 5.0]; // pairs (1, 0) and (2, 0), then 5
/// let row = [0.0, 1.0, 1.0, 0.0]; // cosines and sines of 90 and 0 degrees
/// rotate(Cpu::best(), &mut head, &row);
/// assert_eq!(head, [0.0, 2.0, 1.0, 0.0, 5.0]);
/// ```
pub fn rotate(cpu: Cpu, head: &mut [f32], row: &[f32]) {
    cpu.call(Rotate { head, row });
}

struct Rotate<'a> {
    head: &'a mut [f32],
    row: &'a [f32],
}

impl Kernel for Rotate<'_> {
    const FLOATS: bool = true;
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

/// Returns pairs `16 i .. 16 i + 16`, with elements `a` and `b`, rotated by `row`.
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
