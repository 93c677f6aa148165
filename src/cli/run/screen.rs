//! The output of a run: text on stdout, progress and notes on stderr.

use std::{
    env,
    io::{self, IsTerminal, Write},
    ops::ControlFlow,
};

use super::{
    args::When,
    bar::ReadingBar,
    wrap::{self, Wrap},
};
use crate::cli::{error::Error, note};
use rope_cpu::{
    batch::{Reading, Update},
    platform::interrupt,
};

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

    /// Shows an update. Returns `Break` after Ctrl-C, or if stdout cannot be written to.
    pub fn show(&mut self, update: &Update) -> ControlFlow<()> {
        match update {
            Update::Read(reading) => self.progress(reading),
            Update::Recomputing { tokens } => self.note_recompute(*tokens),
            Update::Generated(piece) => self.write(&piece.text),
            _ => {}
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

    /// Finishes an answer, with a newline if its text has none at its end.
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

    /// Prints a note, once, that tokens are computed again, which delays the text.
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

    fn progress(&mut self, reading: &Reading) {
        let Reading { total, cached, processed, .. } = *reading;
        if total - cached <= self.bar_from {
            return;
        }
        if self.bar.is_none() {
            self.bar = ReadingBar::new(total - cached);
        }
        if let Some(bar) = &mut self.bar {
            bar.set_position(processed.saturating_sub(cached));
        }
        if processed == total {
            self.bar = None;
        }
    }
}
