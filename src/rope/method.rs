//! Methods that act on attention and leave the frequencies unchanged. They change the distances
//! between queries and keys, so that none exceeds the distances in training. Each has its own file.

use std::{fmt, sync::Arc};

use super::{
    Error, Origin, Scaling, Sourced, Visibility, attention_sinks, rule_inputs::RuleInputs,
    scaling::Effect,
};

/// A method that changes attention. It formats as its parameters in the RoPE line, each after a
/// comma and with its origin.
pub trait Method: fmt::Debug + fmt::Display + Send + Sync {
    /// Returns the visible keys and their positions, for the forward pass.
    fn visibility(&self) -> Visibility;

    /// Returns the formula for the distance that replaces a distance d = i - j.
    fn distance_formula(&self) -> String;

    /// Returns whether the method scales queries by the logarithm of their position by default.
    fn scales_queries(&self) -> bool {
        false
    }

    /// Returns the length L beyond which the scores of the nth token are multiplied by (0.1 ln(n / L) + 1)²,
    /// YaRN's attention scale for queries and keys; `None` if they are not.
    fn scores_grow_from(&self) -> Option<usize> {
        None
    }

    /// Returns why the method changes nothing in a context of `context` tokens; `None` if it has an
    /// effect.
    fn no_effect_reason(&self, context: usize) -> Option<String> {
        self.visibility().no_effect_reason(context)
    }

    /// Returns why llama.cpp lacks the method.
    fn in_llama_cpp(&self) -> &'static str {
        "it rotates keys only once, when they are stored"
    }
}

/// The largest divisor of distances, larger than any useful ratio of lengths.
pub(super) const DIVISOR_MAX: usize = 1 << 20;

/// Resolves the method that `scaling` or the setting for attention sinks names, if any.
pub(super) fn resolve(
    inputs: &RuleInputs,
    scaling: &Scaling,
) -> Result<Option<Arc<dyn Method>>, Error> {
    if let Some(sinks) = attention_sinks::resolve(inputs, scaling)? {
        return Ok(Some(Arc::new(sinks)));
    }
    match scaling.effect {
        Effect::Distances(resolve) => resolve(inputs).map(Some),
        Effect::Frequencies(_) => Ok(None),
    }
}

/// Returns the divisor of distances beyond `window` that makes all distances trained ones.
pub(super) fn needed_divisor(inputs: &RuleInputs, window: usize) -> Sourced<usize> {
    let (trained, context) = (inputs.trained_context().value, inputs.context.value.max(1));
    let (room, beyond) = (trained.saturating_sub(window), context.saturating_sub(window));
    Sourced {
        value: beyond.div_ceil(room.max(1)).clamp(1, DIVISOR_MAX),
        origin: match window < trained {
            true => Origin::Computed("reaches the context"),
            false => Origin::Computed("no value reaches the context with this window"),
        },
    }
}
