//! Frequencies: what a plan means for sequences of one length.

use super::{Layers, Plan, Rule, linear};

/// Rotation by `position * inv_freq[i]` of pair i, with cosine and sine multiplied by `scale`.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Radians per position, one for each pair.
    pub inv_freq: Vec<f64>,
    /// The attention scale: multiplies rotated queries and rotated keys.
    pub scale: f64,
}

impl Table {
    /// The table of `plan` for sequences of this effective length.
    pub fn new(plan: &Plan, layers: Layers, effective_length: usize) -> Table {
        match (layers, &plan.window_base) {
            (Layers::Window, Some(base)) => Table {
                inv_freq: linear::frequencies(plan.n_rot, base.value).collect(),
                scale: 1.0,
            },
            _ => Table {
                inv_freq: global(plan, effective_length),
                scale: plan.attention_scale.value,
            },
        }
    }

    /// Writes the row of one position: the cosines of all pairs, then their sines.
    ///
    /// Angles are f64, so that a position of a million is as exact as any other; `row` is
    /// rounded once, at the end.
    pub fn fill(&self, position: usize, row: &mut [f32]) {
        let (cos, sin) = row.split_at_mut(self.inv_freq.len());
        for ((inv_freq, cos), sin) in self.inv_freq.iter().zip(cos).zip(sin) {
            let (s, c) = (position as f64 * inv_freq).sin_cos();
            *cos = (c * self.scale) as f32;
            *sin = (s * self.scale) as f32;
        }
    }
}

/// Divisors first, then the scaling rule: they compose, as in ggml's kernel.
fn global(plan: &Plan, effective_length: usize) -> Vec<f64> {
    let mut inv_freq: Vec<f64> = linear::frequencies(plan.n_rot, plan.base.value).collect();
    if let Some(divisors) = plan.divisors.at(effective_length) {
        inv_freq.iter_mut().zip(divisors).for_each(|(theta, f)| *theta /= f64::from(*f));
    }
    let freq_scale = 1.0 / plan.factor.value;
    match &plan.rule {
        Rule::Linear => inv_freq.iter_mut().for_each(|theta| *theta *= freq_scale),
        Rule::Yarn(yarn) => {
            for (theta, kept) in inv_freq.iter_mut().zip(yarn.kept(plan.n_rot, plan.base.value)) {
                *theta = freq_scale * *theta * (1.0 - kept) + *theta * kept;
            }
        }
    }
    inv_freq
}
