//! Choosing the next token from the logits: llama.cpp's samplers, in its order.
//!
//! penalties, top-k, typical-p, top-p, min-p, temperature; then one draw. Each sampler narrows
//! the candidates that the one before has left. Equal logits are ordered by token, so that the
//! same logits, settings and seed always give the same tokens.

mod candidates;
mod penalties;
mod truncation;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use thiserror::Error;

pub use candidates::Candidate;
use candidates::Candidates;
use penalties::Penalties;

use crate::Token;

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
    #[error("the system gave no random seed ({0}): give one with --seed")]
    Seed(#[from] getrandom::Error),
}

/// How to choose, with the names and defaults of llama.cpp.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `--seed`: `None` (on the command line, -1) draws one from the system.
    pub seed: Option<u32>,
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
    /// `--repeat-last-n`: how many of the last tokens are penalized; 0 for none.
    pub repeat_last_n: usize,
    /// `--repeat-penalty`: divides the logits of these above zero, multiplies those below.
    pub repeat_penalty: f32,
    /// `--presence-penalty`: subtracted from their logits.
    pub presence_penalty: f32,
    /// `--frequency-penalty`: subtracted once for each time they occur.
    pub frequency_penalty: f32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            seed: None,
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            repeat_last_n: 64,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
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
        check("--frequency-penalty", self.frequency_penalty, &finite, "a finite number")
    }
}

/// A chain of samplers, with the tokens that penalties look back at and the state of the draw.
#[derive(Debug)]
pub struct Sampler {
    settings: Settings,
    seed: u32,
    random: Pcg64,
    penalties: Penalties,
    candidates: Candidates, // allocated by the first choice, then reused
}

impl Sampler {
    /// A sampler that has seen no token yet.
    pub fn new(settings: Settings) -> Result<Sampler, Error> {
        settings.check()?;
        let seed = match settings.seed {
            Some(seed) => seed,
            None => getrandom::u32()?,
        };
        Ok(Sampler {
            seed,
            random: Pcg64::seed_from_u64(seed.into()),
            penalties: Penalties::new(&settings),
            candidates: Candidates::default(),
            settings,
        })
    }

    /// The seed in use: the one given, or the one drawn.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// Tells the sampler that `token` is now part of the text, whether read or chosen.
    pub fn accept(&mut self, token: Token) {
        self.penalties.accept(token);
    }

    /// Forgets all tokens, for a text that begins anew; the random numbers go on.
    pub fn forget(&mut self) {
        self.penalties.forget();
    }

    /// Draws the next token; `logits` has one value for each token of the vocabulary.
    pub fn choose(&mut self, logits: &[f32]) -> Result<Token, Error> {
        // 53 random bits: every multiple of 2^-53 in [0, 1), with equal chances.
        let uniform = (self.random.next_u64() >> 11) as f64 * 2f64.powi(-53);
        let candidates = self.distribution(logits)?;
        let target = uniform * candidates.iter().map(|c| f64::from(c.probability)).sum::<f64>();
        let mut sum = 0.0;
        let drawn = candidates.iter().find(|c| {
            sum += f64::from(c.probability);
            sum > target
        });
        // The target is below the sum, so one is found.
        drawn.map(|c| c.token).ok_or(Error::NoCandidate)
    }

    /// The tokens that may come next after all samplers, and their probabilities.
    pub fn distribution(&mut self, logits: &[f32]) -> Result<&[Candidate], Error> {
        let Settings { temperature, top_k, top_p, min_p, typical_p, .. } = self.settings;
        let candidates = &mut self.candidates;
        candidates.fill(logits, &self.penalties, usize::try_from(top_k).unwrap_or(0))?;
        truncation::typical_p(candidates, typical_p);
        truncation::top_p(candidates, top_p);
        truncation::min_p(candidates, min_p);
        if temperature <= 0.0 {
            candidates.keep_best();
        }
        candidates.softmax(if temperature <= 0.0 { 1.0 } else { temperature });
        Ok(candidates.as_slice())
    }
}
