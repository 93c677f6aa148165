//! Quantization to formats whose groups have integer scales: `weight = d * multiplier * value`, where
//! the values of a group are those of one of its codes.
//!
//! ```text
//! for each group:  try several scales, refine the best one      -> its scale alone
//! d:               the one whose multiples are nearest to these scales
//! for each group:  try three multiples of d                      -> multiplier and code
//! d:               least squares over all groups; repeat while the error falls
//! ```

use std::{array::from_fn, cmp::Ordering, ops::RangeInclusive};

use half::f16;

use super::{best, inverse, nearest, sum, symmetric::largest};

/// The sets of values that a group of `G` weights can have, without its scale.
pub(crate) trait Codes<const G: usize> {
    /// Whether a scale can be negative.
    const SIGNED: bool;
    /// The numbers of a group in the file.
    type Code: Copy;
    /// Returns the code with the smallest error if its values are multiplied by `scale`, and its
    /// values.
    fn nearest(
        &self,
        weights: &[f32; G],
        importance: &[f32; G],
        scale: f32,
    ) -> (Self::Code, [f32; G]);
}

/// Integers from `-self.0` to `self.0 - 1`.
pub(crate) struct Integers(pub f32);

impl<const G: usize> Codes<G> for Integers {
    const SIGNED: bool = true;
    type Code = [f32; G];
    #[inline(always)]
    fn nearest(&self, weights: &[f32; G], _: &[f32; G], scale: f32) -> ([f32; G], [f32; G]) {
        let inverse = inverse(scale);
        let quants = weights.map(|weight| nearest(weight * inverse, -self.0, self.0 - 1.0));
        (quants, quants)
    }
}

/// The best scale of a group alone.
#[derive(Clone, Copy)]
pub(crate) struct Fit {
    pub scale: f32,
    /// The sum of squares of the values: another scale adds `squares * (other - scale)^2` to the
    /// error.
    squares: f32,
    /// The sum of squares of the weights less the error.
    gain: f32,
}

/// Returns the best scale of a group among those with which the largest weight has one of `values`,
/// refined until the values no longer change.
#[inline(always)]
pub(crate) fn fit<const G: usize, C: Codes<G>>(
    codes: &C,
    weights: &[f32; G],
    importance: &[f32; G],
    values: impl Iterator<Item = f32>,
) -> Fit {
    const REFINEMENTS: usize = 4;
    let largest = largest(weights);
    let largest = if C::SIGNED { largest } else { largest.abs() };
    let at = |scale: f32| {
        let (_, values) = codes.nearest(weights, importance, scale);
        let products = sum::<G>(|i| importance[i] * weights[i] * values[i]);
        let squares = sum::<G>(|i| importance[i] * values[i] * values[i]);
        // The format may lack scales of the other sign.
        let found = if products * scale > 0.0 { products * inverse(squares) } else { 0.0 };
        Fit { scale: found, squares, gain: found * products }
    };
    let mut found = Fit { scale: 0.0, squares: 0.0, gain: 0.0 };
    for value in values {
        let scale = largest / value;
        let new = at(scale);
        // If the sums are not finite, keep the first one.
        if new.gain > found.gain || found.scale == 0.0 {
            found = if new.gain > 0.0 { new } else { Fit { scale, ..new } };
        }
    }
    for _ in 0..REFINEMENTS {
        let new = at(found.scale);
        if new.gain <= found.gain || new.gain.is_nan() {
            break;
        }
        found = new;
    }
    found
}

/// The integers that `d` is multiplied by: `lowest`, `lowest + step`, up to `highest`.
#[derive(Clone, Copy)]
pub(crate) struct Multipliers {
    lowest: f32,
    step: f32,
    highest: f32,
    /// The multiplier of the largest scale.
    largest: f32,
}

impl Multipliers {
    /// Signed integers of six bits.
    pub const SIX_BITS: Self =
        Multipliers { lowest: -32.0, step: 1.0, highest: 31.0, largest: -32.0 };

    /// Odd integers from 1 to `highest`.
    pub const fn odd(highest: f32) -> Self {
        Multipliers { lowest: 1.0, step: 2.0, highest, largest: highest }
    }

    #[inline(always)]
    fn nearest(self, value: f32) -> f32 {
        let steps = (value - self.lowest) / self.step;
        self.lowest + self.step * nearest(steps, 0.0, (self.highest - self.lowest) / self.step)
    }

