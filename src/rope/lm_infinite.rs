//! LM-Infinite: only the last tokens and the first tokens are visible. The first tokens are at the
//! largest distance of the last ones.
//!
//! Han et al., "LM-Infinite" (arXiv:2308.16137), section 4.

use std::{fmt, sync::Arc};

use super::{FarKeys, Method, Scaling, Sourced, Visibility, yarn};
use crate::settings::Parameter;

/// LM-Infinite.
pub(super) static LM_INFINITE: Scaling = Scaling::distances(
    "lm-infinite",
    "attention covers the last tokens and a few of the first",
    |inputs| {
        let context = inputs.context.value.max(1);
        let number = |parameter, default| match inputs.flags.whole(parameter) {
            Some(value) => value.between(1, context),
            None => Ok(default),
        };
        Ok(Arc::new(LmInfinite {
            global: number(&GLOBAL, Sourced::default(10))?,
            local: number(&LOCAL, inputs.trained_context())?,
        }))
    },
)
.parameters(&[&GLOBAL, &LOCAL])
.shares(&[&yarn::ORIG_CTX]);

/// The number of first tokens that are always visible.
pub static GLOBAL: Parameter = Parameter::whole(
    "lm_infinite_global",
    "N",
    "from 1 to the context",
    "lm-infinite: number of first tokens that attention covers [default: 10]",
)
.rare();

/// The number of last tokens that are visible.
pub static LOCAL: Parameter = Parameter::whole(
    "lm_infinite_local",
    "N",
    "from 1 to the context",
    "lm-infinite: number of last tokens that attention covers [default: the trained context]",
)
.rare();

/// The settings of LM-Infinite.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LmInfinite {
    /// The number of first tokens that are always visible.
    pub global: Sourced<usize>,
    /// The number of last tokens that are visible.
    pub local: Sourced<usize>,
}

impl Method for LmInfinite {
    fn visibility(&self) -> Visibility {
        let near = self.local.value;
        Visibility { near, first: self.global.value, far: FarKeys::AtDistance(near) }
    }

    fn distance_formula(&self) -> String {
        let (first, w) = (self.global.value, self.local.value);
        format!("d below {w}; {w} for the first {first} tokens beyond it; no others are visible")
    }
}

impl fmt::Display for LmInfinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", first tokens {}, last tokens {}", self.global, self.local)
    }
}
