//! Pre-tokenization: splits text into words before BPE merges the symbols of each word.
//!
//! The right pattern cannot be derived from the tokens of a vocabulary. A wrong pattern gives
//! plausible tokens that never occurred in training. So the name in `tokenizer.ggml.pre` decides,
//! and a name outside the [table] is an error. The table has no `default`, which converters write
//! for a pattern that they do not know.

mod table;

use regex_automata::{Input, PatternID, meta::Regex};

use super::Error;
use crate::gguf::Metadata;
use table::{Entry, TABLE, THOUSANDS};

const KEY: &str = "tokenizer.ggml.pre";

/// A pre-tokenizer: its patterns, and the rules that come with its name.
#[derive(Debug)]
pub(super) struct Pre {
    steps: Vec<Step>,
    /// Whether a word that is a token becomes that token even if merges would not produce it.
    pub ignore_merges: bool,
    /// Whether BOS is added if the file does not specify it.
    pub add_bos: bool,
}

/// Returns the supported names, for messages.
pub(super) fn names() -> String {
    TABLE.iter().flat_map(|entry| entry.names).copied().collect::<Vec<_>>().join(", ")
}

impl Pre {
    /// Returns the pre-tokenizer named in the file.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, Error> {
        let name = metadata.string(KEY)?.filter(|name| !name.is_empty());
        Self::named(name.ok_or(Error::PreMissing)?)
    }

    /// Returns the pre-tokenizer with this name.
    pub fn named(name: &str) -> Result<Self, Error> {
        let unknown = || Error::Pre { name: name.into() };
        let entry = TABLE.iter().find(|entry| entry.names.contains(&name)).ok_or_else(unknown)?;
        let &Entry { steps, ignore_merges, add_bos, .. } = entry;
        // The table's patterns are valid: a test compiles all of them.
        let steps = steps.iter().map(|pattern| Step::new(pattern)).collect::<Option<_>>();
        Ok(Self { steps: steps.ok_or_else(unknown)?, ignore_merges, add_bos })
    }

    /// Splits a text into words. Their concatenation is the text.
    pub fn words<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let mut words = vec![text];
        for step in &self.steps {
            let mut shorter = Vec::with_capacity(2 * words.len());
            words.into_iter().for_each(|word| step.cut(word, &mut shorter));
            words = shorter;
        }
        words
    }
}

/// A step of splitting, by one regular expression.
#[derive(Debug)]
struct Step {
    /// The expression without [`SPACES`] at its end. If it had them, `\s+` is the second pattern.
    regex: Regex,
    /// Whether matches are numbers to cut by [`THOUSANDS`].
    thousands: bool,
}

/// A run of spaces without its last space, which belongs to the following word.
///
/// Automata do not support look-ahead, so all spaces are matched and the last one is then given
/// back.
const SPACES: &str = r"|\s+(?!\S)|\s+";
const ALL_SPACES: PatternID = PatternID::new_unchecked(1);

impl Step {
    fn new(pattern: &str) -> Option<Self> {
        let thousands = pattern == THOUSANDS;
        let pattern = if thousands { r"\p{N}+" } else { pattern };
        let (pattern, spaces) = match pattern.strip_suffix(SPACES) {
            Some(pattern) => (pattern, Some(r"\s+")),
            None => (pattern, None),
        };
        // llama.cpp uses Unicode 15.1, in which a newer character is neither a letter nor a number.
        let mut pattern = pattern.to_owned();
        for category in ["L", "M", "N", "P", "S"] {
            let unicode_15 = format!(r"[\p{{{category}}}&&\p{{Age=15.1}}]");
            pattern = pattern.replace(&format!(r"\p{{{category}}}"), &unicode_15);
        }
        let patterns: Vec<&str> = [pattern.as_str()].into_iter().chain(spaces).collect();
        Some(Self { regex: Regex::new_many(&patterns).ok()?, thousands })
    }

