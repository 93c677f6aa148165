//! SentencePiece: merges characters into the pieces with the best scores.
//!
//! Spaces become `▁` (U+2581), and every character is a piece. Then the two neighbours that join to
//! the token with the highest score are merged, until no two neighbours join to a token. Ties go to
//! the leftmost pair.
//!
//! A character that is not a token becomes one token for each of its bytes. Bytes that are not
//! UTF-8 do so as well: a character is as long as its first byte says, as in llama.cpp.

use std::{borrow::Cow, cmp::Ordering, collections::BinaryHeap};

use super::{Error, utf8, vocabulary::Vocabulary};
use crate::{Token, gguf::Metadata};

/// The spelling of a space.
pub(super) const SPACE: &str = "▁";

/// The data of SentencePiece in addition to the vocabulary.
#[derive(Debug)]
pub(super) struct Spm {
    /// Whether a space is added before a text, including one after a special token.
    pub add_space_prefix: bool,
    bytes: Vec<Token>,
}

impl Spm {
    pub fn from_metadata<'a>(
        metadata: &Metadata<'a>,
        vocabulary: &Vocabulary<'a>,
    ) -> Result<Self, Error> {
        vocabulary.require_scores_and_types(metadata)?;
        let bytes = (0..=255)
            .map(|byte| vocabulary.byte(byte).ok_or(Error::ByteMissing { byte }))
            .collect::<Result<_, _>>()?;
        let add_space_prefix = metadata.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        Ok(Self { add_space_prefix, bytes })
    }

    /// Appends the tokens of `text`. `first` is true at the start of the input and after a special
    /// token.
    pub fn encode(
        &self,
        text: &[u8],
        first: bool,
        vocabulary: &Vocabulary,
        tokens: &mut Vec<Token>,
    ) {
        let prefix = if first && self.add_space_prefix { SPACE } else { "" };
        let text = [prefix.as_bytes(), &escape(text)].concat();
        let merged = Merging::new(&text, vocabulary).run();
        for piece in merged {
            match vocabulary.token(piece) {
                Some(token) => tokens.push(token),
                None => tokens.extend(piece.iter().map(|byte| self.bytes[*byte as usize])),
            }
        }
    }
}

/// Returns a text with its spaces replaced by `▁`.
pub(super) fn escape(text: &[u8]) -> Vec<u8> {
    let parts: Vec<_> = text.split(|byte| *byte == b' ').collect();
    parts.join(SPACE.as_bytes())
}

/// Returns the text of a token with its spaces restored.
pub(super) fn decode(text: &str) -> Cow<'_, [u8]> {
    if text.contains(SPACE) {
        Cow::Owned(text.replace(SPACE, " ").into_bytes())
    } else {
        Cow::Borrowed(text.as_bytes())
    }
}

/// Two neighbours that form a token of `len` bytes.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    len: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        // No score is NaN: the vocabulary has been checked.
        let score = self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
        score.then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

/// A piece of the text, linked to its neighbours; `len` is 0 once it is merged into another.
struct Symbol {
    start: usize,
    len: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

struct Merging<'t, 'v> {
    text: &'t [u8],
    vocabulary: &'v Vocabulary<'v>,
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Pair>,
}

impl<'t, 'v> Merging<'t, 'v> {
    fn new(text: &'t [u8], vocabulary: &'v Vocabulary) -> Self {
        let (mut symbols, mut start) = (Vec::with_capacity(text.len()), 0);
        for (i, character) in utf8::characters(text).enumerate() {
            let len = character.len();
            symbols.push(Symbol { start, len, previous: i.checked_sub(1), next: Some(i + 1) });
            start += len;
        }
        if let Some(last) = symbols.last_mut() {
            last.next = None;
        }
        Self { text, vocabulary, symbols, queue: BinaryHeap::new() }
    }

    fn run(mut self) -> impl Iterator<Item = &'t [u8]> {
        for right in 1..self.symbols.len() {
            self.propose(Some(right - 1), Some(right));
        }
        while let Some(Pair { left, right, len, .. }) = self.queue.pop() {
            // A pair is out of date once either side has changed: it was merged, or has grown.
            if self.symbols[left].len == 0
                || self.symbols[right].len == 0
                || self.symbols[left].len + self.symbols[right].len != len
            {
                continue;
            }
            self.symbols[left].len = len;
            self.symbols[right].len = 0;
            let next = self.symbols[right].next;
            self.symbols[left].next = next;
            if let Some(next) = next {
                self.symbols[next].previous = Some(left);
            }
            self.propose(self.symbols[left].previous, Some(left));
            self.propose(Some(left), next);
        }
        let text = self.text;
        self.symbols
            .into_iter()
            .filter(|symbol| symbol.len > 0)
            .map(move |symbol| &text[symbol.start..symbol.start + symbol.len])
    }

    fn propose(&mut self, left: Option<usize>, right: Option<usize>) {
        let (Some(left), Some(right)) = (left, right) else { return };
        let start = self.symbols[left].start;
        let len = self.symbols[left].len + self.symbols[right].len;
        if let Some(token) = self.vocabulary.token(&self.text[start..start + len]) {
            let score = self.vocabulary.score(token);
            self.queue.push(Pair { score, left, right, len });
        }
    }
}
