//! The score of a text with one RoPE method: what `advise` compares and `tune` lowers.

use std::{
    num::NonZeroUsize,
    ops::{ControlFlow, Range},
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::Error;
use crate::cli::{args::numbers, flags, log::Log};
use rope_cpu::{
    Token,
    eval::{
        perplexity::{self, Scored, Settings, Windows, perplexity_while},
        recall,
        statistics::paired_test,
    },
    model::{Engine, Model, Options},
    rope::{Plan, Rope},
};

/// The number of ranges of positions. The second half of them is compared, pair by pair.
const RANGES: usize = 32;

/// Differences with a larger probability of chance do not count.
pub const SIGNIFICANT: f64 = 0.05;

/// The text to score, the time for it, and where results go.
#[derive(Clone, Debug, clap::Args)]
pub struct ScoringArgs {
    /// Text like the one that you will use; -: stdin
    #[arg(short, long, value_name = "FILE", help_heading = "Measurement")]
    pub file: PathBuf,

    /// Minutes to measure
    // A command may have another default.
    #[arg(id = "budget", long = "budget", value_name = "N", default_value = "30")]
    #[arg(value_parser = numbers::minutes, help_heading = "Measurement")]
    pub minutes: f64,

    /// Save results to this file, and resume from it
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

impl ScoringArgs {
    /// Returns the time to measure.
    pub fn budget(&self) -> Duration {
        Duration::from_secs_f64(60.0 * self.minutes)
    }
}

/// The tokens of a text whose perplexity is its score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Objective {
    /// The perplexity of its second half
    Perplexity,
    /// The perplexity of words from its start that its end asks for
    Needles,
}

impl Objective {
    /// Returns the name as typed.
    pub fn name(self) -> &'static str {
        match self {
            Objective::Perplexity => "perplexity",
            Objective::Needles => "needles",
        }
    }
}

/// A text to score, as one window.
pub struct Text<'m> {
    pub model: &'m Model,
    pub tokens: Vec<Token>,
    /// The tokens to score; none are all of them.
    answers: Vec<Range<usize>>,
    crc: u32,
}

/// The result of a method, as in the `--output` file.
#[derive(Serialize, Deserialize)]
pub struct Measured {
    pub method: String,
    /// The RoPE plan in words.
    pub rope: String,
    pub length: usize,
    pub text_crc: u32,
    pub scored: Scored,
    pub seconds: f64,
}

impl<'m> Text<'m> {
    /// Creates the text of these tokens.
    pub fn new(model: &'m Model, tokens: Vec<Token>) -> Self {
        let crc = crc(&tokens);
        Text { model, tokens, answers: Vec::new(), crc }
    }

    /// Creates the text of these tokens, with needles by `seed` if these are the objective.
    ///
    /// # Errors
    /// If the text is too short for needles.
    pub fn with_objective(
        model: &'m Model,
        tokens: Vec<Token>,
        objective: Objective,
        seed: u64,
    ) -> Result<Self, Error> {
        if objective == Objective::Perplexity {
            return Ok(Self::new(model, tokens));
        }
        let tokenizer = model.tokenizer().map_err(Error::usage)?;
        let recall::Text { tokens, answers } = recall::Text::new(tokenizer, &tokens, seed)
            .map_err(|least| {
                Error::usage(format_args!(
                    "--objective needles: two needles and their answers need a --ctx of at least {least}"
                ))
            })?;
        Ok(Text { answers, ..Self::new(model, tokens) })
    }

    /// Returns the index in `log` of the result of one of these RoPE plans, in words.
    pub fn known(&self, log: &Log<Measured>, plans: &[String]) -> Option<usize> {
        let (length, crc) = (self.tokens.len(), self.crc);
        log.entries.iter().position(|measured| {
            (measured.length, measured.text_crc) == (length, crc) && plans.contains(&measured.rope)
        })
    }

    /// Scores the text with a method. Calls `read` with the number of tokens read after each step.
    /// Returns `None` if that returns `Break`.
    ///
    /// # Errors
    /// If the model cannot be computed.
    pub fn score(
        &self,
        method: &str,
        plan: &Plan,
        options: Options,
        read: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Option<Measured>, Error> {
        let (began, length) = (Instant::now(), self.tokens.len());
        let mut engine =
            Engine::new(self.model, Rope::new(plan.clone()), options).map_err(Error::failed)?;
        let tokenizer = self.model.tokenizer().map_err(Error::usage)?;
        let settings = Settings {
            windows: Windows::Sliding { window: length, stride: length },
            windows_max: Some(1),
            bos: tokenizer.bos().filter(|_| tokenizer.adds_bos()),
            bucket: NonZeroUsize::new(length.div_ceil(RANGES)),
        };
        let each = &mut |_| Ok(());
        let scored = match &self.answers[..] {
            [] => perplexity_while(&mut engine, &self.tokens, settings, None, read, each),
            answers => recall::score(&mut engine, &self.tokens, answers, settings.bos, read),
        };
        let scored = match scored {
            Err(perplexity::Error::Stopped) => return Ok(None),
            scored => scored.map_err(Error::failed)?,
        };
        Ok(Some(Measured {
            method: method.into(),
            rope: flags::line(plan),
            length,
            text_crc: self.crc,
            scored,
            seconds: began.elapsed().as_secs_f64(),
        }))
    }
}

impl Measured {
    /// Returns the mean negative log-likelihood of each range in the second half, or of each answer.
    fn ranges(&self) -> Vec<f64> {
        let far = self.scored.buckets.iter().filter(|b| b.positions.start >= self.length / 2);
        far.map(|bucket| bucket.nll.mean().value).collect()
    }

    /// Returns the perplexity of the second half, or of the answers.
    pub fn perplexity(&self) -> f64 {
        let ranges = self.ranges();
        (ranges.iter().sum::<f64>() / ranges.len().max(1) as f64).exp()
    }

    /// Returns the probability that another result differs at least as much by chance.
    pub fn probability(&self, other: &Measured) -> f64 {
        let pairs = self.ranges().into_iter().zip(other.ranges());
        paired_test(&pairs.map(|(own, other)| other - own).collect::<Vec<_>>())
    }
}

/// Returns the CRC-32 of tokens as little-endian numbers of 32 bits.
pub fn crc(tokens: &[Token]) -> u32 {
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    crc32fast::hash(&bytes)
}

/// Returns the flags that select a method for a context, as a user types them.
pub fn typed(method: &str, context: usize) -> String {
    let mut parts = method.split(':');
    let scaling = parts.next().unwrap_or_default();
    let more = parts.map(|part| format!(" --{}", part.replacen('=', " ", 1)));
    format!("--ctx {context} --rope-scaling {scaling}{}", more.collect::<String>())
}
