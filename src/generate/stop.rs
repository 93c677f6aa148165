//! Stop strings, which may begin and end within tokens.

/// A scanner for stop strings, which holds text back as long as it may become one.
#[derive(Debug)]
pub struct Stops {
    stops: Vec<String>,
    held: String,
}

/// The text that is released after a piece was added.
#[derive(Debug, PartialEq, Eq)]
pub struct Released {
    /// The text that is not part of a stop string, and cannot become one.
    pub text: String,
    /// The stop string that followed it.
    pub stop: Option<String>,
}

impl Stops {
    /// Creates a scanner for `stops`; empty ones are never found.
    pub fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        Stops { stops, held: String::new() }
    }

    /// Adds a piece of text. The text ends at the first character that completes a stop string, so
    /// that the result does not depend on the division into pieces. If several are complete there,
    /// the longest counts.
    pub fn push(&mut self, piece: &str) -> Released {
        self.held.push_str(piece);
        let found = self
            .stops
            .iter()
            .filter_map(|stop| Some((self.held.find(stop.as_str())?, stop)))
            .min_by_key(|&(start, stop)| (start + stop.len(), start));
        if let Some((start, stop)) = found {
            let stop = stop.clone();
            self.held.truncate(start);
            return Released { text: std::mem::take(&mut self.held), stop: Some(stop) };
        }
        let kept = self.held.split_off(self.held.len() - self.stop_prefix_len());
        Released { text: std::mem::replace(&mut self.held, kept), stop: None }
    }

    /// Returns the text held back, at the end of the text.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Returns the number of bytes at the end of the text that are the beginning of a stop string.
    fn stop_prefix_len(&self) -> usize {
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
        let mut matcher = Stops::new(&stops.iter().map(|s| s.to_string()).collect::<Vec<_>>());
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
        let mut stops = Stops::new(&["\n\nä".to_string()]);
        assert_eq!(stops.push("a\n"), Released { text: "a".into(), stop: None });
        assert_eq!(stops.push("\n\n"), Released { text: "\n".into(), stop: None });
        assert_eq!(stops.push("b"), Released { text: "\n\nb".into(), stop: None });
        assert_eq!(stops.push("\n"), Released { text: "".into(), stop: None });
        assert_eq!(stops.finish(), "\n");
    }

    #[test]
    fn without_stops_everything_passes() {
        assert_eq!(run(&[""], &["a", "b"]), ("ab".into(), None));
    }
}
