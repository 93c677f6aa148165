//! The scheduler: answers to many requests at a time, in one pass over the weights for all of them.
//!
//! It runs on a thread of its own. Before each step it takes commands, puts waiting requests into idle
//! slots, and drops answers whose client is gone. A step computes one token of each answer that is
//! being generated, and as many tokens of prompts as fit: the time between two tokens of an answer
//! stays below a limit while others read. Answers do not depend on what else is computed.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        mpsc::{Receiver, TryRecvError},
    },
    time::{Duration, Instant},
};

use rope_cpu::{
    model::{self, Engine, Sequence},
    tokenizer::Tokenizer,
};

use super::{
    command::Command,
    error::ApiError,
    job::{Job, Update},
    pace::Pace,
    prefixes::{Prefixes, shared},
    slot::{Ended, Slot},
    status::Status,
};

/// A prompt waits for another one that is being read if it then saves reading this many tokens.
const WORTH_WAITING: usize = 64;

/// The scheduler.
pub struct Scheduler<'t> {
    engine: Engine,
    tokenizer: &'t Tokenizer<'t>,
    slots: Vec<Slot>,
    waiting: VecDeque<Job>,
    prefixes: Prefixes,
    pace: Pace,
    /// The number of steps.
    steps: u64,
    status: Arc<Status>,
}

impl<'t> Scheduler<'t> {
    /// Creates a scheduler with `slots` slots. While an answer is generated, a step takes at most
    /// `step_max`, if a shorter one is possible.
    pub fn new(
        engine: Engine,
        tokenizer: &'t Tokenizer<'t>,
        slots: usize,
        step_max: Duration,
        status: Arc<Status>,
    ) -> Self {
        let slots = (0..slots).map(|id| Slot::new(id, &engine)).collect();
        let pace = Pace::new(step_max, engine.options().micro_batch);
        let (waiting, prefixes) = (VecDeque::new(), Prefixes::default());
        Scheduler { engine, tokenizer, slots, waiting, prefixes, pace, steps: 0, status }
    }

