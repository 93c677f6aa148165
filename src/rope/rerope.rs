//! ReRoPE: distance min(d, w). Leaky ReRoPE: distance d up to w, and w + (d - w) / k beyond.
//!
//! Su, "Transformer upgrade road 12" (kexue.fm/archives/9708), and github.com/bojone/rerope.

use std::{fmt, sync::Arc};

use super::{
    Error, FarKeys, Method, Origin, Scaling, Sourced, Visibility,
    method::{DIVISOR_MAX, needed_divisor},
    rule_inputs::RuleInputs,
    yarn,
};
use crate::settings::Parameter;

/// ReRoPE.
pub(super) static REROPE: Scaling =
    Scaling::distances("rerope", "distances are limited to a window", |inputs| {
        Ok(Arc::new(ReRope { window: window(inputs)? }))
    })
    .parameters(&[&WINDOW])
    .shares(&[&yarn::ORIG_CTX]);

/// Leaky ReRoPE.
pub(super) static LEAKY_REROPE: Scaling =
    Scaling::distances("leaky-rerope", "distances beyond the window are divided", |inputs| {
        let window = window(inputs)?;
        let needed = needed_divisor(inputs, window.value);
        let divisor = inputs.flags.whole(&K).unwrap_or(needed).between(1, DIVISOR_MAX)?;
        Ok(Arc::new(LeakyReRope { window, divisor }))
    })
    .parameters(&[&K])
    .shares(&[&WINDOW, &yarn::ORIG_CTX]);

/// w: distances up to this one do not change.
pub static WINDOW: Parameter = Parameter::whole(
    "rerope_window",
    "N",
    "from 1 to the context",
    "rerope, leaky-rerope: window in tokens [default: half the trained context]",
)
.details("Distances below it are unchanged. At most the context.")
.rare();

/// k, the divisor of distances beyond w.
pub static K: Parameter = Parameter::whole(
    "rerope_k",
    "K",
    "from 1 to 1048576",
    "leaky-rerope: divisor of the distances beyond the window",
)
.details(
    "A whole number from 1 to 1048576, by default the one that keeps distances within the trained \
     context.",
)
.rare();

fn window(inputs: &RuleInputs) -> Result<Sourced<usize>, Error> {
    match inputs.flags.whole(&WINDOW) {
        Some(window) => window.between(1, inputs.context.value.max(1)),
        None => Ok(Sourced {
            value: (inputs.trained_context().value / 2).max(1),
            origin: Origin::Computed("half the trained context"),
        }),
    }
}

/// The settings of ReRoPE.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReRope {
    /// w
    pub window: Sourced<usize>,
}

impl Method for ReRope {
    fn visibility(&self) -> Visibility {
        let near = self.window.value;
        Visibility { near, first: usize::MAX, far: FarKeys::AtDistance(near) }
    }

    fn distance_formula(&self) -> String {
        format!("min(d, {})", self.window.value)
    }

    fn scales_queries(&self) -> bool {
        true
    }
}

impl fmt::Display for ReRope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", window {}", self.window)
    }
}

/// The settings of leaky ReRoPE.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LeakyReRope {
    /// w
    pub window: Sourced<usize>,
    /// k
    pub divisor: Sourced<usize>,
}

impl Method for LeakyReRope {
    fn visibility(&self) -> Visibility {
        let far = FarKeys::Divided(self.divisor.value);
        Visibility { near: self.window.value, first: usize::MAX, far }
    }

    fn distance_formula(&self) -> String {
        let (w, k) = (self.window.value, self.divisor.value);
        format!("d up to {w}, then {w} + (d - {w}) / {k}")
    }

    fn scales_queries(&self) -> bool {
        true
    }

    fn no_effect_reason(&self, context: usize) -> Option<String> {
        match self.divisor.value {
            1 => Some(format!("with k {}", self.divisor)),
            _ => self.visibility().no_effect_reason(context),
        }
    }
}

impl fmt::Display for LeakyReRope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", window {}, k {}", self.window, self.divisor)
    }
}
