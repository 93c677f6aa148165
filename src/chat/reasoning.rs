//! Reasoning before an answer: its markers, and a limit on its length.

use super::Parser;

/// The texts around reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Markers {
    pub start: &'static str,
    pub end: &'static str,
    /// The text that ends reasoning, as the model would have written it.
    pub forced: &'static str,
}

/// The markers of templates. Formats whose messages have channels bring their own.
const MARKERS: &[Markers] = &[
    Markers { start: "<think>", end: "</think>", forced: "\n</think>\n\n" },
    Markers { start: "[THINK]", end: "[/THINK]", forced: "[/THINK]" },
    Markers { start: "<seed:think>", end: "</seed:think>", forced: "\n</seed:think>\n" },
    Markers { start: "<|START_THINKING|>", end: "<|END_THINKING|>", forced: "<|END_THINKING|>" },
];

impl Markers {
    /// Finds the markers that a template mentions.
    pub fn of(template: &str) -> Option<Self> {
        MARKERS.iter().copied().find(|markers| template.contains(markers.end))
    }

    /// Returns whether a prompt ends within reasoning.
    pub fn opened_by(&self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(self.start)
    }
}

/// A limit on the reasoning of an answer.
///
/// After each token, [`count`](Self::count) counts it. Before each token, [`forced`](Self::forced) may
/// return a text with which the answer must continue: its tokens, control tokens included, are the next
/// ones whatever the logits are, and it is pushed to the parser like text that the model has chosen. It
/// must not be forced into the middle of a character.
#[derive(Clone, Debug)]
pub struct Budget {
    tokens: usize,
    left: usize,
    /// Whether the last token was within reasoning.
    open: bool,
}

impl Budget {
    /// A limit of so many tokens for each part of an answer that is reasoning.
    pub fn new(tokens: usize, parser: &Parser) -> Self {
        Self { tokens, left: tokens, open: parser.reasoning().is_some() }
    }

    /// Counts a token, whose text was pushed to `parser`.
    pub fn count(&mut self, parser: &Parser) {
        let open = parser.reasoning().is_some();
        self.left = match open {
            // The token that opens reasoning is not part of it.
            true if self.open => self.left.saturating_sub(1),
            true => self.left,
            false => self.tokens,
        };
        self.open = open;
    }

    /// Returns the text that ends reasoning, if its limit is reached.
    pub fn forced(&self, parser: &Parser) -> Option<&'static str> {
        parser.reasoning().filter(|_| self.left == 0)
    }
}
