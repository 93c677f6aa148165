//! The vocabulary: the text, score and kind of each token, and the lookup of a token by its text.

use std::collections::HashMap;

use super::Error;
use crate::{Token, gguf::Metadata};

const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TYPES: &str = "tokenizer.ggml.token_type";

/// The kind of a token, with its number in `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kind is not specified.
    Undefined = 0,
    /// A piece of text.
    Normal = 1,
    /// A placeholder for text that the vocabulary cannot spell.
    Unknown = 2,
    /// A mark of structure. It is parsed in text only if the caller allows it.
    Control = 3,
    /// A piece of text that is searched for before the remaining text is tokenized.
    UserDefined = 4,
    /// A reserved token.
    Unused = 5,
    /// A single byte, spelled `<0x0A>`.
    Byte = 6,
}

impl Kind {
    fn from_number(number: i64) -> Option<Self> {
        use Kind::*;
        [Undefined, Normal, Unknown, Control, UserDefined, Unused, Byte]
            .into_iter()
            .find(|kind| *kind as i64 == number)
    }
}

/// The tokens of a file. Their texts are borrowed from it.
#[derive(Debug)]
pub(super) struct Vocabulary<'a> {
    texts: Vec<&'a str>,
    kinds: Vec<Kind>,
    scores: Option<Vec<f32>>,
    tokens: HashMap<&'a [u8], Token>,
    longest: usize,
}

impl<'a> Vocabulary<'a> {
    /// Reads texts, types and scores, and checks that their numbers match. Without types, as in old
    /// files, every token is normal.
    pub fn from_metadata(metadata: &Metadata<'a>) -> Result<Self, Error> {
        let bytes = Metadata::require(TOKENS, metadata.strings(TOKENS)?)?;
        let len = bytes.len();
        if len == 0 {
            return Err(Error::Empty);
        }
        if Token::try_from(len).is_err() {
            return Err(Error::TooMany { len });
        }
        let agree = |key, found: usize| match found == len {
            true => Ok(()),
            false => Err(Error::Length { key, len: found, tokens: len }),
        };

        let mut texts = Vec::with_capacity(len);
        let mut tokens = HashMap::with_capacity(len);
        for (token, bytes) in (0..).zip(bytes) {
            let text = std::str::from_utf8(bytes)
                .map_err(|_| Error::Utf8 { token, text: bytes.escape_ascii().to_string() })?;
            texts.push(text);
            // An empty token, used as padding in some files, is never found in a text.
            if !text.is_empty()
                && let Some(first) = tokens.insert(bytes, token)
            {
                return Err(Error::Duplicate { first, second: token, text: text.into() });
            }
        }

        let kinds = match metadata.integers(TYPES)? {
            None => vec![Kind::Normal; len],
            Some(numbers) => {
                agree(TYPES, numbers.len())?;
                (0..)
                    .zip(numbers)
                    .map(|(token, number)| {
                        Kind::from_number(number).ok_or(Error::Kind { token, number })
                    })
                    .collect::<Result<_, _>>()?
            }
        };

        let scores = metadata.f32s(SCORES)?;
        if let Some(scores) = &scores {
            agree(SCORES, scores.len())?;
            if let Some((token, &score)) = (0..).zip(scores).find(|(_, score)| score.is_nan()) {
                return Err(Error::Score { token, score });
            }
        }
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        Ok(Self { texts, kinds, scores, tokens, longest })
    }

    pub fn len(&self) -> usize {
        self.texts.len()
    }

    pub fn text(&self, token: Token) -> Option<&'a str> {
        self.texts.get(token as usize).copied()
    }

    pub fn kind(&self, token: Token) -> Kind {
        self.kinds.get(token as usize).copied().unwrap_or(Kind::Undefined)
    }

    pub fn set_kind(&mut self, token: Token, kind: Kind) {
        self.kinds[token as usize] = kind;
    }

    /// Returns the token with exactly this text.
    pub fn token(&self, text: impl AsRef<[u8]>) -> Option<Token> {
        let text = text.as_ref();
        // The bound avoids hashing texts that are longer than every token.
        if text.len() > self.longest { None } else { self.tokens.get(text).copied() }
    }

    /// Returns the token for a byte: `<0x0A>`, or else the byte itself if it is ASCII.
    pub fn byte(&self, byte: u8) -> Option<Token> {
        let itself = char::from(byte);
        self.token(format!("<0x{byte:02X}>")).or_else(|| {
            if byte.is_ascii() { self.token(itself.encode_utf8(&mut [0; 4])) } else { None }
        })
    }

    /// Returns the score of a token, 0 if the file has no scores.
    pub fn score(&self, token: Token) -> f32 {
        self.scores.as_ref().map_or(0.0, |scores| scores[token as usize])
    }

    /// Returns an error unless the file has scores and types.
    pub fn require_scores_and_types(&self, metadata: &Metadata<'a>) -> Result<(), Error> {
        Metadata::require(SCORES, self.scores.as_ref())?;
        Metadata::require(TYPES, metadata.get(TYPES))?;
        Ok(())
    }

    /// Returns all tokens with their texts and kinds.
    pub fn iter(&self) -> impl Iterator<Item = (Token, &'a str, Kind)> {
        (0..).zip(&self.texts).zip(&self.kinds).map(|((token, text), kind)| (token, *text, *kind))
    }
}

/// Returns the byte that a text such as `<0x0A>` spells.
pub(super) fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    // The parser of numbers takes a sign.
    let spells = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if spells { u8::from_str_radix(digits, 16).ok() } else { None }
}
