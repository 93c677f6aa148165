//! An answer that is being computed: what its tokens are chosen by, and what is reported of it.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use rope_cpu::{
    Token,
    generate::{self, Answer, End, Step, Timings, speculation::Speculation},
    model::Pooler,
    sample::{self, Probabilities, Sampler},
    tokenizer::Tokenizer,
};

use super::{
    error::ApiError,
    job::{Generated, Job, Reading, Update},
    reasoning::{Following, Reasoning},
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
    /// The place of the reused tokens.
    pub source: &'static str,
    sampler: Sampler,
    answer: Answer,
    reasoning: Option<Following>,
    /// The tokens of the prompt with reported probabilities. After a suspension they are read again.
    prompt_reported: usize,
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
            reasoning: job.reasoning.as_ref().map(Reasoning::follow),
            pooler: None,
            job,
            sampler,
            started: Instant::now(),
            source: "none",
            prompt_reported: 0,
            generating_since: None,
            timings: Timings::default(),
            choices: Choices::default(),
        })
    }

    /// Takes the output of the token with this index: its embedding, or the logits that the next token
    /// is chosen by. Those of drafts come after those of the last token, in order; those of earlier tokens of
    /// the `prompt` are only reported.
    pub fn push(
        &mut self,
        tokenizer: &Tokenizer<'_>,
        speculation: &mut Speculation,
        prompt: &[Token],
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
        if let (Some(wanted), Some(next)) = (self.job.probabilities, prompt.get(token + 1)) {
            if token == self.prompt_reported {
                self.prompt_reported += 1;
                let probabilities = Probabilities::of_logits(output, *next, wanted.top);
                self.job.report(Update::Prompt(probabilities));
            }
            return;
        }
        if self.generating_since.is_none() {
            self.begin(token + 1 - self.timings.reused);
        }
        self.choices.used += 1;
        self.choices.closed = true;
        let reasoning = self.reasoning.as_ref();
        let forced =
            reasoning.map_or_else(Vec::new, |reasoning| reasoning.prepare(&mut self.answer));
        if forced.is_empty() {
            let step = self.choose(tokenizer, output);
            self.choices.closed = !self.follow(step, speculation);
            return;
        }
        for token in forced {
            let step = self.answer.take(tokenizer, &mut self.sampler, token);
            let step = self.report(step, None);
            self.follow(step, speculation);
            if self.choices.end.is_some() {
                return;
            }
        }
    }

    /// Returns whether the probabilities of the prompt's tokens are reported.
    pub fn wants_prompt(&self) -> bool {
        self.job.probabilities.is_some_and(|wanted| wanted.of_prompt)
    }

    /// Continues after a step of the answer. Returns whether its token is the next draft.
    fn follow(&mut self, step: Result<Step, ApiError>, speculation: &mut Speculation) -> bool {
        match step.map(|step| step.next) {
            Err(e) => self.choices.end = Some(Err(e)),
            Ok(ControlFlow::Break(end)) => self.choices.end = Some(Ok(end)),
            Ok(ControlFlow::Continue(token)) => {
                self.choices.tokens.push(token);
                return speculation.accept(token);
            }
        }
        false
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
        let wanted = self.job.probabilities;
        let chosen = self.answer.tokens().get(before).copied();
        let ending = self.answer.ending().filter(|_| wanted.is_some_and(|wanted| wanted.of_end));
        let probabilities =
            wanted.zip(chosen.or(ending)).map(|(wanted, token)| match wanted.after_sampling {
                true => Probabilities::of_candidates(self.sampler.candidates(), token, wanted.top),
                false => Probabilities::of_logits(logits, token, wanted.top),
            });
        self.report(step, probabilities)
    }

    /// Reports a step of the answer.
    fn report(
        &mut self,
        step: Result<Step, generate::Error>,
        probabilities: Option<Probabilities>,
    ) -> Result<Step, ApiError> {
        let step = step.map_err(failed)?;
        let before = std::mem::replace(&mut self.timings.generated, self.answer.tokens().len());
        self.timings.generating = self.generating();
        if let Some(reasoning) = &mut self.reasoning {
            reasoning.push(&step.text);
        }
        self.job.report(Update::Generated(Generated {
            text: step.text.clone(),
            token: self.answer.tokens().get(before).copied(),
            probabilities,
            timings: self.timings,
        }));
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

/// Returns the error of an answer that cannot go on. A grammar that cannot be followed, and settings that
/// exclude every token, are errors of the request.
fn failed(error: generate::Error) -> ApiError {
    match error {
        generate::Error::Constraint(error) => ApiError::invalid(error),
        generate::Error::Sample(error @ sample::Error::NoCandidate) => ApiError::invalid(error),
        error => ApiError::internal(error),
    }
}
