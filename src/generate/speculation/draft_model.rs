//! A draft model: a smaller one with the same vocabulary.

use std::{
    mem,
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
};

use thiserror::Error;

use super::{DRAFTS_MAX, Drafter};
use crate::{
    Token,
    model::{self, Model, Role, Sequence, Session},
    tokenizer::{Tokenizer, common_prefix},
};

/// The most tokens by which the vocabularies may differ in size, as in llama.cpp: models of a
/// family pad theirs to different sizes.
const SIZE_DIFFERENCE_MAX: usize = 128;
/// The first tokens, of which models of a family may use some differently.
const FIRST: Token = 5;

/// The share of drafts that is assumed to be right at each depth, until it is measured.
const PRIOR: f64 = 0.7;
/// The number of drafts over which the share is averaged.
const MEMORY: f64 = 16.0;

/// A model that cannot draft for another one.
#[derive(Debug, Error)]
pub enum Error {
    /// One of the models has no tokenizer.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The sizes of the vocabularies differ.
    #[error(
        "a draft model must have the vocabulary of the model: this one has {draft} tokens, and the \
         model {target}"
    )]
    Size {
        /// The number of the draft model's tokens.
        draft: usize,
        /// The number of the model's tokens.
        target: usize,
    },
    /// A token differs.
    #[error(
        "a draft model must have the vocabulary of the model: token {token} is {draft:?} in this one, \
         and {target:?} in the model"
    )]
    Token {
        /// The token.
        token: Token,
        /// Its text in the draft model.
        draft: String,
        /// Its text in the model.
        target: String,
    },
}

/// Drafts the tokens that a smaller model holds for the most likely.
pub struct DraftModel {
    /// The threads and buffers of the model, which all drafters for different texts share.
    session: Arc<Mutex<Session>>,
    sequence: Sequence,
    /// The number of tokens in the vocabulary of the model that the drafts are for.
    vocabulary: usize,
    /// The last drafts, and the number of tokens of the text before them.
    drafts: Vec<Token>,
    drafted_at: usize,
    /// The share of right drafts at each depth.
    right: [f64; DRAFTS_MAX],
    /// Whether the memory of the session is too small for this text beside the others: there are no drafts.
    crowded: bool,
}

impl DraftModel {
    /// Creates a drafter for `target` from an empty session of the draft model.
    ///
    /// # Errors
    /// If the models have different vocabularies.
    pub fn new(target: &Model, session: Session) -> Result<Self, Error> {
        check(session.model().tokenizer()?, target.tokenizer()?)?;
        let (vocabulary, right) = (target.config().vocabulary, [PRIOR; DRAFTS_MAX]);
        let sequence = session.clone();
        let session = Arc::new(Mutex::new(session));
        let (drafts, drafted_at, crowded) = (Vec::new(), 0, false);
        Ok(DraftModel { session, sequence, vocabulary, drafts, drafted_at, right, crowded })
    }

    /// Returns a drafter for another text, which computes with the same threads and buffers.
    pub fn beside(&self) -> Self {
        let session = self.session.clone();
        let mut sequence = self.sequence.clone();
        sequence.truncate(0);
        let (drafts, right, crowded) = (Vec::new(), [PRIOR; DRAFTS_MAX], false);
        DraftModel { session, sequence, drafts, right, crowded, ..*self }
    }

    /// Computes with the session, whose sequence is that of this text meanwhile. If its memory is too small,
    /// other texts get what this one has.
    fn with_session(
        &mut self,
        compute: impl FnOnce(&mut Session) -> Result<(), model::Error>,
    ) -> Result<(), model::Error> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        mem::swap(&mut **session, &mut self.sequence);
        let result = compute(&mut session);
        mem::swap(&mut **session, &mut self.sequence);
        if let Err(model::Error::PoolFull { .. }) = result {
            self.sequence.truncate(0);
            self.crowded = true;
            return Ok(());
        }
        result
    }
}

/// Reads the part of `text` that the session does not have. Returns the token that follows; `None` if
/// the text does not fit in the context, or `progress` stopped it.
fn read(
    session: &mut Session,
    text: &[Token],
    progress: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Option<Token>, model::Error> {
    let shared = common_prefix(text, session.tokens());
    let read = session.truncate(shared.min(text.len().saturating_sub(1)));
    let rest = &text[read..];
    if !session.rope().plan().shifts && text.len() > session.capacity() {
        return Ok(None);
    }
    // Drafts are removed later if they are wrong.
    let positions = session.positions() + rest.len();
    session.retain_from(positions);
    let role = if rest.len() <= session.room() { Role::Answer } else { Role::Prompt };
    Ok(session.read_last(rest, role, &mut |_| progress())?.map(likeliest))
}

impl Drafter for DraftModel {
    fn begin(
        &mut self,
        prompt: &[Token],
        progress: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), model::Error> {
        self.drafts.clear();
        self.crowded = false;
        self.with_session(|session| read(session, prompt, progress).map(drop))
    }

    fn follow(&mut self, text: &[Token]) {
        let after = text.get(self.drafted_at..).unwrap_or_default();
        for ((draft, token), share) in self.drafts.drain(..).zip(after).zip(&mut self.right) {
            let right = draft == *token;
            *share += (f64::from(u8::from(right)) - *share) / MEMORY;
            if !right {
                break;
            }
        }
    }

    fn chance(&self, depth: usize) -> f64 {
        self.right.get(depth).copied().unwrap_or(0.0)
    }

    fn draft(
        &mut self,
        text: &[Token],
        count: usize,
        drafts: &mut Vec<Token>,
    ) -> Result<(), model::Error> {
        if self.crowded {
            return Ok(());
        }
        let vocabulary = self.vocabulary;
        self.with_session(|session| {
            let mut next = read(session, text, &mut || ControlFlow::Continue(()))?;
            while let Some(token) = next.filter(|&token| (token as usize) < vocabulary) {
                drafts.push(token);
                if drafts.len() == count || session.full() {
                    break;
                }
                let keep_going = &mut |_| ControlFlow::Continue(());
                next = session.answer(token, keep_going)?.map(likeliest);
            }
            Ok(())
        })?;
        (self.drafts, self.drafted_at) = (drafts.clone(), text.len());
        Ok(())
    }
}

/// Returns the token with the largest logit.
fn likeliest(logits: &[f32]) -> Token {
    let better = |best: usize, i: usize| if logits[i] > logits[best] { i } else { best };
    (0..logits.len()).fold(0, better) as Token
}

/// Checks that two vocabularies are the same, except for first tokens and padding.
fn check(draft: &Tokenizer<'_>, target: &Tokenizer<'_>) -> Result<(), Error> {
    let (drafts, targets) = (draft.len(), target.len());
    if drafts.abs_diff(targets) > SIZE_DIFFERENCE_MAX {
        return Err(Error::Size { draft: drafts, target: targets });
    }
    let common = drafts.min(targets) as Token;
    match (FIRST..common).find(|&token| draft.text(token) != target.text(token)) {
        None => Ok(()),
        Some(token) => {
            let text = |of: &Tokenizer<'_>| of.text(token).unwrap_or_default().to_string();
            Err(Error::Token { token, draft: text(draft), target: text(target) })
        }
    }
}
