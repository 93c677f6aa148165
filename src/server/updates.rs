//! The updates of the answers to a request.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rope_cpu::generate::Timings;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{job::Update, log::Record, status::Status};

/// The updates of all answers to a request, with the index of the answer. They pass through the record
/// of the request, and through the metrics.
pub struct Updates {
    receiver: UnboundedReceiver<(usize, Update)>,
    record: Option<Arc<Record>>,
    status: Arc<Status>,
    arrived: Instant,
    /// The time after which a silent stream gets a sign of life; `None` for never.
    pub keep_alive: Option<Duration>,
    /// The timings of each answer at its last token.
    tokens: Vec<Timings>,
}

impl Updates {
    /// Creates the updates of `count` answers.
    pub fn new(
        receiver: UnboundedReceiver<(usize, Update)>,
        count: usize,
        status: Arc<Status>,
        keep_alive: Option<Duration>,
    ) -> Self {
        let record = Record::current();
        record.iter().for_each(|record| record.expect(count));
        let arrived = record.as_ref().map_or_else(Instant::now, |record| record.arrived());
        let tokens = vec![Timings::default(); count];
        Updates { receiver, record, status, arrived, keep_alive, tokens }
    }

    /// Waits for the next update; `None` if the scheduler has stopped.
    pub async fn next(&mut self) -> Option<(usize, Update)> {
        let (index, update) = self.receiver.recv().await?;
        self.record.iter().for_each(|record| record.update(index, &update));
        self.measure(index, &update);
        Some((index, update))
    }

    /// Adds the time that a token took to the metrics.
    fn measure(&mut self, index: usize, update: &Update) {
        if let Update::Generated(generated) = update
            && let Some(before) = self.tokens.get_mut(index)
            && generated.timings.generated > before.generated
        {
            let now = generated.timings;
            match before.generated {
                0 => self.status.first_token(self.arrived.elapsed()),
                // By the clock of the scheduler: a slow client makes no difference.
                _ => self.status.next_token(now.generating.saturating_sub(before.generating)),
            }
            *before = now;
        }
    }
}
