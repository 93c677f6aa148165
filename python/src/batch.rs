//! Starts answers: one, or many side by side.

use std::sync::mpsc;

use pyo3::prelude::*;
use rope_cpu::{
    Token,
    batch::{self, Collected, Options, Scheduler},
    generate::Limits,
    sample::Settings,
};

use crate::{
    chat::Conversation,
    errors::{failed, of_batch, of_model},
    generation::{Outcome, Stream},
    loaded::Loaded,
    model::Model,
    request::{Request, constraint},
};

#[pymethods]
impl Model {
    /// Starts an answer to a prompt, which may be a conversation's.
    fn stream(
        &self,
        prompt: Vec<Token>,
        request: Request,
        conversation: Option<&Conversation>,
    ) -> PyResult<Stream> {
        let loaded = self.loaded()?;
        let (sampling, limits) = prepare(&loaded, &request, conversation)?;
        let request =
            batch::Request { sampling, limits, inexact: true, ..batch::Request::new(prompt) };
        Stream::start(loaded.runtime()?, request)
    }

    /// Answers prompts side by side, each by the settings of `request`, and returns the outcomes in
    /// their order. `progress` receives the number of finished answers after each.
    fn batch(
        &self,
        py: Python<'_>,
        prompts: Vec<Vec<Token>>,
        request: Request,
        slots: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Vec<Outcome>> {
        let loaded = self.loaded()?;
        let tokenizer = loaded.tokenizer()?;
        let mut scheduler =
            Scheduler::new(loaded.engine()?, tokenizer, Options::new(slots), Default::default());
        let (sender, updates) = mpsc::channel();
        let count = prompts.len();
        let (sampling, limits) = prepare(&loaded, &request, None)?;
        for (index, prompt) in prompts.into_iter().enumerate() {
            let (sampling, limits) = (sampling.clone(), limits.clone());
            let request = batch::Request { sampling, limits, ..batch::Request::new(prompt) };
            let sender = sender.clone();
            // This function receives all updates, or has failed.
            scheduler.submit(request, move |update| drop(sender.send((index, update))));
        }

        let mut answers: Vec<_> = (0..count).map(|_| Collected::default()).collect();
        let mut outcomes = vec![None; count];
        let mut done = 0;
        while !scheduler.is_idle() {
            py.detach(|| scheduler.step());
            py.check_signals()?;
            for (index, update) in updates.try_iter() {
                let answered = answers[index].add(update);
                let answered = answered.map_err(|e| of_prompt(py, index, &of_batch(e)))?;
                let Some(answered) = answered else { continue };
                outcomes[index] = Some(Outcome::from(answered));
                done += 1;
                if let Some(progress) = &progress {
                    progress.call1(py, (done, count))?;
                }
            }
        }
        outcomes
            .into_iter()
            .map(|outcome| outcome.ok_or_else(|| failed("an answer is missing")))
            .collect()
    }
}

/// Returns the settings and the limits of an answer.
fn prepare(
    loaded: &Loaded,
    request: &Request,
    conversation: Option<&Conversation>,
) -> PyResult<(Settings, Limits)> {
    loaded.model.config().require_logits().map_err(of_model)?;
    let mut limits = request.limits()?;
    let grammar = request.grammar();
    match (conversation, grammar) {
        (Some(conversation), grammar) => conversation.complete(loaded, grammar, &mut limits)?,
        (None, Some(grammar)) => limits.constraint = Some(constraint(loaded, &grammar)?),
        (None, None) => {}
    }
    Ok((request.sampling(loaded)?, limits))
}

/// Returns an error that names the prompt, of the same class.
fn of_prompt(py: Python<'_>, index: usize, error: &PyErr) -> PyErr {
    PyErr::from_type(error.get_type(py), format!("prompt {index}: {}", error.value(py)))
}
