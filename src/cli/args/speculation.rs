//! Options of speculative decoding, named as in llama.cpp.

use std::path::PathBuf;

use clap::ValueEnum;

use super::numbers;
use crate::cli::error::Error;
use rope_cpu::{
    generate::speculation::{Count, DRAFTS_MAX},
    kv_cache::CacheType,
    runtime::{Drafts, Sources},
};

/// The options of speculative decoding.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Speculative decoding")]
pub struct SpeculationArgs {
    /// Sources of drafts [default: auto]
    ///
    /// auto, none, ngram-simple, draft-mtp, draft-simple or draft-sparse. Several tokens are generated in one pass
    /// where drafts of them are right; the answer is the same. auto takes draft-mtp if the model has
    /// such a layer that fits in memory, or what -md gives. It takes no layer with --cache-disk, since
    /// documents lack its keys. ngram-simple takes drafts from the text itself: what followed the
    /// longest earlier occurrence of its end. It helps where an answer repeats parts of the prompt, as
    /// in editing.
    /// draft-mtp takes drafts from a layer of the model that predicts further tokens: files of Qwen
    /// 3.5 and 3.6 may have one. Gemma 4 has it in a file of its own, an assistant, to give with -md.
    /// draft-simple takes drafts from the model of -md. draft-sparse takes them from the model itself,
    /// which then attends to a part of the keys. It helps where the KV cache takes more memory than the
    /// weights, and starts at 4,096 tokens. Separate several by commas: the text comes first, then the
    /// layer or the assistant, then the model of -md, then the model itself.
    ///
    /// The other ngram types of llama.cpp are names for ngram-simple.
    #[arg(long, alias = "LLAMA_ARG_SPEC_TYPE", value_name = "LIST", value_delimiter = ',')]
    #[arg(hide_possible_values = true)]
    spec_type: Vec<Type>,

    /// Draft model (GGUF)
    ///
    /// A smaller model with the same vocabulary, or the assistant of a Gemma 4 model.
    #[arg(long, aliases = ["-md", "model-draft", "LLAMA_ARG_SPEC_DRAFT_MODEL"], value_name = "FILE")]
    spec_draft_model: Option<PathBuf>,

    /// Most drafts in a pass [default: 15]
    ///
    /// The number of drafts adapts to how many of them are right and how long passes take. Drafting
    /// pauses while it does not pay.
    #[arg(long, aliases = ["draft", "draft-n", "draft-max", "LLAMA_ARG_SPEC_DRAFT_N_MAX"])]
    #[arg(value_name = "N", value_parser = numbers::between::<usize>(1, DRAFTS_MAX as i64))]
    spec_draft_n_max: Option<usize>,

    /// K cache of the draft model
    #[arg(long, aliases = ["-ctkd", "cache-type-k-draft", "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K"])]
    #[arg(
        value_name = "TYPE",
        default_value = "f16",
        hide_default_value = true,
        hide_short_help = true
    )]
    spec_draft_type_k: CacheType,

    /// V cache of the draft model
    #[arg(long, aliases = ["-ctvd", "cache-type-v-draft", "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V"])]
    #[arg(
        value_name = "TYPE",
        default_value = "f16",
        hide_default_value = true,
        hide_short_help = true
    )]
    spec_draft_type_v: CacheType,
}

/// A source of drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Type {
    Auto,
    None,
    #[value(aliases = ["ngram-cache", "ngram-map-k", "ngram-map-k4v", "ngram-mod"])]
    NgramSimple,
    DraftMtp,
    DraftSimple,
    DraftSparse,
}

impl SpeculationArgs {
    /// Returns the settings of these options. With `documents`, the model's predictor drafts only if it
    /// is named: they lack its keys.
    ///
    /// # Errors
    /// If options contradict each other.
    pub fn settings(&self, documents: bool) -> Result<Drafts, Error> {
        let (types, model) = (&self.spec_type, &self.spec_draft_model);
        let has = |one| types.contains(&one);
        if has(Type::None) && types.len() > 1 {
            return Err(Error::usage("--spec-type none excludes the other types"));
        }
        let either = types.is_empty() || has(Type::Auto);
        let sources = Sources {
            text: has(Type::NgramSimple),
            predictor: has(Type::DraftMtp),
            predictor_if_fitting: either && model.is_none() && !documents,
            model: has(Type::DraftSimple),
            either,
            own: has(Type::DraftSparse),
        };
        let drafts = Drafts {
            sources,
            model: model.clone(),
            count: Count::UpTo(self.spec_draft_n_max.unwrap_or(DRAFTS_MAX)),
            keys: self.spec_draft_type_k,
            values: self.spec_draft_type_v,
        };
        drafts.check()?;
        Ok(drafts)
    }
}
