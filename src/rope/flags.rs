//! What the user may say about RoPE, with the names of llama.cpp.

use std::{fmt, str::FromStr};

use super::{Activation, ClexWeights, Direction, Error, Policy, Ramp, Variant, error};

/// Every RoPE flag, as given: `None` where it was not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flags {
    /// `--rope-scaling`: the rule.
    pub scaling: Option<Scaling>,
    /// `--rope-scaling auto`: the rule that the context needs.
    pub auto: bool,
    /// `--rope-scale`: the factor by which the context is extended.
    pub scale: Option<f64>,
    /// `--rope-freq-scale`: its inverse.
    pub freq_scale: Option<f64>,
    /// Whether a factor that no flag gives is what reaches the context even where the file gives
    /// one, so that methods can be compared at a length.
    pub for_context: bool,
    /// `--rope-freq-base`: the base of the frequencies (NTK-aware scaling raises it).
    pub freq_base: Option<f64>,
    /// `--yarn-orig-ctx`: the context before the extension, for any rule that needs it; 0 means
    /// that of the model.
    pub yarn_orig_ctx: Option<usize>,
    /// `--yarn-ext-factor`: how far YaRN keeps high frequencies, 0 to 1; -1 means the default.
    pub yarn_ext_factor: Option<f64>,
    /// `--yarn-attn-factor`: multiplies the attention scale; -1 means the default.
    pub yarn_attn_factor: Option<f64>,
    /// `--yarn-beta-fast`: pairs that turn more often than this are kept; -1 means the default.
    pub yarn_beta_fast: Option<f64>,
    /// `--yarn-beta-slow`: pairs that turn less often are interpolated; -1 means the default.
    pub yarn_beta_slow: Option<f64>,
    /// `--yarn-ramp`: the form of the ramp (Hugging Face's `truncate: false` is the exact one).
    pub yarn_ramp: Option<Ramp>,
    /// `--yarn-attention-factor`: the attention scale itself, as Hugging Face's `attention_factor`.
    pub yarn_attention_factor: Option<f64>,
    /// `--yarn-mscale`: Hugging Face's `mscale`, the weight of the magnitude.
    pub yarn_mscale: Option<f64>,
    /// `--yarn-mscale-all-dim`: Hugging Face's `mscale_all_dim`, the weight of what divides it.
    pub yarn_mscale_all_dim: Option<f64>,
    /// `--dynamic-variant`: the formula of dynamic NTK.
    pub dynamic_variant: Option<Variant>,
    /// `--dynamic-target`: C', up to which the second formula of Fu et al. is constant.
    pub dynamic_target: Option<usize>,
    /// `--rope-step`: the grid that lengths are rounded up to where frequencies follow them.
    pub step: Option<usize>,
    /// `--rope-policy`: whose length it is, where frequencies follow one.
    pub policy: Option<Policy>,
    /// `--rerope-window`: w, up to which distances are as they are.
    pub rerope_window: Option<usize>,
    /// `--rerope-k`: k, by which leaky ReRoPE divides what is beyond.
    pub rerope_k: Option<usize>,
    /// `--grp-attn-n`: G, the size of groups of Self-Extend.
    pub grp_attn_n: Option<usize>,
    /// `--grp-attn-w`: W, below which its distances are as they are.
    pub grp_attn_w: Option<usize>,
    /// `--lm-infinite-global`: how many of the first tokens LM-Infinite sees.
    pub lm_infinite_global: Option<usize>,
    /// `--lm-infinite-local`: how many of the last ones.
    pub lm_infinite_local: Option<usize>,
    /// `--attention-sinks`: how many of the first tokens stay where the context rolls.
    pub attention_sinks: Option<usize>,
    /// `--context-shift`: whether a context that is full loses its oldest tokens.
    pub context_shift: bool,
    /// `--rope-log-n`: whether queries grow with the logarithm of their position.
    pub log_n: Option<bool>,
    /// `--ntk-mixed-exponent`: how unevenly the stretch is spread.
    pub ntk_mixed_exponent: Option<f64>,
    /// `--llama3-low-freq-factor`: what turns less often is divided.
    pub llama3_low_freq_factor: Option<f64>,
    /// `--llama3-high-freq-factor`: what turns more often is kept.
    pub llama3_high_freq_factor: Option<f64>,
    /// `--dprope-intervals`: b, the intervals of the circle.
    pub dprope_intervals: Option<usize>,
    /// `--dprope-threshold`: t, what interpolation must gain.
    pub dprope_threshold: Option<f64>,
    /// `--dprope-dims`: n̂, the number of dimensions to interpolate.
    pub dprope_dims: Option<usize>,
    /// `--dprope-direction`: which divergence is the disturbance.
    pub dprope_direction: Option<Direction>,
    /// `--clex-weights`: the matrices of the equation.
    pub clex_weights: Option<ClexWeights>,
    /// `--clex-step`: the step of its solver.
    pub clex_step: Option<f64>,
    /// `--clex-activation`: what stands between the matrices.
    pub clex_activation: Option<Activation>,
}

