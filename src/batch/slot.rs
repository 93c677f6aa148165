//! A slot: a sequence, and the answer that is computed with it.

use std::{
    mem,
    ops::{ControlFlow, Range},
    time::Duration,
};

use tracing::info;

use crate::{
    Token,
    constraint::StepBudget,
    generate::{
        End, Generation, Next,
        speculation::{Costs, Scores, Speculation, SpeculativePrefill, Target},
    },
    model::{self, Engine, Feed, Output, Role, Sequence},
};

use super::{
    Error, Generated, Outcome, Reading, Request, Scales, SlotState, Update,
    moves::Moves,
    request::Job,
    task::{Taker, Task},
};

/// Maximum steps of the draft source before each step of the engine.
const FOLLOWING_STEPS: usize = 2;

/// A place for one answer in progress, with a sequence that later requests may continue.
pub struct Slot {
    /// Its number.
    pub id: usize,
    /// The tokens of the last prompt and answer, with their keys and values.
    pub sequence: Sequence,
    /// The owner of these tokens.
    pub owner: u64,
    /// The time of the last use, as a counter.
    pub last_use: u64,
    /// The last step with this slot.
    pub last_step: u64,
    /// Set when shorter prompts filled the last step, so this one, the oldest, goes first next
    /// time.
    pub passed_over: bool,
    /// Set when the answer skips a step, so that other constraints have all of its time.
    pub resting: bool,
    /// Set when the answer skips a step, since its receiver has no room.
    pub paused: bool,
    /// Draft source. Its acceptance statistics carry over to later answers.
    speculation: Speculation,
    /// The parts of the prompt to take from other sequences.
    moves: Moves,
    running: Option<Running>,
}

/// An answer in progress.
pub struct Running {
    generation: Generation,
    /// Whether the draft source has processed the tokens.
    followed: bool,
    /// Whether it was reported that tokens are computed again.
    recomputes: bool,
    /// The tokens to leave out of the prompt.
    omitted: Omitted,
    task: Task,
}

/// The tokens to leave out of a prompt.
enum Omitted {
    /// None, or these. They stay the same when a suspended answer is resumed.
    Ranges(Vec<Range<usize>>),
    /// The draft model has yet to choose them.
    Unknown(SpeculativePrefill),
}

/// A completed answer, before its reply is called.
#[must_use]
pub struct Ended {
    pub job: Job,
    /// How it ended.
    pub outcome: Outcome,
    /// All of its tokens if some were left out of the prompt.
    pub gapped: Vec<Token>,
}

impl Ended {
    /// Reports the end to the client.
    pub fn report(mut self) {
        self.job.reply.update(Update::Ended(self.outcome));
    }
}

impl Slot {
    /// Creates an idle slot.
    pub fn new(id: usize, engine: &Engine, speculation: Speculation) -> Self {
        Slot {
            id,
            sequence: engine.sequence(),
            owner: 0,
            last_use: 0,
            last_step: 0,
            passed_over: false,
            resting: false,
            paused: false,
            speculation,
            moves: Moves::default(),
            running: None,
        }
    }

    /// Starts an answer, or resumes a suspended one. `sequence` holds a prefix of its tokens,
    /// `moves` has further parts to take over, and `costs` are the times of passes so far.
    pub fn begin(
        &mut self,
        engine: &Engine,
        mut running: Running,
        sequence: Sequence,
        moves: Moves,
        costs: &Costs,
    ) {
        self.speculation.set_costs(costs.clone());
        running.followed = false;
        if !running.generation.has_begun() {
            running.task.begin(engine, running.generation.prompt());
            running.generation.reuse(sequence.tokens().len());
        }
        (self.sequence, self.moves) = (sequence, moves);
        self.owner = running.job().request.owner;
        self.passed_over = false;
        if let Err(error) = running.omit(engine, &mut self.sequence) {
            running.fail(error.into());
            return;
        }
        self.running = Some(running);
        self.report_reading();
    }

    /// Takes the answer out of the slot. It can be resumed later.
    pub fn suspend(&mut self) -> Option<Running> {
        self.drop_gaps();
        self.running.take()
    }

    /// Removes the tokens after the first one that was left out: no other text can continue them.
    fn drop_gaps(&mut self) {
        if let Some(len) = self.sequence.first_omitted() {
            self.sequence.truncate(len);
        }
    }

    /// Returns whether the slot computes all tokens of its prompt.
    pub fn is_whole(&self) -> bool {
        self.running.as_ref().is_none_or(Running::is_whole)
    }

