//! The properties of RoPE that a family of models has in common, and that its files do not contain.

/// A family of models, by its use of RoPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// The names of the tensors of divisors that llama.cpp uses, whatever the scaling type in the
    /// file. A file that has LongRoPE's divisors then does not name its scaling.
    pub divisors: &'static [&'static str],
    /// Whether the default base in layers with a sliding window is that of all layers.
    pub shares_base: bool,
    /// Whether the trained length in the file includes the linear factor.
    pub trained_with_factor: bool,
    /// The meaning of the key `yarn_log_multiplier`.
    pub log_multiplier: LogMultiplier,
}

/// The weights of YaRN's attention scale that the key `yarn_log_multiplier` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMultiplier {
    /// None: the key is ignored.
    Ignored,
    /// The weight of the denominator. That of the numerator is 1.
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
    };
}
