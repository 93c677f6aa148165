//! The progress of the tests, on stderr.

use std::{
    collections::VecDeque,
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;

use crate::cli::{note, time};
use rope_cpu::eval::{cost::Cost, passkey::Test};

/// The progress over all prompts, by the operations that each takes.
pub struct Progress {
    /// The operations of each remaining prompt, including the current one.
    remaining: VecDeque<f64>,
    operations_done: f64,
    prompts: usize,
    began: Instant,
    spinner: Option<ProgressBar>,
    current: String,
}

impl Progress {
    /// Creates the progress of prompts, each given with the cost of its tokens, its length, and whether
    /// it is the first one that a session reads.
    pub fn new<'w>(planned: impl Iterator<Item = (&'w Cost, usize, Test, bool)>) -> Self {
        let remaining: VecDeque<f64> = planned
            .map(|(work, length, test, first)| {
                let shared = if first { 0 } else { length * test.depth as usize / 100 };
                // The question is always read.
                work.prompt_operations(shared.min(length.saturating_sub(32))..length).total()
            })
            .collect();
        let spinner = std::io::stderr().is_terminal().then(|| {
            let spinner = ProgressBar::new_spinner();
            spinner.enable_steady_tick(Duration::from_secs(1));
            spinner
        });
        let prompts = remaining.len();
        let (began, current) = (Instant::now(), String::new());
        Progress { remaining, operations_done: 0.0, prompts, began, spinner, current }
    }

    /// Shows that a prompt begins.
    pub fn begin(&mut self, method: &str, test: Test) {
        let number = self.prompts - self.remaining.len() + 1;
        self.current = format!(
            "{number}/{}: {method}, {} tokens, key at {} %{}",
            self.prompts,
            test.length,
            test.depth,
            self.left()
        );
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

    /// Counts the current prompt as answered.
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
