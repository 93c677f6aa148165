//! Computes the answers of one method at one length.

use std::{collections::HashMap, sync::mpsc, time::Instant};

use super::{
    Record,
    tasks::{Sample, Task, Tasks},
};
use crate::cli::{error::Error, flags, log::Log, method_runs::MethodRun, progress::Progress};
use rope_cpu::{
    Token,
    batch::{Request, Update},
    eval::choices::log_likelihoods,
    generate::{Limits, Stops},
    model::{Engine, Model, Options},
    rope::Rope,
    runtime::Scheduling,
    sample::Settings,
    tokenizer::Tokenizer,
};

/// An answer in progress.
struct Open<'k> {
    task: &'k Task,
    number: usize,
    expected: Vec<String>,
    tokens: usize,
    text: String,
    began: Instant,
}

/// The inputs of the answers of one method at one length.
pub struct Computation<'c, 'a> {
    pub run: &'c MethodRun,
    pub model: &'c Model,
    pub tokenizer: &'c Tokenizer<'a>,
    pub tasks: &'c Tasks<'c, 'a>,
}

impl Computation<'_, '_> {
    /// Computes the samples of `todo`, and adds each to the log once it is complete.
    ///
    /// # Errors
    /// If the model cannot be computed, or the log cannot be written.
    pub fn run(
        &self,
        todo: &[(&Task, usize)],
        log: &mut Log<Record>,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        let (choices, answers): (Vec<_>, Vec<_>) =
            todo.iter().copied().partition(|(task, _)| task.has_choices());
        if !choices.is_empty() {
            self.choose(&choices, log, progress)?;
        }
        if answers.is_empty() { Ok(()) } else { self.answer(&answers, log, progress) }
    }

    /// Scores the choices of one question after the other, side by side.
    fn choose(
        &self,
        todo: &[(&Task, usize)],
        log: &mut Log<Record>,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        // Choices do not share all pages, so the cache is not limited to one context.
        let mut engine = self.engine(self.run.plan.options())?;
        let mut base = engine.sequence();
        for &(task, number) in todo {
            let sample = self.tasks.sample(task, self.run.length, number)?;
            let Sample::Choose(choices) = sample else { continue };
            progress.begin(&self.label(task, number));
            let began = Instant::now();
            let found = log_likelihoods(&mut engine, &mut base, &choices).map_err(Error::failed)?;
            if found.iter().any(|sum| !sum.is_finite()) {
                let label = self.label(task, number);
                return Err(Error::failed(format_args!("{label}: the logits are not finite")));
            }
            log.add(Record {
                scores: self.tasks.choice_scores(task, number, &found),
                log_likelihoods: found,
                tokens: choices.iter().map(|choice| choice.tokens.len()).sum(),
                seconds: began.elapsed().as_secs_f64(),
                ..self.record(task, number)
            })?;
            progress.done();
        }
        Ok(())
    }

    /// Answers prompts side by side by a scheduler, which computes their common start once.
    fn answer(
        &self,
        todo: &[(&Task, usize)],
        log: &mut Log<Record>,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        let slots = self.run.plan.sequences();
        let scheduling = Scheduling { slots, ..Scheduling::default() };
        let mut scheduler = self.run.plan.scheduler(self.model, self.tokenizer, scheduling)?;
        let (sender, updates) = mpsc::channel();
        let mut waiting = todo.iter().enumerate();
        let mut open: HashMap<usize, Open<'_>> = HashMap::new();
        loop {
            while open.len() < slots
                && let Some((id, &(task, number))) = waiting.next()
            {
                let sample = self.tasks.sample(task, self.run.length, number)?;
                let Sample::Answer { prompt, tokens_max, stops, expected } = sample else {
                    continue;
                };
                progress.begin(&self.label(task, number));
                let (tokens, text, began) = (prompt.len(), String::new(), Instant::now());
                open.insert(id, Open { task, number, expected, tokens, text, began });
                let sender = sender.clone();
                scheduler.submit(request(prompt, tokens_max, stops), move |update| {
                    // The receiver lives as long as the scheduler.
                    let _ = sender.send((id, update));
                });
            }
            if open.is_empty() {
                return Ok(());
            }
            scheduler.step();
            for (id, update) in updates.try_iter() {
                match update {
                    Update::Read(reading) => progress.reading(reading.processed),
                    Update::Generated(piece) => {
                        if let Some(answer) = open.get_mut(&id) {
                            answer.text += &piece.text;
                        }
                    }
                    Update::Ended(outcome) => {
                        let Some(answer) = open.remove(&id) else { continue };
                        let Open { task, number, expected, tokens, text, began } = answer;
                        log.add(Record {
                            scores: self.tasks.scores(task, number, &text, &expected),
                            answer: text,
                            expected,
                            tokens,
                            reused: outcome.timings.reused,
                            seconds: began.elapsed().as_secs_f64(),
                            ..self.record(task, number)
                        })?;
                        progress.done();
                    }
                    Update::Failed(error) => return Err(Error::failed(error)),
                    _ => {}
                }
            }
        }
    }

    fn engine(&self, options: Options) -> Result<Engine, Error> {
        let rope = Rope::new(self.run.plan.rope.clone());
        Engine::new(self.model, rope, options).map_err(Error::failed)
    }

    fn label(&self, task: &Task, number: usize) -> String {
        let MethodRun { method, length, .. } = self.run;
        format!("{method}, {length} tokens: {} {}", task.name, number + 1)
    }

    /// Returns the record of a sample without its answer.
    fn record(&self, task: &Task, number: usize) -> Record {
        Record {
            task: task.name.clone(),
            source: task.source_crc,
            chat: self.tasks.chat(),
            method: self.run.method.clone(),
            rope: flags::line(&self.run.plan.rope),
            length: self.run.length,
            number,
            grid: task.grid(),
            seed: self.tasks.seed,
            scores: Vec::new(),
            answer: String::new(),
            expected: Vec::new(),
            log_likelihoods: Vec::new(),
            tokens: 0,
            reused: 0,
            seconds: 0.0,
        }
    }
}

/// Returns the request for the likeliest answer.
fn request(prompt: Vec<Token>, tokens_max: usize, stops: Vec<String>) -> Request {
    let limits =
        Limits { tokens_max: Some(tokens_max), stops: Stops::new(stops), ..Limits::default() };
    Request { sampling: Settings::greedy(), limits, ..Request::new(prompt) }
}