    /// Returns the multiplier nearest to `value`, the one below and the one above.
    #[inline(always)]
    fn near(self, value: f32) -> [f32; 3] {
        let middle = self.nearest(value);
        [0.0, -self.step, self.step].map(|step| (middle + step).clamp(self.lowest, self.highest))
    }

    /// Returns the integer of the file.
    #[inline(always)]
    fn stored(self, multiplier: f32) -> u8 {
        ((multiplier - self.lowest) / self.step) as u8
    }
}

/// A block of `N` groups of `G` weights.
#[derive(Clone, Copy)]
pub(crate) struct ScaledBlock<Code, const N: usize> {
    pub d: f16,
    /// The multipliers, as the file stores them.
    pub scales: [u8; N],
    pub codes: [Code; N],
}

impl<Code: Copy, const N: usize> ScaledBlock<Code, N> {
    /// Quantizes a block. `values` are tried for the largest weight of a group.
    #[inline(always)]
    pub fn new<const G: usize>(
        codes: &impl Codes<G, Code = Code>,
        groups: &[[f32; G]; N],
        importance: Option<&[[f32; G]; N]>,
        multipliers: Multipliers,
        values: impl Iterator<Item = f32> + Clone,
    ) -> Self {
        const STEPS: RangeInclusive<i32> = -10..=10;
        const ROUNDS: usize = 3;
        let importance = importance.unwrap_or(&[[1.0; G]; N]);
        let fits: [Fit; N] = from_fn(|g| fit(codes, &groups[g], &importance[g], values.clone()));
        let widest = largest(&fits.map(|fit| fit.scale)) / multipliers.largest;
        let halves = STEPS.map(|step| f16::from_f32(widest * (1.0 + 0.02 * step as f32)));
        let excess = |half: f16| {
            let d = half.to_f32();
            let of_group = |fit: &Fit| {
                let nearest = d * multipliers.nearest(fit.scale * inverse(d));
                fit.squares * (nearest - fit.scale).powi(2)
            };
            fits.iter().map(of_group).sum::<f32>()
        };
        let d = best(halves, excess).unwrap_or_default();
        let with = |d| Self::with(codes, groups, importance, multipliers, d, &fits);
        let mut found = with(d);
        for _ in 0..ROUNDS {
            let new = with(found.2);
            // Keep an infinite error: a smaller scale would hide that the weights are too large.
            match new.1.partial_cmp(&found.1) {
                Some(Ordering::Less) if found.1.is_finite() => found = new,
                _ => break,
            }
        }
        found.0
    }

    /// Quantizes a block with a given `d`. Also returns its error, and the least-squares `d`.
    #[inline(always)]
    fn with<const G: usize>(
        codes: &impl Codes<G, Code = Code>,
        groups: &[[f32; G]; N],
        importance: &[[f32; G]; N],
        multipliers: Multipliers,
        half: f16,
        fits: &[Fit; N],
    ) -> (Self, f32, f16) {
        let d = half.to_f32();
        let (mut error, mut products, mut squares) = (0.0, 0.0, 0.0);
        let chosen: [(u8, Code); N] = from_fn(|g| {
            let (weights, importance) = (&groups[g], &importance[g]);
            let near = multipliers.near(fits[g].scale * inverse(d));
            let tried = near.map(|multiplier| {
                let (code, values) = codes.nearest(weights, importance, d * multiplier);
                let change = |i: usize| d * multiplier * values[i] - weights[i];
                let error = sum::<G>(|i| importance[i] * change(i) * change(i));
                (multiplier, code, values, error)
            });
            let least = best(0..near.len(), |i| tried[i].3).unwrap_or(0);
            let (multiplier, code, values, own) = tried[least];
            error += own;
            products += multiplier * sum::<G>(|i| importance[i] * weights[i] * values[i]);
            squares += multiplier.powi(2) * sum::<G>(|i| importance[i] * values[i] * values[i]);
            (multipliers.stored(multiplier), code)
        });
        let (scales, codes) = (chosen.map(|one| one.0), chosen.map(|one| one.1));
        (ScaledBlock { d: half, scales, codes }, error, f16::from_f32(products * inverse(squares)))
    }
}

/// Returns `value` times `1 + width * step` for each step.
#[inline(always)]
pub(crate) fn around(
    value: f32,
    width: f32,
    steps: RangeInclusive<i32>,
) -> impl Iterator<Item = f32> + Clone {
    steps.map(move |step| value * (1.0 + width * step as f32))
}
