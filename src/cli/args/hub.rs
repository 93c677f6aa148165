//! Models of the Hugging Face Hub, from the command line.

use std::{env, path::PathBuf};

use indicatif::{HumanBytes, ProgressBar};

use crate::cli::{bar, error::Error, note};
use rope_cpu::hub::{self, Event, Hub, Wanted};

/// Which model of the hub.
#[derive(Clone, Debug, clap::Args)]
pub struct HubArgs {
    /// Or fetch USER/MODEL or USER/MODEL:QUANT [-hf]
    ///
    /// From the Hugging Face Hub, or from where HF_ENDPOINT says. Without QUANT it is Q4_K_M, Q8_0, or
    /// the first model there. It is fetched once, to the cache of the hub's own programs, by default
    /// ~/.cache/huggingface/hub: HF_HUB_CACHE or HF_HOME can name another.
    #[arg(long, value_name = "REPO", conflicts_with = "model", value_delimiter = ',')]
    #[arg(help_heading = "Model")]
    pub hf_repo: Vec<Wanted>,

    /// The file of it, instead of QUANT [-hff]
    #[arg(long, value_name = "FILE", conflicts_with = "model", help_heading = "Model")]
    hf_file: Option<String>,

    /// For what is not public [-hft]
    ///
    /// By default that of HF_TOKEN, or what `hf auth login` has left.
    #[arg(long, value_name = "TOKEN", conflicts_with = "model", help_heading = "Model")]
    hf_token: Option<String>,

    /// Fetch nothing: use what was fetched before
    #[arg(long, help_heading = "Model")]
    offline: bool,
}

impl HubArgs {
    /// The paths of all models, after fetching what is not there.
    ///
    /// # Errors
    /// If one cannot be had.
    pub fn fetch(&self) -> Result<Vec<PathBuf>, Error> {
        if self.hf_repo.is_empty() {
            return Ok(Vec::new());
        }
        let hub =
            Hub::from_environment(|name| env::var(name).ok(), self.hf_token.clone(), self.offline)?;
        let mut progress = Progress { file: String::new(), bar: ProgressBar::hidden() };
        let fetch = |repo: &Wanted| {
            let wanted = Wanted { file: self.hf_file.clone(), ..repo.clone() };
            Ok(hub.model(&wanted, &mut |event| progress.show(event))?)
        };
        self.hf_repo.iter().map(fetch).collect()
    }

    /// The path of the one model.
    ///
    /// # Errors
    /// If it cannot be had, or there are more.
    pub(super) fn one(&self) -> Result<PathBuf, Error> {
        let count = self.hf_repo.len();
        if count > 1 {
            return Err(Error::usage(format_args!("-hf: {count} models, but one is needed")));
        }
        self.fetch()?.pop().ok_or_else(|| Error::usage("no model: give one with -m or -hf"))
    }
}

/// What those who wait see, on stderr.
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
                    note(format_args!("fetching {file} ({size}) of {repo} from {hub}"));
                    (self.file, self.bar) = (file.into(), bar(bytes));
                }
                self.bar.set_position(done);
                self.bar.reset_eta();
            }
            Event::Received { done } => self.bar.set_position(done),
            Event::Retrying { error } => self.note(format_args!("{error}; trying again")),
            Event::Waiting => self.note("another program is fetching this: waiting for its end"),
            Event::UsingCached { error, path } => {
                self.note(format_args!("{error}; taking {}", path.display()));
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
