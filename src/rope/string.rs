//! STRING: distance d below S, and d - S + W from S on, so that attention to far tokens uses distances
//! that were frequent in training.
//!
//! An et al., "Why Does the Effective Context Length of LLMs Fall Short?" (arXiv:2410.18745), section 4:
//! S is a third of the trained length, and W is 128. Their code for prompts counts the key at distance S
//! twice, in both parts of the attention; their code for generated tokens once, as here.

use std::{fmt, sync::Arc};

use super::{FarKeys, Method, Origin, Scaling, Sourced, Visibility, rule_inputs::RuleInputs, yarn};
use crate::settings::Parameter;

/// STRING.
pub(super) static STRING: Scaling = Scaling::distances(
    "string",
    "distances from a third of the trained context on start again at a small one",
    |inputs| Ok(Arc::new(Shifted::resolve(inputs)?)),
)
.parameters(&[&SHIFT, &WINDOW])
.shares(&[&yarn::ORIG_CTX]);

/// S: distances from this one on change.
pub static SHIFT: Parameter = Parameter::whole(
    "string_shift",
    "N",
    "from 1 to the context",
    "string: distance that starts again [default: a third of the trained context]",
)
.details("Distances below it are unchanged.")
.rare();

/// W: distance S becomes this one.
pub static WINDOW: Parameter = Parameter::whole(
    "string_window",
    "N",
    "from 0 to below the distance that starts again",
    "string: distance at which it starts again [default: 128]",
)
.rare();

/// W of the paper.
const WINDOW_DEFAULT: usize = 128;

/// The settings of STRING.
#[derive(Clone, Debug, PartialEq)]
struct Shifted {
    /// S
    from: Sourced<usize>,
    /// W
    to: Sourced<usize>,
}

impl Shifted {
    fn resolve(inputs: &RuleInputs) -> Result<Self, super::Error> {
        let flags = inputs.flags;
        let from = match flags.whole(&SHIFT) {
            Some(given) => given.between(1, inputs.context.value.max(1))?,
            None => Sourced {
                value: (inputs.trained_context().value / 3).max(1),
                origin: Origin::Computed("a third of the trained context"),
            },
        };
        let to = match flags.whole(&WINDOW) {
            Some(given) => given.between(0, from.value - 1)?,
            None => Sourced::default(WINDOW_DEFAULT.min(from.value - 1)),
        };
        Ok(Shifted { from, to })
    }
}

impl Method for Shifted {
    fn visibility(&self) -> Visibility {
        let far = FarKeys::Shifted(self.from.value - self.to.value);
        Visibility { near: self.from.value, first: usize::MAX, far }
    }

    fn distance_formula(&self) -> String {
        let by = self.from.value - self.to.value;
        format!("d below {}, then d - {by}", self.from.value)
    }
}

impl fmt::Display for Shifted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", distance {} becomes {}", self.from, self.to)
    }
}
