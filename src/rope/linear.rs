//! The frequencies of RoPE without scaling, and linear interpolation, which divides them.
//!
//! Su et al., "RoFormer" (arXiv:2104.09864), equation 15; Chen et al., "Extending Context Window of
//! Large Language Models via Positional Interpolation" (arXiv:2306.15595), equation 4: positions are
//! divided by the factor, which is equivalent to dividing the frequencies.

/// Returns θ_i = base^(-2i/n_rot) for each pair i, in radians per position.
pub(super) fn frequencies(n_rot: usize, base: f64) -> impl Iterator<Item = f64> {
    (0..n_rot / 2).map(move |i| base.powf(-2.0 * i as f64 / n_rot as f64))
}

/// Divides all frequencies by `factor`.
pub(super) fn scale(inv_freq: &mut [f64], factor: f64) {
    let freq_scale = 1.0 / factor;
    inv_freq.iter_mut().for_each(|theta| *theta *= freq_scale);
}
