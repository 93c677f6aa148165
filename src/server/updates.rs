//! Updates of the answers to a request.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rope_cpu::{
    batch::{Reply, Update},
    generate::Timings,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{latency::Latency, log::Record};

/// Updates of all answers to a request, with the index of the answer. Each passes through the log's
/// record and the metrics.
pub struct Updates {
    receiver: UnboundedReceiver<(usize, Update)>,
    record: Option<Arc<Record>>,
    latency: Arc<Latency>,
    arrived: Instant,
    /// Time after which a silent stream sends a keep-alive; `None` for never.
    pub keep_alive: Option<Duration>,
    /// Timings of each answer at its last token.
    tokens: Vec<Timings>,
}

/// Sends the updates of an answer.
struct Sender {
    index: usize,
    sender: UnboundedSender<(usize, Update)>,
}

impl Reply for Sender {
    fn update(&mut self, update: Update) {
        // A closed channel is ignored here: the scheduler drops the answer before the next step.
        let _ = self.sender.send((self.index, update));
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
    ) -> (Self, impl Iterator<Item = Box<dyn Reply>>) {
        let (sender, receiver) = unbounded_channel();
        let replies = (0..count).map(move |index| {
            let sender = sender.clone();
            Box::new(Sender { index, sender }) as Box<dyn Reply>
        });
        let record = Record::current();
        record.iter().for_each(|record| record.expect(count));
        let arrived = record.as_ref().map_or_else(Instant::now, |record| record.arrived());
        let tokens = vec![Timings::default(); count];
        (Updates { receiver, record, latency, arrived, keep_alive, tokens }, replies)
    }

    /// Waits for the next update; `None` if the scheduler has stopped.
    pub async fn next(&mut self) -> Option<(usize, Update)> {
        let (index, update) = self.receiver.recv().await?;
        self.record.iter().for_each(|record| record.update(index, &update));
        self.measure(index, &update);
        Some((index, update))
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
                // Measured by the scheduler, so a slow client makes no difference.
                _ => self.latency.next_token(now.generating.saturating_sub(before.generating)),
            }
            *before = now;
        }
    }
}
