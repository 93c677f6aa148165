//! What a RoPE rule does to frequencies.

/// What a rule does to the frequency of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrequencyChange {
    /// The frequency is unchanged, so a longer sequence has larger angles than in training.
    Extrapolated,
    /// The frequency is divided by at least the factor that the length needs, so no angle is larger
    /// than in training.
    Interpolated,
    /// The frequency is divided by less than the factor that the length needs.
    Between,
    /// The frequency is unchanged, in a sequence within the trained length.
    Trained,
}

impl FrequencyChange {
    /// Classifies a frequency by its `ratio` to the trained one. `needed` is the trained length over
    /// the largest distance.
    ///
    /// ```
    /// use rope_cpu_lab::frequencies::FrequencyChange;
    ///
    /// let twice_the_context = |ratio| FrequencyChange::of(ratio, 0.5).name();
    /// assert_eq!(twice_the_context(1.0), "extrapolated");
    /// assert_eq!(twice_the_context(0.7), "between");
    /// assert_eq!(twice_the_context(0.5), "interpolated");
    /// ```
    pub fn of(ratio: f64, needed: f64) -> Self {
        const ROUNDING: f64 = 1e-6; // factors may be given with few digits
        match ratio {
            ratio if ratio <= needed * (1.0 + ROUNDING) => match (ratio - 1.0).abs() {
                ..=ROUNDING => FrequencyChange::Trained,
                _ => FrequencyChange::Interpolated,
            },
            ratio if ratio >= 1.0 - ROUNDING => FrequencyChange::Extrapolated,
            _ => FrequencyChange::Between,
        }
    }

    /// Returns the name of the change.
    pub fn name(self) -> &'static str {
        match self {
            FrequencyChange::Extrapolated => "extrapolated",
            FrequencyChange::Interpolated => "interpolated",
            FrequencyChange::Between => "between",
            FrequencyChange::Trained => "as trained",
        }
    }
}

/// Returns the upper bound of the attention score at a distance, for the angles per position of each
/// pair and the attention scale.
///
/// It is the mean of |S_j| with S_j = Σ_{k<j} e^{i m θ_k}, from section 3.4.3 of RoFormer
/// (arXiv:2104.09864), times the square of the attention scale.
pub fn decay(inv_freq: &[f64], scale: f64, distance: f64) -> f64 {
    let (mut re, mut im, mut sum) = (0.0, 0.0, 0.0);
    for theta in inv_freq {
        let (sin, cos) = (distance * theta).sin_cos();
        re += cos;
        im += sin;
        sum += f64::hypot(re, im);
    }
    sum / inv_freq.len() as f64 * scale * scale
}
