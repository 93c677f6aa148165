//! How byte-level BPE cuts text into words before it merges: four patterns, under many names.
//!
//! Which pattern a vocabulary was trained with cannot be seen from its tokens, and a wrong one
//! gives plausible tokens that the model has never seen. So the name in `tokenizer.ggml.pre`
//! decides, and a name that is not known here is an error. `default`, which converters write when
//! they do not know, is not known here either.

use super::{Error, unicode::Class};
use crate::gguf::Metadata;

const KEY: &str = "tokenizer.ggml.pre";

/// A pre-tokenizer: its pattern, and the rules that come with its name.
#[derive(Debug)]
pub(super) struct Pre {
    pattern: Pattern,
    /// Whether a word that is a token is taken whole, even where merges would not make it.
    pub ignore_merges: bool,
    /// Whether BOS is added where the file does not say.
    pub add_bos: bool,
}

/// A regular expression, by the models that brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// Every `\p{N}` by itself, and GPT-2's pattern between them.
    Digits,
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|`
    /// ` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    Llama3,
    /// Llama 3's, with `\p{N}` in place of `\p{N}{1,3}`.
    Qwen2,
    /// Qwen2's, with `[\p{L}\p{M}]` in place of `\p{L}`.
    Qwen35,
}

/// Every name that llama.cpp gives one of the patterns, unless it comes with rules for embedding
/// models.
const NAMES: &[(Pattern, &[&str])] = &[
    (
        Pattern::Gpt2,
        &[
            "gpt-2",
            "a.x-4.0",
            "exaone4",
            "gigachat",
            "granite-docling",
            "jais",
            "mellum",
            "mpt",
            "olmo",
            "phi-2",
            "trillion",
        ],
    ),
    (
        Pattern::Digits,
        &[
            "smollm",
            "codeshell",
            "command-r",
            "exaone",
            "mellum2",
            "minerva-7b",
            "refact",
            "starcoder",
        ],
    ),
    (
        Pattern::Llama3,
        &[
            "llama-bpe",
            "dbrx",
            "falcon-h1",
            "falcon3",
            "lfm2",
            "llama-v3",
            "llama3",
            "midm-2.0",
            "pixtral",
            "smaug-bpe",
        ],
    ),
    (
        Pattern::Qwen2,
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "f2llmv2",
            "grok-2",
            "hunyuan",
            "kormo",
            "megrez",
            "solar-open",
            "stablelm2",
        ],
    ),
    (Pattern::Qwen35, &["qwen35"]),
];

/// The names of the patterns of Llama 3 that do not come with its rules.
const LLAMA3_PATTERN_ALONE: &[&str] = &["dbrx", "smaug-bpe"];

/// The names that are known, for messages.
pub(super) fn names() -> String {
    NAMES.iter().flat_map(|(_, names)| *names).copied().collect::<Vec<_>>().join(", ")
}

impl Pre {
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, Error> {
        let name = metadata.string(KEY)?.filter(|name| !name.is_empty());
        let name = name.ok_or(Error::PreMissing)?;
        let (pattern, _) = *NAMES
            .iter()
            .find(|(_, names)| names.contains(&name))
            .ok_or_else(|| Error::Pre { name: name.into() })?;
        let llama3 = pattern == Pattern::Llama3 && !LLAMA3_PATTERN_ALONE.contains(&name);
        Ok(Self { pattern, ignore_merges: llama3, add_bos: llama3 })
    }

    /// The words of a text, which together are the text.
    pub fn words<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let pattern = self.pattern;
        let mut rest = text;
        std::iter::from_fn(move || {
            // Every pattern matches at least one character of a text that has one.
            let (word, after) = rest.split_at(pattern.word(rest));
            rest = after;
            Some(word).filter(|word| !word.is_empty())
        })
    }
}

impl Pattern {
    /// The bytes of the first word of `text`.
    fn word(self, text: &str) -> usize {
        match self {
            Self::Gpt2 => gpt2(text, false),
            Self::Digits => gpt2(text, true),
            Self::Llama3 => llama3(text, 3, Class::of),
            Self::Qwen2 => llama3(text, 1, Class::of),
            Self::Qwen35 => llama3(text, 1, |c| match Class::of(c) {
                Class::Mark => Class::Letter,
                class => class,
            }),
        }
    }
}

/// The first word of [`Pattern::Gpt2`], or of [`Pattern::Digits`] if `apart`: then a number is a
/// word, and the text before it ends there.
fn gpt2(text: &str, apart: bool) -> usize {
    if let Some(len) = contraction(text, char::eq) {
        return len;
    }
    // Marks are what `[^\s\p{L}\p{N}]` matches, too.
    let class = |c| match Class::of(c) {
        Class::Mark => Class::Other,
        class => class,
    };
    let body = text.strip_prefix(' ').unwrap_or(text);
    match body.chars().next() {
        Some(c) if apart && class(c) == Class::Number => {
            if body.len() == text.len() {
                c.len_utf8()
            } else {
                1
            }
        }
        Some(c) if class(c) != Class::Space => {
            text.len() - body.len() + run(body, |other| class(other) == class(c))
        }
        _ => spaces(text, apart),
    }
}

