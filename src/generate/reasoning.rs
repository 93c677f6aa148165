//! Reasoning before an answer: limits it, and exempts it from the answer's constraint.

use std::sync::Arc;

use super::Answer;
use crate::{
    Token,
    chat::{Budget, Format, Parser, Tools},
    tokenizer::{Ends, Special, Tokenizer},
};

/// A limit on the reasoning before an answer, for [`Limits::reasoning`](super::Limits).
#[derive(Clone, Debug)]
pub struct Reasoning {
    format: Format,
    prompt: Arc<str>,
    tools: Arc<Tools>,
    tokens_max: usize,
    /// The tokens that end reasoning at the limit.
    end: Vec<Token>,
    is_free: bool,
}

/// Tracks the reasoning of an answer during generation.
pub struct Following {
    parser: Parser,
    budget: Budget,
    end: Vec<Token>,
    is_free: bool,
}

impl Reasoning {
    /// Limits the reasoning in the answer to `prompt` to `tokens_max` tokens; `None` for no limit.
    /// With `is_free`, the answer's constraint starts after the reasoning.
    ///
    /// Returns `None` if there is a limit, but the model has no tokens that end its reasoning: see
    /// [`Format::reasoning_end`].
    ///
    /// ```no_run
    /// use rope_cpu::chat::{Message, Role, Tools};
    /// use rope_cpu::{generate::{Limits, Reasoning}, model::Model};
    ///
    /// let model = Model::open("Qwen3-0.6B-Q8_0.gguf")?;
    /// let template = model.chat_template()?.ok_or("the model has no chat template")?;
    /// let prompt = template.render(&[Message::new(Role::User, "What is 3 * 4?")], &[], true)?;
    /// let (tools, format) = (Tools::default(), template.format());
    /// let tokenizer = model.tokenizer()?;
    /// let reasoning = Reasoning::new(format, &prompt, &tools, Some(256), true, tokenizer);
    /// let limits = Limits { reasoning, ..Limits::default() };
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        format: Format,
        prompt: &str,
        tools: &Tools,
        tokens_max: Option<usize>,
        is_free: bool,
        tokenizer: &Tokenizer<'_>,
    ) -> Option<Self> {
        let text = format.reasoning_end().unwrap_or_default();
        let end = tokenizer.encode(text, Special::Parse, Ends::Omit);
        let spelled = !end.is_empty() && tokenizer.decode(&end, true) == text.as_bytes();
        if tokens_max.is_some() && !spelled {
            return None;
        }
        let (prompt, tools) = (prompt.into(), Arc::new(tools.clone()));
        let tokens_max = tokens_max.unwrap_or(usize::MAX);
        Some(Reasoning { format, prompt, tools, tokens_max, end, is_free })
    }

    /// Starts to follow an answer.
    pub(super) fn follow(&self) -> Following {
        let parser = self.format.parser(&self.prompt, &self.tools);
        let budget = Budget::new(self.tokens_max, &parser);
        Following { parser, budget, end: self.end.clone(), is_free: self.is_free }
    }
}

impl Following {
    /// Prepares the answer's next token. Returns the tokens to force once reasoning reaches its
    /// limit; none before.
    pub fn prepare(&self, answer: &mut Answer) -> Vec<Token> {
        answer.set_free(self.is_free && self.parser.is_reasoning());
        let ends = self.budget.forced(&self.parser).is_some() && answer.is_whole();
        if ends { self.end.clone() } else { Vec::new() }
    }

    /// Adds a token, with the text that is certain after it.
    pub fn push(&mut self, text: &str) {
        self.parser.push(text);
        self.budget.count(&self.parser);
    }
}
