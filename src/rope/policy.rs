//! The policy for the effective length of rules that depend on the length of the sequence.

use super::{Divisors, Error, Rule, Sourced, rule_inputs::RuleInputs};
use crate::settings::Parameter;

/// The setting that chooses a [`Policy`].
pub static POLICY: Parameter = Parameter::word(
    "rope_policy",
    "POLICY",
    &["run", "position"],
    "Effective length: position or run [default: position; longrope: run]",
)
.details(
    "For methods that follow the length of the sequence (dynamic, dynamic-linear, dynamic-yarn, clex, longrope). \
     position: each token has the frequencies for the sequence up to it, and nothing is computed \
     twice; keys are rotated when attention uses them, which takes a little time. run: all tokens \
     have the frequencies for the whole sequence, like Hugging Face's prefill; if a longer sequence \
     has other frequencies, all tokens are computed again.",
)
.rare();

/// The length that the frequencies of a token are computed for.
///
/// The hidden states of earlier tokens depend on the frequencies at the time they were computed. No
/// later rotation can change that, so there are two policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The length of the whole sequence, like Hugging Face's prefill. If the frequencies change
    /// while the sequence grows, all tokens are computed again.
    Run,
    /// The length of the sequence up to the token. The query and all keys that it attends to have
    /// these frequencies, and earlier results stay valid. The result does not depend on the size of
    /// micro-batches. This policy needs raw keys in the KV cache. It is the default of rules.
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
        divisors: Option<&dyn Divisors>,
    ) -> Result<Option<Sourced<Policy>>, Error> {
        let of_rule = || rule.effective_length(1).map(|_| Policy::Position);
        let default = divisors.and_then(|divisors| divisors.policy()).or_else(of_rule);
        match inputs.flags.word(&POLICY, &Policy::ALL, Policy::name)? {
            Some(_) if default.is_none() => {
                Err(Error::PolicyNoEffect { scaling: inputs.chosen.with_factor(factor.value) })
            }
            Some(policy) => Ok(Some(policy)),
            None => Ok(default.map(Sourced::default)),
        }
    }
}
