//! The options of sampling. Defaults are the values in the model file, else llama.cpp's.

use std::str::FromStr;

use crate::cli::args::numbers;
use rope_cpu::{
    Token,
    sample::{Settings, StageKind},
};

/// The options of sampling.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Seed of random numbers; -1: random
    #[arg(short, long, value_name = "N", default_value = "-1", allow_negative_numbers = true)]
    #[arg(value_parser = numbers::between::<i64>(-1, i64::from(u32::MAX)))]
    pub seed: i64,

    /// Samplers, in order of use [default: all]
    ///
    /// Names separated by semicolons; a sampler that is not listed is not applied. By default:
    /// penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature.
    #[arg(long, value_name = "LIST", value_parser = names)]
    pub samplers: Option<Order>,

    /// Samplers, as letters [default: edskypmxt]
    #[arg(long, alias = "sampling-seq", value_name = "LETTERS", value_parser = letters)]
    #[arg(conflicts_with = "samplers", hide_short_help = true)]
    pub sampler_seq: Option<Order>,

    /// Temperature; 0: greedy [default: 0.8]
    #[arg(long = "temp", alias = "temperature", value_name = "N", allow_negative_numbers = true)]
    pub temperature: Option<f32>,

    /// Keep N most likely tokens; 0: all [default: 40]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub top_k: Option<i32>,

    /// Keep top tokens that sum to N [default: 0.95]
    ///
    /// The fewest most likely tokens whose probabilities sum to at least N; 1 keeps all.
    #[arg(long, value_name = "N")]
    pub top_p: Option<f32>,

    /// Drop tokens below N x top token [default: 0.05]
    ///
    /// Drops the tokens that are less likely than N times the most likely token; 0 keeps all.
    #[arg(long, value_name = "N")]
    pub min_p: Option<f32>,

    /// Locally typical sampling; 1: off [default: 1]
    ///
    /// Keeps the most typical tokens whose probabilities sum to N.
    #[arg(long = "typical", alias = "typical-p", value_name = "N")]
    pub typical_p: Option<f32>,

    /// Keep logits N sigmas from the top [default: -1]
    ///
    /// Keeps the tokens whose logit is within N standard deviations of the largest one; 0 or less
    /// keeps all.
    #[arg(long, alias = "top-nsigma", value_name = "N", allow_negative_numbers = true)]
    pub top_n_sigma: Option<f32>,

    /// XTC probability; 0: off [default: 0]
    ///
    /// The probability with which XTC drops all tokens of at least --xtc-threshold except the
    /// least likely of them.
    #[arg(long, value_name = "N")]
    pub xtc_probability: Option<f32>,

    /// XTC: probability from which tokens are dropped [default: 0.1]
    ///
    /// Above 0.5, no token is dropped.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub xtc_threshold: Option<f32>,

    /// Dynamic temperature range; 0: off [default: 0]
    ///
    /// The temperature varies by up to N around --temp: lower when the model is certain, higher
    /// when it is not.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub dynatemp_range: Option<f32>,

    /// Dynamic temperature exponent [default: 1]
    ///
    /// The power of the entropy that the temperature follows.
    #[arg(long, value_name = "N", allow_negative_numbers = true, hide_short_help = true)]
    pub dynatemp_exp: Option<f32>,

    /// Penalize the last N tokens; 0: off [default: 64]
    #[arg(long, value_name = "N")]
    pub repeat_last_n: Option<usize>,

    /// Repetition penalty; 1: off [default: 1]
    ///
    /// Divides positive logits, and multiplies negative ones, of tokens that occurred.
    #[arg(long, value_name = "N")]
    pub repeat_penalty: Option<f32>,

    /// Presence penalty; 0: off [default: 0]
    ///
    /// Subtracted once from the logit of each token that occurred.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub presence_penalty: Option<f32>,

    /// Frequency penalty; 0: off [default: 0]
    ///
    /// Subtracted from a token's logit for each time that it occurred.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub frequency_penalty: Option<f32>,

    /// DRY penalty multiplier; 0: off [default: 0]
    ///
    /// DRY penalizes the token that would continue a repetition of --dry-allowed-length tokens or
    /// more.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub dry_multiplier: Option<f32>,

    /// DRY: penalty growth per further token [default: 1.75]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub dry_base: Option<f32>,

    /// DRY: allowed length of a repetition [default: 2]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub dry_allowed_length: Option<usize>,

    /// DRY: number of last tokens that are searched [default: 64]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub dry_penalty_last_n: Option<usize>,

    /// DRY: text at which a repetition ends; may be repeated
    ///
    /// By default a newline, a colon, a quotation mark and an asterisk. "none" removes these and all
    /// texts given before it.
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub dry_sequence_breaker: Vec<String>,

    /// Mirostat version 1 or 2; 0: off [default: 0]
    ///
    /// Replaces all other samplers except the temperature.
    #[arg(long, value_name = "N", value_parser = numbers::between::<u32>(0, 2))]
    pub mirostat: Option<u32>,

    /// Mirostat: target entropy (tau) in bits [default: 5]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub mirostat_ent: Option<f32>,

    /// Mirostat: learning rate (eta) [default: 0.1]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub mirostat_lr: Option<f32>,

    /// Add to a token's logit: ID+N or ID-N
    ///
    /// May be repeated. 15043-inf excludes token 15043. `rope-cpu tokenize` shows the IDs of
    /// tokens.
    #[arg(short, long, value_name = "ID+N")]
    pub logit_bias: Vec<Bias>,
}

