//! What the user may say about RoPE, with the names of llama.cpp.

use std::{fmt, str::FromStr};

use super::Error;

/// Every RoPE flag, as given: `None` where it was not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flags {
    /// `--rope-scaling`: the rule.
    pub scaling: Option<Scaling>,
    /// `--rope-scale`: the factor by which the context is extended.
    pub scale: Option<f64>,
    /// `--rope-freq-scale`: its inverse.
    pub freq_scale: Option<f64>,
    /// `--rope-freq-base`: the base of the frequencies (NTK-aware scaling raises it).
    pub freq_base: Option<f64>,
    /// `--yarn-orig-ctx`: the context before the extension; 0 means that of the model.
    pub yarn_orig_ctx: Option<usize>,
    /// `--yarn-ext-factor`: how far YaRN keeps high frequencies, 0 to 1; -1 means the default.
    pub yarn_ext_factor: Option<f64>,
    /// `--yarn-attn-factor`: multiplies the attention scale; -1 means the default.
    pub yarn_attn_factor: Option<f64>,
    /// `--yarn-beta-fast`: pairs that turn more often than this are kept; -1 means the default.
    pub yarn_beta_fast: Option<f64>,
    /// `--yarn-beta-slow`: pairs that turn less often are interpolated; -1 means the default.
    pub yarn_beta_slow: Option<f64>,
}

impl Flags {
    /// These flags without those that llama.cpp's help gives as defaults, -1 for the numbers of
    /// YaRN and 0 for its context: to type a default is to say nothing.
    pub(super) fn given(&self) -> Flags {
        let not_default = |x: &f64| *x != -1.0;
        Flags {
            yarn_orig_ctx: self.yarn_orig_ctx.filter(|tokens| *tokens != 0),
            yarn_ext_factor: self.yarn_ext_factor.filter(not_default),
            yarn_attn_factor: self.yarn_attn_factor.filter(not_default),
            yarn_beta_fast: self.yarn_beta_fast.filter(not_default),
            yarn_beta_slow: self.yarn_beta_slow.filter(not_default),
            ..self.clone()
        }
    }
}

/// The scaling rules, as `--rope-scaling` and `{arch}.rope.scaling.type` name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// No scaling.
    None,
    /// Positions (or frequencies: the same) divided by the factor.
    Linear,
    /// High frequencies kept, low ones divided by the factor, a ramp between.
    Yarn,
    /// Two sets of divisors from the file, for short and for long sequences.
    LongRope,
}

impl Scaling {
    /// Every rule.
    pub const ALL: [Scaling; 4] =
        [Scaling::None, Scaling::Linear, Scaling::Yarn, Scaling::LongRope];

    /// The name, as on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Scaling::None => "none",
            Scaling::Linear => "linear",
            Scaling::Yarn => "yarn",
            Scaling::LongRope => "longrope",
        }
    }
}

impl fmt::Display for Scaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scaling {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|s| s.name() == name)
            .ok_or_else(|| Error::UnknownScaling { name: name.into() })
    }
}
