//! Tokens in, logits out: one conversation's state over a model.

use std::ops::ControlFlow;

use crate::{Token, kv_cache::CacheType};

/// What a session is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Positions that the session can hold.
    pub context: usize,
    /// Tokens computed together while reading a prompt.
    pub micro_batch: usize,
    /// How keys are stored.
    pub keys: CacheType,
    /// How values are stored.
    pub values: CacheType,
    /// Worker threads.
    pub threads: usize,
}

/// The state of one conversation: the tokens read so far and their keys and values.
pub struct Session {
    tokens: Vec<Token>,
    options: Options,
}

impl Session {
    /// Positions that the session can hold.
    pub fn context(&self) -> usize {
        self.options.context
    }

    /// The tokens whose keys and values are in the cache.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Reads `tokens` after those already there; returns the logits that follow the last of them.
    /// `progress` is called with the number done after each micro-batch, and may stop the reading
    /// (then `Ok(None)`; what was read stays).
    pub fn extend(
        &mut self,
        tokens: &[Token],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Option<&[f32]>, String> {
        self.tokens.extend_from_slice(tokens);
        let _ = progress(tokens.len());
        Err("not yet".into())
    }

    /// Forgets all but the first `len` tokens; returns how many are kept, which is fewer where
    /// a sliding window has already dropped keys that would be needed again.
    pub fn truncate(&mut self, len: usize) -> usize {
        self.tokens.truncate(len);
        len
    }
}
