//! A slot: a sequence, and the answer that is computed with it.

use std::{ops::ControlFlow, time::Duration};

use rope_cpu::{
    Token,
    generate::{
        End,
        speculation::{Costs, Speculation},
    },
    model::{self, Engine, Feed, Output, Pooler, Role, Sequence},
    tokenizer::Tokenizer,
};

use super::{
    adapters::Scales,
    error::ApiError,
    job::{Generated, Job, Outcome, Reading, Update},
    task::{Choices, Task},
};

/// The steps in which the source of drafts reads tokens, before each step of the engine.
const FOLLOWING_STEPS: usize = 2;

/// A slot.
pub struct Slot {
    /// Its number.
    pub id: usize,
    /// The tokens of the last prompt and answer, with their keys and values.
    pub sequence: Sequence,
    /// When the slot was last used: a number that grows.
    pub last_use: u64,
    /// The last step that it took part in.
    pub last_step: u64,
    /// Whether the last step that it could have taken part in read nothing of its prompt, which began
    /// first, since it was full of shorter ones.
    pub passed_over: bool,
    /// The drafts of answers. What it has learnt about their success holds for later answers, too.
    speculation: Speculation,
    running: Option<Running>,
}

/// An answer that is being computed, with the tokens that its sequence is to have.
pub struct Running {
    /// The prompt, the tokens of the answer, and while a step is computed the drafts.
    tokens: Vec<Token>,
    /// The number of tokens of the prompt.
    prompt: usize,
    /// The number of drafts.
    drafts: usize,
    /// Whether the source of drafts has read the tokens.
    followed: bool,
    task: Task,
}

/// The receiver of the logits of a step.
pub struct Taker<'s> {
    task: &'s mut Task,
    speculation: &'s mut Speculation,
    prompt: &'s [Token],
}

impl Taker<'_> {
    /// Takes the output of the token with this index: see [`Task::push`].
    pub fn push(&mut self, tokenizer: &Tokenizer<'_>, token: usize, output: &[f32]) {
        self.task.push(tokenizer, self.speculation, self.prompt, token, output);
    }
}

/// An answer that has ended, which its client does not see yet.
#[must_use]
pub struct Ended {
    job: Job,
    /// The end.
    pub outcome: Outcome,
}

impl Ended {
    /// Reports the end to the client.
    pub fn report(self) {
        self.job.report(Update::Ended(self.outcome));
    }
}

impl Slot {
    /// Creates an idle slot.
    pub fn new(id: usize, engine: &Engine, speculation: Speculation) -> Self {
        Slot {
            id,
            sequence: engine.sequence(),
            last_use: 0,
            last_step: 0,
            passed_over: false,
            speculation,
            running: None,
        }
    }

    /// Begins an answer, or continues a suspended one, with a sequence that holds some of its first
    /// tokens. `costs` are the times of passes so far.
    pub fn begin(&mut self, mut running: Running, sequence: Sequence, costs: &Costs) {
        self.speculation.set_costs(costs.clone());
        running.followed = false;
        if running.answer().is_empty() {
            let pooler = |pooling| Pooler::new(pooling, running.prompt);
            running.task.pooler = running.task.job.pooling.map(pooler);
            running.task.timings.reused = sequence.tokens().len();
        }
        self.sequence = sequence;
        self.passed_over = false;
        self.running = Some(running);
        self.report_reading();
    }

    /// Takes the answer out of the slot, so that it can continue later.
    pub fn suspend(&mut self) -> Option<Running> {
        self.running.take()
    }

    /// Returns the answer that is being computed.
    pub fn task(&self) -> Option<&Task> {
        self.running.as_ref().map(|running| &running.task)
    }

    /// Returns the scales of adapters that the answer is computed with.
    pub fn scales(&self) -> Option<&Scales> {
        self.task().map(|task| &task.job.adapter_scales)
    }

    /// Returns whether the slot takes part in a step with these scales of adapters.
    pub fn takes_part(&self, scales: &Scales) -> bool {
        self.scales() == Some(scales)
    }

    /// Returns the prompt that is being read or answered.
    pub fn prompt(&self) -> Option<&[Token]> {
        self.running.as_ref().map(|running| &running.tokens[..running.prompt])
    }

    /// Returns whether the slot generates: whether it is neither idle nor reading tokens.
    pub fn generating(&self) -> bool {
        let began = self.running.as_ref().is_some_and(|running| !running.answer().is_empty());
        began && self.remaining() == 1
    }

    /// Returns the number of tokens to compute before the next token of the answer.
    pub fn remaining(&self) -> usize {
        self.running.as_ref().map_or(0, |running| {
            running.tokens.len() - self.sequence.tokens().len() + self.sequence.to_recompute()
        })
    }

    /// Stops an answer whose receiver is gone.
    pub fn drop_abandoned(&mut self) {
        if self.running.as_ref().is_some_and(Running::abandoned) {
            self.running = None;
        }
    }

    /// Stops the answer with an error.
    pub fn fail(&mut self, error: ApiError) {
        if let Some(Running { task, .. }) = self.running.take() {
            task.job.report(Update::Failed(error));
        }
    }

