//! What the user sees while the model reads and writes: text on stdout, the rest on stderr.

use std::{
    env,
    io::{self, IsTerminal, Write},
    ops::ControlFlow,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::args::When;
use crate::cli::{error::Error, note, time};
use rope_cpu::{generate::Event, platform::interrupt};

/// Green, for what was typed, and back to normal.
pub const TYPED: (&str, &str) = ("\x1b[32m", "\x1b[0m");

/// Stdout, and a bar on stderr while a long prompt is read.
pub struct Screen {
    out: io::Stdout,
    color: bool,
    terminal: bool,
    /// Whether the cursor of stdout stands at the start of a line.
    line_start: bool,
    failure: Option<io::Error>,
    bar: Option<Bar>,
    bar_from: usize,
    told_again: bool,
}

/// A progress bar and when it began.
struct Bar {
    bar: ProgressBar,
    began: Instant,
}

impl Screen {
    /// `bar_from` is the number of tokens above which reading a prompt shows a bar.
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
            line_start: true,
            failure: None,
            bar: None,
            bar_from,
            told_again: false,
        }
    }

    /// Whether what was typed is shown in color.
    pub fn color(&self) -> bool {
        self.color
    }

    /// One step of the model: shows it, and stops at Ctrl-C or where nobody reads stdout.
    pub fn show(&mut self, event: Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Reading { done, reused, total } => self.progress(done, reused, total),
            Event::Again { total, .. } => self.again(total),
            Event::Text(text) => self.write(text),
        }
        match self.failure.is_some() || interrupt::raised() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// A question that was not typed here, shown as if it had been. What is no terminal gets the
    /// answer alone.
    pub fn question(&mut self, text: &str) {
        if self.terminal {
            self.write("> ");
            self.typed(text);
            self.end_line();
        }
    }

    /// Text that was typed, not written by the model.
    pub fn typed(&mut self, text: &str) {
        if self.color && !text.is_empty() {
            self.write(TYPED.0);
            self.write(text);
            self.write(TYPED.1);
            self.line_start = text.ends_with('\n');
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

    /// Says why no text comes for a while, the first time.
    fn again(&mut self, tokens: usize) {
        if self.told_again {
            return;
        }
        self.told_again = true;
        self.bar = None;
        if self.terminal {
            self.end_line(); // elsewhere the text is to stay as it is
        }
        note(format_args!(
            "note: so long a sequence has other RoPE frequencies: its {tokens} tokens are read again \
             (--rope-policy position does without that)"
        ));
    }

    fn write(&mut self, text: &str) {
        if text.is_empty() || self.failure.is_some() {
            return;
        }
        self.bar = None;
        self.line_start = text.ends_with('\n');
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        self.failure = written.err();
    }

    fn progress(&mut self, done: usize, reused: usize, total: usize) {
        if total - reused <= self.bar_from || !io::stderr().is_terminal() {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| Bar::new(reused, total));
        bar.at(done - reused);
        if done == total {
            self.bar = None;
        }
    }
}

impl Bar {
    fn new(reused: usize, total: usize) -> Self {
        let bar = ProgressBar::new((total - reused) as u64);
        // The template is a constant of a known good form; the default is no worse than a panic.
        if let Ok(style) = ProgressStyle::with_template("reading [{bar:24}] {pos}/{len} {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Bar { bar, began: Instant::now() }
    }

    /// Shows that `read` of the tokens are done.
    fn at(&self, read: usize) {
        let total = self.bar.length().unwrap_or_default() as usize;
        self.bar.set_message(pace(read, total, self.began.elapsed()));
        self.bar.set_position(read as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Tokens a second so far, and the time left at that pace.
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
