//! The policy for the effective length, if frequencies depend on the length of the sequence.

use super::{Divisors, Error, Rule, Sourced, rule_inputs::RuleInputs};
use crate::settings::Parameter;

/// The length that the frequencies of a token depend on.
pub static POLICY: Parameter = Parameter::word(
    "rope_policy",
    "POLICY",
    &["run", "position"],
    "Effective length: position or run [default: position; longrope: run]",
)
.details(
    "For methods whose frequencies follow the length of the sequence (dynamic, dynamic-yarn, clex, \
     longrope). position: each token has the frequencies for the sequence up to it, and nothing is \
     computed twice; keys are then rotated when attention reads them, which takes a little time. \
     run: all tokens have the frequencies for the whole sequence, as when Hugging Face reads a \
     prompt; if a longer sequence has other frequencies, all tokens are computed again.",
)
.rare();

/// The length that the frequencies of a token are computed for.
///
/// The hidden states of earlier tokens depend on the frequencies that were in effect when they were
/// computed, and no later rotation can change them. Hence there are two policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The length of the whole sequence, as when Hugging Face reads a prompt. When the sequence grows
    /// and its frequencies change, all tokens are computed again.
    Run,
    /// The length of the sequence up to the token. Its query, and the keys that it attends to, have
    /// these frequencies, and earlier results remain valid. The result does not depend on the size of
    /// micro-batches. Needs raw keys in the KV cache. This is the default, except for LongRoPE.
    Position,
}

impl Policy {
    /// Both policies.
    pub const ALL: [Policy; 2] = [Policy::Run, Policy::Position];

    /// Returns the name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Run => "run",
            Policy::Position => "position",
        }
    }

    pub(super) fn resolve(
        inputs: &RuleInputs,
        factor: &Sourced<f64>,
        rule: &dyn Rule,
        divisors: &Divisors,
    ) -> Result<Option<Sourced<Policy>>, Error> {
        // LongRoPE's two sets of divisors were found for, and trained with, whole sequences.
        let default = match divisors {
            Divisors::LongRope(_) => Some(Policy::Run),
            _ => rule.effective_length(1).map(|_| Policy::Position),
        };
        match inputs.flags.word(&POLICY, &Policy::ALL, Policy::name)? {
            Some(_) if default.is_none() => {
                Err(Error::PolicyNoEffect { scaling: inputs.chosen.with_factor(factor.value) })
            }
            Some(policy) => Ok(Some(policy)),
            None => Ok(default.map(Sourced::default)),
        }
    }
}
