//! The policy for the effective length, if frequencies depend on the length of the sequence.

use std::str::FromStr;

use super::{Divisors, Error, Rule, Sourced, error, rule_inputs::RuleInputs};

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
        rule: &Rule,
        divisors: &Divisors,
    ) -> Result<Option<Sourced<Policy>>, Error> {
        // LongRoPE's two sets of divisors were found for, and trained with, whole sequences.
        let default = match divisors {
            Divisors::LongRope(_) => Some(Policy::Run),
            _ => rule.effective_length(1).map(|_| Policy::Position),
        };
        match inputs.flags.policy {
            Some(_) if default.is_none() => {
                Err(Error::PolicyNoEffect { scaling: inputs.chosen.with_factor(factor.value) })
            }
            Some(policy) => {
                Ok(Some(Sourced::flag(policy, format!("--rope-policy {}", policy.name()))))
            }
            None => Ok(default.map(Sourced::default)),
        }
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        error::one_of("RoPE policy", name, &Policy::ALL, Policy::name)
    }
}
