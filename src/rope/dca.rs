//! DCA, dual chunk attention: positions start again in each chunk of s tokens, so that no distance exceeds
//! the chunk size c, which is below the trained length.
//!
//! An et al., "Training-Free Long-Context Scaling of Large Language Models" (arXiv:2402.17463), section 3.
//! With s = c - w, key j is at j mod s, and query i is at
//!
//! ```text
//! i mod s                  for keys of its own chunk
//! min(i mod s + s, c)      for keys of the chunk before: true distances up to w tokens into the own one
//! min(2s - 1, c)           for keys of older chunks
//! ```
//!
//! Both known programs compute this: the authors' (HKUNLP/ChunkLlama) and vLLM's for Qwen2.5-1M. Their
//! constants differ. The authors' has c = 3/4 of the trained length L, and w = L/16 for Qwen or L/8 for
//! Llama. vLLM's takes c, w and L from the model's `dual_chunk_attention_config`, and multiplies both
//! queries and keys by YaRN's attention scale for the present length. Here c and w are the authors' for Qwen
//! by default, and [`ATTENTION_SCALE`] multiplies the scores by its square. The paper's equation 6 has
//! c - 1 for older chunks, which neither program has.

use std::{fmt, sync::Arc};

use super::{
    CONTEXT_MAX, Error, FarKeys, Method, Origin, Scaling, Sourced, Visibility,
    rule_inputs::RuleInputs, yarn,
};
use crate::settings::Parameter;

/// DCA.
pub(super) static DCA: Scaling =
    Scaling::distances("dca", "positions start again in chunks of the text", |inputs| {
        Ok(Arc::new(DualChunks::resolve(inputs)?))
    })
    .parameters(&[&CHUNK_SIZE, &LOCAL_SIZE, &ATTENTION_SCALE])
    .shares(&[&yarn::ORIG_CTX]);

/// c: the largest distance.
pub static CHUNK_SIZE: Parameter = Parameter::whole(
    "dca_chunk_size",
    "N",
    "from 1 to 1073741824",
    "dca: largest distance [default: 3/4 of the trained context]",
)
.details("`chunk_size` of a model's `dual_chunk_attention_config`.")
.rare();

/// w: so many tokens of the chunk before are always at their true distance.
pub static LOCAL_SIZE: Parameter = Parameter::whole(
    "dca_local_size",
    "N",
    "from 0 to below the chunk size",
    "dca: tokens at their true distance [default: 1/16 of the trained context]",
)
.details("`local_size` of a model's `dual_chunk_attention_config`. Chunks are shorter by so many tokens.")
.rare();

/// Whether scores grow with the length.
pub static ATTENTION_SCALE: Parameter = Parameter::switch(
    "dca_attention_scale",
    "WHEN",
    "dca: scale attention as YaRN does, by the length: on or off [default: off]",
)
.details(
    "Beyond the trained context L, scores of the nth token are multiplied by (0.1 ln(n / L) + 1)², as Qwen's \
     long models expect.",
)
.rare();

/// The settings of DCA.
#[derive(Clone, Debug, PartialEq)]
struct DualChunks {
    /// c
    size: Sourced<usize>,
    /// w
    local: Sourced<usize>,
    /// L, if scores grow beyond it.
    grows_from: Option<Sourced<usize>>,
}

impl DualChunks {
    fn resolve(inputs: &RuleInputs) -> Result<Self, Error> {
        let (flags, trained) = (inputs.flags, inputs.trained_context());
        let size = match flags.whole(&CHUNK_SIZE) {
            Some(given) => given.between(1, CONTEXT_MAX)?,
            None => Sourced {
                value: (3 * trained.value / 4).max(1),
                origin: Origin::Computed("3/4 of the trained context"),
            },
        };
        let local = match flags.whole(&LOCAL_SIZE) {
            Some(given) => given.between(0, size.value - 1)?,
            None => Sourced {
                value: (trained.value / 16).min(size.value - 1),
                origin: Origin::Computed("1/16 of the trained context"),
            },
        };
        let grows = flags.values.switch(&ATTENTION_SCALE) == Some(true);
        Ok(DualChunks { size, local, grows_from: grows.then_some(trained) })
    }

    /// s
    fn chunk(&self) -> usize {
        self.size.value - self.local.value
    }
}

impl Method for DualChunks {
    fn visibility(&self) -> Visibility {
        let far = FarKeys::Chunked(self.size.value);
        Visibility { near: self.chunk(), first: usize::MAX, far }
    }

    fn distance_formula(&self) -> String {
        let (s, c) = (self.chunk(), self.size.value);
        format!(
            "d in the same chunk of {s} tokens, min(i mod {s} + {s}, {c}) - j mod {s} in the chunk before, \
             and {} - j mod {s} in older chunks",
            c.min(2 * s - 1)
        )
    }

    fn scores_grow_from(&self) -> Option<usize> {
        self.grows_from.as_ref().map(|trained| trained.value)
    }

    fn no_effect_reason(&self, context: usize) -> Option<String> {
        let grows = self.grows_from.as_ref().is_some_and(|trained| context > trained.value);
        self.visibility().no_effect_reason(context).filter(|_| !grows)
    }

    fn in_llama_cpp(&self) -> &'static str {
        "its queries have one position for all keys"
    }
}

impl fmt::Display for DualChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", chunk size {}, local size {}", self.size, self.local)?;
        match &self.grows_from {
            Some(trained) => write!(f, ", attention scaled by length from {trained}"),
            None => Ok(()),
        }
    }
}
