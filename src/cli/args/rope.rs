//! The options of RoPE.

use crate::cli::error::Error;
use rope_cpu::{
    gguf::Gguf,
    model::Model,
    rope::{
        self, Activation, ClexWeights, Direction, Flags, ModelInfo, Plan, Policy, Ramp, Rope,
        ScalingChoice, Sourced, Variant,
    },
};

/// How positions are rotated.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "RoPE: a context longer than trained")]
pub struct RopeArgs {
    /// The method: auto, none, linear, ntk, yarn, ...
    ///
    /// none: positions as trained. linear: all are divided by the factor (PI). ntk: a larger base,
    /// so that low frequencies are divided and high ones are kept; the factor is alpha. ntk-mixed:
    /// the same with another spread. dynamic: ntk with an alpha that follows the length of the
    /// sequence. yarn: low frequencies are divided, high ones kept, with a ramp
    /// between. dynamic-yarn: yarn with a factor that follows the length. llama3: the rule of Llama 3.1, by its parameters instead of the file's tensor.
    /// longrope: the divisors in the file. dprope: each frequency is divided or kept, whichever
    /// disturbs the distribution of its angles less. clex: frequencies that follow the length along
    /// a learned equation. auto: what the file says where that reaches the context, and else yarn by
    /// just the factor that does.
    ///
    /// These leave the frequencies as they are and change the distances that attention takes keys to
    /// have. rerope: none above a window. leaky-rerope: what is beyond the window is divided.
    /// self-extend: beyond the window, groups of tokens share a position. lm-infinite: the last
    /// tokens and a few of the first are seen, and no others.
    #[arg(long, value_name = "METHOD")]
    pub rope_scaling: Option<ScalingChoice>,

    /// Extend the context N times
    ///
    /// Linear scaling keeps the distances between far tokens within what the model has seen,
    /// YaRN (with --rope-scaling yarn) those between near ones too, and needs no fine-tuning.
    /// Where neither the flag nor the file gives it, it is what reaches the context.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub rope_scale: Option<f64>,

    /// The inverse: 0.25 extends it 4 times
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub rope_freq_scale: Option<f64>,

    /// The base of the frequencies
    ///
    /// NTK-aware scaling raises it.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub rope_freq_base: Option<f64>,

    /// The context before; 0: as trained
    ///
    /// What YaRN, llama3 and dprope take for the length that the model was trained for. Also
    /// --rope-orig-ctx.
    #[arg(long, alias = "rope-orig-ctx", value_name = "N")]
    #[arg(value_parser = whole("from 0"))]
    pub yarn_orig_ctx: Option<usize>,

    /// YaRN: 1 keeps high frequencies, 0 scales all
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub yarn_ext_factor: Option<f64>,

    /// YaRN: multiplies the attention scale
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub yarn_attn_factor: Option<f64>,

    /// YaRN: scale what turns less often
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub yarn_beta_slow: Option<f64>,

    /// YaRN: keep what turns more often
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub yarn_beta_fast: Option<f64>,

    /// YaRN: the form of the ramp: whole, exact or turns
    ///
    /// whole: linear in the index, between whole pairs (the default). exact: between the exact
    /// ends, as Hugging Face with "truncate": false. turns: linear in the number of turns, as in
    /// the paper.
    #[arg(long, value_name = "FORM", hide_short_help = true)]
    pub yarn_ramp: Option<Ramp>,

    /// YaRN: the attention scale itself
    ///
    /// As "attention_factor" of Hugging Face, in place of all that would else make it up.
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub yarn_attention_factor: Option<f64>,

    /// YaRN: the weight of the attention scale
    ///
    /// As "mscale" of Hugging Face; with --yarn-mscale-all-dim.
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub yarn_mscale: Option<f64>,

    /// YaRN: the weight of what divides it
    ///
    /// As "mscale_all_dim" of Hugging Face; with --yarn-mscale.
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub yarn_mscale_all_dim: Option<f64>,

    /// dynamic: the formula: hf, fu1 or fu2 [default: hf]
    ///
    /// hf: alpha is N x length / trained - (N - 1), with N of --rope-scale, by default 1. fu1: the
    /// same. fu2: constant up to the target, with N = target / (2 x trained) by default.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub dynamic_variant: Option<Variant>,

    /// dynamic: the target of fu2 [default: the context]
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from the trained context to 1073741824"))]
    pub dynamic_target: Option<usize>,

    /// dynamic, dynamic-yarn: steps of the length [default: 256]
    ///
    /// Beyond the trained length, the length that decides the frequencies is rounded up to a
    /// multiple of this.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to 1073741824"))]
    pub rope_step: Option<usize>,

    /// By whose length: position or run [default: position; longrope: run]
    ///
    /// For frequencies that follow the length of the sequence (dynamic, dynamic-yarn, clex,
    /// longrope). position: each token has those of the sequence up to it, and nothing is computed
    /// twice; keys are then rotated as they are read, which takes a little time. run: all tokens
    /// have those of the whole sequence, as where Hugging Face reads a prompt; where a longer one
    /// has others, everything is computed again.
    #[arg(long, value_name = "POLICY", hide_short_help = true)]
    pub rope_policy: Option<Policy>,

    /// rerope, leaky-rerope: the window [default: half the trained context]
    ///
    /// Distances below it are as they are. At most the context.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to the context"))]
    pub rerope_window: Option<usize>,

    /// leaky-rerope: divide what is beyond the window
    ///
    /// A whole number from 1 to 1048576, by default what keeps the context within the trained one.
    #[arg(long, value_name = "K", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to 1048576"))]
    pub rerope_k: Option<usize>,

