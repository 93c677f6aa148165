//! The options of RoPE.

use rope_cpu::rope::{
    self, Activation, ClexWeights, Direction, Flags, Policy, Ramp, ScalingChoice, Variant,
};

/// The options that select a RoPE method and its parameters.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "RoPE: a context longer than trained")]
pub struct RopeArgs {
    /// Method: auto, none, linear, ntk, yarn, ...
    ///
    /// These change the frequencies. none: as trained. linear: all are divided by the factor
    /// (position interpolation). ntk: a larger base, which divides low frequencies and keeps high
    /// ones; the factor is alpha. ntk-mixed: ntk with another distribution over the frequencies.
    /// dynamic: ntk with an alpha that follows the length of the sequence. yarn: low frequencies are
    /// divided and high ones kept, with a ramp between. dynamic-yarn: yarn with a factor that
    /// follows the length. llama3: the rule of Llama 3.1, from its parameters instead of the
    /// tensor in the file. longrope: the divisors in the file. dprope: each frequency is divided or
    /// kept, whichever disturbs the distribution of its angles less. clex: frequencies that follow
    /// the length by a learned differential equation. auto: the settings of the file if they reach
    /// the context, else yarn with the factor that does.
    ///
    /// These leave the frequencies unchanged, and change the distances between queries and keys in
    /// attention. rerope: distances are limited to a window. leaky-rerope: distances beyond the
    /// window are divided. self-extend: beyond the window, groups of tokens share a position.
    /// lm-infinite: attention covers the last tokens and a few of the first.
    #[arg(long, value_name = "METHOD")]
    pub rope_scaling: Option<ScalingChoice>,

    /// Extend the context by a factor of N
    ///
    /// Linear scaling keeps the distances between far tokens within the trained range; YaRN
    /// (--rope-scaling yarn) also preserves those between near tokens, and needs no fine-tuning. If
    /// neither a flag nor the file gives the factor, it is the one that reaches the context.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub rope_scale: Option<f64>,

    /// Inverse of --rope-scale: 0.25 extends 4 times
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub rope_freq_scale: Option<f64>,

    /// Base frequency of RoPE
    ///
    /// NTK-aware scaling raises it.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub rope_freq_base: Option<f64>,

    /// Original context size; 0: as trained
    ///
    /// The context before the extension, for YaRN, llama3 and dprope. Also --rope-orig-ctx.
    #[arg(long, alias = "rope-orig-ctx", value_name = "N")]
    #[arg(value_parser = whole("from 0"))]
    pub yarn_orig_ctx: Option<usize>,

    /// YaRN: extrapolation mix; 0: scale all
    ///
    /// 1 keeps high frequencies unchanged, 0 scales all frequencies.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub yarn_ext_factor: Option<f64>,

    /// YaRN: multiply the attention scale by N
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub yarn_attn_factor: Option<f64>,

    /// YaRN: scale pairs with fewer than N rotations
    ///
    /// Rotations of a pair of dimensions within the original context.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub yarn_beta_slow: Option<f64>,

    /// YaRN: keep pairs with more than N rotations
    ///
    /// Rotations of a pair of dimensions within the original context.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub yarn_beta_fast: Option<f64>,

    /// YaRN: shape of the ramp: whole, exact or turns [default: whole]
    ///
    /// whole: linear in the index of the pair, between ends rounded to whole pairs. exact: between
    /// the exact ends, as in Hugging Face with "truncate": false. turns: linear in the number of
    /// rotations, as in the paper.
    #[arg(long, value_name = "FORM", hide_short_help = true)]
    pub yarn_ramp: Option<Ramp>,

    /// YaRN: the attention scale
    ///
    /// As "attention_factor" of Hugging Face. It replaces the computed scale.
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub yarn_attention_factor: Option<f64>,

    /// YaRN: weight in the attention scale's numerator
    ///
    /// As "mscale" of Hugging Face; with --yarn-mscale-all-dim.
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub yarn_mscale: Option<f64>,

    /// YaRN: weight in the attention scale's denominator
    ///
    /// As "mscale_all_dim" of Hugging Face; with --yarn-mscale.
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub yarn_mscale_all_dim: Option<f64>,

