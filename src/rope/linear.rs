//! Plain RoPE, which every rule starts from; linear interpolation only multiplies it.

/// θ_i = base^(-2i/n_rot) for each pair i: radians per position.
pub(super) fn frequencies(n_rot: usize, base: f64) -> impl Iterator<Item = f64> {
    (0..n_rot / 2).map(move |i| base.powf(-2.0 * i as f64 / n_rot as f64))
}
