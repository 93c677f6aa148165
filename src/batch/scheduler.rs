//! The scheduler. It decides which answers and prompts take part in each step.
//!
//! Before each step it moves waiting requests into idle slots, and drops answers without a
//! receiver.

mod later;
mod on_disk;
mod share;
mod step;

use std::{
    collections::VecDeque,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    Token,
    constraint::StepBudget,
    generate,
    generate::speculation::{Costs, Speculation, SpeculativePrefill},
    model::{self, Engine, Sequence},
    tokenizer::{Tokenizer, common_prefix},
};
use tracing::info;

use self::later::Later;
use super::{
    Answered, Command, Disk, Error, Reply, Request, Status, Update, Updates,
    moves::Moves,
    options::Options,
    pace::Pace,
    prefixes::{Prefixes, continues, reusable, reuse, shared},
    request::Job,
    slot::{Ended, Running, Slot},
    status::Place,
    turns::Member,
    updates::Heard,
};

/// A prompt waits for another prompt in progress if that saves at least this many tokens.
const WORTH_WAITING: usize = 64;

/// How often [`Scheduler::run`] checks the receivers while none of them has room.
const PAUSE: Duration = Duration::from_millis(5);

/// The number of tokens to log at the place where a prompt and the cache differ.
const SHOWN_TOKENS: usize = 16;

/// Computes answers to many requests at a time: see the [module](super) for an example.
pub struct Scheduler<'t> {
    engine: Engine,
    tokenizer: &'t Tokenizer<'t>,
    slots: Vec<Slot>,
    waiting: VecDeque<Job>,
    /// Answers preempted because the KV cache was full, newest first.
    suspended: Vec<Running>,
    /// Answers that left their slot to another request, oldest first.
    displaced: Vec<Running>,
    /// The number of answers submitted.
    arrivals: u64,
    /// Preempted answers resume only below this many running ones.
    crowd: usize,
    prefixes: Prefixes,
    disk: Option<Disk>,
    moved_min: Option<usize>,
    prefill: Option<SpeculativePrefill>,
    later: Option<Later>,
    pace: Pace,
    /// This scheduler among those that share the processors.
    member: Option<Member>,
    /// The time for the constraints of all answers in a step.
    budget: StepBudget,
    /// The measured times of steps that computed only answers.
    costs: Costs,
    /// Set for one step after drafts filled the KV cache.
    without_drafts: bool,
    /// Whether the log may quote prompts.
    quotes: bool,
    /// The number of steps.
    steps: u64,
    /// Set by [`Scheduler::stop`].
    stopped: bool,
    /// Deadline for writing sequences to disk.
    saved_by: Option<Instant>,
    status: Arc<Status>,
}

impl<'t> Scheduler<'t> {
    /// Creates a scheduler that reports its state to `status`.
    pub fn new(
        engine: Engine,
        tokenizer: &'t Tokenizer<'t>,
        options: Options,
        status: Arc<Status>,
    ) -> Self {
        let Options { mut speculations, step_max, disk, moved_min, prefill, .. } = options;
        let Options { prefill_later, quotes, turns, .. } = options;
        if speculations.is_empty() {
            speculations.push(Speculation::none());
        }
        let slots = speculations.into_iter().enumerate();
        let slots = slots.map(|(id, speculation)| Slot::new(id, &engine, speculation)).collect();
        let pace = Pace::new(step_max, engine.options().micro_batch);
        let scheduler = Scheduler {
            engine,
            tokenizer,
            slots,
            waiting: VecDeque::new(),
            suspended: Vec::new(),
            displaced: Vec::new(),
            arrivals: 0,
            crowd: 0,
            prefixes: Prefixes::default(),
            disk,
            moved_min,
            prefill,
            later: prefill_later.then(Later::default),
            pace,
            member: turns.map(|turns| turns.join()),
            budget: StepBudget::new(step_max),
            costs: Costs::default(),
            without_drafts: false,
            quotes,
            steps: 0,
            stopped: false,
            saved_by: None,
            status,
        };
        scheduler.report_status();
        scheduler
    }

