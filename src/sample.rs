//! Chooses the next token from the logits, with llama.cpp's samplers, by default in its order.
//!
//! First the biases are added; then a chain of sampler stages ([`StageKind::ORDER`]) runs, each of
//! which changes or narrows the candidates left by the previous one; then a token is drawn.
//! Mirostat replaces the chain except for the temperature. Equal logits are ordered by token, so
//! that the same logits, settings and seed always give the same tokens.

mod candidates;
mod dry;
mod metadata;
mod mirostat;
mod order;
mod penalties;
mod stage;
mod temperature;
mod truncation;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use thiserror::Error;

pub use candidates::Candidate;
pub use dry::{Breaker, breakers};
pub use metadata::unknown_samplers;
pub use order::StageKind;

use crate::{Token, gguf::MetadataError};
use candidates::Candidates;
use mirostat::Mirostat;
use stage::Stage;
use temperature::Temperature;

/// An error in the sampler's settings, or in logits from which no token can be drawn.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum Error {
    #[error("{flag} {value}: must be {expected}")]
    Setting { flag: &'static str, value: f32, expected: &'static str },
    #[error(
        "the logit of token {token} is {logit}: the file is damaged or its RoPE settings are wrong"
    )]
    Logit { token: usize, logit: f32 },
    #[error("no token can be drawn: every logit is minus infinity")]
    NoCandidate,
    #[error("no sampler has the name {name:?}: choose from {}", order::names())]
    Name { name: String },
    #[error("no sampler has the letter {letter:?}: choose from {}", order::letters())]
    Letter { letter: char },
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error("the system provides no random seed ({0}): give one with --seed")]
    Seed(#[from] getrandom::Error),
}

/// The settings of the samplers, with the names and defaults of llama.cpp.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `--seed`: the seed of the draws; `None` (on the command line, -1 and 4294967295) takes a
    /// random one from the system.
    pub seed: Option<u32>,
    /// `--samplers`: the chain. A sampler that is not in it has no effect.
    pub samplers: Vec<StageKind>,
    /// `--logit-bias`: values that are added to the logits of tokens before all samplers.
    pub logit_bias: Vec<(Token, f32)>,
    /// `--temp`: flattens the distribution above 1, sharpens it below; 0 or less is greedy.
    pub temperature: f32,
    /// `--top-k`: keeps the k likeliest tokens; 0 or less keeps all.
    pub top_k: i32,
    /// `--top-p`: keeps the likeliest tokens until their probabilities sum to p; 1 keeps all.
    pub top_p: f32,
    /// `--min-p`: keeps tokens at least p times as likely as the likeliest; 0 keeps all.
    pub min_p: f32,
    /// `--typical`: keeps the tokens whose surprise is nearest to the expected one until their
    /// probabilities sum to p; 1 keeps all.
    pub typical_p: f32,
    /// `--top-n-sigma`: keeps logits within n standard deviations of the largest; 0 or less keeps
    /// all.
    pub top_n_sigma: f32,
    /// `--xtc-probability`: the probability that `xtc_threshold` is applied; 0 for never.
    pub xtc_probability: f32,
    /// `--xtc-threshold`: of the tokens with at least this probability, keeps only the least
    /// likely; has no effect above 0.5.
    pub xtc_threshold: f32,
    /// `--dynatemp-range`: varies the temperature up or down by at most this much, with the
    /// entropy; 0 or less for a fixed temperature.
    pub dynatemp_range: f32,
    /// `--dynatemp-exp`: the exponent of the entropy, as a share of the largest possible, in the
    /// dynamic temperature.
    pub dynatemp_exponent: f32,
    /// `--repeat-last-n`: the number of last tokens that are penalized; 0 for none.
    pub repeat_last_n: usize,
    /// `--repeat-penalty`: divides the positive logits of the last tokens and multiplies the
    /// negative ones.
    pub repeat_penalty: f32,
    /// `--presence-penalty`: is subtracted from the logits of the last tokens.
    pub presence_penalty: f32,
    /// `--frequency-penalty`: is subtracted once for each occurrence among the last tokens.
    pub frequency_penalty: f32,
    /// `--dry-multiplier`: DRY's penalty for continuing a repetition of the allowed length; 0 for
    /// no penalty.
    pub dry_multiplier: f32,
    /// `--dry-base`: multiplies DRY's penalty for each further token of the repetition.
    pub dry_base: f32,
    /// `--dry-allowed-length`: repetitions shorter than this are not penalized.
    pub dry_allowed_length: usize,
    /// `--dry-penalty-last-n`: the number of last tokens that are searched for repetitions.
    pub dry_penalty_last_n: usize,
    /// `--dry-sequence-breaker`: texts that end a repetition ([`breakers`]).
    pub dry_breakers: Vec<Breaker>,
    /// `--mirostat`: the version of Mirostat that replaces the chain, 1 or 2; 0 for none.
    pub mirostat: u32,
    /// `--mirostat-ent`: Mirostat's target surprise in bits.
    pub mirostat_tau: f32,
    /// `--mirostat-lr`: Mirostat's learning rate.
    pub mirostat_eta: f32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            seed: None,
            samplers: StageKind::ORDER.to_vec(),
            logit_bias: Vec::new(),
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            repeat_last_n: 64,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: 64,
            dry_breakers: Vec::new(),
            mirostat: 0,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
        }
    }
}

