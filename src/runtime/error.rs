//! The errors of opening a model.

use std::{io, path::PathBuf};

use thiserror::Error;

use super::parameters;
use crate::{generate::speculation::DraftModelError, model, rope, settings::Setting};

/// An error for a model that cannot be opened with some settings.
#[derive(Debug, Error)]
pub enum Error {
    /// The RoPE settings are invalid, or contradict the model.
    #[error(transparent)]
    Rope(#[from] rope::Error),
    /// The run needs more memory than is available.
    #[error(transparent)]
    TooLarge(#[from] Box<model::memory::TooLarge>),
    /// The model does not support a setting, or an engine cannot be created.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// Sparse attention is chosen for answers and for drafts of dense answers.
    #[error(
        "`spec_type` draft-sparse drafts for dense attention: answers with `sparse_attention` are as \
         fast as these drafts; omit one of the two"
    )]
    SparseTwice,
    /// `none` is not the only source of drafts.
    #[error("`spec_type` none excludes the other types")]
    NoneWithOthers,
    /// The model has no layer that predicts tokens.
    #[error(
        "`spec_type` draft-mtp needs a layer that predicts further tokens (nextn), which this model \
         does not have, or its assistant as `spec_draft_model`"
    )]
    NoPredictor,
    /// Attention cannot be sparse, which drafts need.
    #[error("{0}")]
    SparseDrafts(String),
    /// A draft model is missing.
    #[error("`spec_type` draft-simple needs a draft model: give it with `spec_draft_model`")]
    NoDraftModel,
    /// A draft model is given, but no source of drafts that uses it.
    #[error(
        "`spec_draft_model` has no effect with this `spec_type`: add draft-simple to it, or draft-mtp \
         if the file is an assistant"
    )]
    UnusedDraftModel,
    /// Speculative prefill lacks a draft model, or has an assistant instead.
    #[error(
        "{name} needs a smaller model with the same vocabulary, which chooses the tokens to compute: give \
         it with `spec_draft_model`; an assistant cannot",
        name = parameters::PREFILL_SHARE.setting
    )]
    PrefillDraftModel,
    /// The draft model cannot choose tokens.
    #[error(
        "{}: {name} needs a draft model with attention: the layers of this one do not attend",
        path.display(), name = parameters::PREFILL_SHARE.setting
    )]
    PrefillAttention {
        /// The path of the draft model.
        path: PathBuf,
    },
    /// The model cannot leave out tokens with these settings.
    #[error("{name}: {0}", name = parameters::PREFILL_SHARE.setting)]
    Prefill(model::Error),
    /// Parts of prompts cannot move with these settings.
    #[error("{name}: {0}", name = Setting::CACHE_REUSE)]
    Moves(model::Error),
    /// The folder of the cache on disk cannot be opened.
    #[error("{}: {name}: {error}", folder.display(), name = Setting::CACHE_DISK)]
    Disk {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The scheduler's thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The draft model is one for other models.
    #[error(transparent)]
    Vocabulary(#[from] DraftModelError),
    /// The draft model cannot be opened with these settings.
    #[error("{}: {error}", path.display())]
    Draft {
        /// The path of the draft model.
        path: PathBuf,
        /// The reason.
        error: Box<Error>,
    },
}

impl Error {
    /// Returns whether the system lacks memory or threads. Other errors are in the model file, or in
    /// the settings.
    pub fn is_failure(&self) -> bool {
        match self {
            Error::TooLarge(_) | Error::Thread(_) => true,
            Error::Model(error) => error.is_failure(),
            Error::Draft { error, .. } => error.is_failure(),
            _ => false,
        }
    }

    /// Returns whether the run, or its draft model, needs more memory than is available.
    pub fn is_too_large(&self) -> bool {
        match self {
            Error::TooLarge(_) => true,
            Error::Draft { error, .. } => error.is_too_large(),
            _ => false,
        }
    }
}
