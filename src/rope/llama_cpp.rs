//! What llama.cpp would do differently, as of its tree 11434.

use super::{Divisors, Flags, Plan, Rule, Scaling, keys::is_without_factor, sourced::short};

impl Plan {
    /// Where llama.cpp, with the same file and `flags`, would not do what this plan does: one
    /// sentence each.
    pub fn unlike_llama_cpp(&self, flags: &Flags) -> Vec<String> {
        let mut all = Vec::new();
        let known =
            [Scaling::None, Scaling::Linear, Scaling::Yarn, Scaling::LongRope].map(Scaling::name);
        let scaling = self.scaling.value.name();
        if flags.auto {
            let (factor, original) = (short(self.factor.value), self.original_context.value);
            let same = match &self.rule {
                Rule::Yarn(_) => format!(
                    "--rope-scaling yarn --rope-scale {factor} --yarn-orig-ctx {original} is the same here"
                ),
                _ => "the settings of the file are all that acts here".into(),
            };
            all.push(format!("it has no --rope-scaling auto: {same}"));
        }
        if !known.contains(&scaling) {
            let why = match &self.rule {
                _ if self.scaling.value == Scaling::SelfExtend => {
                    "its --grp-attn-n follows another rule, and turns keys the wrong way"
                }
                // Attention sinks are a method beside any scaling.
                _ if !self.scaling.value.acts_on_frequencies() => {
                    "it keeps keys as they were rotated once"
                }
                Rule::Dynamic(_) | Rule::DynamicYarn(_) | Rule::Clex(_) => {
                    "it has no scaling that follows the length of a sequence"
                }
                Rule::Ntk => "the same frequencies come from --rope-freq-base",
                _ => {
                    "a file made by rope-cpu rope bake, of a llama or phi3 model, gives it the same frequencies"
                }
            };
            all.push(format!("it has no --rope-scaling {scaling}: {why}"));
        }
        if self.rolls() {
            all.push("it has no --attention-sinks: where its context shifts, half of it is dropped at once".into());
        }
        if self.shifts {
            all.push(
                "its context shift rotates keys again, and rounds them again where the cache is \
                 quantized; it drops just half of what is not kept, not whole pages of 256 tokens"
                    .into(),
            );
        }
        if let Some(trained) = &self.log_n {
            all.push(format!("it does not scale queries by log n, as here from {trained} on"));
        }
        if matches!(&self.rule, Rule::Linear | Rule::Ntk)
            && self.context.value > self.context_train.value
        {
            all.push(format!(
                "its server and llama-cli cut contexts of linear and NTK scaling down to the trained {}",
                self.context_train.value
            ));
        }
        if is_without_factor(&self.original_context) && matches!(self.rule, Rule::Yarn(_)) {
            all.push(format!(
                "it takes YaRN's original context to be {}, in which the factor of the file is counted",
                self.context_train
            ));
        }
        let own = [
            ("--yarn-ramp", flags.yarn_ramp.is_some()),
            ("--yarn-attention-factor", flags.yarn_attention_factor.is_some()),
            ("--yarn-mscale", flags.yarn_mscale.is_some()),
        ];
        for (flag, _) in own.iter().filter(|(_, given)| *given) {
            all.push(format!("it has no {flag}"));
        }
        let ramp = matches!(&self.rule, Rule::Yarn(yarn) if yarn.ext_factor.value != 0.0);
        if ramp && flags.given().yarn_attn_factor.is_some() {
            all.push("it ignores --yarn-attn-factor wherever YaRN's ramp acts".into());
        }
        if let Divisors::LongRope(sets) = &self.divisors {
            let original = sets.original_context;
            if self.context.value > original {
                all.push(format!(
                    "its context of {} tokens alone makes it use the long divisors, also for \
                     sequences of up to {original}",
                    self.context.value
                ));
            }
            all.push(
                "it computes no attention scale for LongRoPE: without \
                 rope.scaling.attn_factor in the file, its scale is 1"
                    .into(),
            );
        }
        if self.attention_scale.value != 1.0 && known.contains(&scaling) {
            all.push(
                "its context shift multiplies all cached keys by the attention scale once more, \
                 each time"
                    .into(),
            );
        }
        all.push(
            "it multiplies angles up in single precision, which is off by up to 2e-3 at position \
             16,383 and 1.5e-2 at 131,071 (base 10000)"
                .into(),
        );
        all
    }
}
