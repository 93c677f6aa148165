//! Attention sinks: only the first few tokens and the last tokens are visible. They get consecutive
//! positions, so a sequence can grow without limit.
//!
//! Xiao et al., "Efficient Streaming Language Models with Attention Sinks" (arXiv:2309.17453), section
//! 3.2. They can be combined with any method that changes frequencies.

use std::fmt;

use super::{
    Error, FarKeys, Method, Scaling, Sourced, Visibility, rule_inputs::RuleInputs, scaling::SCALING,
};
use crate::settings::{Parameter, Setting};

/// The number of tokens at the start that are kept.
pub static ATTENTION_SINKS: Parameter = Parameter::whole(
    "attention_sinks",
    "N",
    "from 1 to the context less 1",
    "Attention sinks: keep the first N tokens and the last in a rolling context",
)
.details(
    "When the context is full, the oldest tokens after the first N are evicted, and positions count \
     only the remaining tokens, so that a text has no end (StreamingLLM). The first N and the last \
     tokens together fill the context. From 1 to the context less 1; 4 is usual.",
)
.rare();

/// The settings of attention sinks.
#[derive(Clone, Debug, PartialEq)]
pub struct Sinks {
    /// The number of tokens at the start that are kept.
    pub sinks: Sourced<usize>,
    /// The total number of visible tokens: the context. At least 2.
    pub context: Sourced<usize>,
}

/// Resolves attention sinks, if they are set.
pub(super) fn resolve(inputs: &RuleInputs, scaling: &Scaling) -> Result<Option<Sinks>, Error> {
    let Some(sinks) = inputs.flags.whole(&ATTENTION_SINKS) else { return Ok(None) };
    let both = |other, setting| Err(Error::Both { one: sinks.origin.to_string(), other, setting });
    if !scaling.acts_on_frequencies() {
        let other = format!("{} {scaling}", SCALING.setting);
        return both(other, "the distances in attention");
    }
    if inputs.flags.context_shift {
        return both(Setting::CONTEXT_SHIFT.to_string(), "the tokens that a full context drops");
    }
    let context = inputs.context.clone();
    if context.value < 2 {
        return Err(Error::NoRoomForSinks { sinks: sinks.origin, context });
    }
    let sinks = sinks.between(1, context.value.saturating_sub(1))?;
    Ok(Some(Sinks { sinks, context }))
}

impl Method for Sinks {
    fn visibility(&self) -> Visibility {
        let (sinks, context) = (self.sinks.value, self.context.value);
        Visibility { near: context - sinks, first: sinks, far: FarKeys::Capped(context - 1) }
    }

    fn distance_formula(&self) -> String {
        let (sinks, context) = (self.sinks.value, self.context.value);
        format!(
            "d for the last {} tokens; at most {} - j for the first {sinks}; no others are visible",
            context - sinks,
            context - 1,
        )
    }

    fn no_effect_reason(&self, _context: usize) -> Option<String> {
        None
    }
}

impl fmt::Display for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", attention sinks {} in a rolling context", self.sinks)
    }
}
