//! The differences between a plan and llama.cpp, as of its build 11434.

use super::{
    Divisors, Flags, Origin, Plan, Rule, Scaling, keys::is_without_factor, linear, ntk,
    sourced::short,
};

impl Plan {
    /// Returns the differences between this plan and llama.cpp with the same file and `flags`, one
    /// sentence each. "It" is llama.cpp.
    pub fn unlike_llama_cpp(&self, flags: &Flags) -> Vec<String> {
        let mut all = Vec::new();
        let scaling = self.scaling.value;
        let known = scaling.is_in_llama_cpp();
        if flags.auto {
            let (factor, original) = (short(self.factor.value), self.original_context.value);
            let same = match &self.rule {
                Rule::Yarn(_) => format!(
                    "--rope-scaling yarn --rope-scale {factor} --yarn-orig-ctx {original} has the same effect"
                ),
                _ => "only the settings of the file act here".into(),
            };
            all.push(format!("it has no --rope-scaling auto: {same}"));
        }
        let computed = matches!(self.factor.origin, Origin::Computed(_));
        if computed && !flags.auto && known && self.factor.value != 1.0 {
            let factor = short(self.factor.value);
            let original = match (&self.rule, &self.divisors) {
                (Rule::Yarn(yarn), Divisors::LongRope(_)) => {
                    format!(" --yarn-orig-ctx {}", yarn.original_context.value)
                }
                _ => String::new(),
            };
            all.push(format!(
                "it does not compute a factor from the context: without --rope-scale {factor}{original} it \
                 does not scale"
            ));
        }
        if !known {
            let why = match &self.rule {
                _ if self.scaling.value == Scaling::SelfExtend => {
                    "its --grp-attn-n follows another rule, and rotates keys in the wrong direction"
                }
                // Attention sinks are a method, but can be combined with any scaling.
                _ if !self.scaling.value.acts_on_frequencies() => {
                    "it rotates keys only once, when they are stored"
                }
                Rule::Dynamic(_) | Rule::DynamicYarn(_) | Rule::Clex(_) => {
                    "it has no scaling that depends on the length of the sequence"
                }
                Rule::Ntk => {
                    let base = ntk::base(self.n_rot, self.base.value, self.factor.value);
                    &format!("--rope-freq-base {} gives the same frequencies", short(base))
                }
                _ => {
                    "for llama and phi3 models, a file made by rope-cpu rope bake gives it the same frequencies"
                }
            };
            all.push(format!("it has no --rope-scaling {scaling}: {why}"));
        }
        if self.rolls() {
            all.push(
                "it has no --attention-sinks: its context shift drops half of the context at once"
                    .into(),
            );
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
        if matches!(&self.rule, Rule::Linear | Rule::Ntk)
            && scaling.acts_on_frequencies()
            && self.context.value > self.context_train.value
        {
            let contexts = match self.effective_scaling() {
                Scaling::None => "the context",
                _ => "contexts of linear and NTK scaling",
            };
            all.push(format!(
                "its server and llama-cli cut {contexts} down to the trained {}",
                self.context_train.value
            ));
        }
        if is_without_factor(&self.original_context) && matches!(self.rule, Rule::Yarn(_)) {
            all.push(format!(
                "it uses {} as YaRN's original context, which includes the factor of the file",
                self.context_train
            ));
        }
        let own = [
            ("--yarn-ramp", flags.yarn_ramp.is_some()),
            ("--yarn-attention-factor", flags.yarn_attention_factor.is_some()),
            ("--yarn-mscale", flags.yarn_mscale.is_some()),
        ];
        for (flag, _) in own.iter().filter(|(_, is_set)| *is_set) {
            all.push(format!("it has no {flag}"));
        }
        let ramp = matches!(&self.rule, Rule::Yarn(yarn) if yarn.ext_factor.value != 0.0);
        if ramp && flags.without_defaults().yarn_attn_factor.is_some() {
            all.push("it ignores --yarn-attn-factor if YaRN's ramp is in effect".into());
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
