//! Saved sequences in a folder, found by their tokens.

use std::{
    fs::{self, File},
    io::{self, BufReader},
    path::{Path, PathBuf},
    time::SystemTime,
};

use tracing::warn;

use super::{Archive, Error, Outline};
use crate::{
    Token,
    model::Sequence,
    platform::{create_private_directory, processors::plural},
    tokenizer::common_prefix,
    whole_file::{open_regular, regular_file, remove_abandoned},
};

/// A folder of saved sequences. The name of a file is a hash of everything that determines its keys
/// and values.
pub struct Folder {
    path: PathBuf,
    archive: Archive,
}

/// The purpose of a file, which its extension shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A conversation, which is removed when the folder has too many. Only its owner continues it.
    Conversation {
        /// The owner.
        owner: u64,
    },
    /// A text that was read in advance, which is kept.
    Document,
}

/// A file of the folder.
#[derive(Debug)]
pub struct Saved {
    /// The name.
    pub name: String,
    /// The purpose.
    pub kind: Kind,
    /// The tokens and rewind points, or why the file cannot be used.
    pub outline: Result<Outline, Error>,
    /// The size.
    pub bytes: u64,
    /// When it was last used.
    pub used: SystemTime,
}

impl Kind {
    /// Returns whether an owner may continue a file of this kind.
    pub fn serves(self, owner: u64) -> bool {
        match self {
            Kind::Conversation { owner: own } => own == owner,
            Kind::Document => true,
        }
    }

    /// Returns the end of a file's name, after its hash.
    fn suffix(self) -> String {
        match self {
            Kind::Conversation { owner: 0 } => ".sequence".into(),
            Kind::Conversation { owner } => format!("-{owner:016x}.sequence"),
            Kind::Document => ".document".into(),
        }
    }

    /// Returns the kind of a file by its name.
    fn of(path: &Path) -> Option<Self> {
        let stem = path.file_stem()?.to_str()?;
        match path.extension()?.to_str()? {
            "sequence" => {
                let owner =
                    stem.split_once('-').map_or(Ok(0), |(_, owner)| u64::from_str_radix(owner, 16));
                Some(Kind::Conversation { owner: owner.ok()? })
            }
            "document" => Some(Kind::Document),
            _ => None,
        }
    }
}

impl Folder {
    /// Returns a folder of files for one model and its settings. Nothing is read yet.
    pub fn new(path: PathBuf, archive: Archive) -> Self {
        Folder { path, archive }
    }

    /// Creates the folder if needed, so that only its owner can read it. Removes files that a
    /// killed program left incomplete.
    ///
    /// # Errors
    /// If the folder cannot be created or read.
    pub fn create(&self) -> io::Result<()> {
        create_private_directory(&self.path)?;
        for file in fs::read_dir(&self.path)? {
            let path = file?.path();
            if is_incomplete(&path)
                && let Err(e) = remove_abandoned(&path)
            {
                warn!(target: "cache", "cannot remove {}: {e}", path.display());
            }
        }
        Ok(())
    }

