//! Stop strings, which may start and end inside tokens.

use std::sync::Arc;

use crate::patterns::{Node, Patterns, ROOT};

/// Stop strings: an answer stops before any of these texts. Clones are cheap.
///
/// ```
/// use rope_cpu::generate::{Limits, Stops};
///
/// let limits = Limits { stops: Stops::new(["\n\n", "User:"]), ..Limits::default() };
/// assert_eq!(limits.stops.texts(), ["\n\n", "User:"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stops(Arc<Patterns>);

impl Stops {
    /// Prepares stop strings, in time linear in their length. Empty ones never match.
    pub fn new<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        Stops(Arc::new(Patterns::new(texts.into_iter().map(Into::into).collect())))
    }

    /// Returns the texts.
    pub fn texts(&self) -> &[String] {
        self.0.texts()
    }
}

/// Scans generated text for stop strings. It holds text back while that may become a stop string.
#[derive(Debug)]
pub struct Scanner {
    stops: Stops,
    /// The longest prefix of a stop string at the end of the text.
    node: Node,
    held: String,
}

/// The result of a push.
#[derive(Debug, PartialEq, Eq)]
pub struct Released {
    /// The text outside of stop strings.
    pub text: String,
    /// The stop string after the text.
    pub stop: Option<String>,
}

impl Scanner {
    /// Creates a scanner.
    pub fn new(stops: Stops) -> Self {
        Scanner { stops, node: ROOT, held: String::new() }
    }

    /// Adds a piece of text. The text stops at the first character that completes a stop string,
    /// wherever pieces are split. If this character completes several, the longest is reported.
    pub fn push(&mut self, piece: &str) -> Released {
        let patterns = &self.stops.0;
        let before = self.held.len();
        self.held.push_str(piece);
        for (index, byte) in piece.bytes().enumerate() {
            self.node = patterns.step(self.node, byte);
            if let Some(stop) = patterns.found(self.node) {
                let stop = stop.to_string();
                self.held.truncate(before + index + 1 - stop.len());
                return Released { text: self.finish(), stop: Some(stop) };
            }
        }
        let kept = self.held.split_off(self.held.len() - patterns.depth(self.node));
        Released { text: std::mem::replace(&mut self.held, kept), stop: None }
    }

    /// Ends the text, and returns the held-back part.
    pub fn finish(&mut self) -> String {
        self.node = ROOT;
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut matcher = Scanner::new(Stops::new(stops.iter().copied()));
        let mut text = String::new();
        for piece in pieces {
            let released = matcher.push(piece);
            text += &released.text;
            if released.stop.is_some() {
                return (text, released.stop);
            }
        }
        (text + &matcher.finish(), None)
    }

    #[test]
    fn a_stop_is_found_however_the_text_is_cut() {
        let text = "one two, User: three";
        let stops = ["User:", "wo, Us", "two, User"];
        let whole = run(&stops, &[text]);
        assert_eq!(whole, ("one t".to_string(), Some("wo, Us".to_string())));
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(run(&stops, &pieces), whole, "{pieces:?}");
            }
        }
        let letters: Vec<_> = text.split_inclusive(|_: char| true).collect();
        assert_eq!(run(&stops, &letters), whole);
    }

    #[test]
    fn of_stops_that_end_together_the_longest_counts() {
        assert_eq!(run(&["c", "abc", "bc"], &["xab", "c"]), ("x".into(), Some("abc".into())));
    }

    #[test]
    fn text_is_held_only_while_it_may_become_a_stop() {
        let mut stops = Scanner::new(Stops::new(["\n\nä"]));
        assert_eq!(stops.push("a\n"), Released { text: "a".into(), stop: None });
        assert_eq!(stops.push("\n\n"), Released { text: "\n".into(), stop: None });
        assert_eq!(stops.push("b"), Released { text: "\n\nb".into(), stop: None });
        assert_eq!(stops.push("\n"), Released { text: "".into(), stop: None });
        assert_eq!(stops.finish(), "\n");
    }

    /// The definition: the longest of the stop strings that are complete first.
    fn by_definition(stops: &[String], text: &str) -> (String, Option<String>) {
        let found = stops.iter().filter(|stop| !stop.is_empty());
        let found = found.filter_map(|stop| Some((text.find(stop.as_str())?, stop)));
        match found.min_by_key(|&(start, stop)| (start + stop.len(), start)) {
            Some((start, stop)) => (text[..start].into(), Some(stop.clone())),
            None => (text.into(), None),
        }
    }

    proptest! {
        #[test]
        fn stops_are_found_by_the_definition(
            stops in prop::collection::vec("[abä]{0,5}", 0..8),
            pieces in prop::collection::vec("[abäc]{0,4}", 0..12),
        ) {
            let given: Vec<_> = stops.iter().map(String::as_str).collect();
            let pieces: Vec<_> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(run(&given, &pieces), by_definition(&stops, &pieces.concat()));
            // The scanner holds back the longest end of the text that is a prefix of a stop string.
            let mut scanner = Scanner::new(Stops::new(stops.clone()));
            let mut released = String::new();
            for piece in &pieces {
                let Released { text, stop } = scanner.push(piece);
                released += &text;
                if stop.is_some() {
                    return Ok(());
                }
            }
            let whole = pieces.concat();
            let starts = |tail: &str| stops.iter().any(|stop| stop.starts_with(tail));
            let tails = whole.char_indices().map(|(i, _)| &whole[i..]);
            let held = tails.into_iter().find(|tail| starts(tail)).unwrap_or_default();
            prop_assert_eq!(released + held, whole);
        }
    }

    #[test]
    fn one_of_many_stops_is_found() {
        let stops = Stops::new((0..100_000).map(|number| format!("<{number}>")));
        let (mut scanner, text) = (Scanner::new(stops), "< <1 <99 ".repeat(20_000));
        // A scan for one after the other would take minutes.
        for piece in text.split_inclusive(' ') {
            assert_eq!(scanner.push(piece).stop, None);
        }
        assert_eq!(scanner.push("<99999>!").stop.as_deref(), Some("<99999>"));
    }

    #[test]
    fn without_stops_everything_passes() {
        assert_eq!(run(&[""], &["a", "b"]), ("ab".into(), None));
    }
}
