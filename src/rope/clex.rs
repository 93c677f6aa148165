//! CLEX: frequencies that depend on the sequence length by a learned differential equation.
//!
//! Chen et al., "CLEX: Continuous Length Extrapolation for Large Language Models" (arXiv:2310.16450),
//! equations 10 to 12, as in the released code. For z = ln θ, with the model's own θ at t = 1,
//!
//! dz/dt = act((z + n(t)) · up) · down + dn/dt, n_i(t) = -(2i/d) ln 10000 - (2i/(d-2)) ln α, α = 2t - 1,
//!
//! with dn/dt = -(2i/(d-2)) · 2/α. A sequence of n tokens has t = ⌈n/L⌉, at most the factor; t = 1 is
//! the model as trained. The constant in n is 10000 for any base of the model, as in training. The
//! equation is solved once, by the 3/8 rule of Runge and Kutta, and the frequencies are stored in a
//! table. Some configurations also scale queries by the logarithm of the length; that acts on
//! attention and is not part of this rule.

mod weights;

use std::{fmt, sync::Arc};

use super::{
    Error, Origin, Rule, Scaling, Sourced, ntk, rule_inputs::RuleInputs, scaling::Factor,
    scaling::SCALING, sourced::short, yarn,
};
use crate::settings::Parameter;
use weights::Matrices;

/// CLEX.
pub(super) static CLEX: Scaling = Scaling::rule(
    "clex",
    "frequencies that follow the length by a learned differential equation",
    |inputs, factor, inv_freq| Ok(Arc::new(Clex::resolve(inputs, factor, inv_freq)?)),
)
.parameters(&[&WEIGHTS, &STEP, &ACTIVATION])
.shares(&[&yarn::ORIG_CTX])
.factor(Factor::Own(factor));

/// The file with the matrices of the equation.
pub static WEIGHTS: Parameter = Parameter::path(
    "clex_weights",
    "FILE",
    "clex: file with the matrices of its equation",
)
.details(
    "A safetensors file with two tensors, as saved by the authors' program: *ode_up_proj, of \
             shape (pairs, hidden), and *ode_down_proj, of shape (hidden, pairs).",
)
.rare();

/// The step size of the solver.
pub static STEP: Parameter =
    Parameter::number("clex_step", "N", "clex: step size of the solver [default: 0.01]")
        .details("From 0.001 to 1. With large matrices and factors the minimum is larger.")
        .rare();

/// The activation function between the matrices.
pub static ACTIVATION: Parameter = Parameter::word(
    "clex_activation",
    "NAME",
    &["tanh", "silu"],
    "clex: activation between the matrices: tanh or silu [default: tanh]",
)
.rare();

/// The frequencies by sequence length, with the settings that determined them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Clex {
    /// L: the context that the model was trained for.
    pub original_context: Sourced<usize>,
    /// The origin of the weights.
    pub weights: Origin,
    /// The step size of the solver.
    pub step: Sourced<f64>,
    /// The activation function of the equation.
    pub activation: Sourced<Activation>,
    /// The inverse frequencies (radians per position) of all pairs, for t = 1, 2, ...
    table: Vec<Vec<f64>>,
}

/// The activation function between the two matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The hyperbolic tangent.
    Tanh,
    /// x · sigmoid(x).
    Silu,
}

impl Activation {
    /// Both functions.
    pub const ALL: [Activation; 2] = [Activation::Tanh, Activation::Silu];

    /// Returns the name, as on the command line and in configuration files.
    pub fn name(self) -> &'static str {
        match self {
            Activation::Tanh => "tanh",
            Activation::Silu => "silu",
        }
    }

    fn apply(self, x: f64) -> f64 {
        match self {
            Activation::Tanh => x.tanh(),
            Activation::Silu => x / (1.0 + (-x).exp()),
        }
    }
}

/// The largest t. The published models have 16 or 32.
const FACTOR_MAX: f64 = 1024.0;

/// The maximum number of multiplications to solve the equation; this takes seconds. A step of 1 is
/// always within it.
const WORK_MAX: f64 = (1u64 << 33) as f64;

impl Clex {
    fn resolve(
        inputs: &RuleInputs,
        factor: &Sourced<f64>,
        inv_freq: &[f64],
    ) -> Result<Self, Error> {
        let flags = inputs.flags;
        ntk::check(2 * inv_freq.len(), &CLEX)?;
        let Some(path) = flags.values.path(&WEIGHTS) else {
            return Err(Error::Needs {
                setting: format!("{} {CLEX}", SCALING.setting),
                other: format!("{} FILE", WEIGHTS.setting),
            });
        };
        let weights = Matrices::read(path, inv_freq.len())?;
        if factor.value.fract() != 0.0 || !(1.0..=FACTOR_MAX).contains(&factor.value) {
            let value = factor.origin.with_value(factor.value);
            let expected = format!("a whole number from 1 to {FACTOR_MAX} for clex");
            return Err(Error::OutOfRange { value, expected });
        }
        // A step of the solver computes four slopes, each by two products.
        let work = 8.0 * (inv_freq.len() * weights.hidden) as f64 * (factor.value - 1.0);
        let least = (1000.0 * work / WORK_MAX).ceil().max(1.0) / 1000.0;
        let step = flags.number_or(&STEP, 0.01).within(least, 1.0)?;
        let activation = flags.word_or_first(&ACTIVATION, &Activation::ALL, Activation::name)?;
        let equation = Equation { weights: &weights, activation: activation.value };
        let table = equation.solve(inv_freq, factor.value as usize, step.value);
        if let Some(t) = table.iter().position(|row| !row.iter().all(|theta| theta.is_normal())) {
            return Err(Error::ClexDiverges { file: path.display().to_string(), t: t + 1 });
        }
        Ok(Clex {
            original_context: inputs.original_context()?,
            weights: Origin::Setting(WEIGHTS.setting, path.display().to_string()),
            step,
            activation,
            table,
        })
    }

