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
    /// The operations of the prompt in progress that are done.
    part: f64,
    /// When all prompts must be answered, if there is a limit.
    end: Option<Instant>,
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
        let (operations_done, part, end, begun) = (0.0, 0.0, None, 0);
        Progress { remaining, operations_done, part, end, prompts, begun, began, spinner, current }
    }

    /// Sets when the work ends, even if prompts are left.
    pub fn ends_at(&mut self, end: Option<Instant>) {
        self.end = end;
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

    /// Shows that `tokens` of a prompt have been read, with so many operations, and the time left.
    pub fn part(&mut self, tokens: usize, operations: f64) {
        let first = self.operations_done + self.part == 0.0;
        self.part = operations;
        match &self.spinner {
            Some(spinner) => {
                spinner.set_message(format!("{}, token {tokens}{}", self.current, self.left()));
            }
            // A log needs one estimate.
            None if first => note(format_args!("{}{}", self.current, self.left())),
            None => {}
        }
    }

    /// Starts the oldest prompt again, which now takes so many operations, as all others do.
    pub fn again(&mut self, operations: f64) {
        self.part = 0.0;
        self.begun -= 1;
        self.remaining.iter_mut().for_each(|each| *each = each.min(operations));
    }

    /// Counts the oldest prompt as answered.
    pub fn done(&mut self) {
        self.part = 0.0;
        self.operations_done += self.remaining.pop_front().unwrap_or_default();
    }

    fn left(&self) -> String {
        let done = self.operations_done + self.part;
        if done == 0.0 {
            return String::new();
        }
        let share = (self.remaining.iter().sum::<f64>() - self.part) / done;
        let left = self.began.elapsed().as_secs_f64() * share;
        let until = |end: Instant| end.saturating_duration_since(Instant::now()).as_secs_f64();
        let left = self.end.map_or(left, |end| left.min(until(end)));
        format!(", {} left", time::wait(left.max(0.0)))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}