    /// Lets the draft model process more of the prompt, for a short time, if it chooses the tokens to
    /// compute. Until it has, the prompt waits.
    ///
    /// # Errors
    /// If the draft model fails, or the engine cannot leave out tokens.
    pub fn choose(&mut self, engine: &Engine) -> Result<(), Error> {
        let Slot { sequence, speculation, running, .. } = self;
        let Some(running) = running else { return Ok(()) };
        let Omitted::Unknown(prefill) = running.omitted else { return Ok(()) };
        let scores = speculation.score(running.generation.prompt(), &mut short());
        let ranges = match scores.map_err(Error::Draft)? {
            Scores::Incomplete => return Ok(()),
            Scores::None => {
                info!(target: "prompt", "the draft model has no room for a prompt, which is computed whole");
                Vec::new()
            }
            Scores::Of(scores) => prefill.omitted(&scores, sequence.tokens().len()),
        };
        running.omitted = Omitted::Ranges(ranges);
        Ok(running.omit(engine, sequence)?)
    }

    /// Returns the state to publish.
    pub fn state(&self) -> SlotState {
        SlotState {
            owner: self.owner,
            busy: self.running.is_some(),
            reading: self.running.is_some() && !self.generating(),
            tokens: self.sequence.tokens().len(),
            prompt: self.prompt().map_or(0, <[_]>::len),
            timings: self.running.as_ref().map(|r| *r.generation.timings()).unwrap_or_default(),
        }
    }