    /// Submits a request. If the request is invalid, its reply receives the error.
    pub fn submit(&mut self, request: Request, reply: impl Reply + 'static) {
        let (place, _) = Place::take(&self.status);
        self.enqueue(request, Box::new(reply), place);
    }

    /// Adds a request to the waiting ones.
    pub(super) fn enqueue(
        &mut self,
        request: Request,
        mut reply: Box<dyn Reply>,
        place: Arc<Place>,
    ) {
        if let Err(e) = self.check(&request) {
            drop(place);
            reply.update(Update::Failed(e));
            return;
        }
        if !self.is_idle() {
            self.later.iter_mut().for_each(Later::make_room);
        }
        let scales = request.adapter_scales.clone();
        let scales = scales.unwrap_or_else(|| self.engine.sequence().adapter_scales().into());
        self.arrivals += 1;
        self.waiting.push_back(Job {
            request,
            reply,
            group: place.id(),
            arrival: self.arrivals,
            place: Some(place),
            scales,
            restored: false,
            loaded: Vec::new(),
            searched: false,
        });
    }

    fn check(&self, Request { prompt, slot, pooling, .. }: &Request) -> Result<(), Error> {
        let (tokens, context) = (prompt.len(), self.engine.capacity());
        let (slots, vocabulary) = (self.slots.len(), self.engine.vocabulary());
        if self.stopped {
            return Err(Error::Stopped);
        }
        if tokens == 0 {
            return Err(generate::Error::PromptEmpty.into());
        }
        match *pooling {
            Some(pooling) => self.engine.model().require_pooling(pooling)?,
            None => self.engine.model().config().require_logits()?,
        }
        // A context that shifts accepts a long prompt: it evicts the oldest tokens.
        if tokens > context && !self.engine.rope().plan().shifts {
            return Err(generate::Error::PromptTooLong { tokens, context }.into());
        }
        if let Some(&token) = prompt.iter().find(|token| **token as usize >= vocabulary) {
            return Err(model::Error::Token { token, vocabulary }.into());
        }
        match *slot {
            Some(slot) if slot >= slots => Err(Error::NoSlot { slot, slots }),
            _ => Ok(()),
        }
    }

    /// Runs commands and computes answers until [`Scheduler::stop`], or until all command senders
    /// are dropped and all answers are complete. Then saves the sequences to the cache on disk.
    pub fn run(mut self, commands: &Receiver<Command>) {
        let mut open = true;
        while !self.stopped {
            let idle = self.is_idle() && !(open && self.read_later());
            if idle && !open {
                break;
            }
            let next = match idle {
                true => commands.recv().map_err(|_| TryRecvError::Disconnected),
                false if self.is_paused() && open => {
                    commands.recv_timeout(PAUSE).map_err(|error| match error {
                        RecvTimeoutError::Timeout => TryRecvError::Empty,
                        RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
                    })
                }
                false if self.is_paused() => {
                    thread::sleep(PAUSE);
                    Err(TryRecvError::Disconnected)
                }
                false => commands.try_recv(),
            };
            match next {
                Ok(command) => {
                    command(&mut self);
                    self.report_status();
                    continue;
                }
                Err(TryRecvError::Disconnected) => open = false,
                Err(TryRecvError::Empty) => {}
            }
            self.step();
        }
        self.close();
    }

    /// Saves all sequences to the cache on disk.
    pub fn close(mut self) {
        self.save_all();
    }

    /// Fails all answers and all later requests. Sequences that are not on disk by `saved_by` are
    /// lost; `None` waits for all.
    pub fn stop(&mut self, saved_by: Option<Instant>) {
        (self.stopped, self.saved_by) = (true, saved_by);
        self.slots.iter_mut().for_each(|slot| slot.fail(Error::Stopped));
        let suspended = self.suspended.drain(..).chain(self.displaced.drain(..));
        suspended.for_each(|running| running.fail(Error::Stopped));
        for mut job in self.waiting.drain(..) {
            job.reply.update(Update::Failed(Error::Stopped));
        }
    }

