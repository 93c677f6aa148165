//! The properties of RoPE that a family of models has in common, and that its files do not contain.

/// A family of models, by its use of RoPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// The names of the tensors of divisors that llama.cpp uses, whatever the scaling type in the
    /// file. Such a file need not name its scaling.
    pub divisors: &'static [&'static str],
    /// Whether layers with a sliding window have the base of all layers by default.
    pub shares_base: bool,
    /// Whether the trained length in the file includes the linear factor.
    pub trained_with_factor: bool,
    /// The meaning of the key `yarn_log_multiplier`.
    pub log_multiplier: LogMultiplier,
    /// Whether the keys `yarn_beta_fast` and `yarn_beta_slow` are used.
    pub yarn_betas: bool,
    /// Whether the ends of YaRN's ramp are not rounded.
    pub exact_ramp: bool,
    /// Whether queries are scaled by their position, if the file has the key
    /// `attention.temperature_scale`.
    pub temperature: bool,
    /// Whether the key `attention.temperature_length` may set the length in place of the original
    /// context.
    pub temperature_length: bool,
    /// Whether the key `scaling.alpha` multiplies the base, by NTK's rule.
    pub alpha_in_base: bool,
    /// Whether keys are normalized after their rotation, so that they cannot rotate again.
    pub keys_are_final: bool,
}

/// The weights of YaRN's attention scale that the key `yarn_log_multiplier` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMultiplier {
    /// None: the key is ignored.
    Ignored,
    /// The weight of the denominator. The weight of the numerator is 1.
    Denominator,
    /// Both weights, which are equal. The rest of the factor is in the scale of the softmax.
    Both,
}

impl Family {
    /// The family without divisors and without any of these properties.
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
