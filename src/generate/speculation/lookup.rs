//! Prompt lookup: drafts what followed the same words earlier in the text.

use super::{Drafter, Target, automaton::*};
use crate::{Token, model::Error};

/// Maximum indexed tokens, at up to 150 bytes each. If a text becomes longer, only its last half
/// stays in the index.
const INDEXED_MAX: usize = 1 << 18;

/// The number of classes of matches: 1 token, 2 and 3, 4 to 7, and so on.
const CLASSES: usize = 8;
/// The assumed share of right matches in each class, until it is measured.
const PRIOR: [f64; CLASSES] = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.95];
/// The number of matches over which the share is averaged.
const MEMORY: f64 = 32.0;

/// Drafts the tokens that followed the last earlier occurrence of the text's longest suffix.
///
/// The chance of a draft is measured: the share of right matches among earlier matches of the same
/// length.
///
/// ```
/// use rope_cpu::generate::speculation::{Drafter, Lookup};
///
/// let mut lookup = Lookup::default();
/// let text = [1, 2, 3, 4, 5, 9, 2, 3];
/// lookup.follow(&text);
/// let mut drafts = Vec::new();
/// lookup.draft(&text, 2, None, &mut drafts)?;
/// assert_eq!(drafts, [4, 5]); // "2, 3" was followed by "4, 5" before
/// # Ok::<(), rope_cpu::model::Error>(())
/// ```
#[derive(Debug)]
pub struct Lookup {
    automaton: SuffixAutomaton,
    /// The followed text.
    text: Vec<Token>,
    /// The number of tokens at the start of the text that are not indexed.
    skipped: usize,
    found: Option<Match>,
    /// The share of right matches in each class.
    right: [f64; CLASSES],
}

impl Default for Lookup {
    fn default() -> Self {
        Lookup {
            automaton: SuffixAutomaton::new(),
            text: Vec::new(),
            skipped: 0,
            found: None,
            right: PRIOR,
        }
    }
}

impl Lookup {
    fn push(&mut self, token: Token) {
        if let Some(found) = self.found {
            let right = f64::from(u8::from(self.text[self.skipped + found.end] == token));
            let share = &mut self.right[class(found.len)];
            *share += (right - *share) / MEMORY;
        }
        self.text.push(token);
        self.found = self.automaton.push(token);
        if self.automaton.len() >= INDEXED_MAX {
            self.skipped = self.text.len() - INDEXED_MAX / 2;
            self.automaton = SuffixAutomaton::new();
            for &token in &self.text[self.skipped..] {
                self.found = self.automaton.push(token);
            }
        }
    }
}

impl Drafter for Lookup {
    fn follow(&mut self, text: &[Token]) {
        if !text.starts_with(&self.text) {
            *self = Lookup { right: self.right, ..Lookup::default() };
        }
        for &token in &text[self.text.len()..] {
            self.push(token);
        }
    }

    fn chance(&self, depth: usize) -> f64 {
        self.found.map_or(0.0, |found| self.right[class(found.len + depth)])
    }

    fn draft(
        &mut self,
        text: &[Token],
        count: usize,
        _target: Option<&mut Target<'_>>,
        drafts: &mut Vec<Token>,
    ) -> Result<(), Error> {
        let Some(found) = self.found else { return Ok(()) };
        // Past the last token, the drafts themselves continue the text.
        let from = self.skipped + found.end;
        for i in from..from + count {
            drafts.push(if i < text.len() { text[i] } else { drafts[i - text.len()] });
        }
        Ok(())
    }
}

/// Returns the class of a match.
fn class(len: usize) -> usize {
    (len.max(1).ilog2() as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafts(lookup: &mut Lookup, text: &[Token], count: usize) -> Vec<Token> {
        let mut drafts = Vec::new();
        lookup.follow(text);
        lookup.draft(text, count, None, &mut drafts).unwrap();
        drafts
    }

    #[test]
    fn what_followed_the_longest_match_is_drafted() {
        let mut lookup = Lookup::default();
        assert!(drafts(&mut lookup, &[], 4).is_empty());
        assert!(drafts(&mut lookup, &[1, 2, 3], 4).is_empty());
        // 2, 3 was followed by 4; 3 alone by 9.
        assert_eq!(drafts(&mut lookup, &[1, 2, 3, 4, 5, 3, 9, 2, 3], 3), [4, 5, 3]);
        // Another text.
        assert_eq!(drafts(&mut lookup, &[1, 8, 6, 1], 2), [8, 6]);
    }

    #[test]
    fn a_repetition_continues_beyond_the_text() {
        assert_eq!(drafts(&mut Lookup::default(), &[5, 1, 2, 3, 1, 2, 3], 5), [1, 2, 3, 1, 2]);
        assert_eq!(drafts(&mut Lookup::default(), &[7, 7], 3), [7, 7, 7]);
    }

    #[test]
    fn chances_are_those_of_the_text() {
        let mut lookup = Lookup::default();
        let copy: Vec<_> = (0..50).cycle().take(2000).collect();
        lookup.follow(&copy);
        assert!(lookup.chance(0) > 0.99, "{}", lookup.chance(0));
        // A new token after each pair of 0 and 1.
        let mut lookup = Lookup::default();
        let new: Vec<_> = (10..500).flat_map(|new| [0, 1, new]).chain([0, 1]).collect();
        lookup.follow(&new);
        assert!(lookup.chance(0) < 0.01, "{}", lookup.chance(0));
    }

    #[test]
    fn a_text_without_end_needs_bounded_memory() {
        let mut lookup = Lookup::default();
        let mut text: Vec<_> = (0..INDEXED_MAX as Token).collect();
        lookup.follow(&text);
        assert_eq!(lookup.automaton.len(), INDEXED_MAX / 2);
        text.extend([INDEXED_MAX as Token - 3, INDEXED_MAX as Token - 2]);
        assert_eq!(drafts(&mut lookup, &text, 1), [INDEXED_MAX as Token - 1]);
        // The first half is forgotten.
        text.push(5);
        assert!(drafts(&mut lookup, &text, 1).is_empty());
    }
}
