//! DRY ("don't repeat yourself", by p-e-w, oobabooga/text-generation-webui#5677): penalizes a token
//! that would continue a sequence that occurred before. The penalty grows with the length of the
//! sequence.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet, VecDeque},
};

use super::{
    SamplerSetting, StageKind,
    candidates::Candidates,
    clamp_finite,
    setting::Range,
    stage::{AdjustLogits, Stage},
};
use crate::{
    Token,
    patterns::{Node, Patterns, ROOT},
    settings::Values,
    tokenizer::{Ends, Special, Tokenizer},
};

/// The default sequence breakers: texts that end a repetition.
pub const BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

/// The penalty for continuing a repetition of the allowed length; 0 for no penalty.
pub static MULTIPLIER: SamplerSetting =
    SamplerSetting::new("dry_multiplier", 0.0, Range::FINITE, "DRY penalty multiplier; 0: off")
        .details(
            "DRY penalizes the token that would continue a repetition of `dry_allowed_length` \
             tokens or more.",
        );

/// The factor of the penalty for each further token of the repetition.
pub static BASE: SamplerSetting = SamplerSetting::new(
    "dry_base",
    1.75,
    Range::Real {
        permitted: |x| x >= 1.0 && x.is_finite(),
        expected: "a finite number of at least 1",
    },
    "DRY: penalty growth per further token",
)
.rare()
.no_effect(unless_on);

/// The length from which repetitions are penalized.
pub static ALLOWED_LENGTH: SamplerSetting = SamplerSetting::new(
    "dry_allowed_length",
    2.0,
    Range::COUNT,
    "DRY: allowed length of a repetition",
)
.rare()
.no_effect(unless_on);

/// The number of last tokens that are searched for repetitions; -1 for all.
pub static LAST_N: SamplerSetting = SamplerSetting::new(
    "dry_penalty_last_n",
    64.0,
    Range::LAST,
    "DRY: number of last tokens that are searched; -1: all",
)
.rare()
.no_effect(unless_on);

fn unless_on(values: &Values) -> Option<&'static str> {
    (MULTIPLIER.real(values) == 0.0).then_some("without `dry_multiplier`")
}

pub(super) static SAMPLER: StageKind = StageKind {
    name: "dry",
    other_names: &[],
    letter: 'd',
    settings: &[&MULTIPLIER, &BASE, &ALLOWED_LENGTH, &LAST_N],
    stage: |settings| {
        let values = &settings.values;
        let (multiplier, last_n) = (MULTIPLIER.real(values), LAST_N.last(values));
        if multiplier == 0.0 || last_n == 0 {
            return None;
        }
        let mut breakers: HashMap<Token, Vec<Vec<Token>>> = HashMap::new();
        for (first, others) in &*settings.dry_breakers {
            breakers.entry(*first).or_default().push(others.clone());
        }
        Some(Box::new(Dry {
            multiplier,
            base: BASE.real(values),
            allowed_length: ALLOWED_LENGTH.count(values),
            last_n,
            breakers,
            recent: VecDeque::new(),
            repeated: Vec::new(),
            lengths: HashMap::new(),
        }))
    },
};

/// The tokens of a sequence breaker: the first token and the others. A sequence breaker is a text
/// that ends a repetition.
pub type Breaker = (Token, Vec<Token>);