/// The first word of [`Pattern::Llama3`] and its relatives: up to `digits` numbers make a word.
fn llama3(text: &str, digits: usize, class: fn(char) -> Class) -> usize {
    if let Some(len) = contraction(text, char::eq_ignore_ascii_case) {
        return len;
    }
    let mut characters = text.chars();
    let Some(first) = characters.next() else { return 0 };
    let second = characters.next();
    let is_letter = |c| class(c) == Class::Letter;
    let is_other = |c| matches!(class(c), Class::Mark | Class::Other);

    // [^\r\n\p{L}\p{N}]?\p{L}+
    let joins = !matches!(first, '\r' | '\n') && class(first) != Class::Number;
    if is_letter(first) || joins && second.is_some_and(is_letter) {
        let start = first.len_utf8();
        return start + run(&text[start..], is_letter);
    }
    // \p{N}{1,3}
    if class(first) == Class::Number {
        let numbers = text.chars().take(digits).take_while(|c| class(*c) == Class::Number);
        return numbers.map(char::len_utf8).sum();
    }
    //  ?[^\s\p{L}\p{N}]+[\r\n]*
    let body = text.strip_prefix(' ').unwrap_or(text);
    if body.starts_with(is_other) {
        let others = text.len() - body.len() + run(body, is_other);
        return others + run(&text[others..], |c| matches!(c, '\r' | '\n'));
    }
    // \s*[\r\n]+
    let all = run(text, |c| class(c) == Class::Space);
    match text[..all].rfind(['\r', '\n']) {
        Some(last) => last + 1,
        None => spaces(text, false),
    }
}

/// `\s+(?!\S)|\s+`: spaces, but for the last one before a word, which goes with the word. Numbers
/// are no words if `apart`.
fn spaces(text: &str, apart: bool) -> usize {
    let all = run(text, |c| Class::of(c) == Class::Space);
    let last = text[..all].chars().next_back().map_or(0, char::len_utf8);
    let word_follows = match text[all..].chars().next() {
        Some(c) => !apart || Class::of(c) != Class::Number,
        None => false,
    };
    if word_follows && all > last { all - last } else { all }
}

/// The bytes of the characters at the start of `text` that are `wanted`.
fn run(text: &str, wanted: impl Fn(char) -> bool) -> usize {
    text.find(|c| !wanted(c)).unwrap_or(text.len())
}

/// The bytes of an English contraction at the start of `text`, letters compared by `same`.
fn contraction(text: &str, same: fn(&char, &char) -> bool) -> Option<usize> {
    let rest = text.strip_prefix('\'')?;
    ["s", "t", "m", "d", "re", "ve", "ll"]
        .into_iter()
        .find(|ending| {
            let mut letters = rest.chars();
            ending.chars().all(|c| letters.next().is_some_and(|letter| same(&letter, &c)))
        })
        .map(|ending| 1 + ending.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pattern: Pattern, text: &str) -> Vec<&str> {
        Pre { pattern, ignore_merges: false, add_bos: false }.words(text).collect()
    }

    #[test]
    fn the_last_space_goes_with_the_word() {
        for pattern in [Pattern::Gpt2, Pattern::Llama3] {
            assert_eq!(words(pattern, "  a  b  "), [" ", " a", " ", " b", "  "]);
            assert_eq!(
                words(pattern, "a\u{3000}\u{3000}é"),
                match pattern {
                    Pattern::Gpt2 => vec!["a", "\u{3000}", "\u{3000}", "é"],
                    _ => vec!["a", "\u{3000}", "\u{3000}é"],
                }
            );
        }
    }

    #[test]
    fn patterns_differ_in_numbers() {
        assert_eq!(words(Pattern::Gpt2, "a 12345"), ["a", " 12345"]);
        assert_eq!(words(Pattern::Digits, "a 12   3b"), ["a", " ", "1", "2", "   ", "3", "b"]);
        assert_eq!(words(Pattern::Llama3, "a 12345"), ["a", " ", "123", "45"]);
        assert_eq!(words(Pattern::Qwen2, "a 123"), ["a", " ", "1", "2", "3"]);
    }

    #[test]
    fn patterns_differ_in_contractions_lines_and_marks() {
        assert_eq!(words(Pattern::Gpt2, "I'll I'LL"), ["I", "'ll", " I", "'", "LL"]);
        assert_eq!(words(Pattern::Llama3, "I'll I'LL"), ["I", "'ll", " I", "'LL"]);
        assert_eq!(words(Pattern::Gpt2, "a!\n\n b"), ["a", "!", "\n\n", " b"]);
        assert_eq!(words(Pattern::Llama3, "a!\n\n b"), ["a", "!\n\n", " b"]);
        assert_eq!(words(Pattern::Llama3, " \n \n  b"), [" \n \n", " ", " b"]);
        assert_eq!(words(Pattern::Qwen2, "e\u{301}a"), ["e", "\u{301}a"]);
        assert_eq!(words(Pattern::Qwen35, "e\u{301}a"), ["e\u{301}a"]);
    }

    #[test]
    fn a_name_stands_for_one_pattern() {
        let all = NAMES.iter().flat_map(|(_, names)| *names);
        let mut seen = std::collections::HashSet::new();
        assert!(all.clone().all(|name| seen.insert(name)));
        assert!(LLAMA3_PATTERN_ALONE.iter().all(|name| seen.contains(name)));
    }
}
