//! Passkey retrieval: tests whether a model finds a number that is hidden in a long text.
//!
//! The test is from Mohtashami and Jaggi, "Landmark Attention" (arXiv:2305.16300), section 4.2; the
//! prompt from figure 9 of the DPRoPE paper; the effective context window from Chen et al.,
//! "Positional Interpolation" (arXiv:2306.15595), section 3.3.

use std::ops::ControlFlow;

use super::random::Random;
use crate::{
    Token,
    batch::{self, Request, Scheduler, Update},
    generate::Limits,
    sample::Settings,
    tokenizer::{Ends, Special, Tokenizer},
};

const TASK: &str = "There is an important info hidden inside a lot of irrelevant text. Find it and \
                    memorize them. I will quiz you about the important information there.";
/// The sentences that hide what a prompt asks for.
pub(super) const FILLER: &str = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and \
                      back again.";
const QUESTION: &str = "What is the pass key? The pass key is";

/// The number of tokens that are reserved for the answer. A key takes up to seven.
pub const ANSWER_TOKENS: usize = 16;

/// A test with one key hidden in one prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// The maximum number of tokens of the prompt and its answer.
    pub length: usize,
    /// The place of the key in the text, in percent of its length.
    pub depth: u32,
    /// The number of the key among the keys for the same place, from 0.
    pub number: usize,
}

impl Test {
    /// Returns the key, a number of five digits that is determined by the test and the seed.
    pub fn key(&self, seed: u32) -> u32 {
        let Test { length, depth, number } = *self;
        let numbers = [seed.into(), length as u64, depth.into(), number as u64];
        10_000 + Random::new(&numbers).below(90_000) as u32
    }
}

/// A generator of prompts of one length.
pub struct Prompts<'t, 'a> {
    tokenizer: &'t Tokenizer<'a>,
    fillers: usize,
}

impl<'t, 'a> Prompts<'t, 'a> {
    /// Creates a generator of the longest prompts that fit, with their answers, in `length` tokens.
    ///
    /// # Errors
    ///
    /// Returns the length that the shortest prompt requires, if `length` is less.
    pub fn new(tokenizer: &'t Tokenizer<'a>, length: usize) -> Result<Self, usize> {
        const KEY: u32 = 12_345; // takes nearly the maximum number of tokens of a key
        let tokens = |fillers| Prompts { tokenizer, fillers }.tokens(50, KEY).len();
        let shortest = tokens(0) + ANSWER_TOKENS;
        let more = length.checked_sub(shortest).ok_or(shortest)?;
        // The first filler also adds a line break, so it is not measured.
        let mut fillers = more / tokens(2).saturating_sub(tokens(1)).max(1);
        let fits = |fillers| tokens(fillers) + ANSWER_TOKENS <= length;
        while fillers > 0 && !fits(fillers) {
            fillers -= 1;
        }
        // The comparison of lengths stops the loop if a tokenizer drops all of the filler.
        while fits(fillers + 1) && tokens(fillers + 1) > tokens(fillers) {
            fillers += 1;
        }
        Ok(Prompts { tokenizer, fillers })
    }

    /// Returns the prompt with `key` hidden at `depth` percent. Two prompts share their tokens up
    /// to the first of their keys.
    pub fn tokens(&self, depth: u32, key: u32) -> Vec<Token> {
        let before = (self.fillers * depth as usize + 50) / 100;
        let filler = |count| [FILLER].repeat(count).join(" ");
        let key = format!("The pass key is {key}. Remember it. {key} is the pass key.");
        let after = self.fillers - before.min(self.fillers);
        let parts = [TASK.into(), filler(before), key, filler(after), QUESTION.into()];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let bos = self.tokenizer.bos().filter(|_| self.tokenizer.adds_bos());
        let text = self.tokenizer.encode(parts.join("\n"), Special::AsText, Ends::Omit);
        bos.into_iter().chain(text).collect()
    }
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The text of the answer, up to the token that decided the result.
    pub answer: String,
    /// Whether the answer is the key.
    pub found: bool,
    /// The number of prompt tokens that were already in the cache.
    pub reused: usize,
}

