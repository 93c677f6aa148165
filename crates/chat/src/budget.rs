//! A limit on the length of reasoning.

use super::parser::Parser;

/// A limit on the reasoning of an answer.
///
/// Call [`count`](Self::count) after each token, and [`forced`](Self::forced) before each one. If
/// `forced` returns a text, the answer must continue with the tokens of this text, including
/// control tokens, whatever the logits are. Push the text to the parser as if the model had written
/// it. Do not force it into the middle of a character.
///
/// ```
/// use rope_cpu_chat::{Budget, Template, Tools};
///
/// let template = Template::new("{{ '<think></think>' }}", "", "")?;
/// let mut parser = template.format().parser("<think>", &Tools::default());
/// let mut budget = Budget::new(1, &parser);
/// parser.push("Hm");
/// budget.count(&parser);
/// assert_eq!(budget.forced(&parser), Some("\n</think>\n\n"));
/// # Ok::<(), rope_cpu_chat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Budget {
    tokens: usize,
    left: usize,
    /// Whether the last token was within reasoning.
    open: bool,
}

impl Budget {
    /// Limits each reasoning part of an answer to `tokens`.
    pub fn new(tokens: usize, parser: &Parser) -> Self {
        Self { tokens, left: tokens, open: parser.reasoning().is_some() }
    }

    /// Counts a token. Push its text to `parser` first.
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

    /// Returns the text that ends reasoning, once the limit is reached.
    pub fn forced(&self, parser: &Parser) -> Option<&'static str> {
        parser.reasoning().filter(|_| self.left == 0)
    }
}
