//! The progress of reading a prompt, in one line on stderr.
//!
//! Not indicatif, which does not survive a resize. It pads each line to the terminal's width, and
//! erases as many rows as the line had when drawn. A narrower window has more rows, and some stay.

use std::{
    env,
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use crate::cli::time;

/// Minimum time between two changes of the line.
const PAUSE: Duration = Duration::from_millis(100);
/// The width of the bar, in columns.
const BAR: usize = 24;
/// The width of a terminal that does not report it.
const COLUMNS: usize = 80;

/// A line that shows how much of a prompt has been read. It is erased when the value is dropped.
pub struct ReadingBar {
    total: usize,
    began: Instant,
    drawn: Option<Instant>,
    /// The width of the shown line, 0 if there is none.
    width: usize,
}

impl ReadingBar {
    /// Returns the line of a prompt of `total` tokens; `None` if stderr is no terminal.
    pub fn new(total: usize) -> Option<Self> {
        let terminal = io::stderr().is_terminal();
        terminal.then(|| ReadingBar { total, began: Instant::now(), drawn: None, width: 0 })
    }

    /// Shows that `read` tokens have been read.
    pub fn set_position(&mut self, read: usize) {
        let waits = self.drawn.is_some_and(|drawn| drawn.elapsed() < PAUSE);
        if waits && read < self.total {
            return;
        }
        self.drawn = Some(Instant::now());
        let columns = columns();
        let text = line(read, self.total, self.began.elapsed(), columns);
        let erased = erasure(self.width, columns, reflows());
        self.width = text.len();
        // A failure could be reported only here.
        let _ = write!(io::stderr(), "{erased}{text}");
    }

    /// Erases the line until the next change.
    pub fn erase(&mut self) {
        let _ = write!(io::stderr(), "{}", erasure(self.width, columns(), reflows()));
        self.width = 0;
    }
}

impl Drop for ReadingBar {
    fn drop(&mut self) {
        self.erase();
    }
}

/// Returns whether the terminal rewraps lines when its width changes. xterm and GNU screen cut
/// them.
fn reflows() -> bool {
    let is_set = |name| env::var_os(name).is_some();
    is_set("TMUX") || !(is_set("XTERM_VERSION") || is_set("STY"))
}

fn columns() -> usize {
    let size = terminal_size::terminal_size_of(io::stderr());
    size.map_or(COLUMNS, |(width, _)| usize::from(width.0)).max(2)
}

/// Returns the characters that erase a line of `width`. A narrower terminal shows it in several
/// rows if it `reflows` lines.
fn erasure(width: usize, columns: usize, reflows: bool) -> String {
    match width.div_ceil(columns) {
        0 => String::new(),
        rows if rows == 1 || !reflows => "\r\x1b[J".into(),
        rows => format!("\r\x1b[{}A\x1b[J", rows - 1),
    }
}

/// Returns the line, which is shorter than a row of the terminal: without the bar if it is narrow.
fn line(read: usize, total: usize, time: Duration, columns: usize) -> String {
    let done = BAR * read / total.max(1);
    let head = if read < total { ">" } else { "=" };
    let bar = format!("{}{head}", "=".repeat(done.saturating_sub(1)));
    let count = format!("{read}/{total} {}", pace(read, total, time));
    let mut line = format!("reading [{bar:BAR$}] {count}");
    if line.len() >= columns {
        line = format!("reading {count}");
    }
    line.truncate(columns - 1); // it is ASCII
    line
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

    #[test]
    fn the_line_fits_in_a_row() {
        let line = |read, columns| line(read, 2048, Duration::from_secs(4), columns);
        let bar = "reading [=====>                  ] 512/2048 tokens, 128.0 tokens/s, 12 s left";
        assert_eq!(line(512, 80), bar);
        assert_eq!(line(512, 60), "reading 512/2048 tokens, 128.0 tokens/s, 12 s left");
        assert_eq!(line(512, 20), "reading 512/2048 to");
        assert!(line(2048, 100).starts_with("reading [========================] 2048/2048 "));
        assert!(line(0, 100).starts_with("reading [>                       ] 0/2048 tokens"));
    }

    #[test]
    fn a_line_in_several_rows_is_erased_whole() {
        for (width, columns, reflows, expected) in [
            (0, 80, true, ""),
            (77, 80, true, "\r\x1b[J"),
            (77, 77, true, "\r\x1b[J"),
            (77, 30, true, "\r\x1b[2A\x1b[J"),
            // Rows above the line have other text.
            (77, 30, false, "\r\x1b[J"),
        ] {
            assert_eq!(erasure(width, columns, reflows), expected, "{width} {columns} {reflows}");
        }
    }
}
