//! The updates of one answer, for a caller that waits for them.

use std::{
    mem::take,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::Duration,
};

use super::{Error, Outcome, Reply, Update};
use crate::{Token, generate::End};

/// The unread updates at which an answer pauses.
const UNREAD_MAX: usize = 8;

/// The updates of one answer. When you drop it, the answer ends.
///
/// ```
/// use rope_cpu::batch::{Reply, Update, Updates};
///
/// let (mut reply, updates) = Updates::channel();
/// reply.update(Update::Started { seed: 7 });
/// assert!(matches!(updates.next(), Some(Update::Started { seed: 7 })));
/// updates.close();
/// assert!(reply.is_closed());
/// ```
#[derive(Debug)]
pub struct Updates {
    receiver: Receiver<Update>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    unread: AtomicUsize,
    closed: AtomicBool,
}

/// Sends the updates of an answer.
struct ToUpdates {
    sender: Sender<Update>,
    state: Arc<State>,
}

impl Reply for ToUpdates {
    fn update(&mut self, update: Update) {
        self.state.unread.fetch_add(1, Relaxed);
        // Without a receiver, the scheduler ends the answer before the next step.
        let _ = self.sender.send(update);
    }

    fn is_ready(&self) -> bool {
        self.state.unread.load(Relaxed) < UNREAD_MAX
    }

    fn is_closed(&self) -> bool {
        self.state.closed.load(Relaxed)
    }
}

impl Updates {
    /// Creates a reply, and the updates that it receives. The answer pauses while 8 of them are
    /// unread.
    pub fn channel() -> (impl Reply + use<>, Updates) {
        let (sender, receiver) = channel();
        let state = Arc::<State>::default();
        (ToUpdates { sender, state: state.clone() }, Updates { receiver, state })
    }

    /// Waits for the next update. Returns `None` if the scheduler is gone.
    pub fn next(&self) -> Option<Update> {
        self.read(self.receiver.recv().ok())
    }

    /// Returns the next update if it is there.
    pub fn ready(&self) -> Option<Update> {
        self.read(self.receiver.try_recv().ok())
    }

    /// Waits at most `time` for the next update; `Ok(None)` if there was none.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the scheduler is gone.
    pub fn next_within(&self, time: Duration) -> Result<Option<Update>, Error> {
        match self.receiver.recv_timeout(time) {
            Ok(update) => Ok(self.read(Some(update))),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Stopped),
        }
    }

    /// Ends the answer. [`Update::Ended`] still follows.
    pub fn close(&self) {
        self.state.closed.store(true, Relaxed);
    }

    fn read(&self, update: Option<Update>) -> Option<Update> {
        self.state.unread.fetch_sub(usize::from(update.is_some()), Relaxed);
        update
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        self.close();
    }
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The text.
    pub text: String,
    /// The generated tokens, including the ones that spell a stop string, but without the model's
    /// end token.
    pub tokens: Vec<Token>,
    /// The seed of the sampler.
    pub seed: u32,
    /// How it ended.
    pub outcome: Outcome,
}

/// The part of an answer that its updates have brought.
///
/// ```
/// use rope_cpu::batch::{Collected, Update};
///
/// let mut collected = Collected::default();
/// let answered = collected.add(Update::Started { seed: 7 })?;
/// assert!(answered.is_none()); // it has not ended
/// # Ok::<(), rope_cpu::batch::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Collected {
    text: String,
    tokens: Vec<Token>,
    seed: u32,
}

impl Collected {
    /// Adds an update. Returns the answer once it has ended.
    ///
    /// # Errors
    /// If the answer failed.
    pub fn add(&mut self, update: Update) -> Result<Option<Answered>, Error> {
        match update {
            Update::Started { seed } => self.seed = seed,
            Update::Generated(piece) => {
                self.text += &piece.text;
                self.tokens.extend(piece.token);
            }
            Update::Ended(outcome) => {
                let Collected { text, tokens, seed } = take(self);
                return Ok(Some(Answered { text, tokens, seed, outcome }));
            }
            Update::Failed(error) => return Err(error),
            _ => {}
        }
        Ok(None)
    }
}

/// An answer with a listener, which can end it.
pub(crate) struct Heard<'u> {
    on_update: &'u mut dyn FnMut(&Update) -> ControlFlow<()>,
    collected: Collected,
    stopped: bool,
    /// Whether tokens followed after `on_update` ended the answer: the rest of a step with drafts.
    cut: bool,
}

impl<'u> Heard<'u> {
    /// Creates an empty answer.
    pub fn new(on_update: &'u mut dyn FnMut(&Update) -> ControlFlow<()>) -> Self {
        Heard { on_update, collected: Collected::default(), stopped: false, cut: false }
    }

    /// Adds an update, as [`Collected::add`] does. Tokens after the listener ended the answer are not
    /// part of it.
    pub fn add(&mut self, update: Update, of: &Updates) -> Result<Option<Answered>, Error> {
        if self.stopped && matches!(update, Update::Generated(_)) {
            self.cut = true;
            return Ok(None);
        }
        if !self.stopped && (self.on_update)(&update).is_break() {
            self.stopped = true;
            of.close();
        }
        let mut answered = self.collected.add(update)?;
        if let Some(answered) = &mut answered
            && self.cut
        {
            answered.outcome.end = End::Caller;
        }
        Ok(answered)
    }
}
