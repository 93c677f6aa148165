//! Mathematics of RoPE research, over frequencies, queries and keys as plain slices.
//!
//! This crate does not depend on models, files or RoPE rules. The library resolves a rule to
//! frequencies, and the commands of `rope-cpu rope` show what is computed here:
//!
//! - [`disturbance`]: how far a longer context takes angles from training, and DPRoPE's measure of
//!   it. `dprope` chooses its frequencies by this measure.
//! - [`frequencies`]: what a rule does to the frequency of each pair, and the decay of attention.
//! - [`attention`]: scores and shares of attention by distance.
//! - [`mod@search`]: a search for the settings with the lowest measure.
//! - [`mod@table3`]: Table 3 of the DPRoPE paper.

pub mod attention;
pub mod disturbance;
pub mod frequencies;
pub mod search;
pub mod table3;

/// Returns the mean of `values`; not a number without values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
