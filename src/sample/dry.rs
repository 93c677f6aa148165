//! DRY ("don't repeat yourself", by p-e-w, oobabooga/text-generation-webui#5677): a token that would
//! continue a sequence which occurred before is penalized, the more the longer the sequence.

use std::collections::{HashMap, VecDeque};

use super::{Settings, bounded, stage::Adjust};
use crate::{
    Token,
    tokenizer::{Ends, Special, Tokenizer},
};

/// Tokens that spell a text at which repetition is taken to begin anew, the first and the others.
pub type Breaker = (Token, Vec<Token>);

/// Every way in which tokens can spell one of `texts`: a token that holds it, or one that ends with
/// its beginning, and the tokens of the rest.
pub fn breakers(tokenizer: &Tokenizer, texts: &[String]) -> Vec<Breaker> {
    let mut breakers = Vec::new();
    for token in 0..tokenizer.len() as Token {
        let piece = tokenizer.decode(&[token], true);
        for text in texts.iter().filter(|text| !text.is_empty()) {
            let bytes = text.as_bytes();
            if piece.windows(bytes.len()).any(|part| part == bytes) {
                breakers.push((token, Vec::new()));
                continue;
            }
            for shared in (1..bytes.len().min(piece.len() + 1)).rev() {
                if piece.ends_with(&bytes[..shared])
                    && let Some(rest) = text.get(shared..)
                {
                    let breaker = (token, tokenizer.encode(rest, Special::AsText, Ends::Omit));
                    if !breakers.contains(&breaker) {
                        breakers.push(breaker);
                    }
                }
            }
        }
    }
    breakers
}

#[derive(Debug)]
pub(super) struct Dry {
    multiplier: f32,
    base: f32,
    allowed_length: usize,
    last_n: usize,
    /// By their first tokens.
    breakers: HashMap<Token, Vec<Vec<Token>>>,
    /// The last tokens, the newest first.
    recent: VecDeque<Token>,
    /// How long a suffix of the text is repeated at each of them.
    repeated: Vec<usize>,
    /// For each token that would continue a repetition, how long that is.
    lengths: HashMap<Token, usize>,
}

impl Dry {
    /// `None` if the settings penalize nothing.
    pub fn new(settings: &Settings) -> Option<Self> {
        let mut breakers: HashMap<Token, Vec<Vec<Token>>> = HashMap::new();
        for (first, others) in &settings.dry_breakers {
            breakers.entry(*first).or_default().push(others.clone());
        }
        (settings.dry_multiplier != 0.0 && settings.dry_penalty_last_n > 0).then(|| Self {
            multiplier: settings.dry_multiplier,
            base: settings.dry_base,
            allowed_length: settings.dry_allowed_length,
            last_n: settings.dry_penalty_last_n,
            breakers,
            recent: VecDeque::new(),
            repeated: Vec::new(),
            lengths: HashMap::new(),
        })
    }

    pub fn accept(&mut self, token: Token) {
        self.recent.truncate(self.last_n - 1);
        self.recent.push_front(token);
    }

    pub fn forget(&mut self) {
        self.recent.clear();
    }

    /// Finds what the text repeats. For every token that followed an earlier occurrence of how the
    /// text ends now, the longest such end counts.
    pub fn look_back(&mut self) -> &Self {
        self.lengths.clear();
        let recent = self.recent.make_contiguous();
        let limit = since_breaker(recent, &self.breakers);
        if recent.len() <= self.allowed_length || limit < self.allowed_length {
            return self;
        }
        common_prefixes(recent, &mut self.repeated);
        for (i, &len) in self.repeated.iter().enumerate().skip(1) {
            let len = len.min(limit);
            if len >= self.allowed_length {
                let longest = self.lengths.entry(recent[i - 1]).or_default();
                *longest = len.max(*longest);
            }
        }
        self.lengths.retain(|token, _| {
            !self.breakers.get(token).is_some_and(|ways| ways.iter().any(Vec::is_empty))
        });
        self
    }
}

/// How many of the tokens, the newest first, are newer than the last breaker.
fn since_breaker(recent: &[Token], breakers: &HashMap<Token, Vec<Vec<Token>>>) -> usize {
    let longest_at = |(i, token): (usize, &Token)| {
        // Older to newer, hence back from `i`.
        let spelled = |others: &&Vec<Token>| {
            others.len() <= i && others.iter().eq(recent[i - others.len()..i].iter().rev())
        };
        breakers.get(token)?.iter().filter(spelled).map(Vec::len).max().map(|len| i - len)
    };
    recent.iter().enumerate().find_map(longest_at).unwrap_or(recent.len())
}

/// For each position, how many tokens from there on equal those from the start (the Z-function,
/// whose first value is left at 0). Linear in the number of tokens.
fn common_prefixes(tokens: &[Token], lengths: &mut Vec<usize>) {
    lengths.clear();
    lengths.resize(tokens.len(), 0);
    // The part that reaches farthest of those known to equal the start.
    let (mut left, mut right) = (0, 0);
    for i in 1..tokens.len() {
        let known = if i < right { lengths[i - left].min(right - i) } else { 0 };
        let more = tokens[i + known..].iter().zip(&tokens[known..]).take_while(|(a, b)| a == b);
        lengths[i] = known + more.count();
        if i + lengths[i] > right {
            (left, right) = (i, i + lengths[i]);
        }
    }
}

impl Adjust for Dry {
    fn tokens(&self) -> impl Iterator<Item = Token> {
        self.lengths.keys().copied()
    }

    fn adjust(&self, token: Token, logit: f32) -> f32 {
        let Some(&len) = self.lengths.get(&token) else { return logit };
        let penalty = self.multiplier * self.base.powf((len - self.allowed_length) as f32);
        // A penalty beyond all measure must not make the token impossible, or certain.
        bounded(logit, logit - penalty.clamp(f32::MIN, f32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_prefixes_are_those_that_comparison_finds() {
        let mut lengths = Vec::new();
        for bits in 0..1u32 << 12 {
            let tokens: Vec<Token> = (0..12).map(|i| bits >> i & 1).collect();
            common_prefixes(&tokens, &mut lengths);
            for i in 1..12 {
                let same = tokens[i..].iter().zip(&tokens).take_while(|(a, b)| a == b).count();
                assert_eq!(lengths[i], same, "{tokens:?} at {i}");
            }
        }
    }
}
