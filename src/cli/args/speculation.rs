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
    /// Drafts: none ngram-simple draft-simple
    ///
    /// Several tokens are generated in one pass where drafts of them are right; the answer is the
    /// same. ngram-simple takes drafts from the text itself: what followed the longest earlier
    /// occurrence of its end. It helps where an answer repeats parts of the prompt, as in editing.
    /// draft-simple takes drafts from the model of -md. Of several, separated by commas,
    /// ngram-simple has priority. By default draft-simple with -md, and none without.
    ///
    /// The other ngram types of llama.cpp are names for ngram-simple.
    #[arg(long, value_name = "LIST", value_delimiter = ',', hide_possible_values = true)]
    spec_type: Vec<Type>,

    /// Draft model (GGUF) [-md]
    ///
    /// A smaller model with the same vocabulary.
    #[arg(long, alias = "model-draft", value_name = "FILE")]
    spec_draft_model: Option<PathBuf>,

    /// Most drafts in a pass [default: 15]
    ///
    /// The number of drafts follows from how many of them are right, and from the times of passes.
    /// There are none while they do not pay.
    #[arg(long, aliases = ["draft", "draft-n", "draft-max"], value_name = "N")]
    #[arg(value_parser = numbers::between::<usize>(1, DRAFTS_MAX as i64))]
    spec_draft_n_max: Option<usize>,

    /// K cache of the draft model [-ctkd]
    #[arg(long, alias = "cache-type-k-draft", value_name = "TYPE", default_value = "f16")]
    #[arg(hide_default_value = true, hide_short_help = true)]
    spec_draft_type_k: CacheType,

    /// V cache of the draft model [-ctvd]
    #[arg(long, alias = "cache-type-v-draft", value_name = "TYPE", default_value = "f16")]
    #[arg(hide_default_value = true, hide_short_help = true)]
    spec_draft_type_v: CacheType,
}

/// A source of drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Type {
    None,
    #[value(aliases = ["ngram-cache", "ngram-map-k", "ngram-map-k4v", "ngram-mod"])]
    NgramSimple,
    DraftSimple,
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

    /// Returns the path of the draft model, if there is one.
    ///
    /// # Errors
    /// If options contradict each other.
    pub fn draft_model(&self) -> Result<Option<&Path>, Error> {
        let (types, path) = (&self.spec_type, self.spec_draft_model.as_deref());
        let none = types.contains(&Type::None);
        let wrong = |message| Err(Error::usage(message));
        match (types.contains(&Type::DraftSimple), path) {
            _ if none && types.len() > 1 => wrong("--spec-type none excludes the other types"),
            (true, None) => wrong("--spec-type draft-simple needs a draft model: give it with -md"),
            (false, Some(_)) if !types.is_empty() => {
                wrong("-md has no effect with this --spec-type: add draft-simple to it")
            }
            _ => Ok(path),
        }
    }

    /// Returns the types that keys and values of the draft model are stored in.
    pub fn cache_types(&self) -> (CacheType, CacheType) {
        (self.spec_draft_type_k, self.spec_draft_type_v)
    }
}
