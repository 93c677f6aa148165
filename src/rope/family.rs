//! Properties of RoPE that a family of models shares, and that its files do not contain.

/// How a family of models uses RoPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// The names of divisor tensors that llama.cpp uses whatever the file's scaling type is. A file
    /// with them may omit the scaling type.
    pub divisors: &'static [&'static str],
    /// Whether sliding-window layers have the base of the other layers by default.
    pub shares_base: bool,
    /// Whether the trained length in the file includes the linear factor.
    pub trained_with_factor: bool,
    /// What the key `yarn_log_multiplier` means.
    pub log_multiplier: LogMultiplier,
    /// Whether the keys `yarn_beta_fast` and `yarn_beta_slow` are used.
    pub yarn_betas: bool,
    /// Whether the ends of YaRN's ramp are not rounded.
    pub exact_ramp: bool,
    /// Whether queries are scaled by position if the file has the key
    /// `attention.temperature_scale`.
    pub temperature: bool,
    /// Whether the key `attention.temperature_length` replaces the original context.
    pub temperature_length: bool,
    /// Whether the key `scaling.alpha` multiplies the base, by NTK's rule.
    pub alpha_in_base: bool,
    /// Whether keys are normalized after rotation, so they cannot be rotated again.
    pub keys_are_final: bool,
}

/// The weights of YaRN's attention scale that the key `yarn_log_multiplier` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMultiplier {
    /// None: the key is ignored.
    Ignored,
    /// The weight of the denominator. The weight of the numerator is 1.
    Denominator,
    /// Both weights, which are equal. The rest of the factor is in the softmax scale.
    Both,
}

impl Family {
    /// A family without divisors and without any of these properties.
    pub const PLAIN: Self = Family {
        divisors: &[],
        shares_base: false,
        trained_with_factor: false,
        log_multiplier: LogMultiplier::Ignored,
        yarn_betas: false,
        exact_ramp: false,
        temperature: false,
        temperature_length: false,
        alpha_in_base: false,
        keys_are_final: false,
    };
}