    /// Lets the source of drafts read more of the tokens, as far as it does not take long. Answers are
    /// computed without drafts until it has read all.
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
        let mut steps = 0;
        speculation.begin(&running.tokens, &mut || {
            steps += 1;
            if steps < FOLLOWING_STEPS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        running.followed = steps < FOLLOWING_STEPS;
        Ok(())
    }

    /// Adds at most `room` drafts of what follows to the tokens to compute, in a pass of `rows` rows
    /// without them. Returns their number.
    ///
    /// # Errors
    /// If a draft model fails.
    pub fn draft(
        &mut self,
        engine: &Engine,
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
        let most = running.job().drafts_max.unwrap_or(usize::MAX);
        let room = room.min(most).min(engine.room(sequence) - 1);
        let drafts = speculation.propose(rows, room)?;
        running.tokens.extend_from_slice(drafts);
        running.drafts = drafts.len();
        Ok(drafts.len())
    }

    /// Removes the drafts of a step that was not computed.
    pub fn drop_drafts(&mut self) {
        if let Some(running) = &mut self.running {
            running.drop_drafts();
        }
    }

    /// Records the time of a pass that computed nothing but tokens of answers and drafts.
    pub fn passed(&mut self, rows: usize, time: Duration) {
        if self.running.as_ref().is_some_and(|running| running.followed) {
            self.speculation.passed(rows, time);
        }
    }

    /// Returns the tokens to compute next, and what takes their logits.
    pub fn feed(&mut self) -> Option<(Feed<'_, '_>, Taker<'_>)> {
        let Slot { sequence, speculation, running, .. } = self;
        let Running { tokens, prompt, drafts, task, .. } = running.as_mut()?;
        let (all, end) = (&tokens[..], tokens.len());
        let len = sequence.tokens().len();
        let (tokens, role) = match &all[len..] {
            answer if len >= *prompt => (answer, Role::Answer),
            _ => (&all[len..*prompt], Role::Prompt),
        };
        let (wanted, output) = match &task.pooler {
            Some(pooler) => (pooler.wanted(), Output::Embedding),
            None if role == Role::Prompt && task.wants_prompt() => (len..end, Output::Logits),
            // The logits of the last token, and of all drafts.
            None => (end - 1 - *drafts..end, Output::Logits),
        };
        let feed = Feed { sequence, tokens, role, wanted, output };
        Some((feed, Taker { task, speculation, prompt: &all[..*prompt] }))
    }

    /// Continues after a step, in a context of `capacity` tokens. Returns the answer if it ended.
    pub fn advance(&mut self, capacity: usize) -> Option<Ended> {
        let running = self.running.as_mut()?;
        running.drop_drafts();
        let Running { tokens, prompt, task, .. } = running;
        let Choices { used, tokens: chosen, end, .. } = std::mem::take(&mut task.choices);
        if used == 0 {
            self.report_reading();
            return None;
        }
        if tokens.len() > *prompt {
            task.count_pass(self.sequence.tokens().len() - tokens.len(), used - 1);
        }
        // Drafts that were wrong.
        self.sequence.truncate(tokens.len() - 1 + used);
        let end = match end {
            Some(Ok(end)) => end,
            Some(Err(e)) => {
                self.fail(e);
                return None;
            }
            None if tokens.len() + chosen.len() > capacity => End::ContextFull,
            None if task.out_of_time() => End::TokensMax,
            None => {
                tokens.extend(chosen);
                return None;
            }
        };
        self.end(end)
    }

    fn end(&mut self, end: End) -> Option<Ended> {
        let Running { mut task, .. } = self.running.take()?;
        if let Some(pooler) = task.pooler.take() {
            task.job.report(Update::Embedded(pooler.finish()));
            // No prompt continues the text.
            self.sequence.truncate(0);
        }
        let text = task.end(&end);
        let timings = task.timings;
        if !text.is_empty() {
            task.job.report(Update::Generated(Generated { text, timings, ..Generated::default() }));
        }
        let outcome = Outcome {
            end,
            timings,
            source: task.source,
            slot: self.id,
            sequence_tokens: self.sequence.tokens().len(),
            evicted: self.sequence.take_evicted().is_some(),
        };
        Some(Ended { job: task.job, outcome })
    }

    /// Reports the progress of reading the prompt, until the answer has begun.
    fn report_reading(&self) {
        if let Some(running) = &self.running
            && running.answer().is_empty()
        {
            running.task.job.report(Update::Read(Reading {
                total: running.prompt,
                cached: running.task.timings.reused,
                processed: self.sequence.tokens().len(),
                elapsed: running.task.started.elapsed(),
            }));
        }
    }
}

impl Running {
    /// Prepares an answer. Returns `None` if the settings of the sampler are invalid, which is
    /// reported.
    pub fn new(mut job: Job) -> Option<Self> {
        let tokens = std::mem::take(&mut job.prompt);
        let task = Task::new(job, &tokens)?;
        Some(Running { prompt: tokens.len(), tokens, drafts: 0, followed: false, task })
    }

    /// Returns the request.
    pub fn job(&self) -> &Job {
        &self.task.job
    }

    /// Records where the tokens are from that are not read again, unless the answer has begun.
    pub fn comes_from(&mut self, source: &'static str) {
        if self.answer().is_empty() {
            self.task.source = source;
        }
    }

    /// Returns the tokens that the sequence is to have.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Returns whether the receiver of the answer is gone.
    pub fn abandoned(&self) -> bool {
        self.task.job.updates.is_closed()
    }

    /// Returns whether drafts of the answer are of use.
    fn wants_drafts(&self) -> bool {
        self.task.pooler.is_none() && self.job().drafts_max != Some(0)
    }

    /// Returns the tokens of the answer.
    fn answer(&self) -> &[Token] {
        &self.tokens[self.prompt..]
    }

    fn drop_drafts(&mut self) {
        self.tokens.truncate(self.tokens.len() - std::mem::take(&mut self.drafts));
    }
}
