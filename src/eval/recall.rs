//! The perplexity of needles that a text repeats at its end: what the search of LongRoPE2 lowers.
//!
//! Shang et al., "LongRoPE2: Near-Lossless LLM Context Window Scaling" (arXiv:2502.20082), section 3. Few
//! tokens of a real text need far ones, so that its perplexity hides whether a method reaches them. The paper
//! hides a needle at the start of each of ten books, asks for it at the end, and scores only the tokens of the
//! answer. Here one text has up to 16 needles, and its end asks for them in another order, so that one
//! prompt gives as many answers.

use std::{collections::HashSet, ops::Range};

use super::{
    likelihood::Sums,
    perplexity::{Bucket, Error, Scored, Window, score as score_windows},
    random::Random,
    ruler::key,
};
use crate::{
    Token,
    model::Engine,
    tokenizer::{Ends, Special, Tokenizer},
};

/// Maximum needles of a text.
const NEEDLES: usize = 16;

/// A text with needles at its start, and their repetitions at its end.
pub struct Text {
    /// The tokens.
    pub tokens: Vec<Token>,
    /// The tokens of each answer, in order.
    pub answers: Vec<Range<usize>>,
}

impl Text {
    /// Hides needles in the middle of `text`, whose length stays the same. The same text and seed give the
    /// same needles. Needles and answers take at most half of it.
    ///
    /// # Errors
    /// If the text is too short for two needles. The error is the minimum length in tokens.
    pub fn new(tokenizer: &Tokenizer<'_>, text: &[Token], seed: u64) -> Result<Self, usize> {
        let encode = |text: &str| tokenizer.encode(text, Special::AsText, Ends::Omit);
        let mut random = Random::new(&[seed, text.len() as u64]);
        let mut used = HashSet::new();
        let mut word = || {
            let mut word = key(&mut random);
            while !used.insert(word.clone()) {
                word = key(&mut random);
            }
            word
        };
        // The sentence that is hidden and repeated, and the index of its answer's first token.
        let mut needle = || {
            let question = format!("\nThe magic word of {} is", word());
            let sentence = encode(&format!("{question} {}", word()));
            let start = encode(&question);
            let start = start.iter().zip(&sentence).take_while(|(a, b)| a == b).count();
            (sentence, start)
        };
        let mut needles: Vec<_> = (0..NEEDLES).map(|_| needle()).collect();
        let taken = |count: usize| {
            2 * needles[..count].iter().map(|(sentence, _)| sentence.len()).sum::<usize>()
        };
        let fits = |count: &usize| 2 * taken(*count) < text.len();
        let count = (2..=NEEDLES).rev().find(fits).ok_or(2 * taken(2) + 1)?;
        let rest = text.len() - taken(count);
        needles.truncate(count);

        // The first token may become BOS.
        let mut tokens = text[..1].to_vec();
        tokens.extend(needles.iter().flat_map(|(sentence, _)| sentence));
        tokens.extend(&text[1..rest]);
        random.shuffle(&mut needles);
        let mut answers = Vec::new();
        for (sentence, start) in needles {
            answers.push(tokens.len() + start..tokens.len() + sentence.len());
            tokens.extend(sentence);
        }
        Ok(Text { tokens, answers })
    }
}

/// Scores only the `answers` of a text, with a bucket for each. `bos` replaces the first token. Calls `read`
/// after each step with the number of tokens read.
///
/// # Errors
/// As for [`perplexity_while`](super::perplexity::perplexity_while).
pub fn score(
    engine: &mut Engine,
    tokens: &[Token],
    answers: &[Range<usize>],
    bos: Option<Token>,
    read: &mut dyn FnMut(usize) -> std::ops::ControlFlow<()>,
) -> Result<Scored, Error> {
    let first = answers.iter().map(|answer| answer.start).min().unwrap_or(tokens.len());
    let window = Window { tokens: 0..tokens.len(), scored: first.max(1)..tokens.len(), bos: true };
    let buckets = answers.iter().map(|answer| (answer.clone(), Sums::default()));
    let mut buckets: Vec<(Range<usize>, Sums)> = buckets.collect();
    let mut all = Sums::default();
    score_windows(engine, tokens, &[window], bos, read, &mut |_, token| {
        let Some(token) = token else { return Ok(()) };
        let answer = buckets.iter_mut().find(|(answer, _)| answer.contains(&token.position));
        if let Some((_, nll)) = answer {
            nll.add(token.nll);
            all.add(token.nll);
        }
        Ok(())
    })?;
    let buckets = buckets.into_iter().map(|(positions, nll)| Bucket { positions, nll });
    Ok(Scored { windows: 1, all, buckets: buckets.collect() })
}
