//! WordPiece (BERT): cuts each word, from its start, into the longest tokens.
//!
//! The text is normalized first: control characters are removed, and accents and capitals as well
//! if the model was trained so. Spaces separate words. A punctuation mark or Chinese character is
//! always a word by itself. The vocabulary spells the start of a word as `▁`. A word that tokens
//! cannot spell becomes the unknown token.
//!
//! The tokens match Hugging Face's tokenizers, with which models were trained. llama.cpp differs
//! for Hangul, which it does not decompose, and for some control characters.

use icu_normalizer::DecomposingNormalizerBorrowed;
use regex_automata::meta::Regex;

use super::{Error, roles::token_of, spm::SPACE, vocabulary::Vocabulary};
use crate::{Token, gguf::Metadata};

const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
const LOWERCASE: &str = "tokenizer.ggml.normalizer.lowercase";
const STRIP_ACCENTS: &str = "tokenizer.ggml.normalizer.strip_accents";

/// The unknown token of BERT's first vocabularies, which is the default.
const UNKNOWN_DEFAULT: Token = 100;

/// Maximum characters of a word; longer ones are unknown.
const WORD_MAX: usize = 100;

/// Characters that are removed: control characters, except white space, and replacements of bytes
/// that are not text.
const REMOVED: &str = r"[[\p{Cc}\p{Cf}\p{Co}\x{FFFD}]--[\t\n\r]]";
/// [`REMOVED`] and the marks of accents.
const REMOVED_WITH_MARKS: &str = r"[[\p{Cc}\p{Cf}\p{Co}\p{Mn}\x{FFFD}]--[\t\n\r]]";

/// Characters that are words by themselves: punctuation marks, ASCII symbols, Chinese characters.
const ALONE: &str = r"!-/:-@\[-`{-~\p{P}\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}";

/// The data of WordPiece in addition to the vocabulary.
#[derive(Debug)]
pub(super) struct WordPiece {
    lowercase: bool,
    strip_accents: bool,
    removed: Regex,
    words: Regex,
    unknown: Token,
}

impl WordPiece {
    pub fn from_metadata<'a>(
        metadata: &Metadata<'a>,
        vocabulary: &Vocabulary<'a>,
    ) -> Result<Self, Error> {
        let lowercase = metadata.bool(LOWERCASE)?.unwrap_or(true);
        let strip_accents = metadata.bool(STRIP_ACCENTS)?.unwrap_or(lowercase);
        // The patterns are valid: a test compiles them.
        let regex =
            |pattern: &str| Regex::new(pattern).map_err(|_| Error::Model { name: "bert".into() });
        let known = |token: &Token| (*token as usize) < vocabulary.len();
        let unknown = token_of(metadata, vocabulary, UNKNOWN)?;
        let unknown = unknown.or(Some(UNKNOWN_DEFAULT).filter(known));
        Ok(WordPiece {
            lowercase,
            strip_accents,
            removed: regex(if strip_accents { REMOVED_WITH_MARKS } else { REMOVED })?,
            words: regex(&format!(r"[{ALONE}]|[^\s{ALONE}]+"))?,
            unknown: Metadata::require(UNKNOWN, unknown)?,
        })
    }

    /// Appends the tokens of `text`.
    pub fn encode(&self, text: &[u8], vocabulary: &Vocabulary, tokens: &mut Vec<Token>) {
        let text = self.normalized(&String::from_utf8_lossy(text));
        for word in self.words.find_iter(&text) {
            self.encode_word(&text[word.range()], vocabulary, tokens);
        }
    }

    fn normalized(&self, text: &str) -> String {
        let decomposed = match self.strip_accents {
            true => DecomposingNormalizerBorrowed::new_nfd().normalize(text),
            false => text.into(),
        };
        let (mut kept, mut rest) = (String::with_capacity(decomposed.len()), 0);
        for removed in self.removed.find_iter(&*decomposed) {
            kept.push_str(&decomposed[rest..removed.start()]);
            rest = removed.end();
        }
        kept.push_str(&decomposed[rest..]);
        match self.lowercase {
            true => kept.chars().flat_map(char::to_lowercase).collect(),
            false => kept,
        }
    }

    fn encode_word(&self, word: &str, vocabulary: &Vocabulary, tokens: &mut Vec<Token>) {
        let first = tokens.len();
        let spelled = format!("{SPACE}{word}");
        let ends = spelled.char_indices().map(|(start, c)| start + c.len_utf8());
        // The first token must cover the start of the word and at least one character.
        let ends: Vec<_> = ends.skip(1).collect();
        let mut start = 0;
        while start < spelled.len() && ends.len() <= WORD_MAX {
            let mut longest = ends.iter().rev().take_while(|end| **end > start);
            let token = |end: &usize| Some((vocabulary.token(&spelled[start..*end])?, *end));
            let Some((token, end)) = longest.find_map(token) else { break };
            tokens.push(token);
            start = end;
        }
        if start < spelled.len() {
            tokens.truncate(first);
            tokens.push(self.unknown);
        }
    }
}
