//! A request in progress: chooses its tokens and sends them to its reply.

use std::ops::ControlFlow;

use crate::{
    Token, generate,
    generate::{Writing, Written, speculation::Speculation},
    model::{Engine, Pooler},
    sample::{Probabilities, Sampler},
    tokenizer::Tokenizer,
};

use super::{Generated, Reading, Update, Wanted, request::Job};

/// A request in progress.
pub struct Task {
    /// The request.
    pub job: Job,
    /// Replaces the answer for a request for an embedding.
    pub pooler: Option<Pooler>,
    /// The origin of the reused tokens.
    pub source: &'static str,
    sampler: Sampler,
    /// The number of reported prompt tokens. A suspension does not report them again.
    prompt_reported: usize,
}

/// Receives the output of a step.
pub struct Taker<'s> {
    pub task: &'s mut Task,
    pub writing: &'s mut Writing,
    pub speculation: &'s mut Speculation,
    pub prompt: &'s [Token],
}

impl Task {
    /// Prepares an answer to a prompt. If the sampler's settings are invalid, reports an error and
    /// returns `None`.
    pub fn new(mut job: Job, prompt: &[Token]) -> Option<Self> {
        let mut sampler = match Sampler::new(job.request.sampling.clone()) {
            Ok(sampler) => sampler,
            Err(e) => {
                job.reply.update(Update::Failed(generate::Error::Sample(e).into()));
                return None;
            }
        };
        prompt.iter().for_each(|token| sampler.accept(*token));
        job.reply.update(Update::Started { seed: sampler.seed() });
        Some(Task { pooler: None, job, sampler, source: "none", prompt_reported: 0 })
    }

    /// Starts the prompt. After a suspension, it starts from the beginning.
    pub fn begin(&mut self, engine: &Engine, prompt: &[Token]) {
        let pooler = |pooling| engine.pooler(pooling, prompt.len());
        self.pooler = self.job.request.pooling.map(pooler);
    }

    /// Returns how many random numbers the sampler has drawn from its seed.
    pub fn drawn(&self) -> u64 {
        self.sampler.drawn()
    }

    /// Returns whether the probabilities of the prompt's tokens are reported.
    pub fn wants_prompt(&self) -> bool {
        self.job.request.probabilities.is_some_and(|wanted| wanted.of_prompt)
    }
}

impl Taker<'_> {
    /// Takes the output of the token at index `token`: its embedding or its logits. The logits of
    /// the last token come first, then the logits of the drafts in order. Logits of earlier prompt
    /// tokens are only reported.
    pub fn push(&mut self, tokenizer: &Tokenizer<'_>, token: usize, output: &[f32]) {
        let Taker { task: Task { job, pooler, sampler, prompt_reported, .. }, .. } = self;
        if let Some(pooler) = pooler {
            if pooler.add(token, output) {
                self.writing.end_of_prompt();
            }
            return;
        }
        let wanted = job.request.probabilities;
        if let (Some(wanted), Some(next)) = (wanted, self.prompt.get(token + 1)) {
            if token == *prompt_reported {
                *prompt_reported += 1;
                let probabilities = Probabilities::of_logits(output, *next, wanted.top);
                job.reply.update(Update::Prompt(probabilities));
            }
            return;
        }
        if self.writing.must_wait() {
            return;
        }
        if self.writing.begin() {
            let timings = self.writing.timings();
            job.reply.update(Update::Read(Reading {
                total: self.prompt.len(),
                cached: timings.reused,
                processed: self.prompt.len(),
                elapsed: timings.reading,
            }));
        }
        let each = &mut |written: Written<'_>| {
            let probabilities = wanted.and_then(|wanted| probabilities(wanted, &written, output));
            let Written { text, token, timings, .. } = written;
            job.reply.update(Update::Generated(Generated { text, token, probabilities, timings }));
            ControlFlow::Continue(())
        };
        self.writing.push(tokenizer, sampler, self.speculation, output, each);
    }
}

/// Returns the probabilities to report with a token; `None` if the sampler did not choose it.
fn probabilities(wanted: Wanted, written: &Written<'_>, logits: &[f32]) -> Option<Probabilities> {
    let sampler = written.sampler?;
    let token = written.token.or(written.ending.filter(|_| wanted.of_end))?;
    Some(match wanted.after_sampling {
        true => Probabilities::of_candidates(sampler.candidates(), token, wanted.top),
        false => Probabilities::of_logits(logits, token, wanted.top),
    })
}