    /// Returns the answer in progress.
    pub fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }

    /// Returns the request in progress.
    pub fn task(&self) -> Option<&Task> {
        self.running.as_ref().map(|running| &running.task)
    }

    /// Returns the adapter scales of the answer.
    pub fn scales(&self) -> Option<&Scales> {
        self.task().map(|task| &task.job.scales)
    }

    /// Returns whether the slot takes part in a step with these adapter scales.
    pub fn takes_part(&self, scales: &Scales) -> bool {
        !self.resting && !self.paused && self.scales() == Some(scales)
    }

    /// Returns whether the receiver of the answer has no room for its next token.
    pub fn is_unread(&self) -> bool {
        self.task().is_some_and(|task| !task.job.reply.is_ready())
    }

    /// Returns whether the last step had no time left for the answer's constraint.
    pub fn waits(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.generation.waits())
    }

    /// Returns whether the next token of the answer needs time for a constraint.
    pub fn is_constrained(&self) -> bool {
        let is_constrained = |running: &Running| running.generation.is_constrained();
        self.generating() && self.running.as_ref().is_some_and(is_constrained)
    }

    /// Returns the prompt of the answer in progress.
    pub fn prompt(&self) -> Option<&[Token]> {
        self.running.as_ref().map(|running| running.generation.prompt())
    }

    /// Returns whether the slot generates tokens.
    pub fn generating(&self) -> bool {
        let has_begun = |running: &Running| running.generation.has_begun();
        self.running.as_ref().is_some_and(has_begun) && self.remaining() == 1
    }

    /// Returns the number of tokens to compute before the answer's next token.
    pub fn remaining(&self) -> usize {
        self.running.as_ref().map_or(0, |running| {
            running.tokens().len() - self.sequence.tokens().len() + self.sequence.to_recompute()
        })
    }

    /// Moves the next parts of the prompt into the sequence.
    ///
    /// # Errors
    /// If the engine cannot move them.
    pub fn place(&mut self, engine: &Engine) -> Result<(), model::Error> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let moved = self.moves.place(engine, &mut self.sequence)?;
        if moved > 0 {
            let reused = running.generation.timings().reused;
            running.generation.reuse(reused + moved);
            self.report_reading();
        }
        Ok(())
    }

    /// Ends the answer if its receiver wants no more.
    pub fn end_abandoned(&mut self) -> Option<Ended> {
        match self.running.as_ref().is_some_and(Running::abandoned) {
            true => self.end(End::Caller),
            false => None,
        }
    }

    /// Stops the answer with an error.
    pub fn fail(&mut self, error: Error) {
        if let Some(running) = self.running.take() {
            running.fail(error);
            self.drop_gaps();
        }
    }

    /// Lets the draft source process more of the tokens, for a short time. Until it has all of
    /// them, answers have no drafts.
    ///
    /// # Errors
    /// If a draft model fails.
    pub fn follow(&mut self) -> Result<(), model::Error> {
        let Slot { speculation, running, .. } = self;
        let Some(running) =
            running.as_mut().filter(|running| running.wants_drafts() && !running.followed)
        else {
            return Ok(());
        };
        let (mut stop, mut followed) = (short(), true);
        speculation.begin(running.tokens(), &mut || {
            let flow = stop();
            followed = flow.is_continue();
            flow
        })?;
        running.followed = followed;
        Ok(())
    }

    /// Adds at most `room` drafts to the tokens to compute. `rows` is the number of rows in the
    /// pass without them. Returns the number of drafts.
    ///
    /// # Errors
    /// If a draft model or the predictor fails.
    pub fn draft(
        &mut self,
        engine: &mut Engine,
        rows: usize,
        room: usize,
    ) -> Result<usize, model::Error> {
        if !self.generating() {
            return Ok(0);
        }
        let Slot { sequence, speculation, running, .. } = self;
        let Some(running) = running.as_mut().filter(|running| running.followed) else {
            return Ok(0);
        };
        let most = running.job().request.drafts_max.unwrap_or(usize::MAX);
        let room = room.min(most).min(engine.room(sequence) - 1);
        running.generation.draft(speculation, rows, room, Target { engine, sequence })
    }

    /// Removes the drafts of a step that was not computed.
    pub fn drop_drafts(&mut self) {
        if let Some(running) = &mut self.running {
            running.generation.drop_drafts();
        }
    }

    /// Records the time of a pass that computed only answers and drafts.
    pub fn passed(&mut self, rows: usize, time: Duration) {
        if self.running.as_ref().is_some_and(|running| running.followed) {
            self.speculation.passed(rows, time);
        }
    }

    /// Returns the tokens to compute next, with the receiver of their logits.
    pub fn feed(&mut self) -> Option<(Feed<'_, '_>, Taker<'_>)> {
        let Slot { sequence, speculation, moves, running, .. } = self;
        let Running { generation, task, omitted, .. } = running.as_mut()?;
        if let Omitted::Unknown(_) = omitted {
            return None;
        }
        let computed = sequence.tokens().len();
        let (Next { tokens, role, wanted }, prompt, writing) = generation.next(computed);
        let tokens = &tokens[..tokens.len().min(moves.next() - computed)];
        let (wanted, output) = match &task.pooler {
            Some(pooler) => (pooler.wanted(), Output::Embedding),
            None if role == Role::Prompt && task.wants_prompt() => {
                (computed..wanted.end, Output::Logits)
            }
            None => (wanted, Output::Logits),
        };
        let feed = Feed { sequence, tokens, role, wanted, output };
        Some((feed, Taker { task, writing, speculation, prompt }))
    }

    /// Continues after a step, in a context of `capacity` tokens. Returns the answer if it is
    /// complete.
    pub fn advance(&mut self, capacity: usize) -> Option<Ended> {
        let Slot { sequence, running, .. } = self;
        match running.as_mut()?.generation.advance(sequence, capacity) {
            Ok(Some(end)) => self.end(end),
            Ok(None) => {
                self.report_reading();
                self.report_recomputing();
                None
            }
            Err(e) => {
                self.fail(e.into());
                None
            }
        }
    }

    fn end(&mut self, end: End) -> Option<Ended> {
        let Running { mut task, mut generation, .. } = self.running.take()?;
        if let Some(pooler) = task.pooler.take() {
            task.job.reply.update(Update::Embedded(pooler.finish()));
            // The tokens of an embedding cannot be reused by other prompts.
            self.sequence.truncate(0);
        }
        let text = generation.end(&end);
        let mut timings = *generation.timings();
        if end == End::Caller && timings.read == 0 {
            let computed = self.sequence.tokens().len() - self.sequence.omitted();
            timings.read = computed.saturating_sub(timings.reused);
            timings.reading = generation.started().elapsed();
        }
        if !text.is_empty() {
            task.job.reply.update(Update::Generated(Generated {
                text,
                timings,
                ..Generated::default()
            }));
        }
        let outcome = Outcome {
            end,
            timings,
            source: task.source,
            slot: self.id,
            sequence_tokens: self.sequence.tokens().len(),
            evicted: self.sequence.take_evicted().unwrap_or(0),
            recomputed: self.sequence.take_recomputed().unwrap_or(0),
            drawn: task.drawn(),
        };
        let omits = self.sequence.first_omitted().is_some();
        let gapped = if omits { self.sequence.tokens().to_vec() } else { Vec::new() };
        self.drop_gaps();
        Some(Ended { job: task.job, outcome, gapped })
    }

    /// Reports once that tokens are computed again.
    fn report_recomputing(&mut self) {
        if let Some(running) = &mut self.running
            && let Some(tokens) = self.sequence.recomputing()
            && !mem::replace(&mut running.recomputes, true)
        {
            running.task.job.reply.update(Update::Recomputing { tokens });
        }
    }

    /// Reports prompt processing, until the answer has a token.
    fn report_reading(&mut self) {
        if let Some(running) = &mut self.running
            && !running.generation.has_begun()
        {
            let Running { generation, task, .. } = running;
            task.job.reply.update(Update::Read(Reading {
                total: generation.prompt().len(),
                cached: generation.timings().reused,
                processed: self.sequence.tokens().len(),
                elapsed: generation.started().elapsed(),
            }));
        }
    }
}