/// A list of samplers. Not a `Vec`, which clap takes for an option that may be repeated.
pub type Order = std::sync::Arc<[StageKind]>;

fn names(list: &str) -> Result<Order, String> {
    StageKind::parse_names(list).map(Into::into).map_err(|e| e.to_string())
}

fn letters(list: &str) -> Result<Order, String> {
    StageKind::parse_letters(list).map(Into::into).map_err(|e| e.to_string())
}

/// A token, and the bias that is added to its logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bias(pub Token, pub f32);

impl FromStr for Bias {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (token, bias) = text.split_at(text.find(['+', '-'])?);
            Some(Self(token.trim().parse().ok()?, bias.parse().ok()?))
        };
        parse().ok_or_else(|| "must be a token ID, + or -, and a number, such as 15043-1".into())
    }
}

impl SamplingArgs {
    /// Returns `base` with the settings that the options give. DRY's breakers are left out.
    pub fn applied_to(&self, base: Settings) -> Settings {
        let samplers = self.samplers.as_ref().or(self.sampler_seq.as_ref());
        Settings {
            // u32::MAX is llama.cpp's -1, since its seeds have 32 bits.
            seed: u32::try_from(self.seed).ok().filter(|seed| *seed != u32::MAX),
            samplers: samplers.map_or(base.samplers, |order| order.to_vec()),
            logit_bias: self.logit_bias.iter().map(|Bias(token, bias)| (*token, *bias)).collect(),
            temperature: self.temperature.unwrap_or(base.temperature),
            top_k: self.top_k.unwrap_or(base.top_k),
            top_p: self.top_p.unwrap_or(base.top_p),
            min_p: self.min_p.unwrap_or(base.min_p),
            typical_p: self.typical_p.unwrap_or(base.typical_p),
            top_n_sigma: self.top_n_sigma.unwrap_or(base.top_n_sigma),
            xtc_probability: self.xtc_probability.unwrap_or(base.xtc_probability),
            xtc_threshold: self.xtc_threshold.unwrap_or(base.xtc_threshold),
            dynatemp_range: self.dynatemp_range.unwrap_or(base.dynatemp_range),
            dynatemp_exponent: self.dynatemp_exp.unwrap_or(base.dynatemp_exponent),
            repeat_last_n: self.repeat_last_n.unwrap_or(base.repeat_last_n),
            repeat_penalty: self.repeat_penalty.unwrap_or(base.repeat_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(base.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(base.frequency_penalty),
            dry_multiplier: self.dry_multiplier.unwrap_or(base.dry_multiplier),
            dry_base: self.dry_base.unwrap_or(base.dry_base),
            dry_allowed_length: self.dry_allowed_length.unwrap_or(base.dry_allowed_length),
            dry_penalty_last_n: self.dry_penalty_last_n.unwrap_or(base.dry_penalty_last_n),
            dry_breakers: base.dry_breakers,
            mirostat: self.mirostat.unwrap_or(base.mirostat),
            mirostat_tau: self.mirostat_ent.unwrap_or(base.mirostat_tau),
            mirostat_eta: self.mirostat_lr.unwrap_or(base.mirostat_eta),
        }
    }

    /// Returns whether an option is given that overrides this key of a file's `general.sampling`.
    pub fn overrides(&self, key: &str) -> bool {
        match key {
            "sequence" => self.samplers.is_some() || self.sampler_seq.is_some(),
            "temp" => self.temperature.is_some(),
            "top_k" => self.top_k.is_some(),
            "top_p" => self.top_p.is_some(),
            "min_p" => self.min_p.is_some(),
            "xtc_probability" => self.xtc_probability.is_some(),
            "xtc_threshold" => self.xtc_threshold.is_some(),
            "penalty_last_n" => self.repeat_last_n.is_some(),
            "penalty_repeat" => self.repeat_penalty.is_some(),
            "mirostat" => self.mirostat.is_some(),
            "mirostat_tau" => self.mirostat_ent.is_some(),
            "mirostat_eta" => self.mirostat_lr.is_some(),
            _ => false,
        }
    }

    /// Returns the given options that have no effect under `settings`, each with the reason.
    pub fn without_effect(&self, settings: &Settings) -> Vec<String> {
        use StageKind::*;
        let mirostat = settings.mirostat != 0;
        let dry = settings.dry_multiplier != 0.0;
        let of_samplers = [
            (self.top_k.is_some(), "--top-k", TopK),
            (self.top_p.is_some(), "--top-p", TopP),
            (self.min_p.is_some(), "--min-p", MinP),
            (self.typical_p.is_some(), "--typical", TypicalP),
            (self.top_n_sigma.is_some(), "--top-n-sigma", TopNSigma),
            (self.xtc_probability.is_some(), "--xtc-probability", Xtc),
            (self.xtc_threshold.is_some(), "--xtc-threshold", Xtc),
            (self.dynatemp_range.is_some(), "--dynatemp-range", Temperature),
            (self.dynatemp_exp.is_some(), "--dynatemp-exp", Temperature),
            (self.temperature.is_some() && !mirostat, "--temp", Temperature),
            (self.repeat_last_n.is_some(), "--repeat-last-n", Penalties),
            (self.repeat_penalty.is_some(), "--repeat-penalty", Penalties),
            (self.presence_penalty.is_some(), "--presence-penalty", Penalties),
            (self.frequency_penalty.is_some(), "--frequency-penalty", Penalties),
            (self.dry_multiplier.is_some(), "--dry-multiplier", Dry),
        ];
        let penalizing = settings.repeat_penalty != 1.0
            || settings.presence_penalty != 0.0
            || settings.frequency_penalty != 0.0;
        let looks_back = settings.repeat_last_n > 0;
        let without_xtc = "without --xtc-probability";
        let over_half = "if --xtc-threshold is above 0.5";
        let penalties_off = "with --repeat-last-n 0";
        let (without_dry, without_mirostat) = ("without --dry-multiplier", "without --mirostat");
        // Whether the option is given, its name, whether it has an effect, and the reason if not.
        let of_settings = [
            (
                self.xtc_threshold.is_some(),
                "--xtc-threshold",
                settings.xtc_probability > 0.0,
                without_xtc,
            ),
            (
                self.xtc_probability.is_some_and(|p| p > 0.0),
                "--xtc-probability",
                settings.xtc_threshold <= 0.5,
                over_half,
            ),
            (
                self.dynatemp_range.is_some(),
                "--dynatemp-range",
                settings.dynatemp_range >= 0.0,
                "below 0",
            ),
            (
                self.dynatemp_exp.is_some(),
                "--dynatemp-exp",
                settings.dynatemp_range > 0.0,
                "without --dynatemp-range",
            ),
            (
                self.repeat_last_n.is_some_and(|n| n > 0),
                "--repeat-last-n",
                penalizing,
                "without a penalty",
            ),
            (
                self.repeat_penalty.is_some_and(|x| x != 1.0),
                "--repeat-penalty",
                looks_back,
                penalties_off,
            ),
            (
                self.presence_penalty.is_some_and(|x| x != 0.0),
                "--presence-penalty",
                looks_back,
                penalties_off,
            ),
            (
                self.frequency_penalty.is_some_and(|x| x != 0.0),
                "--frequency-penalty",
                looks_back,
                penalties_off,
            ),
            (self.dry_base.is_some(), "--dry-base", dry, without_dry),
            (self.dry_allowed_length.is_some(), "--dry-allowed-length", dry, without_dry),
            (self.dry_penalty_last_n.is_some(), "--dry-penalty-last-n", dry, without_dry),
            (!self.dry_sequence_breaker.is_empty(), "--dry-sequence-breaker", dry, without_dry),
            (
                self.dry_sequence_breaker.iter().any(String::is_empty),
                "--dry-sequence-breaker",
                !dry,
                "without a text",
            ),
            (self.mirostat_ent.is_some(), "--mirostat-ent", mirostat, without_mirostat),
            (self.mirostat_lr.is_some(), "--mirostat-lr", mirostat, without_mirostat),
        ];
        let unused = of_samplers.into_iter().filter_map(|(given, flag, kind)| match kind {
            _ if !given => None,
            _ if mirostat => Some(format!("{flag} has no effect with Mirostat")),
            _ if settings.samplers.contains(&kind) => None,
            _ => Some(format!("{flag} has no effect: {} is not among the samplers", kind.name())),
        });
        let alone = of_settings.into_iter().filter(|(given, _, active, _)| *given && !active);
        let alone = alone.map(|(_, flag, _, reason)| format!("{flag} has no effect {reason}"));
        let order = (self.samplers.is_some() || self.sampler_seq.is_some()) && mirostat;
        let order = order.then(|| "the order of samplers has no effect with Mirostat".into());
        unused.chain(alone).chain(order).collect()
    }
}
