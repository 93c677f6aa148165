//! What those who wait see, on stderr.

use std::{
    collections::VecDeque,
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;

use crate::cli::{note, time};
use rope_cpu::eval::{cost::Cost, passkey::Test};

/// How far along all prompts are, by the operations that each takes.
pub struct Progress {
    /// Operations of the prompts to come, the one being read included.
    to_come: VecDeque<f64>,
    operations_done: f64,
    prompts: usize,
    began: Instant,
    spinner: Option<ProgressBar>,
    now: String,
}

impl Progress {
    /// For these prompts, each with the work of its tokens, its length, and whether it is the first
    /// that a session reads.
    pub fn new<'w>(planned: impl Iterator<Item = (&'w Cost, usize, Test, bool)>) -> Self {
        let to_come: VecDeque<f64> = planned
            .map(|(work, length, test, first)| {
                let shared = if first { 0 } else { length * test.depth as usize / 100 };
                // The question is read in any case.
                work.prompt_operations(shared.min(length.saturating_sub(32))..length).total()
            })
            .collect();
        let spinner = std::io::stderr().is_terminal().then(|| {
            let spinner = ProgressBar::new_spinner();
            spinner.enable_steady_tick(Duration::from_secs(1));
            spinner
        });
        let prompts = to_come.len();
        let (began, now) = (Instant::now(), String::new());
        Progress { to_come, operations_done: 0.0, prompts, began, spinner, now }
    }

    /// A prompt begins.
    pub fn begin(&mut self, method: &str, test: Test) {
        let number = self.prompts - self.to_come.len() + 1;
        self.now = format!(
            "{number}/{}: {method}, {} tokens, key at {} %{}",
            self.prompts,
            test.length,
            test.depth,
            self.left()
        );
        match &self.spinner {
            Some(spinner) => spinner.set_message(self.now.clone()),
            None => note(&self.now),
        }
    }

    /// So many of its tokens are read.
    pub fn reading(&self, tokens: usize) {
        if let Some(spinner) = &self.spinner {
            spinner.set_message(format!("{}, token {tokens}", self.now));
        }
    }

    /// It is answered.
    pub fn done(&mut self) {
        self.operations_done += self.to_come.pop_front().unwrap_or_default();
    }

    fn left(&self) -> String {
        if self.operations_done == 0.0 {
            return String::new();
        }
        let share = self.to_come.iter().sum::<f64>() / self.operations_done;
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
