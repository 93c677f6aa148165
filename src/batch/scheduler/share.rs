//! Fair shares of the slots: a request with many answers does not delay a request with few.
//!
//! The waiting request with the fewest answers in slots goes first. If all slots are in use, a
//! request without any takes a slot from the request with the most: the slot of its newest answer.
//! That answer continues later from its cached tokens, with the same bits.

use std::collections::HashMap;

use super::{super::slot::Running, Scheduler};

impl Scheduler<'_> {
    /// Sorts the waiting answers by the number of their request's answers that are in slots or
    /// earlier in the queue.
    pub(super) fn sort_waiting(&mut self) {
        if self.waiting.len() < 2 {
            return;
        }
        let mut answers = self.answers();
        let waiting = self.waiting.make_contiguous();
        waiting.sort_by_key(|job| job.arrival);
        let mut order: HashMap<u64, usize> = HashMap::new();
        for job in waiting.iter() {
            let count = answers.entry(job.group).or_default();
            order.insert(job.arrival, *count);
            *count += 1;
        }
        // The sort is stable, so ties keep the order of arrival.
        waiting.sort_by_key(|job| order.get(&job.arrival).copied());
    }

    /// Frees a slot for a waiting request without answers in slots, if another request has several.
    pub(super) fn displace(&mut self) {
        let has_idle = self.running() < self.slots.len();
        if self.waiting.is_empty() || !self.suspended.is_empty() || has_idle {
            return;
        }
        let answers = self.answers();
        let count = |group: u64| answers.get(&group).copied().unwrap_or(0);
        let waits =
            self.waiting.iter().any(|job| count(job.group) == 0 && job.request.slot.is_none());
        let shares = |running: Option<&Running>| running.map_or(0, |one| count(one.job().group));
        // Others would compute all of their tokens again.
        let movable =
            self.slots.iter().filter(|slot| slot.task().is_some_and(|task| task.job.reuses()));
        let most = movable.max_by_key(|slot| (shares(slot.running()), slot.last_use));
        let Some(slot) = most.filter(|slot| waits && shares(slot.running()) > 1) else { return };
        let id = slot.id;
        self.displaced.extend(self.slots[id].suspend());
    }

    /// Resumes a displaced answer in an idle slot, unless a waiting request has fewer answers in slots.
    pub(super) fn resume_displaced(&mut self) {
        while self.suspended.is_empty()
            && self.running() < self.slots.len()
            && let Some(running) = self.displaced.first()
        {
            let answers = self.answers();
            let count = |group: u64| answers.get(&group).copied().unwrap_or(0);
            let own = count(running.job().group);
            if self.waiting.iter().any(|job| count(job.group) < own) {
                return;
            }
            let source = self.source(running.tokens(), running.job()).0;
            let Some(slot) = self.idle_slot(running.job().request.slot, source) else { return };
            let running = self.displaced.remove(0);
            self.begin(slot, source, running);
        }
    }

    /// Returns the number of answers in slots of each request.
    fn answers(&self) -> HashMap<u64, usize> {
        let mut answers = HashMap::new();
        for running in self.slots.iter().filter_map(|slot| slot.running()) {
            *answers.entry(running.job().group).or_default() += 1;
        }
        answers
    }
}