    /// Returns whether there is nothing to compute.
    pub fn is_idle(&self) -> bool {
        let none = self.suspended.is_empty() && self.displaced.is_empty();
        self.waiting.is_empty() && none && self.running() == 0
    }

    /// Returns the engine, and the sequence of a slot, which then belongs to `owner`: see
    /// [`Request::owner`].
    ///
    /// # Errors
    /// If the slot does not exist, computes an answer, or has tokens of another owner.
    pub fn slot(&mut self, id: usize, owner: u64) -> Result<(&Engine, &mut Sequence), Error> {
        let slots = self.slots.len();
        match self.slots.get_mut(id) {
            Some(slot) if slot.owner != owner && !slot.sequence.tokens().is_empty() => {
                Err(Error::SlotOfOther(id))
            }
            Some(slot) if slot.task().is_some() => Err(Error::SlotInUse(id)),
            Some(slot) => {
                slot.owner = owner;
                Ok((&self.engine, &mut slot.sequence))
            }
            None => Err(Error::NoSlot { slot: id, slots }),
        }
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the sequence of a slot: of its answer in progress, or else of its last one.
    ///
    /// # Errors
    /// If the slot does not exist.
    pub fn sequence(&self, slot: usize) -> Result<&Sequence, Error> {
        let slots = self.slots.len();
        let found = self.slots.get(slot).map(|slot| &slot.sequence);
        found.ok_or(Error::NoSlot { slot, slots })
    }

    /// Computes one answer, and those to earlier requests meanwhile. `on_update` receives its updates
    /// after each step, and can end it with [`End::Caller`](crate::generate::End::Caller).
    ///
    /// # Errors
    /// If the prompt is empty or too long, a setting is invalid, or the model, the sampler or the
    /// constraint fails.
    pub fn answer(
        &mut self,
        request: Request,
        on_update: &mut dyn FnMut(&Update) -> ControlFlow<()>,
    ) -> Result<Answered, Error> {
        let (reply, updates) = Updates::channel();
        self.submit(request, reply);
        let mut heard = Heard::new(on_update);
        loop {
            while let Some(update) = updates.ready() {
                if let Some(answered) = heard.add(update, &updates)? {
                    return Ok(answered);
                }
            }
            self.step();
        }
    }

    /// Puts waiting requests into idle slots, and computes the next tokens of all slots. It calls
    /// the replies. Does nothing if the scheduler [is idle](Scheduler::is_idle), or no reply
    /// [is ready](Reply::is_ready).
    pub fn step(&mut self) {
        self.take_loaded();
        self.end_abandoned();
        self.resume();
        self.sort_waiting();
        self.displace();
        self.resume_displaced();
        self.admit();
        let turn = self.member.as_ref().map(Member::take);
        self.compute();
        drop(turn);
        self.save_oldest();
        self.report_status();
    }

    fn report_status(&self) {
        self.status.set(self.slots.iter().map(Slot::state), self.engine.pool());
    }

    /// Ends answers whose receivers want no more.
    fn end_abandoned(&mut self) {
        self.slots.iter_mut().filter_map(Slot::end_abandoned).for_each(Ended::report);
        let outside = self.suspended.iter().chain(&self.displaced);
        if outside.map(Running::job).chain(&self.waiting).any(|job| job.reply.is_closed()) {
            for list in [&mut self.suspended, &mut self.displaced] {
                list.extract_if(.., |running| running.abandoned()).for_each(Running::end);
            }
            self.waiting.retain_mut(|job| !job.end_abandoned());
        }
    }

    /// Resumes the oldest suspended answer, if another answer has ended since the KV cache was
    /// full.
    fn resume(&mut self) {
        if self.running() < self.crowd
            && let Some(running) = self.suspended.pop()
        {
            let job = running.job();
            let source = self.source(running.tokens(), job).0;
            match self.idle_slot(job.request.slot, source) {
                Some(slot) => self.begin(slot, source, running),
                None => self.suspended.push(running),
            }
        }
    }

    /// Puts waiting requests into idle slots, unless suspended answers need them.
    fn admit(&mut self) {
        let (mut index, mut places) = (0, Vec::new());
        while index < self.waiting.len()
            && self.suspended.is_empty()
            && self.running() < self.slots.len()
        {
            let job = &self.waiting[index];
            let (source, reused) = self.source(&job.request.prompt, job);
            if self.awaits_file(index, reused) || self.awaits_part(index, reused) {
                index += 1;
                continue;
            }
            let job = &self.waiting[index];
            match self.idle_slot(job.request.slot, source) {
                Some(slot) if !self.worth_waiting(job, reused) => {
                    let job = self.waiting.remove(index);
                    let running = job.and_then(|mut job| {
                        places.extend(job.place.take());
                        Running::new(job, &self.budget)
                    });
                    if let Some(running) = running {
                        self.begin(slot, source, running);
                    }
                }
                _ => index += 1,
            }
        }
        if !places.is_empty() {
            // Report before the places are dropped, so that a request is always counted as waiting
            // or in a slot.
            self.report_status();
        }
    }

    /// Returns whether no answer has a receiver with room.
    fn is_paused(&self) -> bool {
        let mut busy = self.slots.iter().filter(|slot| slot.task().is_some()).peekable();
        busy.peek().is_some() && busy.all(Slot::is_unread)
    }

    /// Returns the number of answers in slots.
    fn running(&self) -> usize {
        self.slots.iter().filter(|slot| slot.task().is_some()).count()
    }

    /// Finds the longest cached prefix of a job's tokens. Returns its place and length.
    fn source(&self, tokens: &[Token], job: &Job) -> (Source, usize) {
        if !job.reuses() {
            return (Source::None, 0);
        }
        let (engine, scales, owner) = (&self.engine, &job.scales, job.request.owner);
        let own = self.slots.iter().filter(|slot| slot.owner == owner);
        let of_slots = own.map(|Slot { id, sequence, .. }| {
            let reused = match job.request.inexact {
                true => sequence.rewind_point(shared(sequence, tokens, scales)),
                false => reusable(engine, sequence, tokens, scales),
            };
            (Source::Slot(*id), reused)
        });
        let kept = self.prefixes.longest(engine, owner, tokens, scales);
        let kept = kept.map(|(_, reused)| (Source::Prefixes, reused));
        let best = of_slots.chain(kept).rev().max_by_key(|(_, reused)| *reused);
        best.filter(|(_, reused)| *reused > 0).unwrap_or((Source::None, 0))
    }

    /// Returns an idle slot: number `given`, or the slot that the answer continues, or the least
    /// recently used slot.
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

    /// Returns whether a prompt in progress shares a much longer prefix with a job than the cache
    /// does.
    fn worth_waiting(&self, job: &Job, reused: usize) -> bool {
        let alike = |slot: &&Slot| {
            let is_own = slot.owner == job.request.owner;
            is_own && slot.takes_part(&job.scales) && !slot.generating() && slot.is_whole()
        };
        let reading = self.slots.iter().filter(alike);
        let longest = reading
            .filter_map(|slot| Some(common_prefix(slot.prompt()?, &job.request.prompt)))
            .max();
        job.reuses() && longest.is_some_and(|tokens| tokens > reused + WORTH_WAITING)
    }

    /// Starts or resumes an answer in an idle slot.
    fn begin(&mut self, slot: usize, source: Source, mut running: Running) {
        running.comes_from(match source {
            Source::None => "none",
            Source::Slot(_) => "slot",
            Source::Prefixes if running.job().restored => "disk",
            Source::Prefixes => "memory",
        });
        let Scheduler { engine, slots, prefixes, .. } = &*self;
        let (tokens, scales) = (running.tokens(), &running.job().scales);
        let owner = running.job().request.owner;
        let sequence = match source {
            Source::Slot(id) => Some(slots[id].sequence.clone()),
            Source::Prefixes => {
                prefixes.longest(engine, owner, tokens, scales).map(|(kept, _)| kept.clone())
            }
            Source::None => None,
        };
        let mut sequence = sequence.unwrap_or_else(|| engine.sequence());
        let common = common_prefix(sequence.tokens(), tokens).min(tokens.len() - 1);
        self.log_difference(&sequence, tokens, common);
        match running.job().request.inexact {
            true => sequence.truncate(shared(&sequence, tokens, scales)),
            false => reuse(engine, &mut sequence, tokens, scales),
        };
        let keep = running.job().request.keep.filter(|tokens| *tokens != sequence.kept());
        let kept = keep.map_or(Ok(()), |tokens| sequence.keep(tokens));
        running.job().request.retain_from.into_iter().for_each(|from| sequence.retain_from(from));
        if let Err(e) = kept.and_then(|()| sequence.set_adapter_scales(scales)) {
            running.fail(e.into());
            return;
        }
        let old = std::mem::replace(&mut self.slots[slot].sequence, self.engine.sequence());
        let old_owner = self.slots[slot].owner;
        if old_owner != owner || !continues(&self.engine, &sequence, &old) {
            self.prefixes.keep(&self.engine, old_owner, old);
        }
        let reused = sequence.tokens().len();
        if let Some(prefill) = self.prefill {
            running.speculate(prefill, reused);
        }
        let moves = match running.is_whole() {
            true => self.moves(&running, reused),
            false => Moves::default(),
        };
        self.slots[slot].last_use = self.steps;
        self.slots[slot].begin(&self.engine, running, sequence, moves, &self.costs);
    }

    /// Returns the parts of an answer's prompt to move, after its first `reused` tokens.
    fn moves(&self, running: &Running, reused: usize) -> Moves {
        let job = running.job();
        let least = self.moved_min.filter(|_| job.reuses() && !running.has_begun());
        let Some(least) = least else { return Moves::default() };
        let own = self.kept(job.request.owner);
        let sources = own.filter(|kept| *kept.adapter_scales() == *job.scales);
        Moves::find(running.tokens(), reused, least, sources)
    }

    /// Returns the owner's sequences that no answer is changing and that have evicted no tokens.
    fn kept(&self, owner: u64) -> impl Iterator<Item = &Sequence> {
        let idle = self.slots.iter().filter(|slot| slot.task().is_none());
        let idle = idle.map(|slot| (slot.owner, &slot.sequence));
        let all = self.prefixes.iter().map(|kept| (kept.owner, &kept.sequence)).chain(idle);
        let own = all.filter(move |(other, _)| *other == owner).map(|(_, sequence)| sequence);
        own.filter(|kept| kept.positions() == kept.tokens().len())
    }

    /// Logs where a prompt first differs from the cached sequence that it almost continued.
    fn log_difference(&self, cached: &Sequence, tokens: &[Token], shared: usize) {
        if cached.tokens().get(shared).is_none_or(|cached| *cached == tokens[shared]) {
            return;
        }
        let text = |tokens: &[Token]| {
            self.quotes.then(|| {
                let end = tokens.len().min(shared + SHOWN_TOKENS);
                let bytes = self.tokenizer.decode(&tokens[shared..end], true);
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        info!(
            target: "cache", token = shared, of = tokens.len(), cached = text(cached.tokens()),
            prompt = text(tokens), "a prompt differs from the cache"
        );
    }
}

/// The place of a cached prefix of a prompt.
#[derive(Clone, Copy)]
enum Source {
    None,
    Slot(usize),
    Prefixes,
}

impl Drop for Scheduler<'_> {
    fn drop(&mut self) {
        // First, so that a failed answer never precedes the reason for it.
        self.status.ended.store(true, Relaxed);
        self.stop(self.saved_by);
    }
}
