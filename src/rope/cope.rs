//! CoPE: the slowest frequencies fade out, down to 0 for the last pair.
//!
//! Li et al., "CoPE: Clipped RoPE as A Scalable Free Lunch for Long Context LLMs" (arXiv:2602.05258):
//! θ'_i = θ_i · (1 + cos(π j / (n-1))) / 2 for the last n pairs, where j counts them from 0. A pair that
//! does not complete a turn within the trained length has values there that it never had in training.
//! The authors' code has n = 20, for heads of 128 and Llama 3's base, of whose 64 pairs 29 are such
//! pairs. Here n is at most 20, and at most the number of such pairs, since 20 of 32 pairs would also
//! remove those that carry order within the trained length.

use std::{
    f64::consts::{PI, TAU},
    fmt,
    sync::Arc,
};

use super::{Rule, Scaling, Sourced, scaling::Factor, sourced::short, yarn};
use crate::settings::Parameter;

/// CoPE.
pub(super) static COPE: Scaling =
    Scaling::rule("cope", "the slowest frequencies fade out", |inputs, _, inv_freq| {
        let trained = inputs.unscaled_context()?;
        let slow = |theta: &&f64| TAU / **theta > trained.value as f64;
        let slow = inv_freq.iter().rev().take_while(slow).count();
        let pairs = match inputs.flags.whole(&PAIRS) {
            Some(given) => given.between(1, inv_freq.len())?,
            None => Sourced::default(slow.min(PAIRS_MAX)),
        };
        Ok(Arc::new(Cope { pairs }))
    })
    .parameters(&[&PAIRS])
    .shares(&[&yarn::ORIG_CTX])
    .factor(Factor::OfFile);

/// The authors' n.
const PAIRS_MAX: usize = 20;

/// n, the number of pairs that fade out.
pub static PAIRS: Parameter = Parameter::whole(
    "cope_pairs",
    "N",
    "from 1 to half the rotated dimensions",
    "cope: number of pairs that fade out",
)
.details(
    "The slowest ones. By default those that do not complete a turn within the trained context, up to \
     20 as in the paper.",
)
.rare();

/// The settings of CoPE.
#[derive(Clone, Debug, PartialEq)]
struct Cope {
    /// n, the number of pairs that fade out.
    pairs: Sourced<usize>,
}

impl Rule for Cope {
    /// Divides the frequencies by the factor, as linear scaling does, and fades out the last ones.
    fn scale(&self, inv_freq: &mut [f64], _base: f64, factor: f64, _length: usize) {
        let start = inv_freq.len() - self.pairs.value.min(inv_freq.len());
        let last = self.pairs.value.saturating_sub(1).max(1) as f64;
        inv_freq.iter_mut().for_each(|theta| *theta /= factor);
        for (j, theta) in inv_freq[start..].iter_mut().enumerate() {
            *theta *= (1.0 + (PI * j as f64 / last).cos()) / 2.0;
        }
    }

    fn frequency_formula(&self, factor: f64) -> String {
        let theta = if factor == 1.0 { "θ_i".into() } else { format!("θ_i / {}", short(factor)) };
        let n = self.pairs.value;
        format!(
            "{theta} · (1 + cos(π j / {})) / 2 for the last {n} pairs",
            n.saturating_sub(1).max(1)
        )
    }

    fn acts_without_factor(&self) -> bool {
        true
    }
}

impl fmt::Display for Cope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", {} pairs fade out ({})", self.pairs.value, self.pairs.origin)
    }
}
