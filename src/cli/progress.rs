//! The progress over prompts of known cost, on stderr.

use std::{
    collections::VecDeque,
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;

use super::{note, time};

/// The progress over all prompts, by the operations that each takes.
pub struct Progress {
    /// The operations of each remaining prompt, including those in progress.
    remaining: VecDeque<f64>,
    operations_done: f64,
    prompts: usize,
    begun: usize,
    began: Instant,
    spinner: Option<ProgressBar>,
    current: String,
}

impl Progress {
    /// Creates the progress of prompts that take so many operations.
    pub fn new(operations: impl Iterator<Item = f64>) -> Self {
        let remaining: VecDeque<f64> = operations.collect();
        let spinner = std::io::stderr().is_terminal().then(|| {
            let spinner = ProgressBar::new_spinner();
            spinner.enable_steady_tick(Duration::from_secs(1));
            spinner
        });
        let prompts = remaining.len();
        let (began, current) = (Instant::now(), String::new());
        Progress { remaining, operations_done: 0.0, prompts, begun: 0, began, spinner, current }
    }

    /// Shows the start of a prompt.
    pub fn begin(&mut self, prompt: &str) {
        self.begun += 1;
        self.current = format!("{}/{}: {prompt}{}", self.begun, self.prompts, self.left());
        match &self.spinner {
            Some(spinner) => spinner.set_message(self.current.clone()),
            None => note(&self.current),
        }
    }

    /// Shows the number of tokens read so far.
    pub fn reading(&self, tokens: usize) {
        if let Some(spinner) = &self.spinner {
            spinner.set_message(format!("{}, token {tokens}", self.current));
        }
    }

    /// Counts the oldest prompt as answered.
    pub fn done(&mut self) {
        self.operations_done += self.remaining.pop_front().unwrap_or_default();
    }

    fn left(&self) -> String {
        if self.operations_done == 0.0 {
            return String::new();
        }
        let share = self.remaining.iter().sum::<f64>() / self.operations_done;
        format!(", {} left", time::wait(self.began.elapsed().as_secs_f64() * share))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}
