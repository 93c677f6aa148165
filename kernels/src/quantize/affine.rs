//! Quantization to formats with an offset: `weight = scale * quant - minimum`, with quants from 0
//! to `levels`.

use std::array::from_fn;

use half::f16;

use super::{best, inverse, nearest, sum};

/// A block of eight groups of 32 weights, each with a 6-bit scale and a 6-bit minimum.
pub(crate) struct AffineBlock {
    pub d: f16,
    pub dmin: f16,
    pub scales: [u8; 8],
    pub minimums: [u8; 8],
    pub quants: [[u8; 32]; 8],
}

impl AffineBlock {
    /// Quantizes a block, trying the scales of ranges of `levels + step / 10` quants for each of
    /// `steps`.
    #[inline(always)]
    pub fn new(weights: &[f32; 256], levels: f32, steps: std::ops::RangeInclusive<i32>) -> Self {
        let groups: &[[f32; 32]; 8] = bytemuck::must_cast_ref(weights);
        let fits = groups.each_ref().map(|group| LinearFit::search(group, levels, steps.clone()));
        let scale_of =
            |values: [f32; 8]| f16::from_f32(values.into_iter().fold(0.0, f32::max) / 63.0);
        let d = scale_of(fits.map(|fit| fit.scale));
        let dmin = scale_of(fits.map(|fit| fit.minimum));
        let (one, one_min) = (d.to_f32(), dmin.to_f32());

        let near = |value: f32| {
            let middle = nearest(value, 0.0, 63.0);
            [0.0, -1.0, 1.0].map(|step| (middle + step).clamp(0.0, 63.0))
        };
        let chosen: [(f32, f32); 8] = from_fn(|g| {
            let scales = near(fits[g].scale * inverse(one));
            let minimums = near(fits[g].minimum * inverse(one_min));
            let pairs = (0..9).map(|i| (scales[i / 3], minimums[i % 3]));
            let error = |(scale, minimum)| {
                let fit = LinearFit { scale: one * scale, minimum: one_min * minimum };
                fit.error(&groups[g], levels)
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
    /// Searches for the least-squares fit, with more weight for large weights, over several
    /// roundings (`make_qkx2_quants`). The minimum is not negative.
    #[inline(always)]
    fn search(weights: &[f32; 32], levels: f32, steps: std::ops::RangeInclusive<i32>) -> LinearFit {
        let lowest = weights.iter().copied().fold(0.0, f32::min);
        let highest = weights.iter().copied().fold(f32::MIN, f32::max);
        if highest <= lowest {
            return LinearFit { scale: 0.0, minimum: -lowest };
        }
        let mean = (sum::<32>(|i| weights[i] * weights[i]) / 32.0).sqrt();
        let importance = weights.map(|weight| mean + weight.abs());
        let all = sum::<32>(|i| importance[i]);
        let weighted = sum::<32>(|i| importance[i] * weights[i]);
        let error = |fit: LinearFit, quants: &[f32; 32]| {
            sum::<32>(|i| {
                importance[i] * (fit.scale * quants[i] - fit.minimum - weights[i]).powi(2)
            })
        };

        let widest = LinearFit { scale: (highest - lowest) / levels, minimum: -lowest };
        let mut found = (widest, error(widest, &widest.quants(weights, levels)));
        for step in steps {
            // Starts from the best minimum so far.
            let lowest = -found.0.minimum;
            let inverse = (levels + 0.1 * step as f32) / (highest - lowest);
            let quants = weights.map(|weight| nearest((weight - lowest) * inverse, 0.0, levels));
            let once = sum::<32>(|i| importance[i] * quants[i]);
            let squares = sum::<32>(|i| importance[i] * quants[i] * quants[i]);
            let products = sum::<32>(|i| importance[i] * quants[i] * weights[i]);
            let determinant = all * squares - once * once;
            if determinant.is_nan() || determinant <= 0.0 {
                continue;
            }
            let scale = (all * products - weighted * once) / determinant;
            let minimum = (once * products - squares * weighted) / determinant;
            let fit = if minimum < 0.0 {
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

    /// Returns the quants with the nearest values to `weights`.
    #[inline(always)]
    pub fn quants(self, weights: &[f32; 32], levels: f32) -> [f32; 32] {
        let inverse = inverse(self.scale);
        weights.map(|weight| nearest((weight + self.minimum) * inverse, 0.0, levels))
    }

    /// Returns the sum of squares of the errors of `weights`.
    #[inline(always)]
    fn error(self, weights: &[f32; 32], levels: f32) -> f32 {
        let quants = self.quants(weights, levels);
        sum::<32>(|i| (self.scale * quants[i] - self.minimum - weights[i]).powi(2))
    }
}
