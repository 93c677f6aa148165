//! NTK-aware scaling: a larger base divides the lowest frequency by `alpha` and keeps the highest.

/// The base that extends the context by `alpha`: base · alpha^(d/(d-2)), with d = `n_rot`.
pub(super) fn base(n_rot: usize, base: f64, alpha: f64) -> f64 {
    let d = n_rot as f64;
    base * alpha.powf(d / (d - 2.0))
}

/// The `alpha` by which `base` extends a model trained with `trained`: the inverse of [`base`].
pub(super) fn alpha(n_rot: usize, trained: f64, base: f64) -> f64 {
    let d = n_rot as f64;
    (base / trained).powf((d - 2.0) / d)
}