impl Settings {
    /// Checks all values.
    ///
    /// # Errors
    ///
    /// Returns an error for the first value that is out of range.
    pub fn check(&self) -> Result<(), Error> {
        let finite = |x: f32| x.is_finite();
        let share = |x: f32| (0.0..=1.0).contains(&x);
        let divisor = |x: f32| x > 0.0 && x.is_finite() && x.recip().is_finite();
        let check = |flag, value, ok: &dyn Fn(f32) -> bool, expected| {
            if ok(value) { Ok(()) } else { Err(Error::Setting { flag, value, expected }) }
        };
        check("--temp", self.temperature, &finite, "a finite number")?;
        check("--top-p", self.top_p, &share, "from 0 to 1")?;
        check("--min-p", self.min_p, &share, "from 0 to 1")?;
        check("--typical", self.typical_p, &share, "from 0 to 1")?;
        check("--repeat-penalty", self.repeat_penalty, &divisor, "a finite number above 0")?;
        check("--presence-penalty", self.presence_penalty, &finite, "a finite number")?;
        check("--frequency-penalty", self.frequency_penalty, &finite, "a finite number")?;
        check("--top-n-sigma", self.top_n_sigma, &finite, "a finite number")?;
        check("--xtc-probability", self.xtc_probability, &share, "from 0 to 1")?;
        check("--xtc-threshold", self.xtc_threshold, &share, "from 0 to 1")?;
        check("--dynatemp-range", self.dynatemp_range, &finite, "a finite number")?;
        check("--dynatemp-exp", self.dynatemp_exponent, &finite, "a finite number")?;
        check("--dry-multiplier", self.dry_multiplier, &finite, "a finite number")?;
        let base = |x: f32| x >= 1.0 && x.is_finite();
        check("--dry-base", self.dry_base, &base, "a finite number of at least 1")?;
        check("--mirostat", self.mirostat as f32, &|x| x <= 2.0, "0, 1 or 2")?;
        check("--mirostat-ent", self.mirostat_tau, &finite, "a finite number")?;
        check("--mirostat-lr", self.mirostat_eta, &finite, "a finite number")?;
        let bias = |x: f32| x < f32::INFINITY;
        let mut all = self.logit_bias.iter();
        all.try_for_each(|(_, x)| check("--logit-bias", *x, &bias, "a number or -inf"))
    }
}

/// A chain of samplers, with the last tokens for penalties and the state of the random numbers.
#[derive(Debug)]
pub struct Sampler {
    seed: u32,
    random: Pcg64,
    bias: Vec<(Token, f32)>,
    stages: Vec<Stage>,
    mirostat: Option<Mirostat>,
    // Both are allocated by the first choice, then reused.
    adjusted: Vec<f32>,
    candidates: Candidates,
}

