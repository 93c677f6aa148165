//! Byte-pair encoding: merges the symbols of a word in the order learned in training.

use std::{borrow::Cow, cmp::Reverse, collections::BinaryHeap, collections::HashMap};

use super::{
    Error, byte_alphabet,
    pre::Pre,
    spm,
    utf8::{self, Characters},
    vocabulary::Vocabulary,
};
use crate::{Token, gguf::Metadata};

const MERGES: &str = "tokenizer.ggml.merges";

/// How a vocabulary spells text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Byte by byte, in the [`byte_alphabet`].
    Bytes,
    /// Character by character, with spaces as `▁` as in SentencePiece (Gemma 4). A character that
    /// is not a token becomes one token for each of its bytes.
    Characters,
}

/// The data of BPE in addition to the vocabulary.
#[derive(Debug)]
pub(super) struct Bpe {
    spelling: Spelling,
    pre: Pre,
    /// The token of each byte; `None` if the vocabulary lacks it.
    bytes: Vec<Option<Token>>,
    /// The rank and the resulting token of each merge, by the two tokens merged.
    merges: HashMap<(Token, Token), (u32, Token)>,
}

impl Bpe {
    pub fn from_metadata<'a>(
        metadata: &Metadata<'a>,
        vocabulary: &Vocabulary<'a>,
        pre: Pre,
        spelling: Spelling,
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
            // The first of two equal merges takes precedence.
            merges.entry((token(left)?, token(right)?)).or_insert((rank, token(&joined)?));
        }
        let bytes = match spelling {
            Spelling::Bytes => byte_alphabet::CHARACTERS
                .iter()
                .map(|character| vocabulary.token(character.encode_utf8(&mut [0; 4])))
                .collect(),
            Spelling::Characters => {
                (0..=255).map(|byte| vocabulary.token(format!("<0x{byte:02X}>"))).collect()
            }
        };
        Ok(Self { spelling, pre, bytes, merges })
    }

    /// Appends the tokens of `text`.
    pub fn encode(&self, text: &[u8], vocabulary: &Vocabulary, tokens: &mut Vec<Token>) {
        let text = match self.spelling {
            Spelling::Bytes => Cow::Borrowed(text),
            Spelling::Characters => Cow::Owned(spm::escape(text)),
        };
        let Characters { text, bytes } = Characters::new(&text);
        let mut rest = &bytes[..];
        let mut spelled = String::new();
        for word in self.pre.words(&text) {
            let word = rest.split_off(..word.len()).unwrap_or_default();
            if self.pre.ignore_merges {
                spelled.clear();
                byte_alphabet::encode(word, &mut spelled);
                if let Some(token) = vocabulary.token(&spelled) {
                    tokens.push(token);
                    continue;
                }
            }
            self.merge(self.symbols(word, vocabulary), tokens);
        }
    }

    /// Returns the bytes of a token with this text.
    pub fn decode<'t>(&self, text: &'t str) -> Cow<'t, [u8]> {
        match self.spelling {
            Spelling::Bytes => Cow::Owned(byte_alphabet::decode(text)),
            Spelling::Characters => spm::decode(text),
        }
    }

    /// Splits a word into its symbols before any merge. A byte without a token never merges, and is
    /// dropped at the end.
    fn symbols(&self, word: &[u8], vocabulary: &Vocabulary) -> Vec<Symbol> {
        let byte = |byte: &u8| self.bytes[*byte as usize];
        let tokens: Vec<Option<Token>> = match self.spelling {
            Spelling::Bytes => word.iter().map(byte).collect(),
            Spelling::Characters => utf8::characters(word)
                .flat_map(|character| match vocabulary.token(character) {
                    Some(token) => vec![Some(token)],
                    None => character.iter().map(byte).collect(),
                })
                .collect(),
        };
        let len = tokens.len();
        let symbol = |(i, token): (usize, _)| Symbol {
            token,
            previous: i.checked_sub(1),
            next: Some(i + 1).filter(|&next| next < len),
        };
        tokens.into_iter().enumerate().map(symbol).collect()
    }

    fn merge(&self, mut symbols: Vec<Symbol>, tokens: &mut Vec<Token>) {
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
            // A pair is obsolete once either of its tokens has changed.
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

/// A part of a word, linked to its neighbours. It has no token once it is merged into another.
struct Symbol {
    token: Option<Token>,
    previous: Option<usize>,
    next: Option<usize>,
}