/// Returns all ways to spell `texts` with tokens. One token may contain the text. Or a token may
/// end with the start of the text, and the following tokens spell the rest.
pub fn breakers(tokenizer: &Tokenizer, texts: &[String]) -> Vec<Breaker> {
    let mut given = HashSet::new();
    let texts = texts.iter().filter(|text| !text.is_empty() && given.insert(text.as_str()));
    let patterns = Patterns::new(texts.cloned().collect());
    // The texts that start with the prefix of each node.
    let mut with_prefix: HashMap<Node, Vec<usize>> = HashMap::new();
    for (text, bytes) in patterns.texts().iter().enumerate() {
        let mut node = ROOT;
        for byte in bytes.bytes() {
            node = patterns.step(node, byte);
            with_prefix.entry(node).or_default().push(text);
        }
    }
    let mut rests: HashMap<(usize, usize), Vec<Token>> = HashMap::new();
    let (mut breakers, mut contained, mut ways) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for token in 0..tokenizer.len() as Token {
        let mut node = ROOT;
        contained.clear();
        for byte in tokenizer.decode(&[token], true) {
            node = patterns.step(node, byte);
            contained.extend(patterns.suffixes(node).filter_map(|node| patterns.text(node)));
        }
        contained.sort_unstable();
        contained.dedup();
        // In the order of texts, the longest part first.
        ways.clear();
        ways.extend(contained.iter().map(|text| (*text, Reverse(usize::MAX))));
        for node in patterns.suffixes(node) {
            let shared = patterns.depth(node);
            let texts = with_prefix.get(&node).into_iter().flatten();
            let begun = texts.filter(|text| contained.binary_search(text).is_err());
            ways.extend(begun.map(|text| (*text, Reverse(shared))));
        }
        ways.sort_unstable();
        seen.clear();
        for &(text, Reverse(shared)) in &ways {
            let rest = match shared {
                usize::MAX => Vec::new(),
                // A part of a character has no tokens.
                _ => match patterns.texts()[text].get(shared..) {
                    Some(rest) => rests
                        .entry((text, shared))
                        .or_insert_with(|| tokenizer.encode(rest, Special::AsText, Ends::Omit))
                        .clone(),
                    None => continue,
                },
            };
            if seen.insert(rest.clone()) || shared == usize::MAX {
                breakers.push((token, rest));
            }
        }
    }
    breakers
}

#[derive(Debug)]
struct Dry {
    multiplier: f32,
    base: f32,
    allowed_length: usize,
    last_n: usize,
    /// Each breaker's other tokens, by its first token.
    breakers: HashMap<Token, Vec<Vec<Token>>>,
    /// The last tokens, the newest first.
    recent: VecDeque<Token>,
    /// For each of the last tokens, the length of the text's suffix that also stops there.
    repeated: Vec<usize>,
    /// The length of the repetition that each token would continue.
    lengths: HashMap<Token, usize>,
}

impl Stage for Dry {
    fn apply(&mut self, candidates: &mut Candidates, _uniform: &mut dyn FnMut() -> f64) {
        candidates.adjust(self.look_back());
    }

    fn accept(&mut self, token: Token) {
        self.recent.truncate(self.last_n - 1);
        self.recent.push_front(token);
    }

    fn only_adjusts_logits(&self) -> bool {
        true
    }

    fn adjust(&mut self, logits: &mut [f32]) {
        self.look_back().adjust_all(logits);
    }
}

impl Dry {
    /// Finds the repetitions. Several suffixes of the text may have occurred before the same token;
    /// the longest counts.
    fn look_back(&mut self) -> &Self {
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

/// Returns the number of tokens after the last breaker; `recent` has the newest token first.
fn since_breaker(recent: &[Token], breakers: &HashMap<Token, Vec<Vec<Token>>>) -> usize {
    let longest_at = |(i, token): (usize, &Token)| {
        // `recent` is in reverse order, so the other tokens are before `i`.
        let spelled = |others: &&Vec<Token>| {
            others.len() <= i && others.iter().eq(recent[i - others.len()..i].iter().rev())
        };
        breakers.get(token)?.iter().filter(spelled).map(Vec::len).max().map(|len| i - len)
    };
    recent.iter().enumerate().find_map(longest_at).unwrap_or(recent.len())
}

/// Computes for each position how many tokens from there on equal the tokens from the start. This
/// is the Z-function, in linear time. The first value stays 0.
fn common_prefixes(tokens: &[Token], lengths: &mut Vec<usize>) {
    lengths.clear();
    lengths.resize(tokens.len(), 0);
    // The range that reaches farthest among the ranges known to equal the start.
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

impl AdjustLogits for Dry {
    fn tokens(&self) -> impl Iterator<Item = Token> {
        self.lengths.keys().copied()
    }

    fn adjusted(&self, token: Token, logit: f32) -> f32 {
        let Some(&len) = self.lengths.get(&token) else { return logit };
        let penalty = self.multiplier * self.base.powf((len - self.allowed_length) as f32);
        // A huge penalty must not make the token impossible, or certain.
        clamp_finite(logit, logit - penalty.clamp(f32::MIN, f32::MAX))
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
