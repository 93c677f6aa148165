//! A session: one conversation with a model, on an engine with a single sequence.

use std::ops::{ControlFlow, Deref, DerefMut, Range};

use super::{Engine, Error, Feed, Model, Options, Output, Role, Sequence};
use crate::{Token, rope::Rope};

/// One conversation: its tokens with their keys and values. It dereferences to its [`Sequence`].
///
/// You compute logits with it. To generate text, see [`Scheduler`](crate::batch::Scheduler).
///
/// ```no_run
/// # use std::ops::ControlFlow::Continue;
/// # use rope_cpu::{model::Model, rope::Flags, tokenizer::{Ends, Special}};
/// # fn main() -> Result<(), rope_cpu::model::Error> {
/// let model = Model::open("model.gguf")?;
/// let mut session = model.session(&Flags::default(), 2048)?;
/// let prompt = model.tokenizer()?.encode("The sky is", Special::AsText, Ends::Add);
/// if let Some(logits) = session.extend(&prompt, &mut |_| Continue(()))? {
///     println!("{} logits for the next token", logits.len());
/// }
/// session.truncate(1); // keeps the first token, for another prompt
/// # Ok(())
/// # }
/// ```
pub struct Session {
    pub(super) engine: Engine,
    pub(super) sequence: Sequence,
}

/// The progress of computing tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The number of new tokens so far.
    Read(usize),
    /// Earlier tokens are recomputed first, because the longer sequence has other RoPE frequencies.
    Recomputed {
        /// The number of tokens recomputed so far.
        done: usize,
        /// The number of tokens to recompute.
        total: usize,
    },
}

impl Deref for Session {
    type Target = Sequence;

    fn deref(&self) -> &Sequence {
        &self.sequence
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Sequence {
        &mut self.sequence
    }
}

impl Session {
    /// Creates an empty session.
    ///
    /// # Errors
    /// If the worker threads cannot be started, the context is too small to shift, or the model is an
    /// encoder.
    pub fn new(model: &Model, rope: Rope, options: Options) -> Result<Self, Error> {
        model.config().require_logits()?;
        // One sequence cannot fill a larger micro-batch.
        let micro_batch = options.micro_batch.min(options.context);
        let engine = Engine::new(model, rope, Options { micro_batch, ..options })?;
        let sequence = engine.sequence();
        Ok(Session { engine, sequence })
    }

    /// Returns the engine and the sequence.
    pub fn parts(&mut self) -> (&mut Engine, &mut Sequence) {
        (&mut self.engine, &mut self.sequence)
    }

    pub(crate) fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Returns the context: the number of positions that the KV cache can hold.
    pub fn context(&self) -> usize {
        self.engine.options().context
    }

    /// Returns the maximum number of tokens without shifting: the context, or `usize::MAX` if the
    /// context rolls.
    pub fn capacity(&self) -> usize {
        self.engine.capacity()
    }

    /// Returns whether no more tokens fit.
    pub fn full(&self) -> bool {
        !self.rope().plan().shifts && self.tokens().len() == self.capacity()
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        self.engine.model()
    }

    /// Returns the number of tokens in the vocabulary: each token has as many logits.
    pub fn vocabulary(&self) -> usize {
        self.engine.vocabulary()
    }

    /// Returns the RoPE plan and its tables.
    pub fn rope(&self) -> &Rope {
        self.engine.rope()
    }

    /// Returns the bytes that the KV cache uses now.
    pub fn cache_bytes(&self) -> usize {
        self.engine.pool().bytes()
    }

