//! The inverse frequencies and the attention scale of a plan at one effective length.

use super::{FarKeys, Layers, Plan, WindowRope, linear};

/// The inverse frequencies and the attention scale of a set of layers. Pair i rotates by
/// `position * inv_freq[i]`, and its cosine and sine are multiplied by `scale`.
///
/// ```no_run
/// use rope_cpu::{model::Model, rope::{Flags, Layers, Table}};
///
/// let model = Model::open("model.gguf")?;
/// let plan = model.rope_plan(&Flags::method("ntk"), 16384)?;
/// let table = Table::new(&plan, Layers::Global, 16384);
/// println!("lowest frequency: {:?}", table.inv_freq.last());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The inverse frequency of each pair that turns, in radians per position. The later pairs of a
    /// row stay still.
    pub inv_freq: Vec<f64>,
    /// The attention scale, which multiplies rotated queries and rotated keys.
    pub scale: f64,
}

impl Table {
    /// Computes the table of `plan` for `layers` and sequences of this effective length.
    pub fn new(plan: &Plan, layers: Layers, effective_length: usize) -> Table {
        match (layers, &plan.window) {
            (Layers::Window, Some(WindowRope { n_rot, base })) => {
                Table { inv_freq: linear::frequencies(*n_rot, base.value).collect(), scale: 1.0 }
            }
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
    /// Angles are computed in f64, so a row is as exact at position 1,000,000 as at position 1.
    /// Values are rounded to f32 once, at the end.
    pub fn fill(&self, position: usize, row: &mut [f32]) {
        let (cos, sin) = row.split_at_mut(row.len() / 2);
        let inv_freq = self.inv_freq.iter().chain(std::iter::repeat(&0.0));
        for ((inv_freq, cos), sin) in inv_freq.zip(cos).zip(sin) {
            let (s, c) = (position as f64 * inv_freq).sin_cos();
            *cos = (c * self.scale) as f32;
            *sin = (s * self.scale) as f32;
        }
    }
}

/// Returns the inverse frequencies of global layers. Divisors are applied first, then the scaling
/// rule, as in ggml's kernel.
fn global(plan: &Plan, effective_length: usize) -> Vec<f64> {
    let divisors = plan.divisors_at(effective_length);
    let mut inv_freq = unscaled(plan.n_rot, plan.turning, plan.base.value, divisors);
    plan.rule.scale(&mut inv_freq, plan.base.value, plan.factor.value, effective_length);
    inv_freq
}

/// Returns the model's inverse frequencies before any scaling rule.
pub(super) fn unscaled(
    n_rot: usize,
    turning: usize,
    base: f64,
    divisors: Option<&[f32]>,
) -> Vec<f64> {
    let mut inv_freq: Vec<f64> = linear::frequencies(n_rot, base).take(turning / 2).collect();
    if let Some(divisors) = divisors {
        inv_freq.iter_mut().zip(divisors).for_each(|(theta, f)| *theta /= f64::from(*f));
    }
    inv_freq
}