    /// Executes commands until their sender is dropped and all answers have ended.
    pub fn run(mut self, commands: &Receiver<Command>) {
        let mut open = true;
        loop {
            let idle = self.waiting.is_empty() && self.slots.iter().all(|s| s.task().is_none());
            if idle && open {
                match commands.recv() {
                    Ok(command) => self.execute(command),
                    Err(_) => open = false,
                }
            }
            while open {
                match commands.try_recv() {
                    Ok(command) => self.execute(command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => open = false,
                }
            }
            if idle && !open && self.waiting.is_empty() {
                return;
            }
            self.slots.iter_mut().for_each(Slot::drop_abandoned);
            self.waiting.retain(|job| !job.updates.is_closed());
            self.admit();
            self.step();
            self.status.set(&self.slots, self.waiting.len(), self.engine.pool());
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Answer(job) => self.waiting.push_back(*job),
            Command::Slot { id, action, reply } => {
                let Scheduler { engine, slots, waiting, .. } = self;
                let count = slots.len();
                let result = match slots.get_mut(id) {
                    Some(slot) if slot.task().is_some() => {
                        Err(ApiError::unavailable(format_args!("slot {id} is in use")))
                    }
                    Some(slot) => action.apply(engine, slot),
                    None => Err(ApiError::invalid(format_args!(
                        "slot {id}: must be from 0 to {}",
                        count - 1
                    ))),
                };
                let _ = (waiting, reply.send(result));
            }
        }
        self.status.set(&self.slots, self.waiting.len(), self.engine.pool());
    }

    /// Puts waiting requests into idle slots.
    fn admit(&mut self) {
        let mut index = 0;
        while index < self.waiting.len() {
            let job = &self.waiting[index];
            let (source, reused) = self.source(job);
            let slot = self.idle_slot(job, source);
            match slot {
                Some(_) if self.worth_waiting(job, reused) => index += 1,
                None => index += 1,
                Some(slot) => {
                    if let Some(job) = self.waiting.remove(index) {
                        self.begin(slot, source, job);
                    }
                }
            }
        }
    }

    /// Returns where the most first tokens of a prompt are computed already, with their number.
    fn source(&self, job: &Job) -> (Source, usize) {
        let tokens = |sequence: &Sequence| shared(sequence.tokens(), &job.prompt);
        let of_slots = self.slots.iter().map(|s| (Source::Slot(s.id), tokens(&s.sequence)));
        let kept = self.prefixes.longest(&job.prompt).map_or(0, tokens);
        let sources = of_slots.chain([(Source::Prefixes, kept)]);
        let best = sources.rev().max_by_key(|(_, tokens)| *tokens);
        best.filter(|(_, tokens)| job.reuse && *tokens > 0).unwrap_or((Source::None, 0))
    }

    /// Returns the idle slot for a job: the one that it names, else the one that it continues, else
    /// the one that was not used for longest.
    fn idle_slot(&self, job: &Job, source: Source) -> Option<usize> {
        let idle = |slot: &&Slot| slot.task().is_none();
        if let Some(id) = job.slot {
            return self.slots.get(id).filter(idle).map(|slot| slot.id);
        }
        if let Source::Slot(id) = source
            && self.slots[id].task().is_none()
        {
            return Some(id);
        }
        self.slots.iter().filter(idle).min_by_key(|slot| slot.last_use).map(|slot| slot.id)
    }

    /// Returns whether a prompt that is being read has many more of a job's first tokens.
    fn worth_waiting(&self, job: &Job, reused: usize) -> bool {
        let reading = self.slots.iter().filter(|slot| !slot.generating());
        let longest = reading.filter_map(|slot| Some(shared(slot.prompt()?, &job.prompt))).max();
        job.reuse && longest.is_some_and(|tokens| tokens > reused + WORTH_WAITING)
    }

    /// Begins a job in an idle slot.
    fn begin(&mut self, slot: usize, source: Source, job: Job) {
        let mut sequence = match source {
            Source::Slot(id) => self.slots[id].sequence.clone(),
            Source::Prefixes => {
                let longest = self.prefixes.longest(&job.prompt).cloned();
                longest.unwrap_or_else(|| self.engine.sequence())
            }
            Source::None => self.engine.sequence(),
        };
        // The last token is always read, since the logits follow from it.
        let len = shared(sequence.tokens(), &job.prompt).min(job.prompt.len() - 1);
        sequence.truncate(len);
        let old = std::mem::replace(&mut self.slots[slot].sequence, self.engine.sequence());
        if !sequence.tokens().starts_with(old.tokens()) {
            self.prefixes.keep(old);
        }
        self.slots[slot].last_use = self.steps;
        self.slots[slot].begin(job, sequence);
    }

    /// Computes the next tokens of all slots.
    fn step(&mut self) {
        let answers = self.slots.iter().filter(|slot| slot.generating()).count();
        self.engine.limit_step(self.pace.step_tokens(answers));
        let Scheduler { engine, tokenizer, slots, pace, steps, .. } = self;
        // Short prompts first, but every other step the one that began first: none waits for ever.
        let oldest_first = *steps % 2 == 1;
        let key = |slot: &Slot| if oldest_first { slot.last_use } else { slot.remaining() as u64 };
        let mut order: Vec<_> = slots.iter_mut().map(|slot| (key(slot), slot)).collect();
        order.sort_by_key(|(key, _)| *key);
        let feeds = order.into_iter().filter_map(|(_, slot)| slot.feed());
        let (mut feeds, mut tasks): (Vec<_>, Vec<_>) = feeds.unzip();
        if feeds.is_empty() {
            return;
        }
        let before: usize = feeds.iter().map(|feed| feed.tokens.len()).sum();
        let started = Instant::now();
        let result = engine.step(&mut feeds, &mut |feed, token, output| {
            tasks[feed].push(tokenizer, token, output);
        });
        let after: usize = feeds.iter().map(|feed| feed.tokens.len()).sum();
        self.status.count_step(tasks.len());
        drop((feeds, tasks));
        *steps += 1;
        match result {
            Ok(()) => {
                pace.observe(before - after, answers, started.elapsed());
                self.advance();
            }
            Err(e) => self.recover(&e),
        }
    }

    /// Continues all slots after a step.
    fn advance(&mut self) {
        let capacity = self.engine.capacity();
        let mut ended = Vec::new();
        for slot in &mut self.slots {
            let full = slot.sequence.tokens().len() >= capacity;
            ended.extend(slot.advance(full));
        }
        ended.iter().for_each(|ended| self.status.count(&ended.outcome.timings));
        // Before the ends are reported: a client that has its answer sees an idle slot.
        self.status.set(&self.slots, self.waiting.len(), self.engine.pool());
        ended.into_iter().for_each(Ended::report);
    }

    /// Makes room in the memory of keys and values, or else ends the answer that a step failed for.
    fn recover(&mut self, error: &model::Error) {
        if let model::Error::PoolFull { .. } = error {
            if self.prefixes.remove_oldest() {
                return;
            }
            let idle = self.slots.iter_mut().filter(|slot| slot.task().is_none());
            let oldest = idle.filter(|slot| !slot.sequence.tokens().is_empty());
            if let Some(slot) = oldest.min_by_key(|slot| slot.last_use) {
                slot.sequence = self.engine.sequence();
                return;
            }
        }
        // The answer that began last, so that those before it can end.
        let running = self.slots.iter_mut().filter(|slot| slot.task().is_some());
        if let Some(slot) = running.max_by_key(|slot| slot.last_use) {
            slot.fail(ApiError::internal(error));
            slot.sequence = self.engine.sequence();
        }
    }
}

/// A place where first tokens of a prompt are computed already.
#[derive(Clone, Copy)]
enum Source {
    None,
    Slot(usize),
    Prefixes,
}

impl Drop for Scheduler<'_> {
    fn drop(&mut self) {
        for job in self.waiting.drain(..) {
            job.report(Update::Failed(ApiError::unavailable("the server stops")));
        }
    }
}
