//! The markers of reasoning before an answer.

/// The texts around reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Markers {
    pub start: &'static str,
    pub end: &'static str,
    /// The text that ends reasoning at its limit, as the model would write it.
    pub forced: &'static str,
}

/// The markers in templates. Formats with channels have different ones.
const MARKERS: &[Markers] = &[
    Markers { start: "<think>", end: "</think>", forced: "\n</think>\n\n" },
    Markers { start: "[THINK]", end: "[/THINK]", forced: "[/THINK]" },
    Markers { start: "<seed:think>", end: "</seed:think>", forced: "\n</seed:think>\n" },
    Markers { start: "<mm:think>", end: "</mm:think>", forced: "\n</mm:think>\n" },
    Markers {
        start: "Here are my reasoning steps:",
        end: "[BEGIN FINAL RESPONSE]",
        forced: "\n[BEGIN FINAL RESPONSE]\n",
    },
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
