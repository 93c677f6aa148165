//! Byte-level BPE: the bytes of each word merged in the order in which training merged them.

use std::{cmp::Reverse, collections::BinaryHeap, collections::HashMap};

use super::{Error, byte_alphabet, pre::Pre, vocabulary::Vocabulary};
use crate::{Token, gguf::Metadata};

const MERGES: &str = "tokenizer.ggml.merges";

/// What byte-level BPE needs besides the vocabulary.
#[derive(Debug)]
pub(super) struct Bpe {
    pre: Pre,
    /// The token of each single byte, where the vocabulary has it.
    bytes: Vec<Option<Token>>,
    /// For each two tokens that merge: the rank of the merge, and what it makes.
    merges: HashMap<(Token, Token), (u32, Token)>,
}

impl Bpe {
    pub fn from_metadata<'a>(
        metadata: &Metadata<'a>,
        vocabulary: &Vocabulary<'a>,
        pre: Pre,
    ) -> Result<Self, Error> {
        let lines = Metadata::require(MERGES, metadata.strings(MERGES)?)?;
        let mut merges = HashMap::with_capacity(lines.len());
        let mut joined = String::new();
        for (index, line) in lines.into_iter().enumerate() {
            let lossy = || String::from_utf8_lossy(line).into_owned();
            let malformed = || Error::MergeForm { index, merge: lossy() };
            let text = std::str::from_utf8(line).map_err(|_| malformed())?;
            let (left, right) = text.split_once(' ').ok_or_else(malformed)?;
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            let token = |text: &str| {
                let missing = || Error::MergeToken { index, merge: lossy(), missing: text.into() };
                vocabulary.token(text).ok_or_else(missing)
            };
            let rank = u32::try_from(index).map_err(|_| malformed())?;
            // Of two equal merges the first counts.
            merges.entry((token(left)?, token(right)?)).or_insert((rank, token(&joined)?));
        }
        let bytes = byte_alphabet::CHARACTERS
            .iter()
            .map(|character| vocabulary.token(character.encode_utf8(&mut [0; 4])))
            .collect();
        Ok(Self { pre, bytes, merges })
    }

    /// Appends the tokens of `text`.
    pub fn encode(&self, text: &str, vocabulary: &Vocabulary, tokens: &mut Vec<Token>) {
        let mut spelled = String::new();
        for word in self.pre.words(text) {
            if self.pre.ignore_merges {
                spelled.clear();
                byte_alphabet::encode(word.as_bytes(), &mut spelled);
                if let Some(token) = vocabulary.token(&spelled) {
                    tokens.push(token);
                    continue;
                }
            }
            self.merge(word, tokens);
        }
    }

    fn merge(&self, word: &str, tokens: &mut Vec<Token>) {
        // A byte without a token merges with nothing, and is left out in the end.
        let mut symbols: Vec<Symbol> = word
            .bytes()
            .enumerate()
            .map(|(i, byte)| Symbol {
                token: self.bytes[byte as usize],
                previous: i.checked_sub(1),
                next: Some(i + 1).filter(|&next| next < word.len()),
            })
            .collect();
        let mut queue = BinaryHeap::new();
        let propose = |queue: &mut BinaryHeap<_>, symbols: &[Symbol], left: usize, right: usize| {
            if let (Some(a), Some(b)) = (symbols[left].token, symbols[right].token)
                && let Some(&(rank, _)) = self.merges.get(&(a, b))
            {
                queue.push(Reverse((rank, left, right, a, b)));
            }
        };
        for right in 1..symbols.len() {
            propose(&mut queue, &symbols, right - 1, right);
        }
        while let Some(Reverse((_, left, right, a, b))) = queue.pop() {
            // A pair is out of date once either side has changed.
            if symbols[left].token != Some(a) || symbols[right].token != Some(b) {
                continue;
            }
            symbols[left].token = self.merges.get(&(a, b)).map(|&(_, merged)| merged);
            symbols[right].token = None;
            let next = symbols[right].next;
            symbols[left].next = next;
            if let Some(next) = next {
                symbols[next].previous = Some(left);
                propose(&mut queue, &symbols, left, next);
            }
            if let Some(previous) = symbols[left].previous {
                propose(&mut queue, &symbols, previous, left);
            }
        }
        tokens.extend(symbols.iter().filter_map(|symbol| symbol.token));
    }
}

/// A part of the word, linked to its neighbours; it has no token once it is merged into another.
struct Symbol {
    token: Option<Token>,
    previous: Option<usize>,
    next: Option<usize>,
}