/// Generates the answer to `prompt` greedily.
///
/// The prefix that `prompt` shares with an earlier one is reused, so prompts should be passed in the
/// order of decreasing depth. All of them share at least `retain_from` tokens: see
/// [`Request::retain_from`]. `reading` receives the number of tokens processed so far.
///
/// # Errors
///
/// Returns an error if the model cannot be computed.
///
/// ```no_run
/// use rope_cpu::{eval::passkey::{Prompts, ask}, model::Model, runtime::{Plan, Scheduling, Settings}};
///
/// let model = Model::open("model.gguf")?;
/// let (plan, tokenizer) = (Plan::new(&model, &Settings::default())?, model.tokenizer()?);
/// let mut scheduler = plan.scheduler(&model, tokenizer, Scheduling::default())?;
/// let prompts = Prompts::new(tokenizer, 4000).map_err(|least| format!("{least} tokens at least"))?;
/// let outcome = ask(&mut scheduler, &prompts.tokens(50, 12345), 12345, None, &mut |_| {})?;
/// println!("{}: {}", outcome.found, outcome.answer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn ask(
    scheduler: &mut Scheduler<'_>,
    prompt: &[Token],
    key: u32,
    retain_from: Option<usize>,
    reading: &mut dyn FnMut(usize),
) -> Result<Outcome, batch::Error> {
    let (key, mut said) = (key.to_string(), String::new());
    let request = Request {
        sampling: Settings::greedy(),
        limits: Limits { tokens_max: Some(ANSWER_TOKENS), ..Limits::default() },
        inexact: true,
        retain_from,
        ..Request::new(prompt.to_vec())
    };
    let answer = scheduler.answer(request, &mut |update| {
        match update {
            Update::Read(progress) => reading(progress.processed),
            Update::Generated(piece) => said += &piece.text,
            _ => {}
        }
        match verdict(&said, &key) {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    })?;
    let found = is_found(&answer.text, &key);
    Ok(Outcome { found, reused: answer.outcome.timings.reused, answer: answer.text })
}

/// Returns whether a complete answer is the key.
///
/// ```
/// use rope_cpu::eval::passkey::is_found;
///
/// assert!(is_found(" 12345.", "12345") && !is_found("123456", "12345"));
/// ```
pub fn is_found(answer: &str, key: &str) -> bool {
    verdict(answer, key).unwrap_or(answer.trim() == key)
}

/// Returns whether an answer is the key; `None` if further text can change the result.
fn verdict(answer: &str, key: &str) -> Option<bool> {
    let answer = answer.trim_start();
    if answer.len() <= key.len() {
        return (!key.starts_with(answer)).then_some(false);
    }
    let rest = answer.strip_prefix(key);
    Some(rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit())))
}

/// Returns the effective context window: the largest length with a share of found keys of at least
/// `least`, at this length and all shorter ones. `rates` has lengths in ascending order with
/// shares.
///
/// ```
/// # use rope_cpu::eval::passkey::effective_window;
/// let rates = [(1000, 1.0), (2000, 0.95), (4000, 0.4)];
/// assert_eq!(effective_window(&rates, 0.9), Some(2000));
/// ```
pub fn effective_window(rates: &[(usize, f64)], least: f64) -> Option<usize> {
    let reached = rates.iter().take_while(|(_, rate)| *rate >= least);
    reached.last().map(|(length, _)| *length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_judged_as_soon_as_it_cannot_change() {
        for (answer, expected) in [
            ("", None),
            (" ", None),
            (" 123", None),
            (" 12345", None),
            (" 12345.", Some(true)),
            ("12345 is", Some(true)),
            (" 123456", Some(false)),
            (" 124", Some(false)),
            (" the", Some(false)),
            (" 1234 5", Some(false)),
        ] {
            assert_eq!(verdict(answer, "12345"), expected, "{answer:?}");
        }
    }

    #[test]
    fn keys_have_five_digits_and_differ_from_place_to_place() {
        let test = Test { length: 8192, depth: 50, number: 0 };
        let others =
            [Test { length: 8193, ..test }, Test { depth: 51, ..test }, Test { number: 1, ..test }];
        for other in others {
            assert_ne!(other.key(1), test.key(1));
            assert!((10_000..100_000).contains(&other.key(1)));
        }
        assert_ne!(test.key(1), test.key(2));
        assert_eq!(test.key(1), test.key(1));
    }

    #[test]
    fn a_window_ends_where_the_rate_first_falls_below() {
        let rates = [(1, 1.0), (2, 0.2), (4, 0.1), (8, 0.9)];
        assert_eq!(effective_window(&rates, 0.2), Some(2));
        assert_eq!(effective_window(&rates, 0.1), Some(8));
        assert_eq!(effective_window(&rates, 1.1), None);
        assert_eq!(effective_window(&[], 0.2), None);
    }
}
