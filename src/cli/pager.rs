//! Shows a text that is longer than the terminal in the user's pager.

use std::{
    env,
    io::{self, IsTerminal, Write},
    process::{Command, Stdio},
};

/// Prints a text to standard output, through a pager if that is a terminal with fewer rows.
///
/// `PAGER` is the pager's command, by default `less`; `cat` or nothing is none.
pub fn print(text: &str) {
    let rows = match io::stdout().is_terminal() {
        true => terminal_size::terminal_size_of(io::stdout()).map(|(_, height)| height.0),
        false => None,
    };
    let long = rows.is_some_and(|rows| rows > 0 && text.lines().count() >= usize::from(rows));
    if !long || !paged(text) {
        // A failure could be reported only here, and the reader may have closed the pipe.
        let _ = io::stdout().write_all(text.as_bytes());
    }
}

/// Returns whether a pager has shown the text.
fn paged(text: &str) -> bool {
    let command = env::var("PAGER").unwrap_or_else(|_| default().into());
    let mut words = command.split_whitespace();
    let Some(program) = words.next().filter(|program| *program != "cat") else { return false };
    let mut pager = Command::new(program);
    pager.args(words).stdin(Stdio::piped());
    if env::var_os("LESS").is_none() {
        // Colors, and no pager for what fits; the text stays on the screen.
        pager.env("LESS", "FRX");
    }
    let Ok(mut child) = pager.spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // The user may leave the pager before it has read everything.
        let _ = input.write_all(text.as_bytes());
    }
    child.wait().is_ok()
}

/// Returns the pager of a system without a setting. A dumb terminal has none.
fn default() -> &'static str {
    let dumb = env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
    if cfg!(unix) && !dumb { "less" } else { "" }
}
