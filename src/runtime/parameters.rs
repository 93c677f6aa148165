//! The settings of a run that every front end takes as they are: cache types, sparse attention and
//! drafts. A setting is one row here, and what it does is in [`Settings::with`].

use super::{Drafts, Error, Settings, Sources, Sparse};
use crate::{
    generate::speculation::{Count, DRAFTS_MAX, SpeculativePrefill},
    kv_cache::CacheType,
    model::SparseAttention,
    settings::{Parameter, Values},
};

/// The names of all cache types.
static TYPES: [&str; 6] = ["f32", "f16", "bf16", "q8_0", "q5_0", "q4_0"];

/// The type that keys are stored in.
pub static CACHE_TYPE_K: Parameter =
    Parameter::word("cache_type_k", "TYPE", &TYPES, "K: f16 (default) f32 bf16 q8_0 q5_0 q4_0")
        .details("The data type of the keys in the KV cache.")
        .llama_cpp(&["-ctk", "LLAMA_ARG_CACHE_TYPE_K"]);

/// The type that values are stored in.
pub static CACHE_TYPE_V: Parameter =
    Parameter::word("cache_type_v", "TYPE", &TYPES, "V: f16 (default) f32 bf16 q8_0 q5_0 q4_0")
        .details("The data type of the values in the KV cache.")
        .llama_cpp(&["-ctv", "LLAMA_ARG_CACHE_TYPE_V"]);

/// The share of attention that is computed for generated tokens.
pub static SPARSE_ATTENTION: Parameter = Parameter::between(
    "sparse_attention",
    "P",
    0.5,
    1.0,
    "Share of attention to compute, such as 0.98",
)
.details(
    "From 8,192 tokens on, generated tokens attend to the blocks of 32 keys that have this share of the \
     estimated attention: at least 1,024 keys, and at most a quarter of all. A smaller share is faster \
     and less exact. By default all keys are used.",
)
.rare();

/// The share of attention that is computed for prompts.
pub static SPARSE_PROMPT: Parameter = Parameter::between(
    "sparse_prompt",
    "P",
    0.5,
    1.0,
    "Share of attention to compute in prompts, such as 0.95",
)
.details(
    "From 16,384 tokens on, prompt tokens attend to the blocks of 64 keys that have this share of the \
     estimated attention: at least 1,024 keys, and at most a quarter of all. What is lost stays in the \
     KV cache, and affects all later tokens. By default all keys are used.",
)
.rare();

/// The sources of drafts.
pub static SPEC_TYPE: Parameter =
    Parameter::words("spec_type", "LIST", &Sources::NAMES, "Sources of drafts [default: auto]")
        .details(
            "auto, none, ngram-simple, draft-mtp, draft-simple or draft-sparse. Several tokens are \
             generated in one pass where drafts of them are right; the answer is the same. auto takes \
             draft-mtp if the model has such a layer that fits in memory, or the model of \
             `spec_draft_model`. It takes no layer with `cache_disk`, since documents lack its keys. \
             ngram-simple takes drafts from the text itself: what followed the longest earlier \
             occurrence of its end. It helps where an answer repeats parts of the prompt, as in \
             editing. \
             draft-mtp takes drafts from a layer of the model that predicts further tokens: files of \
             Qwen 3.5 and 3.6 may have one. Gemma 4 has it in another file, an assistant, to give as \
             `spec_draft_model`. draft-simple takes drafts from the model of `spec_draft_model`. \
             draft-sparse takes them from the model itself, which then attends to a part of the keys. \
             It helps where the KV cache takes more memory than the weights, and starts at 4,096 \
             tokens. Separate several by commas: the text comes first, then the layer or the \
             assistant, then the draft model, then the model itself.\n\n\
             The other ngram types of llama.cpp are names for ngram-simple.",
        )
        .llama_cpp(&["LLAMA_ARG_SPEC_TYPE"]);

/// The path of the draft model.
pub static SPEC_DRAFT_MODEL: Parameter =
    Parameter::path("spec_draft_model", "FILE", "Draft model (GGUF)")
        .details("A smaller model with the same vocabulary, or the assistant of a Gemma 4 model.")
        .aliases(&["model_draft"])
        .llama_cpp(&["-md", "LLAMA_ARG_SPEC_DRAFT_MODEL"]);

/// The maximum number of drafts in a pass.
pub static SPEC_DRAFT_N_MAX: Parameter = Parameter::integer(
    "spec_draft_n_max",
    "N",
    1,
    DRAFTS_MAX as i64,
    "Most drafts in a pass [default: 15]",
)
.details(
    "The number of drafts adapts to how many of them are right and how long passes take. Drafting \
     pauses while it does not pay.",
)
.aliases(&["draft", "draft_n", "draft_max"])
.llama_cpp(&["LLAMA_ARG_SPEC_DRAFT_N_MAX"]);