    /// self-extend: tokens that share a position [-gan]
    ///
    /// Beyond the window. By default the power of two that keeps the context within the trained one.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to the context"))]
    pub grp_attn_n: Option<usize>,

    /// self-extend: the window [-gaw] [default: a quarter of the trained context]
    ///
    /// Distances below it are as they are. A multiple of --grp-attn-n, and at most the context.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to the context"))]
    pub grp_attn_w: Option<usize>,

    /// lm-infinite: so many first tokens are seen [default: 10]
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to the context"))]
    pub lm_infinite_global: Option<usize>,

    /// lm-infinite: and so many last ones [default: the trained context]
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to the context"))]
    pub lm_infinite_local: Option<usize>,

    /// Never fill the context: forget all but the first N tokens and the last
    ///
    /// Attention sinks: positions go on as if what is forgotten had never been, so a text has no end.
    /// From 1 to the context less 1; 4 are usual. Together with the last tokens they fill the context.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 1 to the context less 1"))]
    pub attention_sinks: Option<usize>,

    /// Let queries grow with the logarithm of their position: on or off
    ///
    /// By ln(position) / ln(trained context), beyond the trained context, so that attention stays as
    /// peaked. By default it is on for rerope and leaky-rerope.
    #[arg(long, value_name = "WHEN", value_parser = on_or_off, hide_short_help = true)]
    pub rope_log_n: Option<bool>,

    /// ntk-mixed: how unevenly the pairs are stretched [default: 0.75]
    ///
    /// From 0, where all are divided alike, to 16.
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub ntk_mixed_exponent: Option<f64>,

    /// llama3: divide what turns less often [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub llama3_low_freq_factor: Option<f64>,

    /// llama3: keep what turns more often [default: 4]
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub llama3_high_freq_factor: Option<f64>,

    /// dprope: intervals of the circle [default: 360]
    ///
    /// From 2 to 65536.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 2 to 65536"))]
    pub dprope_intervals: Option<usize>,

    /// dprope: what dividing must gain [default: 0]
    ///
    /// In nats, from -1000 to 1000. At 0, differences of sampling noise decide for some of the
    /// high frequencies; at 0.001 mostly the low ones are divided.
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub dprope_threshold: Option<f64>,

    /// dprope: divide so many dimensions
    ///
    /// An even number, up to those that rotate; in place of the threshold. The paper has 80 of
    /// 128 for twice the context and 64 for four times.
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = whole("from 0 to the dimensions that rotate"))]
    pub dprope_dims: Option<usize>,

    /// dprope: the divergence: code or paper [default: code]
    ///
    /// code: from the trained distribution to the new one, as in the authors' program. paper: the
    /// other way, as their equation 8 is printed.
    #[arg(long, value_name = "WAY", hide_short_help = true)]
    pub dprope_direction: Option<Direction>,

    /// clex: the matrices of its equation
    ///
    /// A file of safetensors with one tensor whose name ends with ode_up_proj, (pairs, hidden), and
    /// one that ends with ode_down_proj, (hidden, pairs), as its authors' program saves them.
    #[arg(long, value_name = "FILE", value_parser = clex_weights, hide_short_help = true)]
    pub clex_weights: Option<ClexWeights>,

    /// clex: the step of the solver [default: 0.01]
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub clex_step: Option<f64>,

    /// clex: between the matrices: tanh or silu [default: tanh]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub clex_activation: Option<Activation>,
}

/// A whole number. What is none is told by its range here, in words where model or context decide it, and a
/// number beyond that by the plan, which knows them.
fn whole(range: &'static str) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| text.parse().map_err(|_| format!("must be a whole number {range}"))
}

fn clex_weights(path: &str) -> Result<ClexWeights, rope::Error> {
    ClexWeights::read(path.as_ref())
}

impl RopeArgs {
    /// Whether they make the context roll.
    pub fn rolls(&self) -> bool {
        self.attention_sinks.is_some()
    }

    /// The same, for the library.
    pub fn flags(&self) -> Flags {
        Flags {
            scaling: match self.rope_scaling {
                Some(ScalingChoice::Scaling(scaling)) => Some(scaling),
                _ => None,
            },
            auto: self.rope_scaling == Some(ScalingChoice::Auto),
            scale: self.rope_scale,
            freq_scale: self.rope_freq_scale,
            for_context: false, // for commands that list methods to say
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
            context_shift: false, // for commands that have the flag to say
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

    /// What RoPE does with `model` in a context of `context`, by these flags and metadata.
    ///
    /// # Errors
    /// Flags or metadata that contradict each other or make no sense.
    pub fn resolve(
        &self,
        gguf: &Gguf,
        model: &Model,
        context: Sourced<usize>,
    ) -> Result<Rope, Error> {
        resolve(&self.flags(), gguf, model, context).map(Rope::new).map_err(Error::usage)
    }
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("choose on or off".into()),
    }
}

/// What RoPE does with `model` by these flags.
///
/// # Errors
/// Flags or metadata that contradict each other or make no sense.
pub fn resolve(
    flags: &Flags,
    gguf: &Gguf,
    model: &Model,
    context: Sourced<usize>,
) -> Result<Plan, rope::Error> {
    let config = &model.config;
    let info = ModelInfo {
        architecture: config.architecture.name,
        n_rot: config.n_rot,
        context_train: config.context_train,
        window_rope: config.window.is_some() && config.window_rope,
    };
    Plan::resolve(&info, gguf.metadata(), model.rope_factors(), flags, context)
}
