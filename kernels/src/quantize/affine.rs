//! Quantization to formats with an offset: `weight = scale * quant - minimum`, with quants from 0
//! to `levels`.

use std::{array::from_fn, ops::RangeInclusive};

use half::f16;

use super::{best, inverse, nearest, sum};

/// A block of `N` groups of `G` weights, each with an integer scale and an integer minimum.
pub(crate) struct AffineBlock<const G: usize, const N: usize> {
    pub d: f16,
    pub dmin: f16,
    pub scales: [u8; N],
    pub minimums: [u8; N],
    pub quants: [[u8; G]; N],
}

/// The integers of a format with an offset.
pub(crate) struct AffineLevels {
    /// The largest quant.
    pub quant: f32,
    /// The largest scale and the largest minimum of a group.
    pub scale: f32,
    /// Without importance, the scales of ranges of `quant + step / 10` quants are tried for each of
    /// these steps.
    pub steps: RangeInclusive<i32>,
}

impl<const G: usize, const N: usize> AffineBlock<G, N> {
    /// Quantizes a block.
    #[inline(always)]
    pub fn new(
        groups: &[[f32; G]; N],
        importance: Option<&[[f32; G]; N]>,
        levels: AffineLevels,
    ) -> Self {
        let AffineLevels { quant: levels, scale: most, steps } = levels;
        let importance_of = |g: usize| importance.map(|all| &all[g]);
        let fits: [LinearFit; N] = from_fn(|g| {
            LinearFit::search(&groups[g], importance_of(g), levels, false, steps.clone())
        });
        // The unit of the groups' numbers. With importance, its multiples are near these numbers.
        let unit = |values: [f32; N]| {
            let highest = values.into_iter().fold(0.0, f32::max);
            let Some(importance) = importance else { return f16::from_f32(highest / most) };
            let units = (-10..=10).map(|step| f16::from_f32(highest / (most + 0.1 * step as f32)));
            let excess = |half: f16| {
                let one = half.to_f32();
                let of_group = |(value, own): (&f32, &[f32; G])| {
                    let multiple = one * nearest(value * inverse(one), 0.0, most);
                    sum::<G>(|i| own[i]) * (multiple - value).powi(2)
                };
                values.iter().zip(importance).map(of_group).sum::<f32>()
            };
            best(units, excess).unwrap_or_default()
        };
        let d = unit(fits.map(|fit| fit.scale));
        let dmin = unit(fits.map(|fit| fit.minimum));
        let (one, one_min) = (d.to_f32(), dmin.to_f32());

        let near = |value: f32| {
            let middle = nearest(value, 0.0, most);
            [0.0, -1.0, 1.0].map(|step| (middle + step).clamp(0.0, most))
        };
        let chosen: [(f32, f32); N] = from_fn(|g| {
            let scales = near(fits[g].scale * inverse(one));
            let minimums = near(fits[g].minimum * inverse(one_min));
            let pairs = (0..9).map(|i| (scales[i / 3], minimums[i % 3]));
            let error = |(scale, minimum)| {
                let fit = LinearFit { scale: one * scale, minimum: one_min * minimum };
                fit.error(&groups[g], importance_of(g), levels)
            };
            best(pairs, error).unwrap_or_default()
        });
        let quants = from_fn(|g| {
            let (scale, minimum) = chosen[g];
            let fit = LinearFit { scale: one * scale, minimum: one_min * minimum };
            fit.quants(&groups[g], levels).map(|quant| quant as u8)
        });
        let (scales, minimums) = (chosen.map(|c| c.0 as u8), chosen.map(|c| c.1 as u8));
        AffineBlock { d, dmin, scales, minimums, quants }
    }
}

/// A linear map from quants to weights: `scale * quant - minimum`.
#[derive(Clone, Copy)]
pub(crate) struct LinearFit {
    pub scale: f32,
    pub minimum: f32,
}

