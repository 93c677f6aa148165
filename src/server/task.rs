//! An answer that is being computed: what its tokens are chosen by, and what is reported of it.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use rope_cpu::{
    Token,
    generate::{Answer, End, Step, Timings, speculation::Speculation},
    model::Pooler,
    sample::{Probabilities, Sampler},
    tokenizer::Tokenizer,
};

use super::{
    error::ApiError,
    job::{Generated, Job, Reading, Update},
};

/// An answer that is being computed.
pub struct Task {
    /// The request.
    pub job: Job,
    /// The timings so far.
    pub timings: Timings,
    /// Takes the place of the answer if an embedding is computed.
    pub pooler: Option<Pooler>,
    /// The consequences of the last step.
    pub choices: Choices,
    /// When it began.
    pub started: Instant,
    sampler: Sampler,
    answer: Answer,
    generating_since: Option<Instant>,
}

/// The consequences of the logits of a step.
#[derive(Default)]
pub struct Choices {
    /// The number of logits used: those of the last token, and of drafts that were right.
    pub used: usize,
    /// The tokens that follow, as long as the answer does not end.
    pub tokens: Vec<Token>,
    /// Why the answer ends, or fails.
    pub end: Option<Result<End, ApiError>>,
    /// Whether all further logits are those of wrong drafts.
    closed: bool,
}

impl Task {
    /// Prepares an answer to a prompt. Returns `None` if the settings of the sampler are invalid, which is
    /// reported.
    pub fn new(job: Job, prompt: &[Token]) -> Option<Self> {
        let mut sampler = match Sampler::new(job.sampling.clone()) {
            Ok(sampler) => sampler,
            Err(e) => {
                job.report(Update::Failed(ApiError::invalid(e)));
                return None;
            }
        };
        prompt.iter().for_each(|token| sampler.accept(*token));
        job.report(Update::Started { seed: sampler.seed() });
        Some(Task {
            answer: Answer::new(job.limits.clone()),
            pooler: None,
            job,
            sampler,
            started: Instant::now(),
            generating_since: None,
            timings: Timings::default(),
            choices: Choices::default(),
        })
    }

    /// Takes the output of the token with this index: its embedding, or the logits that the next token
    /// is chosen by. Those of drafts come after those of the last token, in order.
    pub fn push(
        &mut self,
        tokenizer: &Tokenizer<'_>,
        speculation: &mut Speculation,
        token: usize,
        output: &[f32],
    ) {
        if self.choices.closed {
            return;
        }
        if let Some(pooler) = &mut self.pooler {
            if pooler.add(token, output) {
                self.timings.read = token + 1;
                self.timings.reading = self.started.elapsed();
                self.choices.used = 1;
                self.choices.end = Some(Ok(End::Model));
            }
            return;
        }
        if self.generating_since.is_none() {
            self.begin(token + 1 - self.timings.reused);
        }
        self.choices.used += 1;
        self.choices.closed = true;
        match self.choose(tokenizer, output) {
            Err(e) => self.choices.end = Some(Err(e)),
            Ok(Step { next: ControlFlow::Break(end), .. }) => self.choices.end = Some(Ok(end)),
            Ok(Step { next: ControlFlow::Continue(token), .. }) => {
                self.choices.tokens.push(token);
                self.choices.closed = !speculation.accept(token);
            }
        }
    }

    /// Begins to generate, after `read` tokens were read.
    fn begin(&mut self, read: usize) {
        let now = Instant::now();
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

    /// Chooses the next token, and reports it.
    fn choose(&mut self, tokenizer: &Tokenizer<'_>, logits: &[f32]) -> Result<Step, ApiError> {
        let before = self.answer.tokens().len();
        let step = self.answer.push(tokenizer, &mut self.sampler, logits);
        self.timings.generated = self.answer.tokens().len();
        self.timings.generating = self.generating();
        let step = step.map_err(ApiError::internal)?;
        let token = self.answer.tokens().get(before).copied();
        let probabilities =
            self.job.probabilities.zip(token).map(|(wanted, token)| match wanted.after_sampling {
                true => Probabilities::of_candidates(self.sampler.candidates(), token, wanted.top),
                false => Probabilities::of_logits(logits, token, wanted.top),
            });
        let timings = self.timings;
        let text = step.text.clone();
        self.job.report(Update::Generated(Generated { text, token, probabilities, timings }));
        Ok(step)
    }

    /// Counts a pass of the answer, with its drafts and those of them that were right.
    pub fn count_pass(&mut self, drafted: usize, accepted: usize) {
        self.timings.steps += 1;
        self.timings.steps_with_drafts += usize::from(drafted > 0);
        self.timings.drafted += drafted;
        self.timings.accepted += accepted;
    }

    /// Ends the answer. Returns the text that was held back.
    pub fn end(&mut self, end: &End) -> String {
        self.answer.end(end.clone()).text
    }

    /// Returns whether generating has taken its longest time.
    pub fn out_of_time(&self) -> bool {
        self.job.time_max.is_some_and(|max| self.generating() >= max)
    }

    /// Returns the time since the first token was generated.
    fn generating(&self) -> Duration {
        self.generating_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
