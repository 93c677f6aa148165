//! The options of sampling. Defaults are the values in the model file, else llama.cpp's.

use std::str::FromStr;

use super::{
    numbers,
    parameters::{Group, Options},
};
use rope_cpu::{
    Token,
    sample::{self, SAMPLERS, Settings, StageKind, dry::MULTIPLIER, mirostat::VERSION},
    settings::{Parameter, Setting},
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
    #[arg(long, value_name = "LIST", value_parser = names, long_help = help_of_samplers())]
    pub samplers: Option<Order>,

    /// Samplers, as letters
    #[arg(long, alias = "sampling-seq", value_name = "LETTERS", value_parser = letters)]
    #[arg(help = format!("Samplers, as letters [default: {}]", default_letters()))]
    #[arg(conflicts_with = "samplers", hide_short_help = true)]
    pub sampler_seq: Option<Order>,

    #[command(flatten)]
    pub given: Options<Samplers>,

    /// DRY: text at which a repetition ends; may be repeated
    ///
    /// By default a newline, a colon, a quotation mark and an asterisk. "none" removes these and
    /// all texts given before it.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, hide_short_help = true)]
    pub dry_sequence_breaker: Vec<String>,

    /// Add to a token's logit: ID+N or ID-N
    ///
    /// May be repeated. 15043-inf excludes token 15043. `rope-cpu tokenize` shows the IDs of
    /// tokens.
    #[arg(short, long, value_name = "ID+N")]
    pub logit_bias: Vec<Bias>,
}

/// A list of samplers. Not a `Vec`, which clap takes for an option that may be repeated.
pub type Order = std::sync::Arc<[&'static StageKind]>;

fn names(list: &str) -> Result<Order, String> {
    sample::parse_names(list).map(Into::into).map_err(|e| e.to_string())
}

fn letters(list: &str) -> Result<Order, String> {
    sample::parse_letters(list).map(Into::into).map_err(|e| e.to_string())
}

fn help_of_samplers() -> String {
    format!(
        "Samplers, in order of use [default: all]\n\nNames separated by semicolons; a sampler that \
         is not listed is not applied. By default: {}.",
        SAMPLERS.map(|kind| kind.name).join(";")
    )
}

fn default_letters() -> String {
    SAMPLERS.iter().map(|kind| kind.letter).collect()
}

/// The group of the samplers' settings.
#[derive(Clone, Debug)]
pub struct Samplers;

impl Group for Samplers {
    fn parameters() -> impl Iterator<Item = &'static Parameter> {
        sample::settings().map(|setting| &setting.parameter)
    }
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
        Settings {
            // u32::MAX is llama.cpp's -1, since its seeds have 32 bits.
            seed: u32::try_from(self.seed).ok().filter(|seed| *seed != u32::MAX),
            samplers: self.order().map_or(base.samplers, |order| order.to_vec()),
            logit_bias: self.logit_bias.iter().map(|Bias(token, bias)| (*token, *bias)).collect(),
            values: self.given.values.clone().or(base.values),
            ..base
        }
    }

    fn order(&self) -> Option<&Order> {
        self.samplers.as_ref().or(self.sampler_seq.as_ref())
    }

    /// Returns whether an option is given that overrides a setting of the file.
    pub fn overrides(&self, setting: Setting) -> bool {
        match setting {
            Setting::SAMPLERS => self.order().is_some(),
            setting => self.given.values.has_setting(setting),
        }
    }

    /// Returns a sentence for each option without effect under `settings`, with the reason.
    pub fn without_effect(&self, settings: &Settings) -> Vec<String> {
        let mut sentences = settings.without_effect(&self.given.values);
        let breakers = &self.dry_sequence_breaker;
        let reason = match MULTIPLIER.real(&settings.values) {
            0.0 if !breakers.is_empty() => Some("without --dry-multiplier"),
            _ if breakers.iter().any(String::is_empty) => Some("without a text"),
            _ => None,
        };
        sentences.extend(reason.map(|r| format!("--dry-sequence-breaker has no effect {r}")));
        if self.order().is_some() && VERSION.whole(&settings.values) != 0 {
            sentences.push("the order of samplers has no effect with Mirostat".into());
        }
        sentences
    }
}
