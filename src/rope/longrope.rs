//! LongRoPE: two sets of divisors, one for sequences within the original context and one for
//! longer ones, with one attention scale for both.
//!
//! Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens"
//! (arXiv:2402.13753): the divisors are the rescale factors λ_i found by its search. The attention
//! scale is from Phi 3's released code.
//!
//! Deliberate differences from llama.cpp: the length of the sequence selects the set, not the
//! context. And if the file has no attention scale, it is computed.

use std::{fmt, sync::Arc};

use super::{
    Divisors, Error, Factors, Origin, Plan, Policy, Scaling, Sourced,
    divisors::{Stored, check},
    keys::Keys,
    linear::Linear,
    scaling::Factor,
};

/// The name of the tensor of divisors for long sequences.
pub const LONG: &str = "rope_factors_long.weight";
/// The name of the tensor of divisors for short sequences.
pub const SHORT: &str = "rope_factors_short.weight";

/// LongRoPE. Its divisors apply before the factor of the file.
pub(super) static LONGROPE: Scaling =
    Scaling::rule("longrope", "the divisors in the file", |_, _, _| Ok(Arc::new(Linear)))
        .factor(Factor::OfFile)
        .stores(Stored {
            title: TITLE,
            tensors: &[LONG, SHORT],
            read: |keys, factors, context_train| {
                Ok(Arc::new(LongRope::read(keys, factors, context_train)?))
            },
        })
        .in_llama_cpp();

/// The name in messages.
const TITLE: &str = "LongRoPE";

/// The two sets of divisors, each with one value for each pair.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LongRope {
    /// The maximum length in tokens for the short set.
    original_context: usize,
    /// Divisors up to the original context.
    short: Vec<f32>,
    /// Divisors beyond it.
    long: Vec<f32>,
}

impl LongRope {
    fn read(
        keys: &Keys,
        factors: &Factors,
        context_train: &Sourced<usize>,
    ) -> Result<LongRope, Error> {
        let set = |tensor| {
            let set = factors.get(tensor);
            let set = set.ok_or(Error::MissingFactors { scaling: &LONGROPE, tensor })?;
            check(tensor, set.clone(), keys.pairs)
        };
        Ok(LongRope {
            original_context: keys.original_context(context_train)?.value,
            short: set(SHORT)?,
            long: set(LONG)?,
        })
    }
}

impl Divisors for LongRope {
    fn at(&self, length: usize) -> &[f32] {
        if length > self.original_context { &self.long } else { &self.short }
    }

    fn effective_length(&self, tokens: usize, context: usize) -> Option<usize> {
        let short = tokens <= self.original_context;
        Some(if short { self.original_context } else { context.max(self.original_context + 1) })
    }

    /// Both sets were found for whole sequences, and models were trained with them on such.
    fn policy(&self) -> Option<Policy> {
        Some(Policy::Run)
    }

    fn attention_scale(&self, context_train: usize) -> Option<Sourced<f64>> {
        let extension = context_train as f64 / self.original_context as f64;
        Some(Sourced {
            value: magnitude(extension, self.original_context),
            origin: Origin::Computed("by LongRoPE from trained and original context"),
        })
    }

    fn reach_trained(&self) -> bool {
        true
    }

    fn check_bakeable(&self) -> Result<(), Error> {
        Err(Error::BakedDivisors { title: TITLE })
    }

    /// Warns about a factor that extends the original context, since the divisors already do.
    fn warning(&self, plan: &Plan) -> Option<String> {
        let beyond = plan.original_context.value >= plan.context_train.value;
        let computed = matches!(plan.factor.origin, Origin::Computed(_));
        (!beyond && !computed && plan.factor.value != 1.0).then(|| {
            format!("the factor {} applies in addition to LongRoPE's divisors", plan.factor)
        })
    }

    fn unlike_llama_cpp(&self, plan: &Plan) -> Vec<String> {
        let (context, original) = (plan.context.value, self.original_context);
        let selects = (context > original).then(|| {
            format!(
                "it selects the long divisors by its context of {context} tokens, also for sequences of \
                 up to {original}"
            )
        });
        let scale = "it computes no attention scale for LongRoPE: without \
                     rope.scaling.attn_factor in the file, its scale is 1";
        selects.into_iter().chain([scale.into()]).collect()
    }
}

impl fmt::Display for LongRope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let original = self.original_context;
        write!(f, ", frequencies divided ({SHORT} up to {original} tokens, {LONG} beyond)")
    }
}

/// Returns sqrt(1 + ln s / ln L) for a context L extended by s. This is the attention scale if the
/// file has none.
fn magnitude(factor: f64, original_context: usize) -> f64 {
    if factor <= 1.0 || original_context < 2 {
        1.0
    } else {
        (1.0 + factor.ln() / (original_context as f64).ln()).sqrt()
    }
}
