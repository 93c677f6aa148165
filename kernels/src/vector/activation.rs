//! Activation functions of feed-forward networks.

use super::{Apply, ElementWise, Function, Map, exp, sigmoid};
use crate::isa::{Cpu, Isa};

/// The activation function of a gated feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x / (1 + e^-x)`.
    Silu,
    /// The tanh approximation of GELU.
    GeluTanh,
    /// `min(x, 7) / (1 + e^(-1.702 x))`. The second factor is `clamp(up, -7, 7) + 1` (gpt-oss).
    ClampedSilu,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
}

/// An activation function without a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ungated {
    /// `x / (1 + e^-x)`.
    Silu,
    /// GELU: `x` times the probability that a number of the normal distribution is below `x`
    /// (Hendrycks and Gimpel, arXiv:1606.08415).
    Gelu,
    /// `max(x, 0)^2` (So et al., "Primer", arXiv:2109.08668).
    SquaredRelu,
    /// xIELU (Huang and Schlag, "Deriving activation functions using integration",
    /// arXiv:2411.13010): `positive x^2 + linear x` for `x >= 0`, otherwise
    /// `negative (e^min(x, limit) - 1 - x) + linear x`.
    Xielu {
        /// The factor of the square of positive elements.
        positive: f32,
        /// The factor of the exponential of other elements.
        negative: f32,
        /// The factor of the linear term.
        linear: f32,
        /// The largest argument of the exponential: a small negative number.
        limit: f32,
    },
}

#[derive(Clone, Copy)]
struct Silu;

impl Function for Silu {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, x: I::WideFloats) -> I::WideFloats {
        isa.wide_mul(x, sigmoid(isa, x))
    }
}

#[derive(Clone, Copy)]
struct Sigmoid;

impl Function for Sigmoid {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, x: I::WideFloats) -> I::WideFloats {
        sigmoid(isa, x)
    }
}

/// 0.5 x (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
#[derive(Clone, Copy)]
struct GeluTanh;

impl Function for GeluTanh {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, x: I::WideFloats) -> I::WideFloats {
        let cube = isa.wide_mul(isa.wide_mul(x, x), isa.wide_splat(0.044_715));
        let u = isa.wide_mul(isa.wide_mul_add(cube, x, x), isa.wide_splat(2.0 * 0.797_884_6));
        isa.wide_mul(x, sigmoid(isa, u))
    }
}

/// The complementary error function is an approximation of Abramowitz and Stegun (7.1.26), to
/// 1.5e-7: `erfc(z) = e^(-z^2) (a1 t + a2 t^2 + .. + a5 t^5)` for `z >= 0`, `t = 1 / (1 + p z)`.
///
/// For `z = |x| / sqrt(2)`, `x` is multiplied by `1 - erfc(z) / 2` if it is positive, and by
/// `erfc(z) / 2` otherwise, which is `max(x, 0) - |x| erfc(z) / 2`.
#[derive(Clone, Copy)]
struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, x: I::WideFloats) -> I::WideFloats {
        let (zero, one) = (isa.wide_splat(0.0), isa.wide_splat(1.0));
        let size = isa.wide_max(x, isa.wide_mul(x, isa.wide_splat(-1.0)));
        let z = isa.wide_mul(size, isa.wide_splat(std::f32::consts::FRAC_1_SQRT_2));
        let t = isa.wide_div(one, isa.wide_mul_add(z, isa.wide_splat(0.327_591_1), one));
        // Half of each coefficient, for half of erfc.
        let mut sum = isa.wide_splat(0.530_702_7);
        for a in [-0.726_576, 0.710_706_9, -0.142_248_37, 0.127_414_8] {
            sum = isa.wide_mul_add(sum, t, isa.wide_splat(a));
        }
        let power = exp(isa, isa.wide_neg_mul_add(z, z, zero));
        let half = isa.wide_mul(isa.wide_mul(sum, t), power);
        isa.wide_neg_mul_add(size, half, isa.wide_max(x, zero))
    }
}

#[derive(Clone, Copy)]
struct SquaredRelu;

impl Function for SquaredRelu {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, x: I::WideFloats) -> I::WideFloats {
        let x = isa.wide_max(x, isa.wide_splat(0.0));
        isa.wide_mul(x, x)
    }
}

