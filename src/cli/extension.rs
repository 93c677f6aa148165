//! The options with which a prompt fits that is longer than the context.

use std::fmt;

use rope_cpu::{
    model::{Model, memory::Bytes},
    rope::Flags,
    runtime::Plan,
};

/// Room for an answer, in tokens, unless the user has limited its length.
const ANSWER: usize = 1024;

/// Proposes options for prompts that are longer than the context of a run.
#[derive(Clone)]
pub struct Extension {
    plan: Plan,
    model: Model,
    flags: Flags,
    answer: usize,
}

/// Options with which a prompt fits.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The options, such as `-c 72k --rope-scaling auto`.
    pub options: String,
    /// The memory that a run with them needs, in bytes.
    pub bytes: u64,
    /// The available memory in bytes, if `bytes` exceeds it.
    pub lacking: Option<u64>,
}

/// Returns the tokens of a prompt and its answer, whose length `answer` limits.
pub fn with_answer(tokens: usize, answer: Option<usize>) -> usize {
    tokens.saturating_add(answer.unwrap_or(ANSWER)).min(1 << 30)
}

impl Extension {
    /// Creates the proposals of a run with this plan and these RoPE options, whose answers have at most
    /// `answer` tokens.
    pub fn new(plan: &Plan, model: &Model, flags: &Flags, answer: Option<usize>) -> Extension {
        Extension {
            plan: plan.clone(),
            model: model.clone(),
            flags: flags.clone(),
            answer: answer.unwrap_or(ANSWER),
        }
    }

    /// Returns the options with which a prompt of `tokens` fits.
    pub fn for_prompt(&self, tokens: usize) -> Proposal {
        let context = with_answer(tokens, Some(self.answer)).next_multiple_of(1024);
        let reaches =
            |flags: &Flags| self.model.rope_plan(flags, context).is_ok_and(|plan| plan.reaches());
        let auto = Flags { context_shift: self.flags.context_shift, ..Flags::method("auto") };
        let mut options = format!("-c {}k", context / 1024);
        if !reaches(&self.flags) && reaches(&auto) {
            options += " --rope-scaling auto";
            if self.flags.values != Flags::default().values {
                options += " in place of your RoPE options";
            }
        }
        let fit = self.plan.with_context(context);
        if let Some((keys, values)) = fit.types {
            options += &format!(" -ctk {} -ctv {}", keys.name(), values.name());
        }
        Proposal { options, bytes: fit.bytes, lacking: fit.lacking }
    }
}

/// Formats the options and the memory.
impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, which needs {} of memory", self.options, Bytes(self.bytes))?;
        match self.lacking {
            Some(available) => write!(f, " where {} is available", Bytes(available)),
            None => Ok(()),
        }
    }
}
