//! The updates of a request's answers.

use std::{
    mem::take,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rope_cpu::{
    Token,
    batch::{Reply, Update},
    generate::Timings,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{JoinHandle, spawn_blocking},
};

use super::{answers::size, echoes::Listener, latency::Latency, log::Record, memory::Held};

/// The answers to a request pause when this many bytes of updates are unread.
const UNREAD_MAX: usize = 256 << 10;

/// Updates of all answers to a request, with the index of the answer. Each update also goes to the
/// log record and the metrics.
pub struct Updates {
    receiver: UnboundedReceiver<(usize, Update)>,
    record: Option<Arc<Record>>,
    latency: Arc<Latency>,
    arrived: Instant,
    /// Time after which a silent stream sends a keep-alive; `None` for never.
    pub keep_alive: Option<Duration>,
    /// Timings of each answer at its last token.
    tokens: Vec<Timings>,
    /// Remembers the answers; `None` for prompts without a conversation.
    listener: Option<Listener>,
    /// The text and the tokens of each answer, if there is a listener.
    heard: Vec<(String, Vec<Token>)>,
    /// The end of an answer, held back until the answer is remembered, since the client may send it
    /// back immediately.
    ended: Option<(JoinHandle<()>, (usize, Update))>,
    /// Bytes of updates that were sent but not received yet.
    unread: Arc<AtomicUsize>,
    /// The memory of the prompts.
    _held: Held,
}

/// Sends the updates of an answer.
struct Sender {
    index: usize,
    sender: UnboundedSender<(usize, Update)>,
    unread: Arc<AtomicUsize>,
}

impl Reply for Sender {
    fn update(&mut self, update: Update) {
        self.unread.fetch_add(bytes(&update), Relaxed);
        // A closed channel is ignored here: the scheduler drops the answer before the next step.
        let _ = self.sender.send((self.index, update));
    }

    fn is_ready(&self) -> bool {
        self.unread.load(Relaxed) < UNREAD_MAX
    }

    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl Updates {
    /// Creates the receiver of `count` answers, and a reply for each answer.
    pub fn new(
        count: usize,
        latency: Arc<Latency>,
        keep_alive: Option<Duration>,
        held: Held,
    ) -> (Self, impl Iterator<Item = Box<dyn Reply>>) {
        let (sender, receiver) = unbounded_channel();
        let unread = Arc::<AtomicUsize>::default();
        let of_replies = unread.clone();
        let replies = (0..count).map(move |index| {
            let (sender, unread) = (sender.clone(), of_replies.clone());
            Box::new(Sender { index, sender, unread }) as Box<dyn Reply>
        });
        let record = Record::current();
        record.iter().for_each(|record| record.expect(count));
        let arrived = record.as_ref().map_or_else(Instant::now, |record| record.arrived());
        let tokens = vec![Timings::default(); count];
        let (listener, heard, ended) = (None, vec![Default::default(); count], None);
        let updates = Updates {
            receiver,
            record,
            latency,
            arrived,
            keep_alive,
            tokens,
            listener,
            heard,
            ended,
            unread,
            _held: held,
        };
        (updates, replies)
    }

    /// Sets the listener that remembers the answers.
    pub fn heard_by(self, listener: Option<Listener>) -> Self {
        Updates { listener, ..self }
    }

    /// Waits for the next update; `None` if the scheduler has stopped.
    pub async fn next(&mut self) -> Option<(usize, Update)> {
        if self.ended.is_none() {
            let (index, update) = self.receiver.recv().await?;
            self.unread.fetch_sub(bytes(&update), Relaxed);
            self.record.iter().for_each(|record| record.update(index, &update));
            self.measure(index, &update);
            match self.hear(index, &update) {
                Some(remembering) => self.ended = Some((remembering, (index, update))),
                None => return Some((index, update)),
            }
        }
        // Keep it in place while waiting, since the caller may drop this future.
        if let Some((remembering, _)) = &mut self.ended {
            let _ = remembering.await;
        }
        self.ended.take().map(|(_, update)| update)
    }

    /// Collects an answer. At its end, starts to remember it.
    fn hear(&mut self, index: usize, update: &Update) -> Option<JoinHandle<()>> {
        let listener = self.listener.as_ref()?;
        let (text, tokens) = self.heard.get_mut(index)?;
        match update {
            Update::Generated(generated) => {
                *text += &generated.text;
                tokens.extend(generated.token);
                None
            }
            Update::Ended(_) => {
                let (listener, text, tokens) = (listener.clone(), take(text), take(tokens));
                Some(spawn_blocking(move || listener.remember(&text, tokens)))
            }
            _ => None,
        }
    }

    /// Adds the time of a token to the metrics.
    fn measure(&mut self, index: usize, update: &Update) {
        if let Update::Generated(generated) = update
            && let Some(before) = self.tokens.get_mut(index)
            && generated.timings.generated > before.generated
        {
            let now = generated.timings;
            match before.generated {
                0 => self.latency.first_token(self.arrived.elapsed()),
                // The scheduler measures it, so a slow client makes no difference.
                _ => self.latency.next_token(now.generating.saturating_sub(before.generating)),
            }
            *before = now;
        }
    }
}

/// Returns the memory of an update in the channel.
fn bytes(update: &Update) -> usize {
    size_of::<(usize, Update)>() + size(update)
}
