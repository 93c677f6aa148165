//! The inverse frequencies and the attention scale of a plan at one effective length.

use super::{FarKeys, Layers, Plan, linear};

/// The inverse frequencies and the attention scale of a set of layers. Pair i rotates by
/// `position * inv_freq[i]`, and its cosine and sine are multiplied by `scale`.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The inverse frequency of each pair, in radians per position.
    pub inv_freq: Vec<f64>,
    /// The attention scale, which multiplies rotated queries and rotated keys.
    pub scale: f64,
}

impl Table {
    /// Computes the table of `plan` for `layers` and sequences of this effective length.
    pub fn new(plan: &Plan, layers: Layers, effective_length: usize) -> Table {
        match (layers, &plan.window_base) {
            (Layers::Window, Some(base)) => Table {
                inv_freq: linear::frequencies(plan.n_rot, base.value).collect(),
                scale: 1.0,
            },
            _ => Table {
                inv_freq: match (layers, plan.visibility.far) {
                    (Layers::Far, FarKeys::Divided(k)) => {
                        let k = k as f64;
                        global(plan, effective_length).into_iter().map(|theta| theta / k).collect()
                    }
                    _ => global(plan, effective_length),
                },
                scale: plan.attention_scale.value * plan.rule.magnitude(effective_length),
            },
        }
    }

    /// Writes the row of one position to `row`: the cosines of all pairs, then their sines.
    ///
    /// Angles are f64, so that rows are as exact at a position of a million as at any other. Values
    /// are rounded to f32 once, at the end.
    pub fn fill(&self, position: usize, row: &mut [f32]) {
        let (cos, sin) = row.split_at_mut(self.inv_freq.len());
        for ((inv_freq, cos), sin) in self.inv_freq.iter().zip(cos).zip(sin) {
            let (s, c) = (position as f64 * inv_freq).sin_cos();
            *cos = (c * self.scale) as f32;
            *sin = (s * self.scale) as f32;
        }
    }
}

/// Returns the inverse frequencies of global layers. Divisors are applied first, then the scaling
/// rule, as in ggml's kernel.
fn global(plan: &Plan, effective_length: usize) -> Vec<f64> {
    let mut inv_freq = unscaled(plan.n_rot, plan.base.value, plan.divisors.at(effective_length));
    plan.rule.scale(&mut inv_freq, plan.base.value, plan.factor.value, effective_length);
    inv_freq
}

/// Returns the model's own inverse frequencies, before any scaling rule.
pub(super) fn unscaled(n_rot: usize, base: f64, divisors: Option<&[f32]>) -> Vec<f64> {
    let mut inv_freq: Vec<f64> = linear::frequencies(n_rot, base).collect();
    if let Some(divisors) = divisors {
        inv_freq.iter_mut().zip(divisors).for_each(|(theta, f)| *theta /= f64::from(*f));
    }
    inv_freq
}
