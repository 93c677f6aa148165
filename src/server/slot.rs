//! A slot: a sequence, and the answer that is computed with it.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use rope_cpu::{
    Token,
    generate::{Answer, End, Timings},
    model::{Engine, Feed, Output, Role, Sequence},
    sample::Sampler,
    tokenizer::Tokenizer,
};

use super::{
    error::ApiError,
    job::{Generated, Job, Outcome, Reading, Update},
    pooling::Pooler,
    probabilities::{of_candidates, of_logits},
};

/// A slot.
pub struct Slot {
    /// Its number.
    pub id: usize,
    /// The tokens of the last prompt and answer, with their keys and values.
    pub sequence: Sequence,
    /// When the slot was last used: a number that grows.
    pub last_use: u64,
    running: Option<Running>,
}

/// An answer that is being computed, with the tokens that its sequence is to have.
pub struct Running {
    /// The prompt, and the tokens of the answer.
    tokens: Vec<Token>,
    /// The number of tokens of the prompt.
    prompt: usize,
    task: Task,
}

/// An answer that is being computed.
pub struct Task {
    pub job: Job,
    pub timings: Timings,
    sampler: Sampler,
    answer: Answer,
    /// Takes the place of the answer if an embedding is computed.
    pooler: Option<Pooler>,
    started: Instant,
    generating_since: Option<Instant>,
    /// The consequence of the logits of the last step.
    result: Option<Result<ControlFlow<End, Token>, ApiError>>,
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
    pub fn new(id: usize, engine: &Engine) -> Self {
        Slot { id, sequence: engine.sequence(), last_use: 0, running: None }
    }

    /// Begins an answer, or continues a suspended one, with a sequence that holds some of its first
    /// tokens.
    pub fn begin(&mut self, mut running: Running, sequence: Sequence) {
        if running.answer().is_empty() {
            let pooler = |pooling| Pooler::new(pooling, running.prompt);
            running.task.pooler = running.task.job.pooling.map(pooler);
            running.task.timings.reused = sequence.tokens().len();
        }
        self.sequence = sequence;
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

    /// Returns the tokens to compute next, and the task that takes their logits.
    pub fn feed(&mut self) -> Option<(Feed<'_, '_>, &mut Task)> {
        let Slot { sequence, running, .. } = self;
        let Running { tokens, prompt, task } = running.as_mut()?;
        let last = tokens.len() - 1..tokens.len();
        let len = sequence.tokens().len();
        let (tokens, role) = match &tokens[len..] {
            answer if len >= *prompt => (answer, Role::Answer),
            _ => (&tokens[len..*prompt], Role::Prompt),
        };
        let (wanted, output) = match &task.pooler {
            Some(pooler) => (pooler.wanted(), Output::Embedding),
            None => (last, Output::Logits),
        };
        Some((Feed { sequence, tokens, role, wanted, output }, task))
    }

    /// Continues after a step. Returns the answer if it ended.
    pub fn advance(&mut self, full: bool) -> Option<Ended> {
        let Running { tokens, task, .. } = self.running.as_mut()?;
        let end = match task.result.take() {
            None => {
                self.report_reading();
                return None;
            }
            Some(Err(e)) => {
                self.fail(e);
                return None;
            }
            Some(Ok(ControlFlow::Break(end))) => end,
            Some(Ok(ControlFlow::Continue(_))) if full => End::ContextFull,
            Some(Ok(ControlFlow::Continue(_))) if task.out_of_time() => End::TokensMax,
            Some(Ok(ControlFlow::Continue(token))) => {
                tokens.push(token);
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
        let text = task.answer.end(end.clone()).text;
        let timings = task.timings;
        if !text.is_empty() {
            task.job.report(Update::Generated(Generated { text, timings, ..Generated::default() }));
        }
        let outcome = Outcome {
            end,
            timings,
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
        let mut sampler = match Sampler::new(job.sampling.clone()) {
            Ok(sampler) => sampler,
            Err(e) => {
                job.report(Update::Failed(ApiError::invalid(e)));
                return None;
            }
        };
        let tokens = std::mem::take(&mut job.prompt);
        tokens.iter().for_each(|token| sampler.accept(*token));
        let task = Task {
            answer: Answer::new(job.limits.clone()),
            pooler: None,
            job,
            sampler,
            started: Instant::now(),
            generating_since: None,
            timings: Timings::default(),
            result: None,
        };
        task.job.report(Update::Started { seed: task.sampler.seed() });
        Some(Running { prompt: tokens.len(), tokens, task })
    }

    /// Returns the request.
    pub fn job(&self) -> &Job {
        &self.task.job
    }

    /// Returns the tokens that the sequence is to have.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Returns whether the receiver of the answer is gone.
    pub fn abandoned(&self) -> bool {
        self.task.job.updates.is_closed()
    }

    /// Returns the tokens of the answer.
    fn answer(&self) -> &[Token] {
        &self.tokens[self.prompt..]
    }
}

impl Task {
    /// Takes the output of the token with this index: its embedding, or the logits that the next token
    /// is chosen by.
    pub fn push(&mut self, tokenizer: &Tokenizer<'_>, token: usize, output: &[f32]) {
        match &mut self.pooler {
            None => self.choose(tokenizer, output, token + 1 - self.timings.reused),
            Some(pooler) => {
                if pooler.add(token, output) {
                    self.timings.read = token + 1;
                    self.timings.reading = self.started.elapsed();
                    self.result = Some(Ok(ControlFlow::Break(End::Model)));
                }
            }
        }
    }

    fn choose(&mut self, tokenizer: &Tokenizer<'_>, logits: &[f32], read: usize) {
        let now = Instant::now();
        match self.generating_since {
            None => {
                self.generating_since = Some(now);
                self.timings.read = read;
                self.timings.reading = now - self.started;
                let cached = self.timings.reused;
                self.job.report(Update::Read(Reading {
                    total: cached + read,
                    cached,
                    processed: cached + read,
                    elapsed: self.timings.reading,
                }));
            }
            Some(_) => self.timings.steps += 1,
        }
        let before = self.answer.tokens().len();
        let step = self.answer.push(tokenizer, &mut self.sampler, logits);
        let step = step.map_err(ApiError::internal);
        self.timings.generated = self.answer.tokens().len();
        self.timings.generating = self.generating();
        self.result = Some(step.map(|step| {
            let token = self.answer.tokens().get(before).copied();
            let probabilities =
                self.job.probabilities.zip(token).map(|(wanted, token)| {
                    match wanted.after_sampling {
                        true => of_candidates(self.sampler.candidates(), token, wanted.top),
                        false => of_logits(logits, token, wanted.top),
                    }
                });
            let timings = self.timings;
            self.job.report(Update::Generated(Generated {
                text: step.text,
                token,
                probabilities,
                timings,
            }));
            step.next
        }));
    }

    fn out_of_time(&self) -> bool {
        self.job.time_max.is_some_and(|max| self.generating() >= max)
    }

    /// Returns the time since the first token was generated.
    fn generating(&self) -> Duration {
        self.generating_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
