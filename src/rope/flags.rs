//! The RoPE settings of a user, named as in llama.cpp.

use std::{fmt, str::FromStr};

use super::{Activation, ClexWeights, Direction, Error, Policy, Ramp, Variant, error};

/// The RoPE flags as set by the user; `None` if a flag is not set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flags {
    /// `--rope-scaling`: the rule.
    pub scaling: Option<Scaling>,
    /// `--rope-scaling auto`: whether the method is chosen for the context.
    pub auto: bool,
    /// `--rope-scale`: the factor by which the context is extended.
    pub scale: Option<f64>,
    /// `--rope-freq-scale`: the inverse of that factor.
    pub freq_scale: Option<f64>,
    /// Whether a factor that no flag sets is computed to reach the context even if the file has one,
    /// so that methods can be compared at a length.
    pub for_context: bool,
    /// `--rope-freq-base`: the base of the frequencies (NTK-aware scaling raises it).
    pub freq_base: Option<f64>,
    /// `--yarn-orig-ctx`: the original context in tokens, before any extension, for all rules that use
    /// it; 0 means the default, that of the model.
    pub yarn_orig_ctx: Option<usize>,
    /// `--yarn-ext-factor`: the share of high frequencies that YaRN keeps, from 0 to 1; -1 means the
    /// default.
    pub yarn_ext_factor: Option<f64>,
    /// `--yarn-attn-factor`: a factor of the attention scale; -1 means the default.
    pub yarn_attn_factor: Option<f64>,
    /// `--yarn-beta-fast`: the number of turns above which a frequency is kept; -1 means the default.
    pub yarn_beta_fast: Option<f64>,
    /// `--yarn-beta-slow`: the number of turns below which a frequency is interpolated; -1 means the
    /// default.
    pub yarn_beta_slow: Option<f64>,
    /// `--yarn-ramp`: the form of YaRN's ramp (Hugging Face's `truncate: false` is the exact one).
    pub yarn_ramp: Option<Ramp>,
    /// `--yarn-attention-factor`: the attention scale, as Hugging Face's `attention_factor`.
    pub yarn_attention_factor: Option<f64>,
    /// `--yarn-mscale`: Hugging Face's `mscale`, the weight in the numerator of the attention scale.
    pub yarn_mscale: Option<f64>,
    /// `--yarn-mscale-all-dim`: Hugging Face's `mscale_all_dim`, the weight in the denominator.
    pub yarn_mscale_all_dim: Option<f64>,
    /// `--dynamic-variant`: the formula of dynamic NTK.
    pub dynamic_variant: Option<Variant>,
    /// `--dynamic-target`: C', the length in tokens up to which the second formula of Fu et al. is
    /// constant.
    pub dynamic_target: Option<usize>,
    /// `--rope-step`: lengths are rounded up to a multiple of this number of tokens, if the
    /// frequencies depend on the length.
    pub step: Option<usize>,
    /// `--rope-policy`: the length that the frequencies of a token depend on.
    pub policy: Option<Policy>,
    /// `--rerope-window`: w, the distance up to which ReRoPE changes nothing.
    pub rerope_window: Option<usize>,
    /// `--rerope-k`: k, the divisor of distances beyond w in leaky ReRoPE.
    pub rerope_k: Option<usize>,
    /// `--grp-attn-n`: G, the group size of Self-Extend.
    pub grp_attn_n: Option<usize>,
    /// `--grp-attn-w`: W, the distance below which Self-Extend changes nothing.
    pub grp_attn_w: Option<usize>,
    /// `--lm-infinite-global`: the number of first tokens that LM-Infinite attends to.
    pub lm_infinite_global: Option<usize>,
    /// `--lm-infinite-local`: the number of last tokens that LM-Infinite attends to.
    pub lm_infinite_local: Option<usize>,
    /// `--attention-sinks`: the number of first tokens that a rolling context keeps.
    pub attention_sinks: Option<usize>,
    /// `--context-shift`: whether the oldest tokens are removed when the context is full.
    pub context_shift: bool,
    /// `--rope-log-n`: whether queries are scaled by the logarithm of their position.
    pub log_n: Option<bool>,
    /// `--ntk-mixed-exponent`: b, the exponent of the pair index in NTK-RoPE-mixed.
    pub ntk_mixed_exponent: Option<f64>,
    /// `--llama3-low-freq-factor`: the number of turns below which a frequency is divided.
    pub llama3_low_freq_factor: Option<f64>,
    /// `--llama3-high-freq-factor`: the number of turns above which a frequency is kept.
    pub llama3_high_freq_factor: Option<f64>,
    /// `--dprope-intervals`: b, the number of intervals of the circle.
    pub dprope_intervals: Option<usize>,
    /// `--dprope-threshold`: t; a pair is interpolated if that reduces its disturbance by more than t.
    pub dprope_threshold: Option<f64>,
    /// `--dprope-dims`: n̂, the number of dimensions to interpolate.
    pub dprope_dims: Option<usize>,
    /// `--dprope-direction`: the direction of the divergence that measures the disturbance.
    pub dprope_direction: Option<Direction>,
    /// `--clex-weights`: the weight matrices of CLEX's equation.
    pub clex_weights: Option<ClexWeights>,
    /// `--clex-step`: the step size of the solver.
    pub clex_step: Option<f64>,
    /// `--clex-activation`: the activation function between the matrices.
    pub clex_activation: Option<Activation>,
}

