//! Options of speculative decoding, named as in llama.cpp.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::numbers;
use crate::cli::error::Error;
use rope_cpu::{
    generate::speculation::{Count, DRAFTS_MAX},
    kv_cache::CacheType,
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

const NO_EFFECT: &str = "-md has no effect with this --spec-type: add draft-simple to it, or draft-mtp if \
                         the file is an assistant";

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
    /// Returns the number of drafts in a pass.
    pub fn count(&self) -> Count {
        Count::UpTo(self.spec_draft_n_max.unwrap_or(DRAFTS_MAX))
    }

    /// Returns whether the text itself is a source of drafts.
    pub fn lookup(&self) -> bool {
        self.spec_type.contains(&Type::NgramSimple)
    }

    /// Returns whether the model's own predictor, or an assistant, is named as a source of drafts.
    pub fn predictor(&self) -> bool {
        self.spec_type.contains(&Type::DraftMtp)
    }

    /// Returns whether the model's own predictor is a source of drafts if it fits.
    pub fn predictor_if_fitting(&self) -> bool {
        self.auto() && self.spec_draft_model.is_none()
    }

    /// Returns whether the model itself, with sparse attention, is a source of drafts.
    pub fn sparse(&self) -> bool {
        self.spec_type.contains(&Type::DraftSparse)
    }

    fn auto(&self) -> bool {
        self.spec_type.is_empty() || self.spec_type.contains(&Type::Auto)
    }

    /// Returns whether the draft model may be an assistant.
    pub fn may_assist(&self) -> bool {
        self.auto() || self.predictor()
    }

    /// Returns whether the draft model may be a whole model.
    pub fn may_draft(&self) -> bool {
        self.auto() || self.names_draft_model()
    }

    /// Returns whether a whole draft model is named as a source of drafts.
    pub fn names_draft_model(&self) -> bool {
        self.spec_type.contains(&Type::DraftSimple)
    }

    /// Returns the optional path of the draft model.
    ///
    /// # Errors
    /// If options contradict each other.
    pub fn draft_model(&self) -> Result<Option<&Path>, Error> {
        let (types, path) = (&self.spec_type, self.spec_draft_model.as_deref());
        let none = types.contains(&Type::None);
        let wrong = |message| Err(Error::usage(message));
        match (self.names_draft_model(), path) {
            _ if none && types.len() > 1 => wrong("--spec-type none excludes the other types"),
            (true, None) => wrong("--spec-type draft-simple needs a draft model: give it with -md"),
            (_, Some(_)) if !self.may_assist() && !self.may_draft() => wrong(NO_EFFECT),
            _ => Ok(path),
        }
    }

    /// Returns the path of the draft model, which is a whole model.
    ///
    /// # Errors
    /// If options contradict each other.
    pub fn whole_draft_model(&self) -> Result<Option<&Path>, Error> {
        match self.draft_model()? {
            Some(_) if !self.may_draft() => Err(Error::usage(NO_EFFECT)),
            path => Ok(path),
        }
    }

    /// Returns the types that keys and values of the draft model are stored in.
    pub fn cache_types(&self) -> (CacheType, CacheType) {
        (self.spec_draft_type_k, self.spec_draft_type_v)
    }
}
