//! Texts with gaps, which are computed whole once there is nothing else to do. Later prompts then reuse all
//! of their tokens.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::Scheduler;
use crate::{
    Token,
    batch::{Reply, Request, Update},
    generate::Limits,
};

/// Maximum number of texts that wait. More drop the oldest.
const WAITING_MAX: usize = 16;

/// The texts to compute.
#[derive(Default)]
pub struct Later {
    waiting: VecDeque<Request>,
    /// The text in a slot, until another request comes.
    current: Option<(Request, Arc<AtomicBool>)>,
}

/// The reply to a request that nobody waits for. The flag ends it.
struct Unheard(Arc<AtomicBool>);

impl Reply for Unheard {
    fn update(&mut self, _: Update) {}

    fn is_closed(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl Later {
    /// Adds the text of a request and its answer, in place of its beginnings.
    pub fn add(&mut self, tokens: Vec<Token>, request: &Request) {
        let limits = Limits { tokens_max: Some(0), ..Limits::default() };
        let Request { owner, keep, retain_from, .. } = *request;
        let adapter_scales = request.adapter_scales.clone();
        let text =
            Request { limits, adapter_scales, owner, keep, retain_from, ..Request::new(tokens) };
        self.waiting.retain(|old| old.owner != owner || !text.prompt.starts_with(&old.prompt));
        self.waiting.push_back(text);
        if self.waiting.len() > WAITING_MAX {
            self.waiting.pop_front();
        }
    }

    /// Ends the text in a slot, for another request. The rest of it waits again.
    pub fn make_room(&mut self) {
        if let Some((text, cut)) = self.current.take() {
            cut.store(true, Relaxed);
            self.waiting.push_back(text);
        }
    }

    /// Takes the latest text. The one before is complete.
    fn next(&mut self) -> Option<(Request, Unheard)> {
        self.current = None;
        let (text, cut) = (self.waiting.pop_back()?, Arc::<AtomicBool>::default());
        self.current = Some((text.clone(), cut.clone()));
        Some((text, Unheard(cut)))
    }
}

impl Scheduler<'_> {
    /// If the scheduler [is idle](Scheduler::is_idle), starts to compute the tokens that speculative
    /// prefill left out of a text. Returns whether there is such a text. The next request interrupts
    /// it, and the rest waits.
    ///
    /// [`Scheduler::run`] does so with [`Options::prefill_later`](crate::batch::Options::prefill_later).
    pub fn read_later(&mut self) -> bool {
        if !self.is_idle() {
            return false;
        }
        let next = self.later.as_mut().and_then(Later::next);
        let found = next.is_some();
        next.into_iter().for_each(|(text, reply)| self.submit(text, reply));
        found
    }
}
