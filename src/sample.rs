//! Chooses the next token from the logits, with llama.cpp's samplers, by default in its order.
//!
//! Biases are added to the logits first. Then a chain of samplers ([`SAMPLERS`]) runs: each one
//! changes or removes some of the remaining candidates. Then a token is drawn. Mirostat replaces
//! the whole chain except the temperature.
//!
//! Equal logits are ordered by token. So the same logits, settings and seed always give the same
//! tokens.

mod candidates;
pub mod dry;
mod metadata;
pub mod min_p;
pub mod mirostat;
mod order;
pub mod penalties;
mod probabilities;
mod setting;
mod settings;
mod stage;
pub mod temperature;
pub mod top_a;
pub mod top_k;
pub mod top_n_sigma;
pub mod top_p;
pub mod typical_p;
pub mod xtc;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use thiserror::Error;

pub use candidates::Candidate;
pub use dry::{Breaker, breakers};
pub use metadata::unknown_samplers;
pub use order::{Order, default_order, parse_letters, parse_names};
pub use probabilities::{Likelihood, Probabilities};
pub use setting::SamplerSetting;
pub use settings::{Settings, settings};
pub use stage::StageKind;

use crate::{Token, gguf::MetadataError, settings::Setting};
use candidates::Candidates;
use mirostat::Mirostat;
use stage::Stage;
use temperature::Temperature;

/// The samplers in llama.cpp's order, and samplers that llama.cpp lacks.
pub static SAMPLERS: [&StageKind; 10] = [
    &penalties::SAMPLER,
    &dry::SAMPLER,
    &top_n_sigma::SAMPLER,
    &top_k::SAMPLER,
    &top_a::SAMPLER,
    &typical_p::SAMPLER,
    &top_p::SAMPLER,
    &min_p::SAMPLER,
    &xtc::SAMPLER,
    &temperature::SAMPLER,
];

/// An error in the sampler's settings, or in logits that allow no token.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum Error {
    #[error("{setting} {value}: must be {expected}")]
    Setting { setting: Setting, value: String, expected: &'static str },
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
    #[error("the system provides no random seed ({source}): give one with {}", Setting::SEED)]
    Seed {
        #[from]
        source: getrandom::Error,
    },
}

/// Chooses tokens. It holds the chain of samplers, the last tokens for penalties, and the state of
/// the random numbers.
///
/// ```
/// use rope_cpu::sample::{Sampler, Settings, temperature::TEMPERATURE};
///
/// # fn main() -> Result<(), rope_cpu::sample::Error> {
/// let greedy = Settings::default().with(&TEMPERATURE, 0.0);
/// let mut sampler = Sampler::new(greedy)?;
/// let token = sampler.choose(&[0.5, 2.0, 1.0])?;
/// assert_eq!(token, 1);
/// sampler.accept(token); // for the penalties of later tokens
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sampler {
    seed: u32,
    random: Random,
    bias: Vec<(Token, f32)>,
    stages: Vec<Box<dyn Stage>>,
    mirostat: Option<Mirostat>,
    // Allocated by the first choice, then reused.
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
        let stages: Vec<Box<dyn Stage>> = match mirostat {
            None => settings.samplers.iter().filter_map(|kind| (kind.stage)(&settings)).collect(),
            Some(_) => {
                let temperature = temperature::TEMPERATURE.real(&settings.values);
                vec![Box::new(Temperature::fixed(temperature))]
            }
        };
        Ok(Sampler {
            seed,
            random: Random::new(seed, settings.drawn),
            bias: settings.logit_bias,
            stages,
            mirostat,
            adjusted: Vec::new(),
            candidates: Candidates::default(),
        })
    }

    /// Returns the seed in use: from the settings, or from the system if they have none.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// Returns how many random numbers were drawn from the seed: see [`Settings::drawn`].
    pub fn drawn(&self) -> u64 {
        self.random.drawn
    }

    /// Adds a token of the prompt or the answer. Penalties apply to it from now on.
    pub fn accept(&mut self, token: Token) {
        self.stages.iter_mut().for_each(|stage| stage.accept(token));
    }

    /// Draws the next token; `logits` has one value for each token of the vocabulary.
    ///
    /// # Errors
    ///
    /// Returns an error if a logit is NaN or infinity, or no token has a finite logit.
    pub fn choose(&mut self, logits: &[f32]) -> Result<Token, Error> {
        let uniform = self.random.uniform();
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

    /// Returns the candidates of the last choice, with their probabilities.
    pub fn candidates(&self) -> &[Candidate] {
        self.candidates.as_slice()
    }

    /// Returns the candidates that remain after all samplers, with their probabilities. Use it to
    /// inspect the distribution without drawing a token.
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
        let k = rest.first().and_then(|stage| stage.only_keeps());
        candidates.fill(logits, k.unwrap_or(0))?;
        for stage in &mut rest[usize::from(k.is_some())..] {
            stage.apply(candidates, &mut || random.uniform());
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

/// A generator of random numbers that counts them.
#[derive(Debug)]
struct Random {
    generator: Pcg64,
    drawn: u64,
}

impl Random {
    /// Creates the generator of a seed, after `drawn` numbers.
    fn new(seed: u32, drawn: u64) -> Self {
        let mut generator = Pcg64::seed_from_u64(seed.into());
        generator.advance(drawn.into());
        Random { generator, drawn }
    }

    /// Draws a number from 0 to 1, excluding 1: a multiple of 2^-53, each with the same probability.
    fn uniform(&mut self) -> f64 {
        self.drawn += 1;
        (self.generator.next_u64() >> 11) as f64 * 2f64.powi(-53)
    }
}
