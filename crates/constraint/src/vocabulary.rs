//! The tokens of a model for llguidance.

use std::{borrow::Cow, fmt, sync::Arc};

use llguidance::{
    ParserFactory,
    earley::SlicedBiasComputer,
    panic_utils::catch_unwind,
    toktrie::{
        ApproximateTokEnv, INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie,
    },
};

use crate::{Token, error::Error};

/// Maximum bytes of a token in an answer. Shorter tokens spell a longer text.
const BYTES_MAX: usize = 1000;

/// The text that a token adds to an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word<'w> {
    /// Bytes of the answer. A token without bytes is never chosen.
    Text(Cow<'w, [u8]>),
    /// The name of a control token, for references in grammars.
    Control(&'w str),
}

impl Word<'_> {
    /// Returns the bytes for llguidance, which marks the name of a control token with a byte that
    /// is not in UTF-8. A token that may never be chosen has no bytes.
    fn bytes(self) -> Vec<u8> {
        let mark = TokTrie::SPECIAL_TOKEN_MARKER;
        let word = match self {
            Word::Text(bytes) if bytes.first() == Some(&mark) => Vec::new(),
            Word::Text(bytes) => bytes.into_owned(),
            Word::Control("") => Vec::new(),
            Word::Control(name) => [&[mark], name.as_bytes()].concat(),
        };
        if word.len() <= BYTES_MAX { word } else { Vec::new() }
    }
}

/// The tokens of a model, prepared for constraints. Create it once for each model; clones are
/// cheap.
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
    /// Prepares the tokens of a model. With hundreds of thousands of tokens, this takes up to
    /// seconds. The first word is token 0. Each token in `ends` ends an answer.
    ///
    /// # Errors
    /// Returns an error if the tokens are too many or too long.
    pub fn new<'w>(
        words: impl IntoIterator<Item = Word<'w>>,
        ends: &[Token],
    ) -> Result<Self, Error> {
        let words: Vec<_> = words.into_iter().map(Word::bytes).collect();
        let info =
            TokRxInfo::new(words.len() as u32, ends.first().copied().unwrap_or(INVALID_TOKEN));
        // llguidance panics beyond its limits.
        let factory = catch_unwind(|| {
            let trie = TokTrie::from(&info, &words);
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
        // Each takes about 2 KB of memory.
        limits.max_lexer_states = 50_000;
        // A grammar of single characters needs some items for each allowed token. 20,000 items take
        // a millisecond.
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
