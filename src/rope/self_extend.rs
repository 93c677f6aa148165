//! Self-Extend: distance d below W, and ⌊i/G⌋ - ⌊j/G⌋ + W - W/G from W on.
//!
//! Jin et al., "LLM Maybe LongLM" (arXiv:2401.01325), section 3.2 and equation 3, and their code, which
//! rounds positions before subtracting them. llama.cpp's options with these names follow another rule.

use std::{fmt, sync::Arc};

use super::{
    Error, FarKeys, Method, Origin, Scaling, Sourced, Visibility, method::needed_divisor,
    rule_inputs::RuleInputs, yarn,
};
use crate::settings::Parameter;

/// Self-Extend.
pub(super) static SELF_EXTEND: Scaling = Scaling::distances(
    "self-extend",
    "beyond the window, groups of tokens share a position",
    |inputs| Ok(Arc::new(SelfExtend::resolve(inputs)?)),
)
.parameters(&[&GROUP, &WINDOW])
.shares(&[&yarn::ORIG_CTX]);

/// G, the group size.
pub static GROUP: Parameter = Parameter::whole(
    "grp_attn_n",
    "N",
    "from 1 to the context",
    "self-extend: group size, in tokens that share a position",
)
.details(
    "Groups are used beyond the window. By default the power of two that keeps positions within the \
     trained context.",
)
.llama_cpp(&["-gan", "LLAMA_ARG_GRP_ATTN_N"])
.rare();

/// W: distances below this one do not change.
pub static WINDOW: Parameter = Parameter::whole(
    "grp_attn_w",
    "N",
    "from 1 to the context",
    "self-extend: window in tokens [default: a quarter of the trained context]",
)
.details("Distances below it are unchanged. A multiple of `grp_attn_n`, and at most the context.")
.llama_cpp(&["-gaw", "LLAMA_ARG_GRP_ATTN_W"])
.rare();

/// The settings of Self-Extend.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SelfExtend {
    /// G
    pub group: Sourced<usize>,
    /// W
    pub window: Sourced<usize>,
}

impl SelfExtend {
    fn resolve(inputs: &RuleInputs) -> Result<Self, Error> {
        let (flags, context) = (inputs.flags, inputs.context.value.max(1));
        let quarter = (inputs.trained_context().value / 4).max(1);
        let group = match flags.whole(&GROUP) {
            Some(group) => group.between(1, context)?,
            None => {
                let near = flags.values.whole(&WINDOW).unwrap_or(quarter);
                let needed = needed_divisor(inputs, near);
                Sourced { value: needed.value.next_power_of_two(), ..needed }
            }
        };
        let window = match flags.whole(&WINDOW) {
            Some(window) => window.between(1, context)?,
            None => Sourced {
                value: (quarter / group.value).max(1) * group.value,
                origin: match group.value <= quarter {
                    true => Origin::Computed("a quarter of the trained context"),
                    false => Origin::Computed("one group"),
                },
            },
        };
        match window.value.is_multiple_of(group.value) {
            true => Ok(SelfExtend { group, window }),
            false => Err(Error::WindowNotMultiple { group, window }),
        }
    }
}

impl Method for SelfExtend {
    fn visibility(&self) -> Visibility {
        let far = FarKeys::Grouped(self.group.value);
        Visibility { near: self.window.value, first: usize::MAX, far }
    }

    fn distance_formula(&self) -> String {
        let (g, w) = (self.group.value, self.window.value);
        format!("d below {w}, then ⌊i/{g}⌋ - ⌊j/{g}⌋ + {}", w - w / g)
    }

    fn no_effect_reason(&self, context: usize) -> Option<String> {
        match self.group.value {
            1 => Some(format!("with groups of {}", self.group)),
            _ => self.visibility().no_effect_reason(context),
        }
    }

    fn in_llama_cpp(&self) -> &'static str {
        "its `grp_attn_n` follows another rule, and rotates keys in the wrong direction"
    }
}

impl fmt::Display for SelfExtend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", groups of {}, window {}", self.group, self.window)
    }
}