#[derive(Clone, Copy)]
struct Xielu {
    positive: f32,
    negative: f32,
    linear: f32,
    limit: f32,
}

impl Function for Xielu {
    #[inline(always)]
    fn apply<I: Isa>(self, isa: I, x: I::WideFloats) -> I::WideFloats {
        let zero = isa.wide_splat(0.0);
        let (one, most) = (isa.wide_splat(1.0), isa.wide_splat(-f32::MAX));
        let (above, below) = (isa.wide_max(x, zero), isa.wide_min(x, zero));
        let power = exp(isa, isa.wide_min(below, isa.wide_splat(self.limit)));
        let shrunk = isa.wide_neg_mul_add(one, isa.wide_add(below, one), power);
        // 1 for negative elements, otherwise 0: the limit does not act on these.
        let negative = isa.wide_min(isa.wide_mul(below, most), one);
        let shrunk = isa.wide_mul(shrunk, negative);
        let squared = isa.wide_mul(isa.wide_mul(above, above), isa.wide_splat(self.positive));
        let sum = isa.wide_mul_add(shrunk, isa.wide_splat(self.negative), squared);
        isa.wide_mul_add(x, isa.wide_splat(self.linear), sum)
    }
}

/// The product of a function of the gate and `up`.
struct Product<F>(F);

impl<F: Function> ElementWise for Product<F> {
    #[inline(always)]
    fn apply<I: Isa>(&self, isa: I, gate: I::WideFloats, up: I::WideFloats) -> I::WideFloats {
        isa.wide_mul(self.0.apply(isa, gate), up)
    }
}

struct ClampedSilu;

impl ClampedSilu {
    const LIMIT: f32 = 7.0;
    const SLOPE: f32 = 1.702;
}

impl ElementWise for ClampedSilu {
    #[inline(always)]
    fn apply<I: Isa>(&self, isa: I, gate: I::WideFloats, up: I::WideFloats) -> I::WideFloats {
        let limit = isa.wide_splat(Self::LIMIT);
        let gate = isa.wide_min(gate, limit);
        let up = isa.wide_max(isa.wide_min(up, limit), isa.wide_splat(-Self::LIMIT));
        let open = sigmoid(isa, isa.wide_mul(gate, isa.wide_splat(Self::SLOPE)));
        isa.wide_mul(isa.wide_mul(gate, open), isa.wide_add(up, isa.wide_splat(1.0)))
    }
}

/// Computes `gate = activation(gate) * up`.
///
/// ```
/// use rope_cpu_kernels::{Cpu, vector::{Activation, gate}};
///
/// let mut x = [1.0];
/// gate(Cpu::best(), Activation::Silu, &mut x, &[2.0]);
/// assert!((x[0] - 2.0 / (1.0 + (-1f32).exp())).abs() < 1e-6);
/// ```
pub fn gate(cpu: Cpu, activation: Activation, gate: &mut [f32], up: &[f32]) {
    let (x, y) = (gate, up);
    match activation {
        Activation::Silu => cpu.call(Map { x, y, op: Product(Silu) }),
        Activation::GeluTanh => cpu.call(Map { x, y, op: Product(GeluTanh) }),
        Activation::ClampedSilu => cpu.call(Map { x, y, op: ClampedSilu }),
        Activation::Sigmoid => cpu.call(Map { x, y, op: Product(Sigmoid) }),
    }
}

/// Computes `x = activation(x)`.
///
/// ```
/// use rope_cpu_kernels::{Cpu, vector::{Ungated, activate}};
///
/// let mut x = [-1.0, 3.0];
/// activate(Cpu::best(), Ungated::SquaredRelu, &mut x);
/// assert_eq!(x, [0.0, 9.0]);
/// ```
pub fn activate(cpu: Cpu, activation: Ungated, x: &mut [f32]) {
    match activation {
        Ungated::Silu => cpu.call(Apply { x, function: Silu }),
        Ungated::Gelu => cpu.call(Apply { x, function: Gelu }),
        Ungated::SquaredRelu => cpu.call(Apply { x, function: SquaredRelu }),
        Ungated::Xielu { positive, negative, linear, limit } => {
            cpu.call(Apply { x, function: Xielu { positive, negative, linear, limit } });
        }
    }
}