    /// dynamic: formula: hf, fu1 or fu2 [default: hf]
    ///
    /// hf: alpha is N x length / trained - (N - 1), where N is --rope-scale, by default 1. fu1: the
    /// same. fu2: constant up to the target, with N = target / (2 x trained) by default.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub dynamic_variant: Option<Variant>,

    /// dynamic: target length of fu2 [default: the context]
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from the trained context to 1073741824"))]
    pub dynamic_target: Option<usize>,

    /// dynamic, dynamic-yarn: step of the length [default: 256]
    ///
    /// Beyond the trained length, the length that determines the frequencies is rounded up to a
    /// multiple of N.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to 1073741824"))]
    pub rope_step: Option<usize>,

    /// Effective length: position or run [default: position; longrope: run]
    ///
    /// For methods whose frequencies follow the length of the sequence (dynamic, dynamic-yarn, clex,
    /// longrope). position: each token has the frequencies for the sequence up to it, and nothing is
    /// computed twice; keys are then rotated when attention reads them, which takes a little time.
    /// run: all tokens have the frequencies for the whole sequence, as when Hugging Face reads a
    /// prompt; if a longer sequence has other frequencies, all tokens are computed again.
    #[arg(long, value_name = "POLICY", hide_short_help = true)]
    pub rope_policy: Option<Policy>,

    /// rerope, leaky-rerope: window in tokens [default: half the trained context]
    ///
    /// Distances below it are unchanged. At most the context.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to the context"))]
    pub rerope_window: Option<usize>,

    /// leaky-rerope: divisor of the distances beyond the window
    ///
    /// A whole number from 1 to 1048576, by default the one that keeps distances within the trained
    /// context.
    #[arg(long, value_name = "K", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to 1048576"))]
    pub rerope_k: Option<usize>,

    /// self-extend: group size, in tokens that share a position [-gan]
    ///
    /// Groups are used beyond the window. By default the power of two that keeps positions within the
    /// trained context.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to the context"))]
    pub grp_attn_n: Option<usize>,

    /// self-extend: window in tokens [-gaw] [default: a quarter of the trained context]
    ///
    /// Distances below it are unchanged. A multiple of --grp-attn-n, and at most the context.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to the context"))]
    pub grp_attn_w: Option<usize>,

    /// lm-infinite: number of first tokens that attention covers [default: 10]
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to the context"))]
    pub lm_infinite_global: Option<usize>,

    /// lm-infinite: number of last tokens that attention covers [default: the trained context]
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to the context"))]
    pub lm_infinite_local: Option<usize>,

    /// Attention sinks: keep the first N tokens and the last in a rolling context
    ///
    /// When the context is full, the oldest tokens after the first N are evicted, and positions count
    /// only the remaining tokens, so that a text has no end (StreamingLLM). The first N and the last
    /// tokens together fill the context. From 1 to the context less 1; 4 is usual.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to the context less 1"))]
    pub attention_sinks: Option<usize>,

    /// Scale queries by the logarithm of their position: on or off
    ///
    /// By ln(position) / ln(trained context), beyond the trained context, so that attention stays as
    /// peaked. On by default for rerope and leaky-rerope.
    #[arg(long, value_name = "WHEN", value_parser = on_or_off, hide_short_help = true)]
    pub rope_log_n: Option<bool>,

    /// ntk-mixed: unevenness of the division [default: 0.75]
    ///
    /// From 0, which divides all frequencies equally, to 16.
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub ntk_mixed_exponent: Option<f64>,

    /// llama3: divide pairs with fewer than N rotations [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub llama3_low_freq_factor: Option<f64>,

    /// llama3: keep pairs with more than N rotations [default: 4]
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub llama3_high_freq_factor: Option<f64>,

    /// dprope: number of intervals of the circle [default: 360]
    ///
    /// From 2 to 65536.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 2 to 65536"))]
    pub dprope_intervals: Option<usize>,

