//! The progress of `bench`, on stderr.

use std::{collections::HashSet, io::IsTerminal, time::Duration};

use indicatif::ProgressBar;

use crate::cli::note;
use rope_cpu::{eval::bench::Stage, rope::Plan};

/// The progress, as a line that is replaced or as separate lines.
pub struct Progress {
    /// Whether each change is printed as a separate line.
    lines: bool,
    spinner: Option<ProgressBar>,
    test: usize,
    tests: usize,
    last: String,
    /// The warnings printed so far.
    warned: HashSet<String>,
}

impl Progress {
    /// Creates the progress of `tests` tests; with `lines`, each change is printed as a line.
    pub fn new(lines: bool, tests: usize) -> Self {
        let spinner = (!lines && std::io::stderr().is_terminal()).then(|| {
            let spinner = ProgressBar::new_spinner();
            // Once a second, so that drawing does not disturb the measurement.
            spinner.enable_steady_tick(Duration::from_secs(1));
            spinner
        });
        let (last, warned) = (String::new(), HashSet::new());
        Progress { lines, spinner, test: 0, tests, last, warned }
    }

    /// Prints the warnings of a plan that were not printed before.
    pub fn warn(&mut self, plan: &Plan) {
        for warning in &plan.warnings {
            if self.warned.insert(warning.clone()) {
                self.hide(|| note(format_args!("warning: {warning}")));
            }
        }
    }

    /// Counts the next test.
    pub fn next(&mut self) {
        self.test += 1;
    }

    /// Shows the stage of the current test.
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

    /// Calls `write`, which writes to the terminal, with the progress line hidden.
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
