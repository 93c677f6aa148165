//! Compares RoPE methods: their frequencies at a length, and how much they disturb the trained
//! angles.

use rope_cpu::rope::{Flags, Layers, Origin, Plan, Table, yarn::ORIG_CTX};
use rope_cpu_lab::{
    disturbance::{Direction, POSITIONS_MAX, TrainedAngles},
    frequencies::FrequencyChange,
};

/// A model as it was trained, before any extension.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// The inverse frequency of each pair, in radians per position.
    pub inv_freq: Vec<f64>,
    /// The trained length in tokens.
    pub context: usize,
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
        Some(Baseline { inv_freq, context, given_context, angles })
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
        let needed = self.context as f64 / view.plan.span(view.length) as f64;
        view.ratios.iter().map(|ratio| FrequencyChange::of(*ratio, needed)).collect()
    }
}
