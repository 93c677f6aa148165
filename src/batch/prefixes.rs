//! Sequences kept for later prompts with the same prefix.

use crate::{
    Token,
    model::{Engine, Sequence},
    tokenizer::common_prefix,
};

/// Sequences of earlier answers, least recently used first. When the engine's pool is full, the
/// first ones are removed.
#[derive(Default)]
pub struct Prefixes(Vec<Kept>);

/// A sequence of an earlier answer.
pub struct Kept {
    /// The owner of its tokens: see [`Request::owner`](super::Request::owner).
    pub owner: u64,
    /// The sequence.
    pub sequence: Sequence,
}

impl Prefixes {
    /// Finds the owner's sequence that shares the longest reusable prefix with a text, at these
    /// adapter scales. Returns it with the prefix length.
    pub fn longest(
        &self,
        engine: &Engine,
        owner: u64,
        tokens: &[Token],
        scales: &[f32],
    ) -> Option<(&Sequence, usize)> {
        let own = self.0.iter().filter(|kept| kept.owner == owner).map(|kept| &kept.sequence);
        let reusable = |sequence| (sequence, reusable(engine, sequence, tokens, scales));
        own.map(reusable).max_by_key(|(_, reused)| *reused)
    }

    /// Returns the sequences, least recently used first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Kept> {
        self.0.iter()
    }

    /// Keeps a sequence, and removes the owner's sequences that are a prefix of it. Does nothing if
    /// it is a prefix of one.
    pub fn keep(&mut self, engine: &Engine, owner: u64, sequence: Sequence) {
        let tokens = sequence.tokens();
        self.0.retain(|other| {
            let replaced = other.owner == owner && continues(engine, &sequence, &other.sequence);
            !replaced || other.sequence.tokens() == tokens
        });
        let continued = self.0.iter().position(|other| {
            other.owner == owner && continues(engine, &other.sequence, &sequence)
        });
        let last = match continued {
            Some(index) => self.0.remove(index),
            None => Kept { owner, sequence },
        };
        self.0.push(last);
    }

    /// Removes the least recently used sequence. Returns `false` if there was none.
    pub fn remove_oldest(&mut self) -> bool {
        let any = !self.0.is_empty();
        self.0.drain(..usize::from(any));
        any
    }
}

/// Returns whether a sequence starts with the tokens of another one, and can return to them.
pub fn continues(engine: &Engine, sequence: &Sequence, other: &Sequence) -> bool {
    let (tokens, len) = (sequence.tokens(), other.tokens().len());
    let alike = sequence.adapter_scales() == other.adapter_scales();
    let returns = || tokens.len() == len || engine.reusable(sequence, len, len) == len;
    alike && tokens.starts_with(other.tokens()) && returns()
}

/// Returns the length of the prefix that the sequence has already computed for a text at these
/// adapter scales.
pub fn reusable(engine: &Engine, sequence: &Sequence, tokens: &[Token], scales: &[f32]) -> usize {
    engine.reusable(sequence, shared(sequence, tokens, scales), tokens.len())
}

/// Truncates a sequence to its [`reusable`] prefix. Returns the prefix length.
pub fn reuse(engine: &Engine, sequence: &mut Sequence, tokens: &[Token], scales: &[f32]) -> usize {
    let shared = shared(sequence, tokens, scales);
    engine.reuse(sequence, shared, tokens.len())
}

/// Returns the length of the common prefix of a text and a sequence with these adapter scales, up to
/// the first token that was left out. The last token does not count, since it is always computed for
/// its logits.
pub fn shared(sequence: &Sequence, tokens: &[Token], scales: &[f32]) -> usize {
    let most = sequence.first_omitted().unwrap_or(usize::MAX).min(tokens.len() - 1);
    match sequence.adapter_scales() == scales {
        true => common_prefix(sequence.tokens(), tokens).min(most),
        false => 0,
    }
}
