//! The differences between a plan and llama.cpp, as of its build 11434.

use super::{
    ATTENTION_SINKS, Divisors, Flags, Origin, Plan, SCALING,
    keys::is_without_factor,
    linear::{self, Linear, NONE},
    ntk::Ntk,
    sourced::short,
    yarn::{self, Yarn},
};

impl Plan {
    /// Returns the differences between this plan and llama.cpp with the same file and settings, one
    /// sentence each. "It" is llama.cpp.
    pub fn unlike_llama_cpp(&self, flags: &Flags) -> Vec<String> {
        let mut all = Vec::new();
        let scaling = self.scaling.value;
        let known = scaling.in_llama_cpp;
        let yarn = self.rule_as::<Yarn>();
        if flags.auto() {
            let (factor, original) = (short(self.factor.value), self.original_context.value);
            let same = match yarn {
                Some(_) => format!(
                    "`rope_scaling` yarn `rope_scale` {factor} `yarn_orig_ctx` {original} has the same effect"
                ),
                None => "only the settings of the file act here".into(),
            };
            all.push(format!("it has no `rope_scaling` auto: {same}"));
        }
        let computed = matches!(self.factor.origin, Origin::Computed(_));
        if computed && !flags.auto() && known && self.factor.value != 1.0 {
            let factor = short(self.factor.value);
            let original = match (yarn, &self.divisors) {
                (Some(yarn), Divisors::LongRope(_)) => {
                    format!(" `yarn_orig_ctx` {}", yarn.original_context.value)
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
                // Attention sinks are a method, but can be combined with any scaling.
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
            all.push(
                "its context shift rotates keys again, and rounds them again if the cache is quantized; it \
                 drops exactly half of the tokens that may be dropped, not whole pages of 256 tokens"
                    .into(),
            );
        }
        if let Some(trained) = &self.log_n {
            all.push(format!(
                "it does not scale queries by log n, which rope-cpu does from {trained} on"
            ));
        }
        if (self.rule_as::<Linear>().is_some() || self.rule_as::<Ntk>().is_some())
            && scaling.acts_on_frequencies()
            && self.context.value > self.context_train.value
        {
            let contexts = match self.effective_scaling() == &NONE {
                true => "the context",
                false => "contexts of linear and NTK scaling",
            };
            all.push(format!(
                "its server and llama-cli cut {contexts} down to the trained {}",
                self.context_train.value
            ));
        }
        if is_without_factor(&self.original_context) && yarn.is_some() {
            all.push(format!(
                "it uses {} as YaRN's original context, which includes the factor of the file",
                self.context_train
            ));
        }
        let own = [&yarn::RAMP, &yarn::ATTENTION_FACTOR, &yarn::MSCALE];
        for parameter in own.into_iter().filter(|own| flags.values.has(own)) {
            all.push(format!("it has no {}", parameter.setting));
        }
        let ramp = yarn.is_some_and(|yarn| yarn.ext_factor.value != 0.0);
        if ramp && flags.without_defaults().values.has(&yarn::ATTN_FACTOR) {
            all.push("it ignores `yarn_attn_factor` if YaRN's ramp is in effect".into());
        }
        if let Divisors::LongRope(sets) = &self.divisors {
            let original = sets.original_context;
            if self.context.value > original {
                all.push(format!(
                    "it selects the long divisors by its context of {} tokens, also for sequences of up to \
                     {original}",
                    self.context.value
                ));
            }
            all.push(
                "it computes no attention scale for LongRoPE: without \
                 rope.scaling.attn_factor in the file, its scale is 1"
                    .into(),
            );
        }
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
            single_precision_error(self.n_rot, self.base.value, last)
        ));
        all
    }
}

/// Returns the largest error of a cosine or sine at `position` if angles are computed as in ggml:
/// each from the angle of the previous pair, in single precision.
fn single_precision_error(n_rot: usize, base: f64, position: usize) -> f64 {
    let step = (base as f32).powf(-2.0 / n_rot as f32);
    let angles = std::iter::successors(Some(position as f32), |angle| Some(angle * step));
    let exact = linear::frequencies(n_rot, base).map(|theta| position as f64 * theta);
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
            let found = single_precision_error(128, 10_000.0, position);
            assert!((found / measured - 1.0).abs() < 0.5, "position {position}: {found:e}");
        }
        assert_eq!(single_precision_error(128, 10_000.0, 0), 0.0);
    }
}