/// Returns what stops the draft source after a short time.
fn short() -> impl FnMut() -> ControlFlow<()> {
    let mut steps = 0;
    move || {
        steps += 1;
        if steps < FOLLOWING_STEPS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

impl Running {
    /// Prepares an answer; all constraints share `budget`. If the sampler's settings are invalid,
    /// reports an error and returns `None`.
    pub fn new(mut job: Job, budget: &StepBudget) -> Option<Self> {
        let prompt = mem::take(&mut job.request.prompt);
        let mut limits = job.request.limits.clone();
        limits.constraint = limits.constraint.map(|one| one.with_budget(budget.clone()));
        let task = Task::new(job, &prompt)?;
        let generation = Generation::new(prompt, limits);
        let omitted = Omitted::Ranges(Vec::new());
        Some(Running { generation, followed: false, recomputes: false, omitted, task })
    }

    /// Lets the draft model choose the tokens of the prompt to compute, if it is long enough after the
    /// first `cached` tokens, and no output of its tokens is wanted.
    pub fn speculate(&mut self, prefill: SpeculativePrefill, cached: usize) {
        let Request { pooling, limits, .. } = &self.job().request;
        // Without an answer, the prompt is for later ones.
        let wants_all =
            self.task.wants_prompt() || pooling.is_some() || limits.tokens_max == Some(0);
        let begun = self.has_begun() || !self.is_whole();
        if !wants_all && !begun && prefill.applies(self.generation.prompt().len(), cached) {
            self.omitted = Omitted::Unknown(prefill);
        }
    }

    /// Returns whether all tokens of the prompt are computed.
    pub fn is_whole(&self) -> bool {
        matches!(&self.omitted, Omitted::Ranges(ranges) if ranges.is_empty())
    }

    /// Leaves the chosen tokens out of a sequence, unless the sequence has them already.
    fn omit(&mut self, engine: &Engine, sequence: &mut Sequence) -> Result<(), model::Error> {
        let Omitted::Ranges(ranges) = &self.omitted else { return Ok(()) };
        if ranges.is_empty() {
            return Ok(());
        }
        let len = sequence.tokens().len();
        let left = ranges.iter().map(|range| range.start.max(len)..range.end);
        let left: Vec<_> = left.filter(|range| !range.is_empty()).collect();
        if !self.generation.has_begun() {
            self.generation.omit(left.iter().map(Range::len).sum());
        }
        engine.omit(sequence, &left)
    }

    /// Ends the answer outside of slots.
    pub fn end(mut self) {
        let outcome = Outcome::outside_slots(*self.generation.timings(), self.task.drawn());
        self.task.job.reply.update(Update::Ended(outcome));
    }

    /// Ends the answer with an error.
    pub fn fail(mut self, error: Error) {
        self.task.job.reply.update(Update::Failed(error));
    }

    /// Returns the request.
    pub fn job(&self) -> &Job {
        &self.task.job
    }

    /// Records where the reused tokens come from. Does nothing once the answer has tokens.
    pub fn comes_from(&mut self, source: &'static str) {
        if !self.generation.has_begun() {
            self.task.source = source;
        }
    }

    /// Returns the tokens of the prompt and of the answer.
    pub fn tokens(&self) -> &[Token] {
        self.generation.tokens()
    }

    /// Returns whether the answer has a token.
    pub fn has_begun(&self) -> bool {
        self.generation.has_begun()
    }

    /// Returns whether the receiver is gone.
    pub fn abandoned(&self) -> bool {
        self.task.job.reply.is_closed()
    }

    /// Returns whether the draft source may follow the tokens, since the answer can use drafts.
    fn wants_drafts(&self) -> bool {
        let chosen = matches!(self.omitted, Omitted::Ranges(_));
        chosen && self.task.pooler.is_none() && self.job().request.drafts_max != Some(0)
    }
}
