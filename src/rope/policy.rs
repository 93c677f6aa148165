//! Whose length decides the frequencies, where they follow the length of the sequence.

use std::str::FromStr;

use super::{Divisors, Error, Rule, Sourced, error, rule_inputs::RuleInputs};

/// Whose length it is.
///
/// The hidden states of earlier tokens depend on the frequencies that they were computed with, and
/// no rotation can change those afterwards. So there are two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// That of the whole sequence, as where Hugging Face reads a prompt: when a longer sequence has
    /// other frequencies, everything is computed again.
    Run,
    /// For each token, that of the sequence up to it: its query and the keys that it reads have
    /// those frequencies, and what was computed before stays. It makes no difference whether
    /// tokens come one by one, in parts or at once. Needs keys that are rotated as they are read.
    /// The default, but for LongRoPE.
    Position,
}

impl Policy {
    /// Both.
    pub const ALL: [Policy; 2] = [Policy::Run, Policy::Position];

    /// The name, as on the command line.
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
        // LongRoPE's two lists of divisors were searched for, and trained with, whole sequences.
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