    /// dprope: minimum gain for which a frequency is divided [default: 0]
    ///
    /// In nats, from -1000 to 1000. At 0, sampling noise decides for some of the high frequencies;
    /// at 0.001, mostly low frequencies are divided.
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub dprope_threshold: Option<f64>,

    /// dprope: number of dimensions that are divided
    ///
    /// An even number, at most the number of dimensions that rotate. It replaces the threshold. The
    /// paper uses 80 of 128 for twice the context, and 64 for four times.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 0 to the dimensions that rotate"))]
    pub dprope_dims: Option<usize>,

    /// dprope: direction of the divergence: code or paper [default: code]
    ///
    /// code: from the trained distribution to the new one, as in the authors' program. paper: the
    /// reverse, as in equation 8 of their paper.
    #[arg(long, value_name = "WAY", hide_short_help = true)]
    pub dprope_direction: Option<Direction>,

    /// clex: file with the matrices of its equation
    ///
    /// A safetensors file with one tensor whose name ends in ode_up_proj, of shape (pairs, hidden),
    /// and one whose name ends in ode_down_proj, of shape (hidden, pairs), as saved by the authors'
    /// program.
    #[arg(long, value_name = "FILE", value_parser = clex_weights, hide_short_help = true)]
    pub clex_weights: Option<ClexWeights>,

    /// clex: step size of the solver [default: 0.01]
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub clex_step: Option<f64>,

    /// clex: activation between the matrices: tanh or silu [default: tanh]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub clex_activation: Option<Activation>,
}

/// Returns a parser of whole numbers whose error gives `range`. The range itself is checked when the
/// plan is made, since it may depend on the model and the context.
fn whole(range: &'static str) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| text.parse().map_err(|_| format!("must be a whole number {range}"))
}

fn clex_weights(path: &str) -> Result<ClexWeights, rope::Error> {
    ClexWeights::read(path.as_ref())
}

impl RopeArgs {
    /// Returns whether the context rolls.
    pub fn rolls(&self) -> bool {
        self.attention_sinks.is_some()
    }

    /// Converts the options to the library's flags.
    pub fn flags(&self) -> Flags {
        Flags {
            scaling: match self.rope_scaling {
                Some(ScalingChoice::Scaling(scaling)) => Some(scaling),
                _ => None,
            },
            auto: self.rope_scaling == Some(ScalingChoice::Auto),
            scale: self.rope_scale,
            freq_scale: self.rope_freq_scale,
            for_context: false, // set by commands that list methods
            freq_base: self.rope_freq_base,
            yarn_orig_ctx: self.yarn_orig_ctx,
            yarn_ext_factor: self.yarn_ext_factor,
            yarn_attn_factor: self.yarn_attn_factor,
            yarn_beta_fast: self.yarn_beta_fast,
            yarn_beta_slow: self.yarn_beta_slow,
            yarn_ramp: self.yarn_ramp,
            yarn_attention_factor: self.yarn_attention_factor,
            yarn_mscale: self.yarn_mscale,
            yarn_mscale_all_dim: self.yarn_mscale_all_dim,
            dynamic_variant: self.dynamic_variant,
            dynamic_target: self.dynamic_target,
            step: self.rope_step,
            policy: self.rope_policy,
            rerope_window: self.rerope_window,
            rerope_k: self.rerope_k,
            grp_attn_n: self.grp_attn_n,
            grp_attn_w: self.grp_attn_w,
            lm_infinite_global: self.lm_infinite_global,
            lm_infinite_local: self.lm_infinite_local,
            attention_sinks: self.attention_sinks,
            context_shift: false, // set by commands that have the flag
            log_n: self.rope_log_n,
            ntk_mixed_exponent: self.ntk_mixed_exponent,
            llama3_low_freq_factor: self.llama3_low_freq_factor,
            llama3_high_freq_factor: self.llama3_high_freq_factor,
            dprope_intervals: self.dprope_intervals,
            dprope_threshold: self.dprope_threshold,
            dprope_dims: self.dprope_dims,
            dprope_direction: self.dprope_direction,
            clex_weights: self.clex_weights.clone(),
            clex_step: self.clex_step,
            clex_activation: self.clex_activation,
        }
    }
}

pub fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("choose on or off".into()),
    }
}
