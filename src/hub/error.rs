//! Errors of downloading a model.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::{model::memory::Bytes, settings::Setting};

/// An error while downloading a model. The message says what to do about it.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum Error {
    #[error("{name:?} is not the name of a model: give USER/MODEL or USER/MODEL:QUANT")]
    Name { name: String },
    #[error(
        "{} is {endpoint:?}: give the address of a hub, like https://huggingface.co",
        Setting::HUB_ENDPOINT
    )]
    Endpoint { endpoint: String },
    #[error(
        "the token has spaces or other characters that a token cannot have: check {} or its file",
        Setting::HUB_TOKEN
    )]
    Token,
    #[error("there is no folder for downloaded files: set HF_HUB_CACHE, HF_HOME or HOME")]
    NoCache,
    #[error(
        "{wanted} was not fetched to {cache} before: run once without {}",
        Setting::OFFLINE,
        cache = cache.display()
    )]
    NotCached { wanted: String, cache: PathBuf },

    #[error("{repo} has no GGUF model: look for a repository that has, often USER/MODEL-GGUF")]
    NoModel { repo: String },
    #[error("{repo} has no model of {quant}: it has {}", listed(there))]
    NoQuant { repo: String, quant: String, there: Vec<String> },
    #[error("{repo} has no file {file}: it has {}", listed(there))]
    NoFile { repo: String, file: String, there: Vec<String> },
    #[error("{pattern} stands for several files of {repo}: name one of {}", listed(there))]
    SeveralFiles { repo: String, pattern: String, there: Vec<String> },
    #[error("{repo} lacks {}, a part of the model: choose another one", part.escape_debug())]
    NoPart { repo: String, part: String },

    #[error("{hub} answers {status} to the request for {what}: {}", advice(*status, *token))]
    Status { hub: String, what: String, status: u16, token: bool },
    #[error(
        "{hub} cannot be reached for {what}: {reason}; check the connection, or fetch the file in \
         another way and give it with {}",
        Setting::MODEL
    )]
    Unreachable { hub: String, what: String, reason: String },
    #[error("cannot read {hub}'s list of the files of {repo}: {reason}; check HF_ENDPOINT")]
    Listing { hub: String, repo: String, reason: String },
    #[error(
        "{} cannot be fetched: the hub's listing lacks its size or checksum, or it is not a file name",
        file.escape_debug()
    )]
    Unchecked { file: String },
    #[error(
        "the connection broke after {done} of {bytes} bytes of {file}: {reason}; they are kept, and \
         the same command resumes from there"
    )]
    Broken { file: String, done: u64, bytes: u64, reason: String },
    #[error(
        "the download of {what} was cancelled: what has arrived is kept, and the next download resumes \
         from there"
    )]
    Cancelled { what: String },
    #[error("more than the {bytes} bytes of {file} arrived, and were removed: try again")]
    Larger { file: String, bytes: u64 },
    #[error(
        "the download of {file} has the checksum {found} instead of {expected}: it was removed; the \
         same command fetches it again"
    )]
    Sum { file: String, found: String, expected: String },
    #[error(
        "{repo} needs {need}, but {folder} has only {free} free: free {more} there, or set {} to use \
         another folder",
        Setting::HUB_CACHE,
        need = Bytes(*need),
        free = Bytes(*free),
        more = Bytes(need - free),
        folder = folder.display()
    )]
    Space { repo: String, need: u64, free: u64, folder: PathBuf },
    #[error(
        "cannot write {path}: {source}; set {} to use another folder",
        Setting::HUB_CACHE,
        path = path.display()
    )]
    Disk { path: PathBuf, source: io::Error },
}

impl Error {
    /// Returns whether the same request may succeed a moment later.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Error::Unreachable { .. } | Error::Broken { .. } => true,
            Error::Status { status, .. } => matches!(status, 408 | 429 | 500..),
            _ => false,
        }
    }

    /// Returns whether the download failed, as opposed to an invalid request.
    pub fn is_failure(&self) -> bool {
        use Error::{Cancelled, Disk, Larger, Listing, Space, Sum, Unchecked};
        self.is_temporary()
            || matches!(
                self,
                Cancelled { .. }
                    | Disk { .. }
                    | Larger { .. }
                    | Listing { .. }
                    | Space { .. }
                    | Sum { .. }
                    | Unchecked { .. }
            )
    }
}

/// Returns what to do about an HTTP status. `token` is whether a token was sent.
fn advice(status: u16, token: bool) -> String {
    let (before, setting) = match (status, token) {
        (401, false) => (
            "if the name is right, the model is private or gated: give a token with ",
            Setting::HUB_TOKEN,
        ),
        (401, true) => ("the token is not valid: give another one with ", Setting::HUB_TOKEN),
        (403, _) => {
            ("ask for access on the model's page, and give a token with ", Setting::HUB_TOKEN)
        }
        (404, _) => return "there is no such model or file: check the name".into(),
        (408 | 429 | 500.., _) => return "try again later".into(),
        _ => ("fetch the file in another way and give it with ", Setting::MODEL),
    };
    format!("{before}{setting}")
}

/// Joins names from the hub, escaped for a terminal.
fn listed(names: &[String]) -> String {
    let escaped = |name: &String| name.escape_debug().to_string();
    names.iter().map(escaped).collect::<Vec<_>>().join(", ")
}
