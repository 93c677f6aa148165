//! Compares RoPE methods: their frequencies at a length, and how much they disturb the trained
//! angles.

use crate::rope::{
    Direction, Flags, Histogram, Layers, Origin, POSITIONS_MAX, Plan, Table, TrainedAngles,
    yarn::ORIG_CTX,
};

/// A model as it was trained, before any extension.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// The inverse frequency of each pair, in radians per position.
    pub inv_freq: Vec<f64>,
    /// The trained length in tokens.
    pub context: usize,
    /// The number of intervals of the circle.
    pub intervals: usize,
    /// The trained length, if a user has given it.
    given_context: Option<usize>,
    angles: TrainedAngles,
}

/// A method at one length.
#[derive(Clone, Debug)]
pub struct View {
    /// The name of the method.
    pub name: String,
    /// The resolved RoPE settings.
    pub plan: Plan,
    /// The length of the sequence, in tokens.
    pub length: usize,
    /// The frequencies and the attention scale.
    pub table: Table,
    /// For each pair, the frequency divided by the trained one.
    pub ratios: Vec<f64>,
    /// For each pair, the disturbance as the authors' code computes it.
    pub code: Vec<f64>,
    /// For each pair, the disturbance as the paper's equation 8 is printed.
    pub paper: Vec<f64>,
}

/// The change of a pair's frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrequencyChange {
    /// The frequency is unchanged, so a longer sequence has larger angles than in training.
    Extrapolated,
    /// The frequency is divided by at least the factor that the length needs, so no angle is larger
    /// than in training.
    Interpolated,
    /// The frequency is divided by less than the factor that the length needs.
    Between,
    /// The frequency is unchanged, in a sequence within the trained length.
    Trained,
}

impl FrequencyChange {
    /// Returns the name of the change.
    pub fn name(self) -> &'static str {
        match self {
            FrequencyChange::Extrapolated => "extrapolated",
            FrequencyChange::Interpolated => "interpolated",
            FrequencyChange::Between => "between",
            FrequencyChange::Trained => "as trained",
        }
    }
}

impl Baseline {
    /// Creates the baseline of the model that `plan` is for; `None` if its trained length is 0 or more
    /// than [`POSITIONS_MAX`].
    pub fn new(plan: &Plan, intervals: usize) -> Option<Baseline> {
        let (inv_freq, context) = (plan.trained_inv_freq(), plan.original_context.value);
        let angles = (1..=POSITIONS_MAX)
            .contains(&context)
            .then(|| TrainedAngles::new(&inv_freq, context, intervals))?;
        let given = matches!(plan.original_context.origin, Origin::Setting(..));
        let given_context = given.then_some(context);
        Some(Baseline { inv_freq, context, intervals, given_context, angles })
    }

    /// Returns `flags` with the factor that the length needs, if they give none.
    pub fn flags(&self, flags: &Flags) -> Flags {
        let read = flags.scaling().is_some_and(|scaling| scaling.reads(&ORIG_CTX));
        let flags = Flags { for_context: true, ..flags.clone() };
        match self.given_context {
            Some(context) if read && !flags.values.has(&ORIG_CTX) => flags.with(&ORIG_CTX, context),
            _ => flags,
        }
    }

    /// Evaluates `plan` for a sequence of `length` tokens. The angles of at most [`POSITIONS_MAX`]
    /// positions are counted.
    pub fn view(&self, plan: Plan, length: usize) -> View {
        let table = Table::new(&plan, Layers::Global, plan.effective_length(length));
        let inv_freq = table.inv_freq.iter().zip(&self.inv_freq);
        let ratios = inv_freq.map(|(new, trained)| new / trained).collect();
        let positions = length.min(POSITIONS_MAX);
        let disturbances =
            |direction| self.angles.disturbances(&table.inv_freq, positions, direction);
        let (code, paper) = (disturbances(Direction::Code), disturbances(Direction::Paper));
        let name = plan.effective_scaling().name.into();
        View { name, plan, length, table, ratios, code, paper }
    }

    /// Returns the change of each pair's frequency.
    pub fn frequency_changes(&self, view: &View) -> Vec<FrequencyChange> {
        const ROUNDING: f64 = 1e-6; // factors may be given with few digits
        let needed = self.context as f64 / view.plan.span(view.length) as f64;
        view.ratios
            .iter()
            .map(|ratio| match *ratio {
                ratio if ratio <= needed * (1.0 + ROUNDING) => match (ratio - 1.0).abs() {
                    ..=ROUNDING => FrequencyChange::Trained,
                    _ => FrequencyChange::Interpolated,
                },
                ratio if ratio >= 1.0 - ROUNDING => FrequencyChange::Extrapolated,
                _ => FrequencyChange::Between,
            })
            .collect()
    }
}

/// Returns the mean over pairs.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the shares of the angles of a pair over `0..length` in each interval of the circle.
pub fn shares(theta: f64, length: usize, intervals: usize) -> Vec<f64> {
    let histogram = Histogram::new(theta, length, intervals);
    histogram.counts.iter().map(|count| f64::from(*count) / length as f64).collect()
}

/// Returns the upper bound of the attention score at a distance.
///
/// It is the mean of |S_j| with S_j = Σ_{k<j} e^{i m θ_k}, from section 3.4.3 of RoFormer
/// (arXiv:2104.09864), times the square of the attention scale.
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
