//! `--prompt-cache`: a file of tokens with their keys and values, which the next run reuses.

use std::{
    fs::{self, File},
    io::{BufReader, ErrorKind::NotFound},
    path::PathBuf,
};

use super::args::PromptArgs;
use crate::cli::{error::Error, note};
use rope_cpu::{
    model::{
        Engine, Sequence,
        saved::Error::{Cache, Context, Damaged, Foreign, Io, Model, Prompt, Rope, Size, Version},
    },
    platform::interrupt,
    whole_file::private_file,
};

/// The cache file and its options.
pub struct PromptCache {
    path: PathBuf,
    /// Whether generated tokens are saved too.
    pub all: bool,
    read_only: bool,
    /// The fingerprint of the model.
    model: u128,
}

impl PromptCache {
    /// Returns the cache that the command line selects, for a model with this fingerprint.
    pub fn new(args: &PromptArgs, model: impl FnOnce() -> u128) -> Option<Self> {
        let path = args.prompt_cache.clone()?;
        let (all, read_only) = (args.prompt_cache_all, args.prompt_cache_ro);
        let cache = PromptCache { path, all, read_only, model: model() };
        if !read_only {
            interrupt::warn_on_exit(Some(format!("warning: {} was not saved", cache.name())));
        }
        Some(cache)
    }

    /// Restores a sequence from the file. A file that does not exist, or is empty, is skipped.
    pub fn load(&self, engine: &Engine, sequence: &mut Sequence) -> Result<(), Error> {
        let named = |e: &dyn std::fmt::Display| Error::usage(format_args!("{}: {e}", self.name()));
        let size = match fs::metadata(&self.path) {
            Ok(properties) if properties.is_dir() => {
                return Err(named(&"is a directory: give the name of a file"));
            }
            Ok(properties) => properties.len(),
            Err(e) if e.kind() == NotFound && !self.read_only && self.has_directory() => 0,
            Err(e) => return Err(named(&e)),
        };
        if size > 0 {
            let file = File::open(&self.path).map_err(|e| named(&e))?;
            let file = BufReader::new(file);
            engine.restore(sequence, self.model, file, size).map_err(|e| match e {
                Foreign
                | Version
                | Damaged(_)
                | Size { .. }
                | Model
                | Rope { .. }
                | Prompt { .. } => {
                    named(&format_args!("{e}: remove the file, or choose another one"))
                }
                // The message of these errors includes what to do.
                Cache { .. } | Context { .. } | Io(_) => named(&e),
            })?;
        }
        Ok(())
    }

    /// Returns the option with the file, for messages.
    fn name(&self) -> String {
        format!("--prompt-cache {}", self.path.display())
    }

    fn has_directory(&self) -> bool {
        self.path.parent().is_some_and(|parent| parent.as_os_str().is_empty() || parent.is_dir())
    }

    /// Saves the first `len` tokens of a sequence. The file is replaced only when the new one is complete.
    pub fn save(&self, engine: &Engine, sequence: &Sequence, len: usize) -> Result<(), Error> {
        if self.read_only {
            return Ok(());
        }
        let failed = |e: std::io::Error| Error::failed(format_args!("{}: {e}", self.name()));
        let written = private_file(&self.path, |file| engine.save(sequence, self.model, len, file));
        let written = written.map_err(failed)?;
        interrupt::warn_on_exit(None);
        if written == 0 && len > 0 {
            note("note: --prompt-cache: nothing was saved, since keys that it needs were evicted");
        }
        Ok(())
    }
}
