//! The tokens of a model as llguidance needs them.

use std::{fmt, sync::Arc};

use llguidance::{
    ParserFactory,
    earley::SlicedBiasComputer,
    panic_utils::catch_unwind,
    toktrie::{
        ApproximateTokEnv, INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie,
    },
};

use super::error::Error;
use crate::{
    Token,
    tokenizer::{Kind, Tokenizer},
};

/// The largest number of bytes of a token in an answer; a longer one is spelled by others.
const BYTES_MAX: usize = 1000;

/// The tokens of a model, prepared for constraints: made once for a model, and cheap to clone.
#[derive(Clone)]
pub struct Vocabulary {
    factory: Arc<ParserFactory>,
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Vocabulary").field(&self.trie().vocab_size()).finish()
    }
}

impl Vocabulary {
    /// Prepares the tokens of a model, which takes up to seconds for hundreds of thousands.
    ///
    /// # Errors
    /// Returns an error if the tokens are more or longer than in any usual vocabulary.
    pub fn new(tokenizer: &Tokenizer<'_>) -> Result<Self, Error> {
        let words: Vec<_> =
            (0..tokenizer.len() as Token).map(|token| word(tokenizer, token)).collect();
        let ends: Vec<Token> = tokenizer.end_of_generation().collect();
        Self::of_words(&words, &ends)
    }

    /// Prepares tokens that add these bytes to an answer; `ends` are those that end it.
    pub(super) fn of_words(words: &[Vec<u8>], ends: &[Token]) -> Result<Self, Error> {
        let info =
            TokRxInfo::new(words.len() as u32, ends.first().copied().unwrap_or(INVALID_TOKEN));
        // It panics beyond its limits.
        let factory = catch_unwind(|| {
            let trie = TokTrie::from(&info, words);
            let trie = if ends.is_empty() { trie } else { trie.with_eos_tokens(ends) };
            let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
            let slices = SlicedBiasComputer::general_slices();
            ParserFactory::new(&tokens, InferenceCapabilities::default(), &slices)
        });
        let mut factory = factory.map_err(|e| {
            Error::Vocabulary(e.to_string().lines().next().unwrap_or_default().into())
        })?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.verbose_errors = false;
        // About 2 KB of memory each.
        limits.max_lexer_states = 50_000;
        // What is read by characters needs some items for each token that is permitted. 20,000 take a
        // millisecond.
        limits.step_max_items = 1_000_000;
        Ok(Vocabulary { factory: Arc::new(factory) })
    }

    pub(super) fn factory(&self) -> &ParserFactory {
        &self.factory
    }

    pub(super) fn trie(&self) -> &TokTrie {
        self.factory.tok_env().tok_trie()
    }
}

/// Returns what a token adds to an answer. A control token has a mark before its name, so that a
/// grammar can name it; a token that adds nothing is never chosen.
fn word(tokenizer: &Tokenizer<'_>, token: Token) -> Vec<u8> {
    let mark = TokTrie::SPECIAL_TOKEN_MARKER;
    let word = match tokenizer.kind(token) {
        Kind::Control => {
            let name = tokenizer.text(token).filter(|name| !name.is_empty());
            name.map(|name| [&[mark], name.as_bytes()].concat()).unwrap_or_default()
        }
        _ => tokenizer.piece(token, false).into_owned(),
    };
    let is_text = tokenizer.kind(token) == Kind::Control || word.first() != Some(&mark);
    if is_text && word.len() <= BYTES_MAX { word } else { Vec::new() }
}