impl Flags {
    /// Returns whether these flags make the context roll (attention sinks).
    pub fn rolls(&self) -> bool {
        self.attention_sinks.is_some()
    }

    /// Returns these flags without those set to a value that means the default, as in llama.cpp: -1
    /// for the numbers of YaRN and 0 for its original context.
    pub(super) fn without_defaults(&self) -> Flags {
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

    /// Returns only the flags that act with every method.
    pub(super) fn method_independent(&self) -> Flags {
        Flags {
            log_n: self.log_n,
            attention_sinks: self.attention_sinks,
            context_shift: self.context_shift,
            policy: self.policy,
            ..Flags::default()
        }
    }

    /// Returns the first flag that sets a value which `--rope-scaling auto` chooses.
    pub(super) fn first_conflict_with_auto(&self) -> Option<&'static str> {
        let values = [
            ("--rope-scale", self.scale.is_some()),
            ("--rope-freq-scale", self.freq_scale.is_some()),
            ("--rope-freq-base", self.freq_base.is_some()),
            ("--yarn-attn-factor", self.yarn_attn_factor.is_some()),
        ];
        let parameters = self.parameters().map(|(flag, is_set, _)| (flag, is_set));
        values.into_iter().chain(parameters).find_map(|(flag, is_set)| is_set.then_some(flag))
    }

    /// Returns the flags that are parameters of a method: the name, whether it is set, and the methods
    /// that it applies to.
    pub(super) fn parameters(&self) -> [(&'static str, bool, &'static [Scaling]); 27] {
        use Scaling::{
            Clex, DpRope, Dynamic, DynamicYarn, LeakyReRope, Llama3, LmInfinite, Ntk, NtkMixed,
            ReRope, SelfExtend,
        };
        const EXTENDING: &[Scaling] = &[
            Scaling::Yarn,
            Ntk,
            NtkMixed,
            Dynamic,
            DynamicYarn,
            Llama3,
            DpRope,
            Clex,
            ReRope,
            LeakyReRope,
            SelfExtend,
            LmInfinite,
        ];
        const YARN: &[Scaling] = &[Scaling::Yarn, DynamicYarn];
        let f = self;
        [
            ("--yarn-orig-ctx", f.yarn_orig_ctx.is_some(), EXTENDING),
            ("--yarn-ext-factor", f.yarn_ext_factor.is_some(), YARN),
            ("--yarn-beta-fast", f.yarn_beta_fast.is_some(), YARN),
            ("--yarn-beta-slow", f.yarn_beta_slow.is_some(), YARN),
            ("--yarn-ramp", f.yarn_ramp.is_some(), YARN),
            ("--yarn-attention-factor", f.yarn_attention_factor.is_some(), YARN),
            ("--yarn-mscale", f.yarn_mscale.is_some(), YARN),
            ("--yarn-mscale-all-dim", f.yarn_mscale_all_dim.is_some(), YARN),
            ("--dynamic-variant", f.dynamic_variant.is_some(), &[Dynamic]),
            ("--dynamic-target", f.dynamic_target.is_some(), &[Dynamic]),
            ("--rope-step", f.step.is_some(), &[Dynamic, DynamicYarn]),
            ("--rerope-window", f.rerope_window.is_some(), &[ReRope, LeakyReRope]),
            ("--rerope-k", f.rerope_k.is_some(), &[LeakyReRope]),
            ("--grp-attn-n", f.grp_attn_n.is_some(), &[SelfExtend]),
            ("--grp-attn-w", f.grp_attn_w.is_some(), &[SelfExtend]),
            ("--lm-infinite-global", f.lm_infinite_global.is_some(), &[LmInfinite]),
            ("--lm-infinite-local", f.lm_infinite_local.is_some(), &[LmInfinite]),
            ("--ntk-mixed-exponent", f.ntk_mixed_exponent.is_some(), &[NtkMixed]),
            ("--llama3-low-freq-factor", f.llama3_low_freq_factor.is_some(), &[Llama3]),
            ("--llama3-high-freq-factor", f.llama3_high_freq_factor.is_some(), &[Llama3]),
            ("--dprope-intervals", f.dprope_intervals.is_some(), &[DpRope]),
            ("--dprope-threshold", f.dprope_threshold.is_some(), &[DpRope]),
            ("--dprope-dims", f.dprope_dims.is_some(), &[DpRope]),
            ("--dprope-direction", f.dprope_direction.is_some(), &[DpRope]),
            ("--clex-weights", f.clex_weights.is_some(), &[Clex]),
            ("--clex-step", f.clex_step.is_some(), &[Clex]),
            ("--clex-activation", f.clex_activation.is_some(), &[Clex]),
        ]
    }
}