    /// Lists the files.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list(&self) -> io::Result<Vec<Saved>> {
        let mut files = Vec::new();
        for file in fs::read_dir(&self.path)? {
            files.extend(self.file(&file?.path()));
        }
        Ok(files)
    }

    /// Returns a file, unless its name shows that it is something else.
    fn file(&self, path: &Path) -> Option<Saved> {
        let kind = Kind::of(path)?;
        let name = path.file_name()?.to_str()?.into();
        let (mut bytes, mut used) = (0, SystemTime::UNIX_EPOCH);
        let opened = open_regular(path, File::options().read(true)).map_err(Error::from);
        let outline = opened.and_then(|file| {
            let metadata = file.metadata()?;
            bytes = metadata.len();
            used = metadata.modified().unwrap_or(used);
            self.archive.outline(BufReader::new(file), bytes)
        });
        Some(Saved { name, kind, outline, bytes, used })
    }

    /// Returns whether sequences with these adapter scales can have files. Files do not record
    /// scales, so only the scales that the model was opened with qualify.
    pub fn keeps(&self, scales: &[f32]) -> bool {
        self.archive.has_scales(scales)
    }

    /// Returns how many of the first tokens of a text can be reused from a file. The last token is
    /// not counted, since it is always computed, for its logits.
    pub fn reusable(&self, file: &Saved, tokens: &[Token]) -> usize {
        let Ok(outline) = &file.outline else { return 0 };
        let shared = common_prefix(&outline.tokens, tokens).min(tokens.len().saturating_sub(1));
        self.archive.reusable(outline, shared, tokens.len())
    }

    /// Returns whether a file starts with the tokens `first`, and can return to them.
    pub fn continues(&self, file: &Saved, first: &[Token]) -> bool {
        let len = first.len();
        file.outline.as_ref().is_ok_and(|outline| {
            outline.tokens.starts_with(first) && self.archive.reusable(outline, len, len) == len
        })
    }

    /// Returns whether a file starts with all of another one, and can return to its end.
    pub fn supersedes(&self, file: &Saved, other: &Saved) -> bool {
        let tokens = other.outline.as_ref().map_or(&[][..], |outline| &outline.tokens);
        !tokens.is_empty() && self.continues(file, tokens)
    }

    /// Returns how many of the first `len` tokens of a sequence a file can have: see
    /// [`Engine::save`](crate::model::Engine::save).
    pub fn writable(&self, sequence: &Sequence, len: usize) -> usize {
        self.archive.writable(sequence, len)
    }

    /// Returns the file that [`Folder::write`] would write. Its size is 0.
    pub fn planned(&self, sequence: &Sequence, len: usize, kind: Kind, used: SystemTime) -> Saved {
        let outline = self.archive.outline_of(sequence, self.writable(sequence, len));
        let name = self.archive.name(&outline.tokens) + &kind.suffix();
        Saved { name, kind, outline: Ok(outline), bytes: 0, used }
    }

    /// Writes the first `len` tokens of a sequence, as far as they are [`Folder::writable`]. Returns
    /// the file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(
        &self,
        sequence: &Sequence,
        len: usize,
        kind: Kind,
        used: SystemTime,
    ) -> io::Result<Saved> {
        let saved = self.planned(sequence, len, kind, used);
        let path = self.path_of(&saved.name);
        regular_file(&path, |file| self.archive.save(sequence, len, file))?;
        let file = File::options().write(true).open(&path)?;
        file.set_modified(used)?;
        Ok(Saved { bytes: file.metadata()?.len(), ..saved })
    }

    /// Replaces a sequence by the one in a file. Returns the size of the file. If this fails, the
    /// sequence is empty.
    ///
    /// # Errors
    /// If the file cannot be read or is damaged, or is for another model or other settings.
    pub fn restore(&self, name: &str, sequence: &mut Sequence) -> Result<u64, Error> {
        sequence.truncate(0);
        let path = self.path_of(name);
        let file = open_regular(&path, File::options().read(true).write(true))
            .or_else(|_| open_regular(&path, File::options().read(true)))?;
        let bytes = file.metadata()?.len();
        self.archive.restore(sequence, BufReader::new(&file), bytes)?;
        // For the order of use. A file that cannot be written to only seems older.
        let _ = file.set_modified(SystemTime::now());
        Ok(bytes)
    }

    /// Returns the sequence in a file, and the size of the file.
    ///
    /// # Errors
    /// As for [`Folder::restore`].
    pub fn sequence(&self, name: &str) -> Result<(Sequence, u64), Error> {
        let mut sequence = self.archive.empty.clone();
        let bytes = self.restore(name, &mut sequence)?;
        Ok((sequence, bytes))
    }

    /// Removes a file, unless another program did already.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path_of(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Returns the path of a file.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Returns whether the name is one that a file has until it is complete: `HASH.EXTENSION.PID.partial`.
fn is_incomplete(path: &Path) -> bool {
    let whole = path.file_stem().map(Path::new).and_then(Path::file_stem).map(Path::new);
    whole.and_then(Kind::of).is_some()
}

/// Returns why files are not used that are for another model or other settings, if there are any.
/// Other models are mentioned last, since a folder may have the files of several models.
pub fn mismatch<'f>(files: impl Iterator<Item = &'f Saved>) -> Option<String> {
    let unused: Vec<_> =
        files.filter_map(|f| Some((&*f.name, f.outline.as_ref().err()?))).collect();
    let of_model = |error: &Error| matches!(error, Error::Model);
    let (name, error) = unused.iter().min_by_key(|(_, error)| of_model(error))?;
    let others = match unused.len() - 1 {
        0 => String::new(),
        others => format!(" (and {} more)", plural(others, "file")),
    };
    Some(format!("{name}{others}: {error}"))
}
