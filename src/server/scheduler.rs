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
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, TryRecvError},
    },
    time::{Duration, Instant},
};

use rope_cpu::{
    Token,
    model::{self, Engine},
    tokenizer::Tokenizer,
};

use super::{
    command::Command,
    error::ApiError,
    job::{Job, Update},
    pace::Pace,
    prefixes::{Prefixes, reusable, shared},
    slot::{Ended, Running, Slot},
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
    /// Answers that left their slot because the memory of keys and values was full, the newest first.
    suspended: Vec<Running>,
    /// The number of running answers that filled the memory.
    crowd: usize,
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
        Scheduler {
            engine,
            tokenizer,
            slots,
            waiting: VecDeque::new(),
            suspended: Vec::new(),
            crowd: 0,
            prefixes: Prefixes::default(),
            pace,
            steps: 0,
            status,
        }
    }

    /// Executes commands until their sender is dropped and all answers have ended.
    pub fn run(mut self, commands: &Receiver<Command>) {
        let mut open = true;
        self.status.set(&self.slots, self.engine.pool());
        loop {
            let idle = self.waiting.is_empty() && self.suspended.is_empty() && self.running() == 0;
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
            self.drop_abandoned();
            self.resume();
            self.admit();
            self.step();
            self.status.set(&self.slots, self.engine.pool());
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Answer(job) => self.waiting.push_back(*job),
            Command::Slot { id, action, reply } => {
                let Scheduler { engine, slots, .. } = self;
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
                // Nobody may wait for the result any more.
                let _ = reply.send(result);
            }
        }
        self.status.set(&self.slots, self.engine.pool());
    }

    /// Drops answers whose client is gone.
    fn drop_abandoned(&mut self) {
        self.slots.iter_mut().for_each(Slot::drop_abandoned);
        self.suspended.retain(|running| !running.abandoned());
        let before = self.waiting.len();
        self.waiting.retain(|job| !job.updates.is_closed());
        self.status.waiting.fetch_sub(before - self.waiting.len(), Relaxed);
    }

    /// Continues the oldest suspended answer, if another one has ended since the memory was full.
    fn resume(&mut self) {
        if self.running() < self.crowd
            && let Some(running) = self.suspended.pop()
        {
            let job = running.job();
            let source = self.source(running.tokens(), job.reuse).0;
            match self.idle_slot(job.slot, source) {
                Some(slot) => self.begin(slot, source, running),
                None => self.suspended.push(running),
            }
        }
    }

    /// Puts waiting requests into idle slots, unless suspended answers need them.
    fn admit(&mut self) {
        let mut index = 0;
        while index < self.waiting.len()
            && self.suspended.is_empty()
            && self.running() < self.slots.len()
        {
            let job = &self.waiting[index];
            let (source, reused) = self.source(&job.prompt, job.reuse);
            match self.idle_slot(job.slot, source) {
                Some(slot) if !self.worth_waiting(job, reused) => {
                    let running = self.waiting.remove(index).and_then(Running::new);
                    self.status.waiting.fetch_sub(1, Relaxed);
                    if let Some(running) = running {
                        self.begin(slot, source, running);
                    }
                }
                _ => index += 1,
            }
        }
    }

    /// Returns the number of answers in slots.
    fn running(&self) -> usize {
        self.slots.iter().filter(|slot| slot.task().is_some()).count()
    }

    /// Returns where the most first tokens of a prompt are computed already, with their number.
    fn source(&self, tokens: &[Token], reuse: bool) -> (Source, usize) {
        if !reuse {
            return (Source::None, 0);
        }
        let of_slots = self
            .slots
            .iter()
            .map(|slot| (Source::Slot(slot.id), reusable(&self.engine, &slot.sequence, tokens)));
        let kept = self.prefixes.longest(&self.engine, tokens);
        let kept = kept.map(|(_, reused)| (Source::Prefixes, reused));
        let best = of_slots.chain(kept).rev().max_by_key(|(_, reused)| *reused);
        best.filter(|(_, reused)| *reused > 0).unwrap_or((Source::None, 0))
    }

    /// Returns an idle slot: the one with number `given`, else the one that the answer continues, else
    /// the one that was not used for longest.
    fn idle_slot(&self, given: Option<usize>, source: Source) -> Option<usize> {
        let idle = |slot: &&Slot| slot.task().is_none();
        if let Some(id) = given {
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

    /// Begins or continues an answer in an idle slot.
    fn begin(&mut self, slot: usize, source: Source, running: Running) {
        let Scheduler { engine, slots, prefixes, .. } = &*self;
        let sequence = match source {
            Source::Slot(id) => Some(slots[id].sequence.clone()),
            Source::Prefixes => {
                prefixes.longest(engine, running.tokens()).map(|(kept, _)| kept.clone())
            }
            Source::None => None,
        };
        let mut sequence = sequence.unwrap_or_else(|| engine.sequence());
        sequence.truncate(reusable(engine, &sequence, running.tokens()));
        let old = std::mem::replace(&mut self.slots[slot].sequence, self.engine.sequence());
        if !sequence.tokens().starts_with(old.tokens()) {
            self.prefixes.keep(old);
        }
        self.slots[slot].last_use = self.steps;
        self.slots[slot].begin(running, sequence);
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
        self.status.set(&self.slots, self.engine.pool());
        ended.into_iter().for_each(Ended::report);
    }

    /// Makes room in the memory of keys and values, or else ends the answer that a step failed for.
    fn recover(&mut self, error: &model::Error) {
        let full = matches!(error, model::Error::PoolFull { .. });
        if full && self.prefixes.remove_oldest() {
            return;
        }
        let idle = self.slots.iter_mut().filter(|slot| slot.task().is_none());
        let oldest = idle.filter(|slot| !slot.sequence.tokens().is_empty());
        if full && let Some(slot) = oldest.min_by_key(|slot| slot.last_use) {
            slot.sequence = self.engine.sequence();
            return;
        }
        // The answer that began last makes room for those before it. It reads its tokens again later,
        // each in the role that it had, so that its logits have the same bits.
        let running = self.running();
        let newest = self.slots.iter_mut().filter(|slot| slot.task().is_some());
        let Some(slot) = newest.max_by_key(|slot| slot.last_use) else { return };
        if full && running > 1 {
            self.suspended.extend(slot.suspend());
            self.crowd = running - 1;
        } else {
            slot.fail(ApiError::internal(error));
        }
        slot.sequence = self.engine.sequence();
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
        self.status.ended.store(true, Relaxed);
        for job in self.waiting.drain(..) {
            job.report(Update::Failed(ApiError::unavailable("the server stops")));
        }
    }
}
