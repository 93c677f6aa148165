//! How a plan differs from llama.cpp, as of its build 11434.

use rope_cpu_kernels::attention::PAGE;

use super::{ATTENTION_SINKS, Flags, Origin, Plan, SCALING, auto, linear, sourced::short};

impl Plan {
    /// Returns the differences between this plan and llama.cpp with the same file and settings, one
    /// sentence each. "It" is llama.cpp.
    pub fn unlike_llama_cpp(&self, flags: &Flags) -> Vec<String> {
        let mut all = Vec::new();
        let scaling = self.scaling.value;
        let known = scaling.in_llama_cpp;
        if flags.auto() {
            all.push(auto::unlike_llama_cpp(self));
        }
        let computed = matches!(self.factor.origin, Origin::Computed(_));
        if computed && !flags.auto() && known && self.factor.value != 1.0 {
            let factor = short(self.factor.value);
            let original = match (self.rule.original_context(), &self.divisors) {
                (Some(original), Some(sets)) if sets.reach_trained() => {
                    format!(" `yarn_orig_ctx` {}", original.value)
                }
                _ => String::new(),
            };
            all.push(format!(
                "it does not compute a factor from the context: without `rope_scale` {factor}{original} it \
                 does not scale"
            ));
        }
        if !known {
            let why = match &self.method {
                // Attention sinks are a method, but combine with any scaling.
                Some(method) if !scaling.acts_on_frequencies() => method.in_llama_cpp().into(),
                _ => self.rule.in_llama_cpp(self),
            };
            all.push(format!("it has no {} {scaling}: {why}", SCALING.setting));
        }
        if self.rolls() {
            all.push(format!(
                "it has no {}: its context shift drops half of the context at once",
                ATTENTION_SINKS.setting
            ));
        }
        if self.shifts {
            all.push(format!(
                "its context shift rotates keys again, and rounds them again if the cache is quantized; it \
                 drops exactly half of the tokens that may be dropped, not whole pages of {PAGE} tokens"
            ));
        }
        if let Some(trained) = &self.log_n {
            all.push(format!(
                "it does not scale queries by log n, which rope-cpu does from {trained} on"
            ));
        }
        all.extend(self.rule.unlike_llama_cpp(self, flags));
        all.extend(self.divisors.iter().flat_map(|divisors| divisors.unlike_llama_cpp(self)));
        if self.attention_scale.value != 1.0 && known {
            all.push(
                "its context shift multiplies all cached keys by the attention scale again, each \
                 time"
                    .into(),
            );
        }
        let last = self.context.value.saturating_sub(1);
        all.push(format!(
            "it computes angles by repeated multiplication in single precision: at position {last}, cosines \
             and sines are off by up to {:.0e}, before the attention scale",
            single_precision_error(self.n_rot, self.turning, self.base.value, last)
        ));
        all
    }
}

/// Returns the largest error of a cosine or sine at `position` if angles are computed like ggml's:
/// in single precision, each from the previous pair's angle.
fn single_precision_error(n_rot: usize, turning: usize, base: f64, position: usize) -> f64 {
    let step = (base as f32).powf(-2.0 / n_rot as f32);
    let angles = std::iter::successors(Some(position as f32), |angle| Some(angle * step));
    let exact = linear::frequencies(n_rot, base).take(turning / 2);
    let exact = exact.map(|theta| position as f64 * theta);
    let error = |(exact, found): (f64, f32)| {
        let (sin, cos) = exact.sin_cos();
        let (found_sin, found_cos) = found.sin_cos();
        (f64::from(found_sin) - sin).abs().max((f64::from(found_cos) - cos).abs())
    };
    exact.zip(angles).map(error).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::single_precision_error;

    /// The expected errors were measured with ggml's kernel, for 128 dimensions and base 10000.
    #[test]
    fn errors_are_those_of_ggml() {
        for (position, measured) in
            [(1, 1.6e-7), (100, 1.2e-5), (4095, 6.3e-4), (16_383, 2.1e-3), (131_071, 1.5e-2)]
        {
            let found = single_precision_error(128, 128, 10_000.0, position);
            assert!((found / measured - 1.0).abs() < 0.5, "position {position}: {found:e}");
        }
        assert_eq!(single_precision_error(128, 128, 10_000.0, 0), 0.0);
    }
}
