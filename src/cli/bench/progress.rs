//! What those who wait for `bench` see, on stderr.

use std::{collections::HashSet, io::IsTerminal, time::Duration};

use indicatif::ProgressBar;

use crate::cli::note;
use rope_cpu::{eval::bench::Stage, rope::Plan};

/// A line that tells what is being done.
pub struct Progress {
    /// Whether each change is a line of its own, terminal or not.
    lines: bool,
    spinner: Option<ProgressBar>,
    test: usize,
    tests: usize,
    last: String,
    /// Warnings that were shown.
    warned: HashSet<String>,
}

impl Progress {
    /// For `tests` tests, none of which has begun; with `lines`, as text that stays.
    pub fn new(lines: bool, tests: usize) -> Self {
        let spinner = (!lines && std::io::stderr().is_terminal()).then(|| {
            let spinner = ProgressBar::new_spinner();
            // Seldom, so that drawing takes nothing from what is measured.
            spinner.enable_steady_tick(Duration::from_secs(1));
            spinner
        });
        let (last, warned) = (String::new(), HashSet::new());
        Progress { lines, spinner, test: 0, tests, last, warned }
    }

    /// Shows those warnings of a plan that were not shown before.
    pub fn warn(&mut self, plan: &Plan) {
        for warning in &plan.warnings {
            if self.warned.insert(warning.clone()) {
                self.hide(|| note(format_args!("warning: {warning}")));
            }
        }
    }

    /// The next test begins.
    pub fn next(&mut self) {
        self.test += 1;
    }

    /// A stage of it begins or goes on.
    pub fn show(&mut self, stage: Stage) {
        let number = self.test.max(1);
        let text = match stage {
            Stage::Depth { total, .. } if self.lines => format!("depth of {total} tokens"),
            Stage::Depth { done, total } => format!("depth, {done} of {total} tokens"),
            Stage::WarmUp => format!("test {number}/{}: warm-up", self.tests),
            Stage::Run { number: run, total } => {
                format!("test {number}/{}: run {run}/{total}", self.tests)
            }
        };
        if let Some(spinner) = &self.spinner {
            spinner.set_message(text);
        } else if self.lines && text != self.last {
            note(format_args!("bench: {text}"));
            self.last = text;
        }
    }

    /// Does something that writes to the terminal.
    pub fn hide<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.spinner {
            Some(spinner) => spinner.suspend(write),
            None => write(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}