    /// Appends prompt tokens, and returns the logits of the last one. Their bits do not depend on
    /// how you cut a prompt into calls and micro-batches.
    ///
    /// `progress` is called after each micro-batch. If it breaks before the last token, the tokens
    /// so far stay and the result is `Ok(None)`. The result is also `Ok(None)` if `tokens` is
    /// empty.
    ///
    /// # Errors
    /// If the context is too small for the tokens, or a token is not in the vocabulary.
    pub fn extend(
        &mut self,
        tokens: &[Token],
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Option<&[f32]>, Error> {
        self.read_last(tokens, Role::Prompt, progress)
    }

    /// Appends one answer token, and returns its logits. They differ by rounding from the logits of
    /// [`Session::extend`], which sums in another order.
    ///
    /// # Errors
    /// As for [`Session::extend`], which also describes `progress`.
    pub fn answer(
        &mut self,
        token: Token,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Option<&[f32]>, Error> {
        self.read_last(&[token], Role::Answer, progress)
    }

    /// Appends answer tokens in one pass, and returns the logits of each in order. They have the
    /// same bits as with [`Session::answer`], token by token. You can remove all tokens but the
    /// first again by [`truncate`](Sequence::truncate), as if they had not been appended.
    ///
    /// # Errors
    /// As for [`Session::extend`], which also describes `progress`, or if there are more tokens than
    /// [`Session::room`].
    pub fn answer_all<'s>(
        &'s mut self,
        tokens: &[Token],
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Option<impl Iterator<Item = &'s [f32]> + use<'s>>, Error> {
        let room = self.room();
        if tokens.len() > room {
            return Err(Error::Room { tokens: tokens.len(), room });
        }
        let done = self.read(tokens, Role::Answer, 0..tokens.len(), progress, &mut |_, _| {})?;
        Ok(done.then(|| self.engine.logits(tokens.len())))
    }

    /// Returns the maximum tokens for [`Session::answer_all`]: at least 1.
    pub fn room(&self) -> usize {
        self.engine.room(&self.sequence)
    }

    /// Reads tokens of a role, and returns the logits of the last one.
    pub(crate) fn read_last(
        &mut self,
        tokens: &[Token],
        role: Role,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Option<&[f32]>, Error> {
        let last = tokens.len().saturating_sub(1)..tokens.len();
        let done = self.read(tokens, role, last, progress, &mut |_, _| {})?;
        let found = done && !tokens.is_empty();
        Ok(if found { self.engine.logits(1).next() } else { None })
    }

    /// Appends prompt tokens, and calls `each` with the index and the logits of each token in
    /// `wanted` (indices into `tokens`), in order.
    ///
    /// # Errors
    /// As for [`Session::extend`].
    pub fn evaluate(
        &mut self,
        tokens: &[Token],
        wanted: Range<usize>,
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        let keep_going = &mut |_| ControlFlow::Continue(());
        self.read(tokens, Role::Prompt, wanted, keep_going, each)?;
        Ok(())
    }

    /// Reads tokens in micro-batches. Returns false if `progress` stopped it before the end; if it
    /// stopped recomputing, the session has only the tokens recomputed so far.
    fn read(
        &mut self,
        tokens: &[Token],
        role: Role,
        wanted: Range<usize>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<bool, Error> {
        let Session { engine, sequence } = self;
        let (used, total) = (sequence.tokens().len(), tokens.len());
        let mut rest = tokens;
        while !rest.is_empty() {
            let wanted = used + wanted.start..used + wanted.end;
            let output = Output::Logits;
            let mut feeds = [Feed { sequence: &mut *sequence, tokens: rest, role, wanted, output }];
            engine.prepare(&mut feeds)?;
            let recomputing = feeds[0].sequence.to_recompute();
            if recomputing > 0 {
                let state = Progress::Recomputed { done: used - recomputing, total: used };
                if progress(state).is_break() {
                    sequence.truncate(used);
                    return Ok(false);
                }
            }
            engine.advance(&mut feeds, &mut |_, token, logits| each(token - used, logits))?;
            let [feed] = feeds;
            rest = feed.tokens;
            if recomputing == 0 && progress(Progress::Read(total - rest.len())).is_break() {
                return Ok(rest.is_empty());
            }
        }
        Ok(true)
    }
}
