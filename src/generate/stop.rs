//! Stop strings, found wherever the borders between tokens fall.

/// Text on its way out, held back for as long as it may become a stop string.
#[derive(Debug)]
pub struct Stops {
    stops: Vec<String>,
    held: String,
}

/// What a piece of text led to.
#[derive(Debug, PartialEq, Eq)]
pub struct Passed {
    /// Text that is no part of a stop string, and cannot become one.
    pub text: String,
    /// The stop string that followed it.
    pub stop: Option<String>,
}

impl Stops {
    /// Looks for any of `stops`; empty ones are never found.
    pub fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        Stops { stops, held: String::new() }
    }

    /// Adds a piece of text. A stop string ends the text at the first character that completes
    /// one, so that the cut does not depend on how the text came in pieces; of those that are
    /// complete there, the longest counts.
    pub fn push(&mut self, piece: &str) -> Passed {
        self.held.push_str(piece);
        let found = self
            .stops
            .iter()
            .filter_map(|stop| Some((self.held.find(stop.as_str())?, stop)))
            .min_by_key(|&(start, stop)| (start + stop.len(), start));
        if let Some((start, stop)) = found {
            let stop = stop.clone();
            self.held.truncate(start);
            return Passed { text: std::mem::take(&mut self.held), stop: Some(stop) };
        }
        let kept = self.held.split_off(self.held.len() - self.beginning());
        Passed { text: std::mem::replace(&mut self.held, kept), stop: None }
    }

    /// The text held back, when nothing follows it.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes at the end of the text that are the beginning of a stop string.
    fn beginning(&self) -> usize {
        let starts_a_stop = |tail: &str| self.stops.iter().any(|stop| stop.starts_with(tail));
        self.held
            .char_indices()
            .map(|(i, _)| &self.held[i..])
            .find(|tail| starts_a_stop(tail))
            .map_or(0, str::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut matcher = Stops::new(&stops.map_owned());
        let mut text = String::new();
        for piece in pieces {
            let passed = matcher.push(piece);
            text += &passed.text;
            if passed.stop.is_some() {
                return (text, passed.stop);
            }
        }
        (text + &matcher.finish(), None)
    }

    trait Owned {
        fn map_owned(&self) -> Vec<String>;
    }
    impl Owned for &[&str] {
        fn map_owned(&self) -> Vec<String> {
            self.iter().map(|s| s.to_string()).collect()
        }
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
        let mut stops = Stops::new(&["\n\nä".to_string()]);
        assert_eq!(stops.push("a\n"), Passed { text: "a".into(), stop: None });
        assert_eq!(stops.push("\n\n"), Passed { text: "\n".into(), stop: None });
        assert_eq!(stops.push("b"), Passed { text: "\n\nb".into(), stop: None });
        assert_eq!(stops.push("\n"), Passed { text: "".into(), stop: None });
        assert_eq!(stops.finish(), "\n");
    }

    #[test]
    fn without_stops_everything_passes() {
        assert_eq!(run(&[""], &["a", "b"]), ("ab".into(), None));
    }
}
