//! Documents that were read before: a folder with their keys and values.

use std::{
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use super::{args::named, error::Error, note};
use rope_cpu::{
    Token,
    model::{
        Engine, Sequence,
        saved::{Folder, Kind, Saved, mismatch},
    },
    platform::processors::plural,
    tokenizer::common_prefix,
};

/// Minimum number of tokens to gain from a file. It is loaded as a whole, so that fewer are
/// computed in the same time.
const WORTH_LOADING: usize = 64;

/// The documents in a folder, for the model and the settings of an engine.
pub struct Documents {
    folder: Folder,
    files: Vec<Saved>,
    /// The option with the folder, for messages.
    name: String,
    /// Whether a note has said why a document is not used.
    explained: bool,
}

/// A document that a sequence continues.
pub struct Found {
    /// The path of its file.
    pub name: String,
    /// The number of reused tokens, without the last one of the prompt: its logits are computed.
    pub reused: usize,
    /// The size of the file.
    pub bytes: u64,
    /// The time for loading it.
    pub time: Duration,
}

impl Documents {
    /// Opens the documents in the folder that `option` gives, which is created if `writes`.
    ///
    /// # Errors
    /// If the folder cannot be read or created.
    pub fn open(option: &str, path: &Path, engine: &Engine, writes: bool) -> Result<Self, Error> {
        let archive = engine.archive(engine.model().fingerprint());
        let folder = Folder::new(path.into(), archive);
        let created = if writes { folder.create() } else { Ok(()) };
        let files = created.and_then(|()| folder.list());
        let mut files = files.map_err(|e| named(path, format_args!("{option}: {e}")))?;
        files.retain(|file| file.kind == Kind::Document);
        let name = format!("{option} {}", path.display());
        Ok(Documents { folder, files, name, explained: false })
    }

    /// Loads the document with the longest common prefix with `prompt` into a sequence. Does nothing if
    /// the sequence's own prefix is almost as long, unless the document has the whole prompt. Prints a
    /// note about a damaged file.
    pub fn restore(&mut self, sequence: &mut Sequence, prompt: &[Token]) -> Option<Found> {
        loop {
            let (index, least) = self.best(sequence, prompt)?;
            let (started, file) = (Instant::now(), &self.files[index]);
            let name = self.folder.path_of(&file.name).display().to_string();
            match self.folder.restore(&file.name, sequence) {
                Ok(bytes) => {
                    let (restored, time) = (reusable(sequence, prompt), started.elapsed());
                    let reused = restored.min(prompt.len().saturating_sub(1));
                    return (restored >= least).then_some(Found { name, reused, bytes, time });
                }
                Err(e) => {
                    note(format_args!("note: {name} is not used: {e}"));
                    self.files.remove(index);
                    self.explained = true;
                }
            }
        }
    }

    /// Returns the file that is worth loading, and how many tokens the sequence can then reuse.
    fn best(&self, sequence: &Sequence, prompt: &[Token]) -> Option<(usize, usize)> {
        let files = self.files.iter().map(|file| self.tokens_of(file, prompt)).enumerate();
        let (index, most) = files.max_by_key(|(_, tokens)| *tokens)?;
        let gained = most.saturating_sub(reusable(sequence, prompt));
        let worth = gained >= WORTH_LOADING || gained > 0 && most == prompt.len();
        worth.then_some((index, most))
    }

    fn tokens_of(&self, file: &Saved, prompt: &[Token]) -> usize {
        match self.folder.continues(file, prompt) {
            true => prompt.len(),
            false => self.folder.reusable(file, prompt),
        }
    }

    /// Returns how many of the first tokens of a prompt are in one file.
    pub fn stored(&self, prompt: &[Token]) -> usize {
        self.files.iter().map(|file| self.tokens_of(file, prompt)).max().unwrap_or_default()
    }

    /// Returns whether a file has many more of the first tokens of `other` than of `prompt`.
    pub fn prefers(&self, other: &[Token], prompt: &[Token]) -> bool {
        self.stored(other) >= self.stored(prompt) + WORTH_LOADING
    }

    /// Returns the option with the folder, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether a file has all tokens of a prompt.
    pub fn has(&self, prompt: &[Token]) -> bool {
        self.stored(prompt) == prompt.len()
    }

    /// Prints a note on why no document is used, once.
    pub fn explain(&mut self) {
        if std::mem::replace(&mut self.explained, true) {
            return;
        }
        let reason = match mismatch(self.files.iter()) {
            Some(reason) => reason,
            None if self.files.is_empty() => "it has none; `rope-cpu read` writes them".into(),
            None => {
                let count = plural(self.files.len(), "document");
                format!(
                    "the prompt starts with none of its {count}; put the document first, after the \
                     -sys, -p and template that `rope-cpu read` had"
                )
            }
        };
        note(format_args!("note: {}: no document is used: {reason}", self.name));
    }

    /// Writes the first `len` tokens of a sequence. Removes the documents that they start with.
    /// Returns the number of written tokens, and of bytes.
    ///
    /// # Errors
    /// If the file cannot be written, or keys that it needs were evicted.
    pub fn save(&mut self, sequence: &Sequence, len: usize) -> Result<(usize, u64), Error> {
        let failed = |reason: &dyn std::fmt::Display| {
            Error::failed(format_args!("{}: cannot write a document: {reason}", self.name))
        };
        let tokens = self.folder.writable(sequence, len);
        if tokens == 0 {
            return Err(failed(
                &"its first keys have left the context; choose a larger one with -c",
            ));
        }
        let saved = self.folder.write(sequence, tokens, Kind::Document, SystemTime::now());
        let saved = saved.map_err(|e| failed(&e))?;
        let folder = &self.folder;
        for old in self.files.extract_if(.., |file| folder.supersedes(&saved, file)) {
            if old.name != saved.name {
                folder.remove(&old.name).map_err(|e| failed(&e))?;
            }
        }
        let bytes = saved.bytes;
        self.files.push(saved);
        Ok((tokens, bytes))
    }
}

/// Returns how many of the first tokens of a prompt the sequence has.
fn reusable(sequence: &Sequence, prompt: &[Token]) -> usize {
    sequence.rewind_point(common_prefix(sequence.tokens(), prompt))
}
