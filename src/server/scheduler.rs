//! The scheduler: answers to many requests at a time, in one pass over the weights for all of them.
//!
//! It runs on a thread of its own. Before each step it takes commands, puts waiting requests into idle
//! slots, and drops answers whose client is gone. A step computes one token of each answer that is
//! being generated, and as many tokens of prompts as fit: the time between two tokens of an answer
//! stays below a limit while others read. Answers do not depend on what else is computed.
//!
//! A step has one set of adapters' scales. Answers with different ones are computed in turn.

mod on_disk;

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
    generate::speculation::{Costs, Speculation},
    model::{self, Engine, Sequence},
    tokenizer::{Tokenizer, common_prefix},
};
use tracing::info;

use super::{
    adapters::Scales,
    command::Command,
    disk::Disk,
    error::ApiError,
    job::{Job, Update},
    pace::Pace,
    prefixes::{Prefixes, continues, reusable},
    slot::{Ended, Running, Slot},
    status::Status,
};

/// A prompt waits for another one that is being read if it then saves reading this many tokens.
const WORTH_WAITING: usize = 64;

/// The tokens of a prompt and of the cache that the log shows where they differ.
const SHOWN_TOKENS: usize = 16;

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
    /// The cache on disk, if there is one.
    disk: Option<Disk>,
    pace: Pace,
    /// The times of steps that computed nothing but answers.
    costs: Costs,
    /// Whether the next step has no drafts, because the memory was full with them.
    without_drafts: bool,
    /// Whether the log may have texts of prompts.
    quotes: bool,
    /// The number of steps.
    steps: u64,
    status: Arc<Status>,
}

impl<'t> Scheduler<'t> {
    /// Creates a scheduler with a slot for each of `speculations`, which draft its answers. While an
    /// answer is generated, a step takes at most `step_max`, if a shorter one is possible.
    pub fn new(
        engine: Engine,
        tokenizer: &'t Tokenizer<'t>,
        speculations: Vec<Speculation>,
        step_max: Duration,
        status: Arc<Status>,
    ) -> Self {
        let slots = speculations.into_iter().enumerate();
        let slots = slots.map(|(id, speculation)| Slot::new(id, &engine, speculation)).collect();
        let pace = Pace::new(step_max, engine.options().micro_batch);
        Scheduler {
            engine,
            tokenizer,
            slots,
            waiting: VecDeque::new(),
            suspended: Vec::new(),
            crowd: 0,
            prefixes: Prefixes::default(),
            disk: None,
            pace,
            costs: Costs::default(),
            without_drafts: false,
            quotes: false,
            steps: 0,
            status,
        }
    }

    /// Writes where prompts differ from the cache with their texts.
    pub fn quoting(mut self, quotes: bool) -> Self {
        self.quotes = quotes;
        self
    }

