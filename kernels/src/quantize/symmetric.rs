//! Quantization to formats without an offset: `weight = scale * quant`, with quants from `-levels`
//! to `levels - 1`.

use std::array::from_fn;

use bytemuck::must_cast_ref;
use half::f16;

use super::{best, inverse, nearest, sum};

/// Returns the weight of the largest magnitude, or 0.
#[inline(always)]
pub(crate) fn largest<const N: usize>(weights: &[f32; N]) -> f32 {
    let magnitude = weights.iter().fold(0f32, |max, weight| max.max(weight.abs()));
    weights.iter().copied().find(|weight| weight.abs() == magnitude).unwrap_or(0.0)
}

/// Returns a scale and quants plus `levels`, such that the largest weight becomes the quant
/// `-levels`. This is not the best scale, but quickly found, as in ggml.
#[inline(always)]
pub(crate) fn quick_half<const N: usize>(weights: &[f32; N], levels: f32) -> (f16, [u8; N]) {
    let scale = largest(weights) / -levels;
    let (inverse, half_up) = (inverse(scale), levels + 0.5);
    let quant = |x: f32| (x * inverse + half_up).clamp(0.0, 2.0 * levels - 1.0) as u8;
    (f16::from_f32(scale), from_fn(|i| quant(weights[i])))
}

/// Returns the largest magnitude as the scale, and each weight rounded to -1, 0 or 1, plus 1.
#[inline(always)]
pub(crate) fn ternary<const N: usize>(weights: &[f32; N]) -> (f16, [u8; N]) {
    let scale = largest(weights).abs();
    let inverse = inverse(scale);
    let quants = weights.map(|weight| {
        let weight = weight * inverse;
        1 + u8::from(weight >= 0.5) - u8::from(weight <= -0.5)
    });
    (f16::from_f32(scale), quants)
}

/// Returns the scale and the quants of a block with one scale.
#[inline(always)]
pub(crate) fn nearest_half<const N: usize>(
    weights: &[f32; N],
    importance: Option<&[f32; N]>,
    levels: f32,
) -> (f16, [f32; N]) {
    // With the first scale, the largest weight becomes the quant `-levels`.
    let scales = [largest(weights) / -levels, search(weights, importance, levels)];
    let scales = scales.map(f16::from_f32).into_iter();
    let scale = best(scales, |scale| error(weights, importance, scale.to_f32(), levels));
    let scale = scale.unwrap_or_default();
    (scale, quants(weights, scale.to_f32(), levels))
}

/// A block of 16 groups of 16 weights, each with an 8-bit scale.
pub(crate) struct SymmetricBlock {
    pub d: f16,
    pub scales: [i8; 16],
    pub quants: [[f32; 16]; 16],
}

impl SymmetricBlock {
    /// Quantizes a block.
    #[inline(always)]
    pub fn new(weights: &[f32; 256], importance: Option<&[f32; 256]>, levels: f32) -> Self {
        let groups: &[[f32; 16]; 16] = must_cast_ref(weights);
        let importance: Option<&[[f32; 16]; 16]> = importance.map(must_cast_ref);
        let importance = |g: usize| importance.map(|all| &all[g]);
        let scales: [f32; 16] = from_fn(|g| search(&groups[g], importance(g), levels));
        let d = f16::from_f32(largest(&scales) / -128.0);
        let one = d.to_f32();
        let scales = from_fn(|g| {
            let middle = nearest(scales[g] * inverse(one), -128.0, 127.0);
            let near = [0.0, -1.0, 1.0].map(|step| (middle + step).clamp(-128.0, 127.0));
            let error = |scale| error(&groups[g], importance(g), one * scale, levels);
            best(near.into_iter(), error).unwrap_or(0.0)
        });
        let quants = from_fn(|g| quants(&groups[g], one * scales[g], levels));
        SymmetricBlock { d, scales: scales.map(|scale| scale as i8), quants }
    }
}

/// Returns the least-squares scale over 19 roundings (`make_qx_quants`). Without `importance`, each
/// weight counts in proportion to its square.
#[inline(always)]
fn search<const N: usize>(weights: &[f32; N], importance: Option<&[f32; N]>, levels: f32) -> f32 {
    let largest = largest(weights);
    // Relative to the largest weight, so that fourth powers stay finite.
    let per_largest = inverse(largest);
    let weights = weights.map(|weight| weight * per_largest);
    let (mut scale, mut gain) = (0.0, 0.0);
    for step in -9..=9 {
        let inverse = -(levels + 0.1 * step as f32);
        let quants = weights.map(|weight| nearest(weight * inverse, -levels, levels - 1.0));
        let importance = |i: usize| match importance {
            Some(importance) => importance[i],
            None => weights[i] * weights[i],
        };
        let product = sum::<N>(|i| importance(i) * weights[i] * quants[i]);
        let square = sum::<N>(|i| importance(i) * quants[i] * quants[i]);
        // The gain is the sum of squares of the weights less the sum of squares of the errors.
        if product * product > gain * square {
            (scale, gain) = (product / square, product * product / square);
        }
    }
    scale * largest
}

/// Returns the quants with the nearest values to `weights`.
#[inline(always)]
fn quants<const N: usize>(weights: &[f32; N], scale: f32, levels: f32) -> [f32; N] {
    let inverse = inverse(scale);
    weights.map(|weight| nearest(weight * inverse, -levels, levels - 1.0))
}

/// Returns the sum of squares of the errors of `weights`.
#[inline(always)]
fn error<const N: usize>(
    weights: &[f32; N],
    importance: Option<&[f32; N]>,
    scale: f32,
    levels: f32,
) -> f32 {
    let quants = quants(weights, scale, levels);
    let square = |i: usize| (scale * quants[i] - weights[i]).powi(2);
    match importance {
        None => sum::<N>(square),
        Some(importance) => sum::<N>(|i| importance[i] * square(i)),
    }
}