    /// Appends the matches in `text` and the pieces of text between them.
    fn cut<'t>(&self, text: &'t str, words: &mut Vec<&'t str>) {
        let mut rest = 0;
        let mut push = |from: usize, to: usize| {
            if from < to {
                words.push(&text[from..to]);
            }
        };
        while let Some(found) = self.regex.search(&Input::new(text).range(rest..)) {
            let mut end = found.end();
            if found.pattern() == ALL_SPACES && end < text.len() {
                let last = text[..end].chars().next_back().map_or(0, char::len_utf8);
                if end - last > found.start() {
                    end -= last;
                }
            }
            if self.thousands {
                let digits: Vec<_> = text[found.range()].char_indices().map(|(i, _)| i).collect();
                let later_groups = digits.iter().rev().skip(2).step_by(3).rev();
                for start in later_groups.filter(|start| **start > 0) {
                    push(rest, found.start() + start);
                    rest = found.start() + start;
                }
            } else {
                push(rest, found.start());
                rest = found.start();
            }
            push(rest, end);
            rest = end;
        }
        push(rest, text.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        Pre::named(name).unwrap().words(text)
    }

    #[test]
    fn the_last_space_goes_with_the_word() {
        for name in ["gpt-2", "llama-bpe"] {
            assert_eq!(words(name, "  a  b  "), [" ", " a", " ", " b", "  "]);
        }
        assert_eq!(words("gpt-2", "a\u{3000}\u{3000}é"), ["a", "\u{3000}", "\u{3000}", "é"]);
        assert_eq!(words("llama-bpe", "a\u{3000}\u{3000}é"), ["a", "\u{3000}", "\u{3000}é"]);
    }

    #[test]
    fn patterns_differ_in_numbers() {
        assert_eq!(words("gpt-2", "a 12345"), ["a", " 12345"]);
        assert_eq!(words("smollm", "a 12   3b"), ["a", " ", "1", "2", "   ", "3", "b"]);
        assert_eq!(words("llama-bpe", "a 12345"), ["a", " ", "123", "45"]);
        assert_eq!(words("qwen2", "a 123"), ["a", " ", "1", "2", "3"]);
        assert_eq!(words("falcon", "a 12345"), ["a", " ", "123", "45"]);
        assert_eq!(words("cohere2moe", "a 12345"), ["a", " ", "12", "345"]);
        assert_eq!(words("cohere2moe", "1234567٣ 123"), ["12", "345", "67٣", " ", "123"]);
    }

    #[test]
    fn patterns_differ_in_contractions_lines_and_marks() {
        assert_eq!(words("gpt-2", "I'll I'LL"), ["I", "'ll", " I", "'", "LL"]);
        assert_eq!(words("llama-bpe", "I'll I'LL 'ſ"), ["I", "'ll", " I", "'LL", " '", "ſ"]);
        assert_eq!(words("gpt-2", "a!\n\n b"), ["a", "!", "\n\n", " b"]);
        assert_eq!(words("llama-bpe", "a!\n\n b"), ["a", "!\n\n", " b"]);
        assert_eq!(words("llama-bpe", " \n \n  b"), [" \n \n", " ", " b"]);
        assert_eq!(words("qwen2", "e\u{301}a"), ["e", "\u{301}a"]);
        assert_eq!(words("qwen35", "e\u{301}a"), ["e\u{301}a"]);
        assert_eq!(words("tekken", "aBCd ÉCOLE"), ["a", "BCd", " É", "COLE"]);
    }

    #[test]
    fn characters_are_those_of_unicode_15_1_as_in_llama_cpp() {
        // An ideograph new in 15.1, and digits new in 16.0.
        assert_eq!(words("llama-bpe", "a\u{2ebf0}"), ["a\u{2ebf0}"]);
        assert_eq!(words("llama-bpe", "1\u{10d40}"), ["1", "\u{10d40}"]);
    }

    #[test]
    fn every_name_stands_for_one_entry_that_compiles() {
        let mut seen = std::collections::HashSet::new();
        for name in TABLE.iter().flat_map(|entry| entry.names) {
            assert!(seen.insert(name), "{name}");
            assert_eq!(words(name, "").len(), 0);
        }
    }
}