    /// Saves sequences to disk, too.
    pub fn with_disk(mut self, disk: Option<Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// Executes commands until [`Command::End`], or until their sender is dropped and all answers have
    /// ended.
    pub fn run(mut self, commands: &Receiver<Command>) {
        let mut open = true;
        self.status.set(&self.slots, self.engine.pool());
        loop {
            let idle = self.waiting.is_empty() && self.suspended.is_empty() && self.running() == 0;
            if idle && open {
                match commands.recv() {
                    Ok(command) => open = self.execute(command),
                    Err(_) => open = false,
                }
            }
            while open {
                match commands.try_recv() {
                    Ok(command) => open = self.execute(command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => open = false,
                }
            }
            if idle && !open && self.waiting.is_empty() {
                self.save_all();
                return;
            }
            self.take_loaded();
            self.drop_abandoned();
            self.resume();
            self.admit();
            self.step();
            self.save_oldest();
            self.status.set(&self.slots, self.engine.pool());
        }
    }

    /// Executes a command. Returns whether more may follow.
    fn execute(&mut self, command: Command) -> bool {
        match command {
            Command::End => {
                self.end();
                return false;
            }
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
        true
    }

    /// Ends all answers.
    fn end(&mut self) {
        let stops = || ApiError::unavailable("the server stops");
        self.slots.iter_mut().for_each(|slot| slot.fail(stops()));
        self.suspended.clear();
        self.status.waiting.fetch_sub(self.waiting.len(), Relaxed);
        self.waiting.drain(..).for_each(|job| job.report(Update::Failed(stops())));
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
            let source = self.source(running.tokens(), job).0;
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
            let (source, reused) = self.source(&job.prompt, job);
            if self.awaits_file(index, reused) {
                index += 1;
                continue;
            }
            let job = &self.waiting[index];
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

    /// Returns where the most first tokens of a job are computed already, with their number.
    fn source(&self, tokens: &[Token], job: &Job) -> (Source, usize) {
        if !job.reuse {
            return (Source::None, 0);
        }
        let (engine, scales) = (&self.engine, &job.adapter_scales);
        let of_slots = self
            .slots
            .iter()
            .map(|slot| (Source::Slot(slot.id), reusable(engine, &slot.sequence, tokens, scales)));
        let kept = self.prefixes.longest(engine, tokens, scales);
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
        let alike = |slot: &&Slot| slot.takes_part(&job.adapter_scales) && !slot.generating();
        let reading = self.slots.iter().filter(alike);
        let longest =
            reading.filter_map(|slot| Some(common_prefix(slot.prompt()?, &job.prompt))).max();
        job.reuse && longest.is_some_and(|tokens| tokens > reused + WORTH_WAITING)
    }

    /// Begins or continues an answer in an idle slot.
    fn begin(&mut self, slot: usize, source: Source, mut running: Running) {
        running.comes_from(match source {
            Source::None => "none",
            Source::Slot(_) => "slot",
            Source::Prefixes if running.job().restored => "disk",
            Source::Prefixes => "memory",
        });
        let Scheduler { engine, slots, prefixes, .. } = &*self;
        let (tokens, scales) = (running.tokens(), &running.job().adapter_scales);
        let sequence = match source {
            Source::Slot(id) => Some(slots[id].sequence.clone()),
            Source::Prefixes => {
                prefixes.longest(engine, tokens, scales).map(|(kept, _)| kept.clone())
            }
            Source::None => None,
        };
        let mut sequence = sequence.unwrap_or_else(|| engine.sequence());
        let reused = reusable(engine, &sequence, tokens, scales);
        self.log_difference(&sequence, tokens, reused);
        sequence.truncate(reused);
        if let Err(e) = sequence.set_adapter_scales(scales) {
            running.job().report(Update::Failed(ApiError::internal(e)));
            return;
        }
        let old = std::mem::replace(&mut self.slots[slot].sequence, self.engine.sequence());
        if !continues(&sequence, &old) {
            self.prefixes.keep(old);
        }
        self.slots[slot].last_use = self.steps;
        self.slots[slot].begin(running, sequence, &self.costs);
    }

    /// Writes to the log where a prompt first differs from the cached tokens that it could have continued.
    fn log_difference(&self, cached: &Sequence, tokens: &[Token], reused: usize) {
        // Less may be reused for another reason, such as a window that has moved on.
        if cached.tokens().get(reused).is_none_or(|cached| *cached == tokens[reused]) {
            return;
        }
        let text = |tokens: &[Token]| {
            self.quotes.then(|| {
                let end = tokens.len().min(reused + SHOWN_TOKENS);
                let bytes = self.tokenizer.decode(&tokens[reused..end], true);
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        info!(
            target: "cache", token = reused, of = tokens.len(), cached = text(cached.tokens()),
            prompt = text(tokens), "a prompt differs from the cache"
        );
    }

    /// Returns the slots that are in turn: those with the scales of adapters of the slot whose last step is
    /// the longest ago, so that none waits for ever.
    fn turn(&self) -> Option<Turn> {
        let busy = self.slots.iter().filter(|slot| slot.task().is_some());
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

    /// Computes the next tokens of all slots that are in turn.
    fn step(&mut self) {
        let Some(turn) = self.turn() else { return };
        let (scales, answers, oldest) = (&turn.scales, turn.answers, turn.oldest);
        // Short prompts first, but the one that began first is not passed over twice: none waits for ever.
        let first = oldest.map(|(id, _)| id).filter(|id| self.slots[*id].passed_over);
        let step_tokens = self.pace.step_tokens(answers);
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
        let before: usize = feeds.iter().map(|feed| feed.tokens.len()).sum();
        let (started, mut choosing) = (Instant::now(), Duration::ZERO);
        let result = engine.step(&mut feeds, &mut |feed, token, output| {
            let started = Instant::now();
            takers[feed].push(tokenizer, token, output);
            choosing += started.elapsed();
        });
        let after: usize = feeds.iter().map(|feed| feed.tokens.len()).sum();
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
                    model::Error::NotFinite { feed, .. } => self.fail(ids[feed], &e),
                    _ => self.recover(&e, drafts > 0, scales),
                }
            }
        }
    }

    /// Drafts what may follow the answers that are generated, in a step that has `step_tokens` tokens if
    /// prompts are read, too. Returns the number of drafts.
    fn draft(&mut self, turn: &Turn, step_tokens: usize) -> usize {
        let Turn { scales, oldest, .. } = turn;
        let answers = turn.answers;
        let Scheduler { engine, slots, steps, without_drafts, .. } = self;
        let most = engine.options().micro_batch.saturating_sub(answers);
        let room = match (std::mem::take(without_drafts), oldest.is_some()) {
            (true, _) => 0,
            (false, false) => most,
            // At least half of a step is for prompts.
            (false, true) => most.min(step_tokens.saturating_sub(answers)) / 2,
        };
        let mut drafts = 0;
        // Each slot is the first one in turn, since room and gain are less for later ones.
        let first = *steps as usize % slots.len().max(1);
        let (later, earlier) = slots.split_at_mut(first);
        let in_turn = earlier.iter_mut().chain(later).filter(|slot| slot.takes_part(scales));
        for slot in in_turn {
            let drafted =
                slot.follow().and_then(|()| slot.draft(engine, answers + drafts, room - drafts));
            match drafted {
                Ok(count) => drafts += count,
                Err(e) => slot.fail(ApiError::internal(format_args!("the draft model: {e}"))),
            }
        }
        drafts
    }

    /// Continues the slots that took part in a step.
    fn advance(&mut self, scales: &Scales) {
        let shifts = self.engine.rope().plan().shifts;
        let capacity = if shifts { usize::MAX } else { self.engine.capacity() };
        let slots = self.slots.iter_mut().filter(|slot| slot.takes_part(scales));
        let ended: Vec<_> = slots.filter_map(|slot| slot.advance(capacity)).collect();
        ended.iter().for_each(|ended| self.status.count(&ended.outcome.timings));
        // Before the ends are reported: a client that has its answer sees an idle slot.
        self.status.set(&self.slots, self.engine.pool());
        ended.into_iter().for_each(Ended::report);
    }

    /// Makes room in the memory of keys and values, or else ends the answer that a step failed for.
    fn recover(&mut self, error: &model::Error, drafts: bool, scales: &Scales) {
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
        // The answer that began last makes room for those before it. It reads its tokens again later,
        // each in the role that it had, so that its logits have the same bits.
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
    fn fail(&mut self, slot: usize, error: &model::Error) {
        let slot = &mut self.slots[slot];
        let error = match error {
            // A smaller request, or a later one, may succeed.
            model::Error::PoolFull { .. } | model::Error::Memory(_) => ApiError::unavailable(error),
            _ => ApiError::internal(error),
        };
        slot.fail(error);
        slot.sequence = self.engine.sequence();
    }
}

/// The state of the slots that take part in a step.
struct Turn {
    /// The scales of adapters that they have in common.
    scales: Scales,
    /// The number of answers that are generated.
    answers: usize,
    /// The slot of the prompt that began first of those being read, with the number of its tokens that are
    /// left.
    oldest: Option<(usize, usize)>,
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