/// The share of long prompts that is computed.
pub static PREFILL_SHARE: Parameter = Parameter::between(
    "prefill_share",
    "P",
    0.0,
    1.0,
    "Share of long prompts to compute, such as 0.2; lossy",
)
.details(
    "Speculative prefill: of prompts from 2,048 tokens on, the model computes only the parts of 32 tokens \
     that the model of `spec_draft_model` attends to, up to this share, and among them always the \
     first 128 and the last 512 tokens. The first token comes sooner if the draft model is much smaller. What is left \
     out is lost for the answer. Such a prompt is reused only up to the first part that was left out.",
)
.rare();

/// The type that keys of the draft model are stored in.
pub static SPEC_DRAFT_TYPE_K: Parameter =
    Parameter::word("spec_draft_type_k", "TYPE", &TYPES, "K cache of the draft model")
        .aliases(&["cache_type_k_draft"])
        .llama_cpp(&["-ctkd", "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K"])
        .rare();

/// The type that values of the draft model are stored in.
pub static SPEC_DRAFT_TYPE_V: Parameter =
    Parameter::word("spec_draft_type_v", "TYPE", &TYPES, "V cache of the draft model")
        .aliases(&["cache_type_v_draft"])
        .llama_cpp(&["-ctvd", "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V"])
        .rare();

/// The settings of the KV cache.
pub static CACHE: [&Parameter; 2] = [&CACHE_TYPE_K, &CACHE_TYPE_V];

/// The settings of sparse attention.
pub static SPARSE: [&Parameter; 2] = [&SPARSE_ATTENTION, &SPARSE_PROMPT];

/// The settings of drafts.
pub static DRAFTS: [&Parameter; 6] = [
    &SPEC_TYPE,
    &SPEC_DRAFT_MODEL,
    &SPEC_DRAFT_N_MAX,
    &PREFILL_SHARE,
    &SPEC_DRAFT_TYPE_K,
    &SPEC_DRAFT_TYPE_V,
];

/// Returns all settings of this module.
pub fn all() -> impl Iterator<Item = &'static Parameter> {
    CACHE.into_iter().chain(SPARSE).chain(DRAFTS)
}

/// Returns the cache type that a setting gives, or f16.
pub fn cache_type(values: &Values, parameter: &Parameter) -> CacheType {
    let named = values.word(parameter).and_then(|name| name.parse().ok());
    named.unwrap_or(CacheType::F16)
}

impl Sparse {
    /// Returns the sparse attention of the given values.
    pub fn of(values: &Values) -> Self {
        let share = |parameter| values.number(parameter).map(|share| share as f32);
        Sparse {
            answers: share(&SPARSE_ATTENTION).map(SparseAttention::new),
            prompts: share(&SPARSE_PROMPT).map(SparseAttention::for_prompts),
        }
    }
}

impl Drafts {
    /// Returns the drafts of the given values. With `documents`, the model's predictor drafts only if
    /// it is named: documents in a cache on disk lack its keys.
    ///
    /// # Errors
    /// As for [`Drafts::check`], and if `none` is not the only source.
    pub fn of(values: &Values, documents: bool) -> Result<Self, Error> {
        let model = values.path(&SPEC_DRAFT_MODEL);
        let mut sources = Sources::named(values.words(&SPEC_TYPE).unwrap_or(&[]))?;
        sources.predictor_if_fitting = sources.either && model.is_none() && !documents;
        let most = values.integer(&SPEC_DRAFT_N_MAX).and_then(|most| usize::try_from(most).ok());
        let drafts = Drafts {
            sources,
            model: model.map(Into::into),
            count: Count::UpTo(most.unwrap_or(DRAFTS_MAX)),
            prefill: values.number(&PREFILL_SHARE).map(SpeculativePrefill::new),
            keys: cache_type(values, &SPEC_DRAFT_TYPE_K),
            values: cache_type(values, &SPEC_DRAFT_TYPE_V),
        };
        drafts.check()?;
        Ok(drafts)
    }
}

impl Settings {
    /// Returns the settings with those of this module as given, else by default. `documents` is
    /// explained at [`Drafts::of`].
    ///
    /// ```
    /// use rope_cpu::{
    ///     kv_cache::CacheType,
    ///     runtime::{Settings, parameters::CACHE_TYPE_K},
    ///     settings::Values,
    /// };
    ///
    /// let values = Values::default().with(&CACHE_TYPE_K, "q8_0");
    /// let settings = Settings::default().with(&values, false)?;
    /// assert_eq!((settings.keys, settings.values), (CacheType::Q8_0, CacheType::F16));
    /// # Ok::<(), rope_cpu::runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Drafts::of`].
    pub fn with(self, values: &Values, documents: bool) -> Result<Self, Error> {
        Ok(Settings {
            keys: cache_type(values, &CACHE_TYPE_K),
            values: cache_type(values, &CACHE_TYPE_V),
            sparse: Sparse::of(values),
            drafts: Drafts::of(values, documents)?,
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cache_type_can_be_given() {
        assert_eq!(CacheType::ALL.map(CacheType::name), TYPES);
    }
}
