//! A step of the scheduler: the next tokens of the slots that take part.
//!
//! A step computes one token of each answer, with drafts where they pay, and as many prompt tokens
//! as fit. The time between two tokens of an answer stays below a limit while prompts are
//! processed. A step has one set of adapter scales; answers with different scales take turns.

use std::{
    mem,
    time::{Duration, Instant},
};

use super::{
    super::{
        Error, Scales,
        slot::{Ended, Slot},
        turns::Member,
    },
    Scheduler, on_disk,
};
use crate::model::{self, Feed};

/// The state of the slots that take part in a step.
struct Turn {
    /// Their adapter scales.
    scales: Scales,
    /// The number of answers.
    answers: usize,
    /// The slot of the oldest prompt in progress, and the number of its remaining tokens.
    oldest: Option<(usize, usize)>,
}

impl Scheduler<'_> {
    /// Returns the slots that share the adapter scales of the slot that has waited longest, so that
    /// none waits forever.
    fn turn(&self) -> Option<Turn> {
        let busy = self.slots.iter().filter(|slot| slot.task().is_some() && !slot.paused);
        let scales = busy.min_by_key(|slot| slot.last_step)?.scales()?.clone();
        let taking_part = self.slots.iter().filter(|slot| slot.takes_part(&scales));
        let (answers, prompts): (Vec<_>, Vec<_>) = taking_part.partition(|slot| slot.generating());
        let oldest = prompts.iter().min_by_key(|slot| slot.last_use);
        Some(Turn {
            answers: answers.len(),
            oldest: oldest.map(|slot| (slot.id, slot.remaining())),
            scales,
        })
    }

    /// Pauses answers without a reader. Also pauses answers with constraints if other constraints
    /// had to wait in the last step, so that those get the time.
    fn rest(&mut self) {
        // Read the state once for the whole step, since a receiver may have room at any time.
        self.slots.iter_mut().for_each(|slot| slot.paused = slot.is_unread());
        let waiting: Vec<_> =
            self.slots.iter().filter(|slot| slot.waits() && !slot.paused).collect();
        let scales: Vec<_> = waiting.iter().filter_map(|slot| slot.scales().cloned()).collect();
        for slot in &mut self.slots {
            let beside = slot.scales().is_some_and(|own| scales.contains(own));
            slot.resting = beside && slot.is_constrained() && !slot.waits();
        }
    }

    /// Moves the parts of prompts that other sequences have.
    fn place(&mut self) {
        let Scheduler { engine, slots, .. } = self;
        let failed = slots.iter_mut().filter_map(|slot| Some((slot.id, slot.place(engine).err()?)));
        let failed: Vec<_> = failed.collect();
        failed.into_iter().for_each(|(slot, error)| self.fail(slot, error));
    }

    /// Lets draft models choose the tokens of prompts to compute.
    fn choose(&mut self) {
        let Scheduler { engine, slots, .. } = self;
        let busy = slots.iter_mut().filter(|slot| !slot.paused);
        let failed = busy.filter_map(|slot| Some((slot.id, slot.choose(engine).err()?)));
        let failed: Vec<_> = failed.collect();
        failed.into_iter().for_each(|(slot, error)| self.slots[slot].fail(error));
    }

    /// Computes the next tokens of all slots that take part.
    pub(super) fn compute(&mut self) {
        self.rest();
        self.budget.begin_step();
        self.place();
        self.choose();
        let Some(turn) = self.turn() else { return };
        let (scales, answers, oldest) = (&turn.scales, turn.answers, turn.oldest);
        // Short prompts first, but the oldest prompt is passed over at most once in a row.
        let first = oldest.map(|(id, _)| id).filter(|id| self.slots[*id].passed_over);
        let others = self.member.as_ref().is_some_and(Member::is_shared);
        let step_tokens = self.pace.step_tokens(answers, others);
        let drafts = self.draft(&turn, step_tokens);
        self.engine.limit_step(step_tokens.max(answers + drafts));
        let Scheduler { engine, tokenizer, slots, steps, .. } = self;
        let key = |slot: &Slot| if Some(slot.id) == first { 0 } else { slot.remaining() };
        let slots = slots.iter_mut().filter(|slot| slot.takes_part(scales));
        let mut order: Vec<_> = slots.map(|slot| (key(slot), slot)).collect();
        order.sort_by_key(|(key, _)| *key);
        let feeds = order.into_iter().filter_map(|(_, slot)| Some((slot.id, slot.feed()?)));
        let (ids, feeds): (Vec<_>, Vec<_>) = feeds.unzip();
        let (mut feeds, mut takers): (Vec<_>, Vec<_>) = feeds.into_iter().unzip();
        if feeds.is_empty() {
            return;
        }
        // Tokens that are left out take no time.
        let left = |feed: &Feed<'_, '_>| feed.tokens.len() + feed.sequence.omitted();
        let before: usize = feeds.iter().map(left).sum();
        let (started, mut choosing) = (Instant::now(), Duration::ZERO);
        let result = engine.step(&mut feeds, &mut |feed, token, output| {
            let started = Instant::now();
            takers[feed].push(tokenizer, token, output);
            choosing += started.elapsed();
        });
        let after: usize = feeds.iter().map(left).sum();
        self.status.count_step(takers.len());
        let busy = feeds.len();
        drop((feeds, takers));
        *steps += 1;
        let (tokens, time) = (before - after, started.elapsed());
        let computing = time.saturating_sub(choosing);
        let only_answers = result.is_ok() && busy == answers && tokens == answers + drafts;
        for slot in self.slots.iter_mut().filter(|slot| slot.takes_part(scales)) {
            slot.last_step = self.steps;
            slot.passed_over = oldest == Some((slot.id, slot.remaining()));
            if only_answers {
                slot.passed(tokens, computing);
            }
        }
        match result {
            Ok(()) => {
                self.pace.observe(tokens, answers + drafts, time);
                if only_answers {
                    self.costs.record(tokens, computing);
                }
                self.advance(scales);
            }
            Err(e) => {
                self.slots.iter_mut().for_each(Slot::drop_drafts);
                match e {
                    model::Error::NotFinite { feed, .. } => self.fail(ids[feed], e),
                    _ => self.recover(e, drafts > 0, scales),
                }
            }
        }
    }

    /// Adds drafts to the answers, for a step of `step_tokens` tokens if prompts are processed as
    /// well. Returns the number of drafts.
    fn draft(&mut self, turn: &Turn, step_tokens: usize) -> usize {
        let Turn { scales, oldest, .. } = turn;
        let answers = turn.answers;
        let Scheduler { engine, slots, steps, without_drafts, .. } = self;
        let most = engine.options().micro_batch.saturating_sub(answers);
        let room = match (mem::take(without_drafts), oldest.is_some()) {
            (true, _) => 0,
            (false, false) => most,
            // At least half of a step is for prompts.
            (false, true) => most.min(step_tokens.saturating_sub(answers)) / 2,
        };
        let mut drafts = 0;
        // Later slots have less room and gain, so slots take turns to be first.
        let first = *steps as usize % slots.len().max(1);
        let (later, earlier) = slots.split_at_mut(first);
        let in_turn = earlier.iter_mut().chain(later).filter(|slot| slot.takes_part(scales));
        for slot in in_turn {
            let drafted =
                slot.follow().and_then(|()| slot.draft(engine, answers + drafts, room - drafts));
            match drafted {
                Ok(count) => drafts += count,
                Err(e) => slot.fail(Error::Draft(e)),
            }
        }
        drafts
    }

    /// Continues the slots that took part in a step.
    fn advance(&mut self, scales: &Scales) {
        let shifts = self.engine.rope().plan().shifts;
        let capacity = if shifts { usize::MAX } else { self.engine.capacity() };
        let slots = self.slots.iter_mut().filter(|slot| slot.takes_part(scales));
        let mut ended: Vec<_> = slots.filter_map(|slot| slot.advance(capacity)).collect();
        ended.iter().for_each(|ended| self.status.count(&ended.outcome.timings));
        if let Some(later) = &mut self.later {
            let gapped = ended.iter_mut().filter(|ended| !ended.gapped.is_empty());
            gapped.for_each(|one| later.add(mem::take(&mut one.gapped), &one.job.request));
        }
        // Before the replies: a client that has its answer must see an idle slot.
        self.report_status();
        ended.into_iter().for_each(Ended::report);
    }

    /// Makes room in the KV cache after a failed step. If that is impossible, ends the answer that
    /// the step failed for.
    fn recover(&mut self, error: model::Error, drafts: bool, scales: &Scales) {
        let full = matches!(error, model::Error::PoolFull { .. });
        if full && self.prefixes.remove_oldest() {
            return;
        }
        if full && let Some(slot) = on_disk::oldest_idle(&mut self.slots) {
            slot.sequence = self.engine.sequence();
            return;
        }
        if full && drafts {
            self.without_drafts = true;
            return;
        }
        if full && self.await_saved() {
            return;
        }
        // The newest answer makes room for older ones. Later it computes its tokens again, each in
        // its old role, so that its logits have the same bits.
        let running = self.running();
        let newest = self.slots.iter_mut().filter(|slot| match full {
            true => slot.task().is_some(),
            false => slot.takes_part(scales),
        });
        let Some(slot) = newest.max_by_key(|slot| slot.last_use) else { return };
        if full && running > 1 {
            self.suspended.extend(slot.suspend());
            self.crowd = running - 1;
            slot.sequence = self.engine.sequence();
        } else {
            let id = slot.id;
            self.fail(id, error);
        }
    }

    /// Ends the answer of a slot with an error.
    fn fail(&mut self, slot: usize, error: model::Error) {
        let slot = &mut self.slots[slot];
        slot.fail(error.into());
        slot.sequence = self.engine.sequence();
    }
}
