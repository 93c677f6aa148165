//! Detects lines in the first message that change between a client's requests: a date, a time, a
//! counter.
//!
//! Such a line makes the cache useless for all text after it. Two first messages come from the same
//! client if they differ only in words with digits, or in names of days and months. The lines where
//! they differ change between requests. The log names them, and `--move-volatile` moves them to the
//! last message, after all constant text.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rope_cpu::chat::{Message, Role};

/// Maximum first messages to remember.
const MESSAGES_MAX: usize = 16;

/// Maximum bytes of a first message to remember.
const BYTES_MAX: usize = 256 << 10;

/// Maximum lines in which two first messages of a client differ.
const LINES_MAX: usize = 4;

/// Maximum shapes of lines to remember.
const SHAPES_MAX: usize = 64;

/// Words of dates and times that have no digits.
#[rustfmt::skip]
const DATES: [&str; 41] = [
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "mon", "tue",
    "wed", "thu", "fri", "sat", "sun", "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december", "jan", "feb", "mar",
    "apr", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "am", "pm", "st", "th",
];

/// The changing lines in the first messages of all clients.
#[derive(Debug, Default)]
pub struct ChangingLines(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The last first messages, most recent last.
    messages: VecDeque<String>,
    /// The shapes of changing lines: see [`shape`].
    shapes: BTreeSet<String>,
}

impl ChangingLines {
    /// Compares the first message with earlier ones. Returns the index and text of the first line
    /// that has changed since the client's last request.
    pub fn watch(&self, messages: &[Message]) -> Option<(usize, String)> {
        let text = &messages.first().filter(|first| first.role != Role::Assistant)?.content;
        if text.len() > BYTES_MAX {
            return None;
        }
        let seen = &mut *self.lock();
        let same = |one: &String| one == text || changed(one, text).is_some();
        let before = seen.messages.iter().rposition(same).and_then(|at| seen.messages.remove(at));
        if seen.messages.len() == MESSAGES_MAX {
            seen.messages.pop_front();
        }
        seen.messages.push_back(text.clone());
        let lines = changed(&before?, text)?;
        for (_, line) in &lines {
            if seen.shapes.len() < SHAPES_MAX {
                seen.shapes.insert(shape(line));
            }
        }
        lines.first().map(|(index, line)| (*index, line.to_string()))
    }

    /// Moves changing lines of the first message to the end of the last one.
    pub fn shift(&self, messages: &mut [Message]) {
        let [first, rest @ ..] = messages else { return };
        let Some(last) = rest.iter_mut().rev().find(|one| one.role != Role::Assistant) else {
            return;
        };
        let seen = self.lock();
        let changes = |line: &&str| varies(line) && seen.shapes.contains(&shape(line));
        let moved: Vec<_> = first.content.lines().filter(changes).collect();
        if first.role == Role::Assistant || moved.is_empty() {
            return;
        }
        last.content += &format!("\n\n{}", moved.join("\n"));
        let stays: Vec<_> = first.content.split('\n').filter(|line| !changes(line)).collect();
        first.content = stays.join("\n");
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the lines of `text` that differ from `before`, with their indices. Returns `None` if no
/// line or many lines differ, or if they differ in other words.
fn changed<'t>(before: &str, text: &'t str) -> Option<Vec<(usize, &'t str)>> {
    if before.lines().count() != text.lines().count() {
        return None;
    }
    let pairs = before.lines().zip(text.lines()).enumerate();
    let differing = pairs.filter(|(_, (before, line))| before != line);
    let lines: Vec<_> = differing.take(LINES_MAX + 1).collect();
    let alike = lines.iter().all(|(_, (before, line))| shape(before) == shape(line));
    let few = (1..=LINES_MAX).contains(&lines.len());
    (few && alike).then(|| lines.into_iter().map(|(index, (_, line))| (index, line)).collect())
}

/// Returns a line in which `#` replaces numbers, dates and times.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for word in words(line) {
        shape += if is_number(word) { "#" } else { word };
    }
    shape
}

/// Returns whether a line contains numbers, dates or times.
fn varies(line: &str) -> bool {
    words(line).any(is_number)
}

/// Splits a line into words and the punctuation between them.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let is_word = rest.chars().next()?.is_alphanumeric();
        let end = rest.find(|c: char| c.is_alphanumeric() != is_word).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

fn is_number(word: &str) -> bool {
    let is_date = || DATES.iter().any(|date| word.eq_ignore_ascii_case(date));
    word.chars().any(|c| c.is_ascii_digit()) || is_date()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(texts: &[&str]) -> Vec<Message> {
        let roles = [Role::System, Role::User, Role::Assistant, Role::User];
        roles.into_iter().zip(texts).map(|(role, text)| Message::new(role, *text)).collect()
    }

    #[test]
    fn dates_times_and_counters_change_and_other_words_do_not() {
        for (before, after, line) in [
            ("a\nToday is 2026-11-28.\nb", "a\nToday is 2026-11-29.\nb", Some(1)),
            ("Sat Nov 28, 16:38 am\nb", "Sun Dec 1, 09:02 PM\nb", Some(0)),
            ("a\nid=00a1;", "a\nid=77c;", Some(1)),
            ("now 2026-11-28T16:38:38Z", "now 2026-11-28T16:38:39Z", Some(0)),
            ("a 1", "a 1", None),
            ("Today is 28.", "Tomorrow is 29.", None),
            ("be kind\na", "be brief\na", None),
            ("a 1", "a 1\nb", None),
            ("1\n2\n3\n4\n5", "2\n3\n4\n5\n6", None),
        ] {
            let lines = ChangingLines::default();
            assert_eq!(lines.watch(&conversation(&[before])), None);
            let found = lines.watch(&conversation(&[after])).map(|(index, _)| index);
            assert_eq!(found, line, "{before:?} {after:?}");
            // The next request of the client has the same text.
            assert_eq!(lines.watch(&conversation(&[after])), None);
        }
    }

    #[test]
    fn lines_that_change_follow_all_that_stays() {
        let lines = ChangingLines::default();
        let shifted = |day: &str| {
            let first = format!("Be kind.\nIt is {day}.\nYou have 3 tools.");
            let mut messages = conversation(&[&first, "a", "b", "c"]);
            lines.watch(&messages);
            lines.shift(&mut messages);
            messages.into_iter().map(|message| message.content).collect::<Vec<_>>()
        };
        assert_eq!(shifted("Monday")[3], "c");
        let stays = ["Be kind.\nYou have 3 tools.", "a", "b"];
        for day in ["Tuesday", "Friday"] {
            let texts = shifted(day);
            assert_eq!(
                (&texts[..3], &*texts[3]),
                (&stays.map(String::from)[..], &*format!("c\n\nIt is {day}."))
            );
        }
        // A single message has nothing after it.
        let mut alone = conversation(&["It is Sunday."]);
        lines.shift(&mut alone);
        assert_eq!(alone[0].content, "It is Sunday.");
    }

    #[test]
    fn what_is_remembered_is_limited() {
        let lines = ChangingLines::default();
        for number in 0..2 * SHAPES_MAX {
            let name = "x".repeat(number);
            for value in 0..2 {
                lines.watch(&conversation(&[&format!("{name} {value}")]));
            }
        }
        lines.watch(&conversation(&[&"1".repeat(BYTES_MAX + 1)]));
        let seen = lines.lock();
        assert_eq!((seen.messages.len(), seen.shapes.len()), (MESSAGES_MAX, SHAPES_MAX));
        assert!(seen.messages.iter().all(|text| text.len() <= BYTES_MAX));
    }
}
