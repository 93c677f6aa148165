//! The output of a run: text on stdout, progress and notes on stderr.

use std::{
    env,
    io::{self, IsTerminal, Write},
    ops::ControlFlow,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::{
    args::When,
    wrap::{self, Wrap},
};
use crate::cli::{error::Error, note, time};
use rope_cpu::{generate::Event, platform::interrupt};

/// The escape sequences before and after the user's text: green, and reset.
pub const USER_COLOR: (&str, &str) = ("\x1b[32m", "\x1b[0m");

/// Stdout, and a progress bar on stderr while a long prompt is read.
pub struct Screen {
    out: io::Stdout,
    color: bool,
    terminal: bool,
    wrap: Wrap,
    /// Whether the cursor of stdout is at the start of a line.
    line_start: bool,
    failure: Option<io::Error>,
    bar: Option<ReadingBar>,
    bar_from: usize,
    noted_recompute: bool,
}

/// The progress bar of a prompt, with its start time.
struct ReadingBar {
    bar: ProgressBar,
    began: Instant,
}

impl Screen {
    /// Creates a screen. Prompts of more than `bar_from` tokens have a progress bar.
    pub fn new(color: When, bar_from: usize) -> Self {
        let out = io::stdout();
        let terminal = out.is_terminal();
        let color = match color {
            When::On => true,
            When::Off => false,
            // https://no-color.org
            When::Auto => terminal && env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        };
        Screen {
            out,
            color,
            terminal,
            wrap: Wrap::default(),
            line_start: true,
            failure: None,
            bar: None,
            bar_from,
            noted_recompute: false,
        }
    }

    /// Returns whether the user's text is shown in color.
    pub fn color(&self) -> bool {
        self.color
    }

    /// Shows an event. Returns `Break` after Ctrl-C, or if stdout cannot be written to.
    pub fn show(&mut self, event: Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Reading { done, reused, total } => self.progress(done, reused, total),
            Event::Recomputing { total, .. } => self.note_recompute(total),
            Event::Text(text) => self.write(text),
        }
        match self.failure.is_some() || interrupt::raised() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Shows a message of the command line like one that was entered here, if stdout is a terminal.
    pub fn question(&mut self, text: &str) {
        if self.terminal {
            self.write("> ");
            self.user_text(text);
            self.end_line();
        }
    }

    /// Shows text of the user, as opposed to generated text.
    pub fn user_text(&mut self, text: &str) {
        if self.color && !text.is_empty() {
            self.print(USER_COLOR.0);
            self.write(text);
            self.print(USER_COLOR.1);
        } else {
            self.write(text);
        }
    }

    /// Ends an answer, and its last line if it does not end in a newline.
    ///
    /// # Errors
    /// If stdout could not be written to.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.bar = None;
        self.end_line();
        self.failure.take().map_or(Ok(()), |e| Err(Error::Output(e)))
    }

    fn end_line(&mut self) {
        if !self.line_start {
            self.write("\n");
        }
    }

    /// Notes, once, that the tokens are computed again, which delays the text.
    fn note_recompute(&mut self, tokens: usize) {
        if self.noted_recompute {
            return;
        }
        self.noted_recompute = true;
        self.bar = None;
        if self.terminal {
            self.end_line(); // a redirected text is not changed
        }
        note(format_args!(
            "note: the RoPE frequencies change at this length: {tokens} tokens are computed again \
             (--rope-policy position avoids this)"
        ));
    }

    /// Writes text, in a terminal with its lines wrapped at words.
    fn write(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.line_start = text.ends_with('\n');
        match wrap::columns().filter(|_| self.terminal) {
            Some(columns) => {
                let shown = self.wrap.push(text, columns);
                self.print(&shown);
            }
            None => self.print(text),
        }
    }

    /// Writes characters as they are.
    fn print(&mut self, text: &str) {
        if text.is_empty() || self.failure.is_some() {
            return;
        }
        self.bar = None;
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        self.failure = written.err();
    }

    fn progress(&mut self, done: usize, reused: usize, total: usize) {
        if total - reused <= self.bar_from || !io::stderr().is_terminal() {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| ReadingBar::new(reused, total));
        bar.set_position(done - reused);
        if done == total {
            self.bar = None;
        }
    }
}

impl ReadingBar {
    fn new(reused: usize, total: usize) -> Self {
        let bar = ProgressBar::new((total - reused) as u64);
        // The template is a valid constant; if it were not, the default style would be used.
        if let Ok(style) = ProgressStyle::with_template("reading [{bar:24}] {pos}/{len} {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        ReadingBar { bar, began: Instant::now() }
    }

    /// Shows that `read` tokens have been read.
    fn set_position(&self, read: usize) {
        let total = self.bar.length().unwrap_or_default() as usize;
        self.bar.set_message(pace(read, total, self.began.elapsed()));
        self.bar.set_position(read as u64);
    }
}

impl Drop for ReadingBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Formats the rate so far in tokens per second, and the time left at that rate.
fn pace(done: usize, total: usize, time: Duration) -> String {
    if done == 0 || time.is_zero() {
        return "tokens".into();
    }
    let per_second = done as f64 / time.as_secs_f64();
    let left = time::wait((total - done) as f64 / per_second);
    format!("tokens, {per_second:.1} tokens/s, {left} left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_pace() {
        let pace = |done, total, seconds| pace(done, total, Duration::from_secs(seconds));
        assert_eq!(pace(0, 100, 3), "tokens");
        assert_eq!(pace(512, 2048, 4), "tokens, 128.0 tokens/s, 12 s left");
        assert_eq!(pace(100, 10_000, 10), "tokens, 10.0 tokens/s, 16:30 min left");
        assert_eq!(pace(1, 5401, 1), "tokens, 1.0 tokens/s, 1:30 h left");
        assert_eq!(pace(5, 5, 1), "tokens, 5.0 tokens/s, 0 s left");
    }
}
