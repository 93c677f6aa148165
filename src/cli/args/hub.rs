//! Options of models on the Hugging Face Hub.

use std::{env, path::PathBuf};

use indicatif::{HumanBytes, ProgressBar};

use super::ShelfArgs;
use crate::cli::{bar, error::Error, note};
use rope_cpu::hub::{self, Event, Hub, Options, Wanted};

/// The options that select a model on the hub.
#[derive(Clone, Debug, clap::Args)]
pub struct HubArgs {
    /// Download USER/MODEL[:QUANT] from Hugging Face
    ///
    /// From the Hugging Face Hub, or from the address in HF_ENDPOINT. Without QUANT: Q4_K_M, else
    /// Q8_0, else the first model file. A file is downloaded once, to the cache of the hub's own
    /// programs, by default ~/.cache/huggingface/hub; LLAMA_CACHE, HF_HUB_CACHE or HF_HOME set another folder.
    #[arg(long, aliases = ["-hf", "-hfr", "LLAMA_ARG_HF_REPO"], value_name = "REPO")]
    #[arg(conflicts_with = "model", value_delimiter = ',', help_heading = "Model")]
    pub hf_repo: Vec<Wanted>,

    /// File of the repository, instead of QUANT
    ///
    /// A `*` matches any text: '*Q8_0.gguf'.
    #[arg(long, aliases = ["-hff", "LLAMA_ARG_HF_FILE"], value_name = "FILE")]
    #[arg(conflicts_with = "model", help_heading = "Model")]
    hf_file: Option<String>,

    /// Access token for private and gated models
    ///
    /// By default the value of HF_TOKEN, or the token that `hf auth login` stored.
    #[arg(
        long,
        alias = "-hft",
        value_name = "TOKEN",
        conflicts_with = "model",
        help_heading = "Model"
    )]
    hf_token: Option<String>,

    /// Do not download; use files from the cache
    #[arg(long, alias = "LLAMA_ARG_OFFLINE", help_heading = "Model")]
    offline: bool,

    #[command(flatten)]
    pub shelf: ShelfArgs,
}

impl HubArgs {
    /// Returns the options that download models.
    pub fn of(hf_repo: Vec<Wanted>, hf_file: Option<String>, hf_token: Option<String>) -> Self {
        HubArgs { hf_repo, hf_file, hf_token, offline: false, shelf: ShelfArgs::default() }
    }

    /// Returns the paths of all models, after downloading those that are not in the cache.
    ///
    /// # Errors
    /// If a model cannot be downloaded.
    pub fn fetch(&self) -> Result<Vec<PathBuf>, Error> {
        if self.hf_repo.is_empty() {
            return Ok(Vec::new());
        }
        let options = Options::from_variables(|name| env::var(name).ok())?;
        let token = self.hf_token.clone().or(options.token);
        let hub = Hub::new(Options { token, offline: self.offline || options.offline, ..options })?;
        let mut progress = Progress { file: String::new(), bar: ProgressBar::hidden() };
        let fetch = |repo: &Wanted| {
            let wanted = Wanted { file: self.hf_file.clone(), ..repo.clone() };
            Ok(hub.model(&wanted, &mut |event| progress.show(event))?)
        };
        self.hf_repo.iter().map(fetch).collect()
    }

    /// Returns the path of the only model, after downloading it if necessary.
    ///
    /// # Errors
    /// If it cannot be downloaded, or several models are given.
    pub(super) fn one(&self) -> Result<PathBuf, Error> {
        let count = self.hf_repo.len();
        if count > 1 {
            return Err(Error::usage(format_args!("-hf: {count} models are given; give one")));
        }
        self.fetch()?
            .pop()
            .ok_or_else(|| Error::usage("no model is given: give one with -m or -hf"))
    }
}

/// The progress of downloads, on stderr.
struct Progress {
    file: String,
    bar: ProgressBar,
}

impl Progress {
    fn show(&mut self, event: Event) {
        match event {
            Event::Started { file, repo, hub, done, bytes } => {
                if self.file != file {
                    self.bar.finish_and_clear();
                    let size = HumanBytes(bytes);
                    note(format_args!("downloading {file} ({size}) of {repo} from {hub}"));
                    (self.file, self.bar) = (file.into(), bar(bytes));
                }
                self.bar.set_position(done);
                self.bar.reset_eta();
            }
            Event::Received { done } => self.bar.set_position(done),
            Event::Retrying { error } => self.note(format_args!("{error}; trying again")),
            Event::Waiting => {
                self.note("another process is downloading this file: waiting until it has finished")
            }
            Event::UsingCached { error, path } => {
                self.note(format_args!("{error}; using {}", path.display()));
            }
        }
    }

    fn note(&self, text: impl std::fmt::Display) {
        self.bar.suspend(|| note(format_args!("note: {text}")));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl From<hub::Error> for Error {
    fn from(error: hub::Error) -> Self {
        match error.is_failure() {
            true => Error::failed(error),
            false => Error::usage(error),
        }
    }
}