/// The RoPE scalings, as named by `--rope-scaling` and `{arch}.rope.scaling.type`: rules that change
/// frequencies, and methods that change distances, which only `--rope-scaling` can select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// No scaling.
    None,
    /// All frequencies (or, equivalently, positions) are divided by the factor.
    Linear,
    /// NTK-aware scaling, as by a larger base: the lower a frequency, the more it is divided.
    Ntk,
    /// NTK-RoPE-mixed: as NTK, but spread by a power of the pair index.
    NtkMixed,
    /// Dynamic NTK: depends on the length of the sequence.
    Dynamic,
    /// YaRN: high frequencies are kept, low ones divided by the factor, with a ramp between.
    Yarn,
    /// Dynamic YaRN: depends on the length of the sequence.
    DynamicYarn,
    /// Llama 3.1's rule: as YaRN, with another ramp.
    Llama3,
    /// LongRoPE: two sets of divisors in the file, for short and for long sequences.
    LongRope,
    /// DPRoPE: each frequency is kept or divided, whichever disturbs its angles less.
    DpRope,
    /// CLEX: a learned equation that depends on the length of the sequence.
    Clex,
    /// ReRoPE: distances are at most a window.
    ReRope,
    /// Leaky ReRoPE: distances beyond a window are divided.
    LeakyReRope,
    /// Self-Extend: distances beyond a window are those of groups of tokens.
    SelfExtend,
    /// LM-Infinite: only the first and the last tokens are visible.
    LmInfinite,
}

/// A value of `--rope-scaling`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalingChoice {
    /// `auto`: the method is chosen for the context.
    Auto,
    /// A named scaling.
    Scaling(Scaling),
}

impl FromStr for ScalingChoice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name.parse().map(ScalingChoice::Scaling) {
            Err(_) if name == "auto" => Ok(ScalingChoice::Auto),
            Err(Error::Unknown { kind, name, known }) => {
                Err(Error::Unknown { kind, name, known: format!("{known}, auto") })
            }
            found => found,
        }
    }
}

impl Scaling {
    /// All scalings.
    pub const ALL: [Scaling; 15] = [
        Scaling::None,
        Scaling::Linear,
        Scaling::Ntk,
        Scaling::NtkMixed,
        Scaling::Dynamic,
        Scaling::Yarn,
        Scaling::DynamicYarn,
        Scaling::Llama3,
        Scaling::LongRope,
        Scaling::DpRope,
        Scaling::Clex,
        Scaling::ReRope,
        Scaling::LeakyReRope,
        Scaling::SelfExtend,
        Scaling::LmInfinite,
    ];

    /// Returns true if the scaling changes frequencies, and false if it changes attention.
    pub fn acts_on_frequencies(self) -> bool {
        use Scaling::{LeakyReRope, LmInfinite, ReRope, SelfExtend};
        !matches!(self, ReRope | LeakyReRope | SelfExtend | LmInfinite)
    }

    /// Returns whether llama.cpp has this scaling, under the same name.
    pub fn is_in_llama_cpp(self) -> bool {
        matches!(self, Scaling::None | Scaling::Linear | Scaling::Yarn | Scaling::LongRope)
    }

    /// Returns the scaling in effect with `factor`: linear scaling by 1 is none.
    pub(super) fn with_factor(self, factor: f64) -> Scaling {
        if self == Scaling::Linear && factor == 1.0 { Scaling::None } else { self }
    }

    /// Returns the name, as on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Scaling::None => "none",
            Scaling::Linear => "linear",
            Scaling::Ntk => "ntk",
            Scaling::NtkMixed => "ntk-mixed",
            Scaling::Dynamic => "dynamic",
            Scaling::Yarn => "yarn",
            Scaling::DynamicYarn => "dynamic-yarn",
            Scaling::Llama3 => "llama3",
            Scaling::LongRope => "longrope",
            Scaling::DpRope => "dprope",
            Scaling::Clex => "clex",
            Scaling::ReRope => "rerope",
            Scaling::LeakyReRope => "leaky-rerope",
            Scaling::SelfExtend => "self-extend",
            Scaling::LmInfinite => "lm-infinite",
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
        error::one_of("RoPE scaling", name, &Self::ALL, Self::name)
    }
}