impl Flags {
    /// Whether they make the context roll.
    pub fn rolls(&self) -> bool {
        self.attention_sinks.is_some()
    }

    /// These flags without those that llama.cpp's help gives as defaults, -1 for the numbers of
    /// YaRN and 0 for its context: to type a default is to say nothing.
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

    /// Those of these flags that act whatever the method is.
    pub(super) fn method_independent(&self) -> Flags {
        Flags {
            log_n: self.log_n,
            attention_sinks: self.attention_sinks,
            context_shift: self.context_shift,
            policy: self.policy,
            ..Flags::default()
        }
    }

    /// The first flag that says what auto is to choose.
    pub(super) fn first_conflict_with_auto(&self) -> Option<&'static str> {
        let values = [
            ("--rope-scale", self.scale.is_some()),
            ("--rope-freq-scale", self.freq_scale.is_some()),
            ("--rope-freq-base", self.freq_base.is_some()),
            ("--yarn-attn-factor", self.yarn_attn_factor.is_some()),
        ];
        let shapes = self.parameters().map(|(flag, given, _)| (flag, given));
        values.into_iter().chain(shapes).find_map(|(flag, given)| given.then_some(flag))
    }

    /// The flags that shape a rule: the name, whether it is given, and the rules that it shapes.
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

/// The scaling rules, as `--rope-scaling` and `{arch}.rope.scaling.type` name them, and the methods
/// that change distances instead, which only `--rope-scaling` can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// No scaling.
    None,
    /// Positions (or frequencies: the same) divided by the factor.
    Linear,
    /// A larger base: the lower a frequency, the more it is divided.
    Ntk,
    /// The same, spread by a power of the index.
    NtkMixed,
    /// NTK that follows the length of the sequence.
    Dynamic,
    /// High frequencies kept, low ones divided by the factor, a ramp between.
    Yarn,
    /// YaRN that follows the length of the sequence.
    DynamicYarn,
    /// The same, between other limits.
    Llama3,
    /// Two sets of divisors from the file, for short and for long sequences.
    LongRope,
    /// Each frequency kept or divided, whichever disturbs its angles less.
    DpRope,
    /// A learned equation that follows the length of the sequence.
    Clex,
    /// Distances end at a window.
    ReRope,
    /// Distances beyond a window are divided.
    LeakyReRope,
    /// Distances beyond a window are those of groups.
    SelfExtend,
    /// The last tokens and the first ones alone.
    LmInfinite,
}

/// What `--rope-scaling` may say: a rule, or that one is to be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalingChoice {
    /// The one that the context needs.
    Auto,
    /// This one.
    Scaling(Scaling),
}

impl FromStr for ScalingChoice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name.parse().map(ScalingChoice::Scaling) {
            Err(_) if name == "auto" => Ok(ScalingChoice::Auto),
            Err(Error::Unknown { what, name, known }) => {
                Err(Error::Unknown { what, name, known: format!("{known}, auto") })
            }
            found => found,
        }
    }
}

impl Scaling {
    /// Every rule.
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

    /// Whether it acts on frequencies, and not on attention.
    pub fn acts_on_frequencies(self) -> bool {
        use Scaling::{LeakyReRope, LmInfinite, ReRope, SelfExtend};
        !matches!(self, ReRope | LeakyReRope | SelfExtend | LmInfinite)
    }

    /// Whether llama.cpp has it, under the same name.
    pub fn is_in_llama_cpp(self) -> bool {
        matches!(self, Scaling::None | Scaling::Linear | Scaling::Yarn | Scaling::LongRope)
    }

    /// The scaling that this one is by `factor`: linear by 1 is none.
    pub(super) fn with_factor(self, factor: f64) -> Scaling {
        if self == Scaling::Linear && factor == 1.0 { Scaling::None } else { self }
    }

    /// The name, as on the command line and in files.
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