impl LinearFit {
    /// Searches for the least-squares fit over several roundings (`make_qkx2_quants`). Without
    /// `importance`, large weights count more. With it, the steps are llama.cpp's. The minimum is not
    /// negative unless `signed`.
    #[inline(always)]
    pub fn search<const G: usize>(
        weights: &[f32; G],
        importance: Option<&[f32; G]>,
        levels: f32,
        signed: bool,
        steps: RangeInclusive<i32>,
    ) -> LinearFit {
        let most = if signed { f32::MAX } else { 0.0 };
        let lowest = weights.iter().copied().fold(most, f32::min);
        let highest = weights.iter().copied().fold(f32::MIN, f32::max);
        if highest <= lowest {
            return LinearFit { scale: 0.0, minimum: -lowest };
        }
        let mean = (sum::<G>(|i| weights[i] * weights[i]) / G as f32).sqrt();
        let (importance, steps, width) = match importance {
            Some(importance) => (*importance, -18..=18, 0.05),
            None => (weights.map(|weight| mean + weight.abs()), steps, 0.1),
        };
        let all = sum::<G>(|i| importance[i]);
        let weighted = sum::<G>(|i| importance[i] * weights[i]);
        let error = |fit: LinearFit, quants: &[f32; G]| {
            sum::<G>(|i| importance[i] * (fit.scale * quants[i] - fit.minimum - weights[i]).powi(2))
        };

        let widest = LinearFit { scale: (highest - lowest) / levels, minimum: -lowest };
        let mut found = (widest, error(widest, &widest.quants(weights, levels)));
        for step in steps {
            // Start from the best minimum so far.
            let lowest = -found.0.minimum;
            let inverse = (levels + width * step as f32) / (highest - lowest);
            let quants = weights.map(|weight| nearest((weight - lowest) * inverse, 0.0, levels));
            let once = sum::<G>(|i| importance[i] * quants[i]);
            let squares = sum::<G>(|i| importance[i] * quants[i] * quants[i]);
            let products = sum::<G>(|i| importance[i] * quants[i] * weights[i]);
            let determinant = all * squares - once * once;
            if determinant.is_nan() || determinant <= 0.0 {
                continue;
            }
            let scale = (all * products - weighted * once) / determinant;
            let minimum = (once * products - squares * weighted) / determinant;
            let fit = if minimum < 0.0 && !signed {
                LinearFit { scale: products / squares, minimum: 0.0 }
            } else {
                LinearFit { scale, minimum }
            };
            let error = error(fit, &quants);
            if error < found.1 {
                found = (fit, error);
            }
        }
        found.0
    }

    /// Returns the scale and the offset of a block of 32 weights. The offset is the smallest
    /// weight. With `importance`, returns the result of a search if it is better.
    #[inline(always)]
    pub fn of_block(
        weights: &[f32; 32],
        importance: Option<&[f32; 32]>,
        levels: f32,
    ) -> (f16, f16) {
        let least = weights.iter().copied().fold(f32::INFINITY, f32::min);
        let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let range = (f16::from_f32((most - least) / levels), f16::from_f32(least));
        if importance.is_none() {
            return range;
        }
        let found = LinearFit::search(weights, importance, levels, true, 0..=0);
        let found = (f16::from_f32(found.scale), f16::from_f32(-found.minimum));
        let error = |halves| Self::stored(halves).error(weights, importance, levels);
        best([range, found].into_iter(), error).unwrap_or_default()
    }

    /// Returns the map of a block with this scale and offset.
    #[inline(always)]
    pub fn stored((d, m): (f16, f16)) -> LinearFit {
        LinearFit { scale: d.to_f32(), minimum: -m.to_f32() }
    }

    /// Returns the quants with the nearest values to `weights`.
    #[inline(always)]
    pub fn quants<const G: usize>(self, weights: &[f32; G], levels: f32) -> [f32; G] {
        let inverse = inverse(self.scale);
        weights.map(|weight| nearest((weight + self.minimum) * inverse, 0.0, levels))
    }

    /// Returns the sum of squares of the errors of `weights`.
    #[inline(always)]
    fn error<const G: usize>(
        self,
        weights: &[f32; G],
        importance: Option<&[f32; G]>,
        levels: f32,
    ) -> f32 {
        let quants = self.quants(weights, levels);
        let square = |i: usize| (self.scale * quants[i] - self.minimum - weights[i]).powi(2);
        match importance {
            None => sum::<G>(square),
            Some(importance) => sum::<G>(|i| importance[i] * square(i)),
        }
    }
}