    fn t(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.original_context.value.max(1)).clamp(1, self.table.len())
    }
}

impl Rule for Clex {
    fn scale(&self, inv_freq: &mut [f64], _base: f64, _factor: f64, length: usize) {
        inv_freq.copy_from_slice(&self.table[self.t(length) - 1]);
    }

    fn frequency_formula(&self, factor: f64) -> String {
        let original = self.original_context.value;
        format!("θ_i(t) of the learned equation, t = min(⌈n / {original}⌉, {})", short(factor))
    }

    fn effective_length(&self, tokens: usize) -> Option<usize> {
        Some(self.t(tokens).saturating_mul(self.original_context.value))
    }

    fn original_context(&self) -> Option<&Sourced<usize>> {
        Some(&self.original_context)
    }
}

/// Returns the smallest factor that reaches the requested context.
fn factor(inputs: &RuleInputs) -> Result<Sourced<f64>, Error> {
    let original = inputs.original_context()?.value.max(1);
    let value = inputs.context.value.div_ceil(original).max(1) as f64;
    Ok(Sourced { value, origin: Origin::Computed("context / original context, rounded up") })
}

impl fmt::Display for Clex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", weights {}, original context {}", self.weights, self.original_context)?;
        write!(f, ", activation {} ({})", self.activation.value.name(), self.activation.origin)?;
        write!(f, ", step {}", self.step)
    }
}

/// The differential equation, with its learned weights.
struct Equation<'a> {
    weights: &'a Matrices,
    activation: Activation,
}

impl Equation<'_> {
    /// Returns the frequencies at t = 1, 2, ..., `t_end`. As in torchdiffeq, the grid points are
    /// `1 + k · step`, and the last one is `t_end`. A whole t within a step is interpolated.
    fn solve(&self, inv_freq: &[f64], t_end: usize, step: f64) -> Vec<Vec<f64>> {
        let mut z: Vec<f64> = inv_freq.iter().map(|theta| theta.ln()).collect();
        let mut table = vec![inv_freq.to_vec()];
        let end = t_end as f64;
        let points = ((end - 1.0) / step + 1.0).ceil() as usize;
        let grid = |k: usize| if k + 1 == points { end } else { 1.0 + k as f64 * step };
        for k in 1..points {
            let (from, to) = (grid(k - 1), grid(k));
            let next = self.step(from, to, &z);
            while table.len() < t_end && to >= (table.len() + 1) as f64 {
                let t = (table.len() + 1) as f64;
                // Exact if t is a point of the grid.
                let share = if t == to { 1.0 } else { (t - from) / (to - from) };
                let row = z
                    .iter()
                    .zip(&next)
                    .map(|(a, b)| if share == 1.0 { b.exp() } else { (a + share * (b - a)).exp() });
                table.push(row.collect());
            }
            z = next;
        }
        table
    }

    /// Returns z at `to` by one step of Kutta's 3/8 rule, from `z` at `from`.
    fn step(&self, from: f64, to: f64, z: &[f64]) -> Vec<f64> {
        let h = to - from;
        let along = |slope: &dyn Fn(usize) -> f64| -> Vec<f64> {
            (0..z.len()).map(|i| z[i] + h * slope(i)).collect()
        };
        let k1 = self.slope(from, z);
        let k2 = self.slope(from + h / 3.0, &along(&|i| k1[i] / 3.0));
        let k3 = self.slope(from + h * 2.0 / 3.0, &along(&|i| k2[i] - k1[i] / 3.0));
        let k4 = self.slope(to, &along(&|i| k1[i] - k2[i] + k3[i]));
        along(&|i| (k1[i] + 3.0 * (k2[i] + k3[i]) + k4[i]) * 0.125)
    }

    /// Returns dz/dt.
    fn slope(&self, t: f64, z: &[f64]) -> Vec<f64> {
        const BASE: f64 = 10_000.0;
        let d = 2.0 * z.len() as f64;
        let alpha = if t < 1.0 { 1.0 } else { 2.0 * t - 1.0 };
        let index = |i: usize| 2.0 * i as f64;
        let ntk = |i: usize| -(index(i) / d) * BASE.ln() - (index(i) / (d - 2.0)) * alpha.ln();
        let drift = |i: usize| -2.0 * index(i) / (d - 2.0) / alpha;
        let input: Vec<f64> = z.iter().enumerate().map(|(i, z)| z + ntk(i)).collect();
        let mut hidden = vec![0.0; self.weights.hidden];
        product(&input, &self.weights.up, &mut hidden);
        hidden.iter_mut().for_each(|x| *x = self.activation.apply(*x));
        let mut slope: Vec<f64> = vec![0.0; z.len()];
        product(&hidden, &self.weights.down, &mut slope);
        slope.iter_mut().enumerate().for_each(|(i, x)| *x += drift(i));
        slope
    }
}

/// Adds the product of the row `input` and `matrix`, (input, out), to `out`.
fn product(input: &[f64], matrix: &[f64], out: &mut [f64]) {
    let columns = out.len();
    for (x, row) in input.iter().zip(matrix.chunks_exact(columns)) {
        out.iter_mut().zip(row).for_each(|(sum, weight)| *sum += x * weight);
    }
}