impl Sampler {
    /// Creates a sampler without any tokens.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is out of range, or the system provides no seed.
    pub fn new(settings: Settings) -> Result<Sampler, Error> {
        settings.check()?;
        let seed = match settings.seed {
            Some(seed) => seed,
            None => getrandom::u32()?,
        };
        let mirostat = Mirostat::new(&settings);
        let stages = match mirostat {
            None => {
                settings.samplers.iter().filter_map(|kind| Stage::new(*kind, &settings)).collect()
            }
            Some(_) => vec![Stage::Temperature(Temperature::fixed(settings.temperature))],
        };
        Ok(Sampler {
            seed,
            random: Pcg64::seed_from_u64(seed.into()),
            bias: settings.logit_bias,
            stages,
            mirostat,
            adjusted: Vec::new(),
            candidates: Candidates::default(),
        })
    }

    /// Returns the seed in use: the one in the settings, or the one from the system.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// Adds a token to the text, whether it was read or generated.
    pub fn accept(&mut self, token: Token) {
        self.stages.iter_mut().for_each(|stage| stage.accept(token));
    }

    /// Removes all tokens, for a new text. The state of the random numbers is kept.
    pub fn forget(&mut self) {
        self.stages.iter_mut().for_each(Stage::forget);
        self.mirostat.iter_mut().for_each(Mirostat::forget);
    }

    /// Draws the next token; `logits` has one value for each token of the vocabulary.
    ///
    /// # Errors
    ///
    /// Returns an error if a logit is NaN or infinity, or no token has a finite logit.
    pub fn choose(&mut self, logits: &[f32]) -> Result<Token, Error> {
        let uniform = uniform(&mut self.random);
        let candidates = self.distribution(logits)?;
        let target = uniform * candidates.iter().map(|c| f64::from(c.probability)).sum::<f64>();
        let mut sum = 0.0;
        let drawn = candidates.iter().find(|c| {
            sum += f64::from(c.probability);
            sum > target
        });
        // The target is below the sum, so a token is found.
        let &Candidate { token, probability, .. } = drawn.ok_or(Error::NoCandidate)?;
        self.mirostat.iter_mut().for_each(|mirostat| mirostat.observe(probability));
        Ok(token)
    }

    /// Returns the candidates left by all samplers, with their probabilities.
    ///
    /// # Errors
    ///
    /// Returns an error if a logit is NaN or infinity, or no token has a finite logit.
    pub fn distribution(&mut self, logits: &[f32]) -> Result<&[Candidate], Error> {
        let vocabulary = logits.len();
        let Sampler { random, bias, stages, mirostat, adjusted, candidates, .. } = self;
        // Stages that change the logits of a few tokens run before the list of candidates is built.
        // If top-k follows, it limits the length of the list.
        let leading = stages.iter().take_while(|stage| stage.only_adjusts_logits()).count();
        let (leading, rest) = stages.split_at_mut(leading);
        let logits = if bias.is_empty() && leading.is_empty() {
            logits
        } else {
            adjusted.clear();
            adjusted.extend_from_slice(logits);
            for (token, bias) in bias {
                if let Some(logit) = adjusted.get_mut(*token as usize) {
                    let sum = *logit + *bias;
                    *logit = if bias.is_finite() { clamp_finite(*logit, sum) } else { sum };
                }
            }
            leading.iter_mut().for_each(|stage| stage.adjust(adjusted));
            adjusted
        };
        let (k, rest) = match rest {
            [Stage::TopK(k), rest @ ..] => (*k, rest),
            rest => (0, rest),
        };
        candidates.fill(logits, k)?;
        for stage in rest {
            stage.apply(candidates, || uniform(random));
        }
        if let Some(mirostat) = mirostat {
            mirostat.truncate(candidates, vocabulary);
        }
        candidates.softmax();
        Ok(candidates.as_slice())
    }
}

/// Returns `changed`, clamped to finite values if `logit` was finite. A logit that was not finite
/// is left to a later check.
fn clamp_finite(logit: f32, changed: f32) -> f32 {
    if logit.is_finite() { changed.clamp(f32::MIN, f32::MAX) } else { changed }
}

/// Draws a number from 0 to 1, excluding 1: a multiple of 2^-53, each with the same probability.
fn uniform(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 * 2f64.powi(-53)
}
