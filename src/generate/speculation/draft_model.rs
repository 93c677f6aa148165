//! A draft model: a smaller model with the same vocabulary.

use std::{
    mem,
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
};

use thiserror::Error;

use super::{Drafter, Scores, Target, acceptance::Acceptance, likeliest, prefill::LOOK_AHEAD};
use crate::{
    Token,
    model::{self, Model, Role, Sequence, Session},
    tokenizer::{Tokenizer, common_prefix},
};

/// Maximum difference of the vocabulary sizes, as in llama.cpp: models of a family pad their
/// vocabularies to different sizes.
const SIZE_DIFFERENCE_MAX: usize = 128;
/// The first token to compare. Models of a family may use earlier ones differently.
const FIRST: Token = 5;

/// Why a model cannot draft for another one.
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

/// Drafts the most likely tokens of a smaller model.
///
/// ```no_run
/// use rope_cpu::{
///     generate::speculation::{Count, DraftModel, Speculation},
///     model::Model,
///     rope::Flags,
/// };
///
/// let (model, small) = (Model::open("7b.gguf")?, Model::open("0.5b.gguf")?);
/// let drafter = DraftModel::new(&model, small.session(&Flags::default(), 4096)?)?;
/// let speculation = Speculation::new(vec![Box::new(drafter)], Count::UpTo(8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DraftModel {
    /// The threads and buffers of the draft model, shared by the drafters of all texts.
    session: Arc<Mutex<Session>>,
    sequence: Sequence,
    /// The vocabulary size of the model that the drafts are for.
    vocabulary: usize,
    acceptance: Acceptance,
    /// Set when the session's KV cache has no room for this text. There are then no drafts.
    crowded: bool,
}

impl DraftModel {
    /// Creates a drafter for `target` from an empty session of the draft model.
    ///
    /// # Errors
    /// If the models have different vocabularies.
    pub fn new(target: &Model, session: Session) -> Result<Self, Error> {
        check(session.model().tokenizer()?, target.tokenizer()?)?;
        let (vocabulary, acceptance) = (target.config().vocabulary, Acceptance::default());
        let sequence = session.clone();
        let session = Arc::new(Mutex::new(session));
        Ok(DraftModel { session, sequence, vocabulary, acceptance, crowded: false })
    }

    /// Returns a drafter for another text. It shares the threads and buffers of this one.
    pub fn beside(&self) -> Self {
        let session = self.session.clone();
        let mut sequence = self.sequence.clone();
        sequence.truncate(0);
        let acceptance = Acceptance::default();
        DraftModel { session, sequence, acceptance, crowded: false, ..*self }
    }

    /// Runs `compute` on the session, with the sequence of this text. If the KV cache is full,
    /// drops this sequence to make room for others.
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

/// Processes the part of `text` that the session lacks. Returns the most likely next token; `None`
/// if the text does not fit in the context, or `progress` stopped it.
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
    // Wrong drafts are removed later.
    let positions = session.positions() + rest.len();
    session.retain_from(positions);
    let role = if rest.len() <= session.room() { Role::Answer } else { Role::Prompt };
    Ok(session.read_last(rest, role, &mut |_| progress())?.map(likeliest))
}

/// Processes a prompt, and generates tokens until a probe has the attention of [`LOOK_AHEAD`] tokens.
/// Returns the number of probed tokens: 0 if the prompt does not fit, or `progress` stopped it.
fn look_ahead(
    session: &mut Session,
    prompt: &[Token],
    progress: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<usize, model::Error> {
    let (mut next, mut probed) = (read(session, prompt, progress)?, 0);
    while let Some(token) = next {
        probed += 1;
        let ends = session.model().tokenizer()?.is_end_of_generation(token);
        if probed == LOOK_AHEAD || ends || session.full() {
            break;
        }
        next = session.answer(token, &mut |_| ControlFlow::Continue(()))?.map(likeliest);
    }
    Ok(probed)
}

impl Drafter for DraftModel {
    fn begin(
        &mut self,
        prompt: &[Token],
        progress: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), model::Error> {
        self.acceptance.forget();
        self.crowded = false;
        self.with_session(|session| read(session, prompt, progress).map(drop))
    }

    fn score(
        &mut self,
        prompt: &[Token],
        progress: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Scores, model::Error> {
        self.crowded = false;
        let (mut scores, mut stopped) = (Scores::None, false);
        self.with_session(|session| {
            session.engine().probe(prompt.len(), LOOK_AHEAD)?;
            let probed = look_ahead(session, prompt, &mut || {
                let flow = progress();
                stopped = flow.is_break();
                flow
            });
            let probe = session.engine().take_probe();
            scores = match (probed?, probe) {
                (0, _) if stopped => Scores::Incomplete,
                (0, _) | (_, None) => Scores::None,
                (probed, Some(probe)) => Scores::Of(probe.into_means(probed)),
            };
            Ok(())
        })?;
        Ok(scores)
    }

    fn follow(&mut self, text: &[Token]) {
        self.acceptance.follow(text);
    }

    fn chance(&self, depth: usize) -> f64 {
        self.acceptance.share(depth)
    }

    fn draft(
        &mut self,
        text: &[Token],
        count: usize,
        _target: Option<&mut Target<'_>>,
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
        self.acceptance.drafted(text, drafts);
        Ok(())
    }
}

/// Checks that two vocabularies are equal, except for the first tokens and padding.
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
