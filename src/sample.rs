//! Choosing the next token from the logits: llama.cpp's samplers, by default in its order.
//!
//! Biases, then a chain of samplers ([`SamplerKind::ORDER`]), each of which changes or narrows the
//! candidates that the one before has left; then one draw. Mirostat takes the place of the chain,
//! but for the temperature. Equal logits are ordered by token, so that the same logits, settings
//! and seed always give the same tokens.

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
pub use order::Kind as SamplerKind;

use crate::{Token, gguf::MetadataError};
use candidates::Candidates;
use mirostat::Mirostat;
use order::Kind;
use stage::Stage;
use temperature::Temperature;

/// Settings that cannot be used, or logits that nothing can be drawn from.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message of each variant names its fields")]
pub enum Error {
    #[error("{flag} {value}: must be {expected}")]
    Setting { flag: &'static str, value: f32, expected: &'static str },
    #[error(
        "the model gave token {token} the logit {logit}: the file is damaged or its RoPE settings are far off"
    )]
    Logit { token: usize, logit: f32 },
    #[error("the model gave no token a chance: every logit is minus infinity")]
    NoCandidate,
    #[error("no sampler has the name {name:?}: choose from {}", order::names())]
    Name { name: String },
    #[error("no sampler has the letter {letter:?}: choose from {}", order::letters())]
    Letter { letter: char },
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error("the system gave no random seed ({0}): give one with --seed")]
    Seed(#[from] getrandom::Error),
}

/// How to choose, with the names and defaults of llama.cpp.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `--seed`: `None` (on the command line, -1 and 4294967295) draws one from the system.
    pub seed: Option<u32>,
    /// `--samplers`: the chain. What is not in it does not act.
    pub samplers: Vec<SamplerKind>,
    /// `--logit-bias`: added to the logits of tokens, before everything else.
    pub logit_bias: Vec<(Token, f32)>,
    /// `--temp`: flattens the distribution above 1, sharpens it below; 0 or less is greedy.
    pub temperature: f32,
    /// `--top-k`: keeps the k likeliest tokens; 0 or less keeps all.
    pub top_k: i32,
    /// `--top-p`: keeps the likeliest tokens until their probabilities sum to p; 1 keeps all.
    pub top_p: f32,
    /// `--min-p`: keeps tokens at least p times as likely as the likeliest; 0 keeps all.
    pub min_p: f32,
    /// `--typical`: keeps the tokens nearest to the expected surprise until they sum to p; 1
    /// keeps all.
    pub typical_p: f32,
    /// `--top-n-sigma`: keeps logits within so many standard deviations of the largest; 0 or less
    /// keeps all.
    pub top_n_sigma: f32,
    /// `--xtc-probability`: how often `xtc_threshold` acts; 0 for never.
    pub xtc_probability: f32,
    /// `--xtc-threshold`: drops all tokens at least so likely but the least likely of them; nothing
    /// above a half.
    pub xtc_threshold: f32,
    /// `--dynatemp-range`: lets the temperature vary by so much with the entropy; 0 or less for a
    /// fixed one.
    pub dynatemp_range: f32,
    /// `--dynatemp-exp`: the power of the entropy's share that it follows.
    pub dynatemp_exponent: f32,
    /// `--repeat-last-n`: how many of the last tokens are penalized; 0 for none.
    pub repeat_last_n: usize,
    /// `--repeat-penalty`: divides the logits of these above zero, multiplies those below.
    pub repeat_penalty: f32,
    /// `--presence-penalty`: subtracted from their logits.
    pub presence_penalty: f32,
    /// `--frequency-penalty`: subtracted once for each time they occur.
    pub frequency_penalty: f32,
    /// `--dry-multiplier`: DRY's penalty for continuing a repetition of the allowed length; 0 for
    /// none.
    pub dry_multiplier: f32,
    /// `--dry-base`: multiplies it for each token more.
    pub dry_base: f32,
    /// `--dry-allowed-length`: repetitions shorter than this are not penalized.
    pub dry_allowed_length: usize,
    /// `--dry-penalty-last-n`: how many of the last tokens are searched.
    pub dry_penalty_last_n: usize,
    /// `--dry-sequence-breaker`: repetitions do not reach beyond these ([`breakers`]).
    pub dry_breakers: Vec<Breaker>,
    /// `--mirostat`: 1 or 2 for the version that replaces the chain, 0 for none.
    pub mirostat: u32,
    /// `--mirostat-ent`: the surprise that Mirostat aims at, in bits.
    pub mirostat_tau: f32,
    /// `--mirostat-lr`: how fast it corrects itself.
    pub mirostat_eta: f32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            seed: None,
            samplers: Kind::ORDER.to_vec(),
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
    /// Checks every value.
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

/// A chain of samplers, with the tokens that penalties look back at and the state of the draw.
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
    /// A sampler that has seen no token yet.
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

    /// The seed in use: the one given, or the one drawn.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// Tells the sampler that `token` is now part of the text, whether read or chosen.
    pub fn accept(&mut self, token: Token) {
        self.stages.iter_mut().for_each(|stage| stage.accept(token));
    }

    /// Forgets all tokens, for a text that begins anew; the random numbers go on.
    pub fn forget(&mut self) {
        self.stages.iter_mut().for_each(Stage::forget);
        self.mirostat.iter_mut().for_each(Mirostat::forget);
    }

    /// Draws the next token; `logits` has one value for each token of the vocabulary.
    pub fn choose(&mut self, logits: &[f32]) -> Result<Token, Error> {
        let uniform = uniform(&mut self.random);
        let candidates = self.distribution(logits)?;
        let target = uniform * candidates.iter().map(|c| f64::from(c.probability)).sum::<f64>();
        let mut sum = 0.0;
        let drawn = candidates.iter().find(|c| {
            sum += f64::from(c.probability);
            sum > target
        });
        // The target is below the sum, so one is found.
        let &Candidate { token, probability, .. } = drawn.ok_or(Error::NoCandidate)?;
        self.mirostat.iter_mut().for_each(|mirostat| mirostat.observe(probability));
        Ok(token)
    }

    /// The tokens that may come next after all samplers, and their probabilities.
    pub fn distribution(&mut self, logits: &[f32]) -> Result<&[Candidate], Error> {
        let vocabulary = logits.len();
        let Sampler { random, bias, stages, mirostat, adjusted, candidates, .. } = self;
        // Samplers that change few tokens do so before candidates are made of all, and top-k
        // decides of how many.
        let leading = stages.iter().take_while(|stage| stage.adjusts()).count();
        let (leading, rest) = stages.split_at_mut(leading);
        let logits = if bias.is_empty() && leading.is_empty() {
            logits
        } else {
            adjusted.clear();
            adjusted.extend_from_slice(logits);
            for (token, bias) in bias {
                if let Some(logit) = adjusted.get_mut(*token as usize) {
                    let sum = *logit + *bias;
                    *logit = if bias.is_finite() { bounded(*logit, sum) } else { sum };
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

/// What a finite logit is changed to stays finite, however large the change; all else is what the
/// model gave, which is checked later.
fn bounded(logit: f32, changed: f32) -> f32 {
    if logit.is_finite() { changed.clamp(f32::MIN, f32::MAX) } else { changed }
}

/// A number from 0 to 1, without 1: 53 random bits, so every multiple of 2^-53, with equal chances.
fn uniform(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 * 2f64.powi(-53)
}
