//! RoPE methods side by side: what each does to a model's frequencies at a length, and how much
//! that disturbs the angles that the model was trained with.

use crate::rope::{Direction, Flags, Histogram, Layers, Origin, Plan, Scaling, Table, Trained};

/// Positions whose angles are counted at most: seconds of work.
pub const POSITIONS_MAX: usize = 1 << 22;

/// A model as it was trained, before any extension.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// Radians per position of each pair.
    pub inv_freq: Vec<f64>,
    /// Tokens that it was trained for.
    pub context: usize,
    /// How many intervals the circle is cut into.
    pub intervals: usize,
    /// The context, where `--yarn-orig-ctx` gave it.
    given_context: Option<usize>,
    angles: Trained,
}

/// A method at one length.
#[derive(Clone, Debug)]
pub struct View {
    /// What it is called.
    pub name: String,
    /// What is in force.
    pub plan: Plan,
    /// The length of the sequence, in tokens.
    pub length: usize,
    /// Its frequencies and attention scale.
    pub table: Table,
    /// For each pair, its frequency over that of the model as trained.
    pub ratios: Vec<f64>,
    /// For each pair, the disturbance as the authors' code computes it.
    pub code: Vec<f64>,
    /// For each pair, the disturbance as the paper's equation 8 is printed.
    pub paper: Vec<f64>,
}

/// What becomes of a pair's frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays as trained, so that a longer sequence turns it further: extrapolation.
    Extrapolated,
    /// It is divided by what the length needs, or more: no angle is beyond those of training.
    Interpolated,
    /// Something between.
    Between,
    /// It stays as trained, in a sequence that is no longer than those of training.
    Trained,
}

impl Fate {
    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Extrapolated => "extrapolated",
            Fate::Interpolated => "interpolated",
            Fate::Between => "between",
            Fate::Trained => "as trained",
        }
    }
}

impl Baseline {
    /// That of the model that `plan` is for; `None` if it was trained with more than
    /// [`POSITIONS_MAX`] tokens, or with none.
    pub fn new(plan: &Plan, intervals: usize) -> Option<Baseline> {
        let (inv_freq, context) = (plan.trained_inv_freq(), plan.original_context.value);
        let angles = (1..=POSITIONS_MAX)
            .contains(&context)
            .then(|| Trained::new(&inv_freq, context, intervals))?;
        let given = matches!(plan.original_context.origin, Origin::Flag(_));
        let given_context = given.then_some(context);
        Some(Baseline { inv_freq, context, intervals, given_context, angles })
    }

    /// `flags` with the factor that the length needs if they name none.
    pub fn flags(&self, flags: &Flags) -> Flags {
        let fixed = [Scaling::None, Scaling::LongRope, Scaling::Linear];
        let read = flags.scaling.is_some_and(|scaling| !fixed.contains(&scaling));
        let yarn_orig_ctx = flags.yarn_orig_ctx.or(self.given_context.filter(|_| read));
        Flags { yarn_orig_ctx, reaching: true, ..flags.clone() }
    }

    /// `plan` for a sequence of `length` tokens, at most [`POSITIONS_MAX`].
    pub fn view(&self, plan: Plan, length: usize) -> View {
        let table = Table::new(&plan, Layers::Global, plan.effective_length(length));
        let inv_freq = table.inv_freq.iter().zip(&self.inv_freq);
        let ratios = inv_freq.map(|(new, trained)| new / trained).collect();
        let positions = length.min(POSITIONS_MAX);
        let disturbances =
            |direction| self.angles.disturbances(&table.inv_freq, positions, direction);
        let (code, paper) = (disturbances(Direction::Code), disturbances(Direction::Paper));
        let name = plan.in_force().name().into();
        View { name, plan, length, table, ratios, code, paper }
    }

    /// What becomes of each pair.
    pub fn fates(&self, view: &View) -> Vec<Fate> {
        const ROUNDING: f64 = 1e-6; // factors may be typed with few digits
        let needed = self.context as f64 / view.plan.span(view.length) as f64;
        view.ratios
            .iter()
            .map(|ratio| match *ratio {
                ratio if ratio <= needed * (1.0 + ROUNDING) => match (ratio - 1.0).abs() {
                    ..=ROUNDING => Fate::Trained,
                    _ => Fate::Interpolated,
                },
                ratio if ratio >= 1.0 - ROUNDING => Fate::Extrapolated,
                _ => Fate::Between,
            })
            .collect()
    }
}

/// The mean over pairs.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The shares of the angles of a pair over `0..length` in each of so many intervals.
pub fn shares(theta: f64, length: usize, intervals: usize) -> Vec<f64> {
    let histogram = Histogram::new(theta, length, intervals);
    histogram.counts.iter().map(|count| f64::from(*count) / length as f64).collect()
}

/// How the largest possible attention score falls with the distance: the mean of |S_j| with
/// S_j = Σ_{k<j} e^{i m θ_k}, from section 3.4.3 of RoFormer (arXiv:2104.09864), times the square of
/// the attention scale.
pub fn decay(table: &Table, distance: f64) -> f64 {
    let (mut re, mut im, mut sum) = (0.0, 0.0, 0.0);
    for theta in &table.inv_freq {
        let (sin, cos) = (distance * theta).sin_cos();
        re += cos;
        im += sin;
        sum += f64::hypot(re, im);
    }
    sum / table.inv_freq.len() as f64 * table.scale * table.scale
}
