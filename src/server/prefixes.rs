//! Sequences that are kept for later prompts that begin with the same tokens.

use rope_cpu::{
    Token,
    model::{Engine, Sequence},
    tokenizer::common_prefix,
};

/// Sequences of earlier answers, the least recently used first. Their number is limited by the
/// memory of the engine's pool, which removes the first ones when it is full.
#[derive(Default)]
pub struct Prefixes(Vec<Sequence>);

impl Prefixes {
    /// Returns the sequence that has the most reusable first tokens of a text with these scales of
    /// adapters, with their number.
    pub fn longest(
        &self,
        engine: &Engine,
        tokens: &[Token],
        scales: &[f32],
    ) -> Option<(&Sequence, usize)> {
        let reusable = |sequence| (sequence, reusable(engine, sequence, tokens, scales));
        self.0.iter().map(reusable).max_by_key(|(_, reused)| *reused)
    }

    /// Returns the sequences, the least recently used first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Sequence> {
        self.0.iter()
    }

    /// Keeps a sequence, unless another one continues it. Those that it continues are removed.
    pub fn keep(&mut self, sequence: Sequence) {
        let tokens = sequence.tokens();
        self.0.retain(|other| !continues(&sequence, other) || other.tokens() == tokens);
        let continued = self.0.iter().position(|other| continues(other, &sequence));
        let last = match continued {
            Some(index) => self.0.remove(index),
            None => sequence,
        };
        self.0.push(last);
    }

    /// Removes the least recently used sequence. Returns whether there was one.
    pub fn remove_oldest(&mut self) -> bool {
        let any = !self.0.is_empty();
        self.0.drain(..usize::from(any));
        any
    }
}

/// Returns whether a sequence begins with the tokens of another one, and has its keys and values for them.
pub fn continues(sequence: &Sequence, other: &Sequence) -> bool {
    let alike = sequence.adapter_scales() == other.adapter_scales();
    alike && sequence.tokens().starts_with(other.tokens())
}

/// Returns the number of first tokens of a text with these scales of adapters that need not be computed,
/// since a sequence has them.
pub fn reusable(engine: &Engine, sequence: &Sequence, tokens: &[Token], scales: &[f32]) -> usize {
    if sequence.adapter_scales() != scales {
        return 0;
    }
    // The last token is always computed, since the logits follow from it.
    let shared = common_prefix(sequence.tokens(), tokens).min(tokens.len() - 1);
    engine.reusable(sequence, shared, tokens.len())
}
