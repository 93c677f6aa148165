//! Whether a model finds a number that is hidden somewhere in a long text.
//!
//! Mohtashami and Jaggi, "Landmark Attention" (arXiv:2305.16300), section 4.2, with the prompt as
//! figure 9 of the DPRoPE paper has it; the effective context window is that of Chen et al.,
//! "Positional Interpolation" (arXiv:2306.15595), section 3.3.

use std::ops::ControlFlow;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::{
    Token,
    generate::{self, Event, Limits, generate},
    model::Session,
    sample::{Sampler, Settings},
    tokenizer::{Ends, Special, Tokenizer},
};

const TASK: &str = "There is an important info hidden inside a lot of irrelevant text. Find it and \
                    memorize them. I will quiz you about the important information there.";
const FILLER: &str = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and \
                      back again.";
const QUESTION: &str = "What is the pass key? The pass key is";

/// Tokens of a length that are left for the answer: a key takes up to seven.
const ANSWER_TOKENS: usize = 16;

/// One prompt: a key, hidden once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Tokens of the prompt and its answer, at most.
    pub length: usize,
    /// How far down the text the key is, in percent.
    pub depth: u32,
    /// Which of several keys at that place, from 0.
    pub number: usize,
}

impl Test {
    /// The key: five digits, always the same for one seed.
    pub fn key(&self, seed: u32) -> u32 {
        let Test { length, depth, number } = *self;
        let mut bytes = [0; 32];
        let parts = [seed.into(), length as u64, depth.into(), number as u64];
        for (bytes, part) in bytes.chunks_exact_mut(8).zip(parts) {
            bytes.copy_from_slice(&part.to_le_bytes());
        }
        let mixed = crc32fast::hash(&bytes).into();
        10_000 + (Pcg64::seed_from_u64(mixed).next_u64() % 90_000) as u32
    }
}

/// How prompts of one length are made.
pub struct Prompts<'t, 'a> {
    tokenizer: &'t Tokenizer<'a>,
    fillers: usize,
}

impl<'t, 'a> Prompts<'t, 'a> {
    /// Prompts that, with their answers, are as long as can be within `length`.
    ///
    /// # Errors
    /// The tokens that the shortest takes, if there is no room for it.
    pub fn new(tokenizer: &'t Tokenizer<'a>, length: usize) -> Result<Self, usize> {
        const KEY: u32 = 12_345; // takes as many tokens as any, or nearly
        let tokens = |fillers| Prompts { tokenizer, fillers }.tokens(50, KEY).len();
        let shortest = tokens(0) + ANSWER_TOKENS;
        let more = length.checked_sub(shortest).ok_or(shortest)?;
        // The first filler takes a line break besides.
        let mut fillers = more / tokens(2).saturating_sub(tokens(1)).max(1);
        let fits = |fillers| tokens(fillers) + ANSWER_TOKENS <= length;
        while fillers > 0 && !fits(fillers) {
            fillers -= 1;
        }
        // Tokenizers may leave all of it out.
        while fits(fillers + 1) && tokens(fillers + 1) > tokens(fillers) {
            fillers += 1;
        }
        Ok(Prompts { tokenizer, fillers })
    }

    /// The prompt that hides `key` so many percent down. Prompts share their tokens up to where
    /// the first of their keys is.
    pub fn tokens(&self, depth: u32, key: u32) -> Vec<Token> {
        let before = (self.fillers * depth as usize + 50) / 100;
        let filler = |count| [FILLER].repeat(count).join(" ");
        let key = format!("The pass key is {key}. Remember it. {key} is the pass key.");
        let after = self.fillers - before.min(self.fillers);
        let parts = [TASK.into(), filler(before), key, filler(after), QUESTION.into()];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let bos = self.tokenizer.bos().filter(|_| self.tokenizer.adds_bos());
        let text = self.tokenizer.encode(&parts.join("\n"), Special::AsText, Ends::Omit);
        bos.into_iter().chain(text).collect()
    }
}

/// What a model answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its text, up to where it was right or wrong.
    pub answer: String,
    /// Whether that is the key.
    pub found: bool,
    /// Tokens of the prompt that did not have to be read again.
    pub reused: usize,
}

/// Lets the model answer `prompt` greedily. Of what `session` has read before, it keeps the part
/// that is the same: prompts that hide their key ever earlier are read the fastest.
///
/// # Errors
/// If the model cannot be computed.
pub fn ask(
    session: &mut Session<'_>,
    tokenizer: &Tokenizer<'_>,
    prompt: &[Token],
    key: u32,
    reading: &mut dyn FnMut(usize),
) -> Result<Outcome, generate::Error> {
    let greedy = Settings { seed: Some(0), temperature: 0.0, ..Settings::default() };
    let limits = Limits { tokens_max: Some(ANSWER_TOKENS), ..Limits::default() };
    let (key, mut said) = (key.to_string(), String::new());
    let answer =
        generate(session, tokenizer, &mut Sampler::new(greedy)?, prompt, &limits, &mut |event| {
            match event {
                Event::Reading { done, .. } => {
                    reading(done);
                    ControlFlow::Continue(())
                }
                Event::Again { .. } => ControlFlow::Continue(()),
                Event::Text(text) => {
                    said += text;
                    match verdict(&said, &key) {
                        Some(_) => ControlFlow::Break(()),
                        None => ControlFlow::Continue(()),
                    }
                }
            }
        })?;
    let found = verdict(&answer.text, &key).unwrap_or(answer.text.trim() == key);
    Ok(Outcome { found, reused: answer.timings.reused, answer: answer.text })
}

/// Whether an answer is the key, once it cannot change any more.
fn verdict(answer: &str, key: &str) -> Option<bool> {
    let answer = answer.trim_start();
    if answer.len() <= key.len() {
        return (!key.starts_with(answer)).then_some(false);
    }
    let rest = answer.strip_prefix(key);
    Some(rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit())))
}

/// The largest of these lengths up to which, and at which, the share of keys that are found is at
/// least `least`; `rates` in the order of their lengths.
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
