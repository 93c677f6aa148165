//! The one memory map.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use memmap2::Mmap;

use super::{Error, Gguf, Override, split};
use crate::platform::{mapping_fault, pages};

/// A model file, mapped into memory for reading; with it, once it is parsed, the other parts of a
/// model in several files.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    /// Before the map, so that it is dropped first.
    _watched: mapping_fault::Registered,
    map: Mmap,
    others: OnceLock<Vec<File>>,
}

impl File {
    /// Maps a file; nothing is read before it is used.
    ///
    /// The file must not change while it is open: what is read from it was checked once. On Unix, to
    /// read what is no longer there ends the program with a message and exit code 2.
    ///
    /// # Errors
    ///
    /// If `path` does not lead to a regular file that can be read and holds anything.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let unreadable = |source| Error::Open { path: path.into(), source };
        // Before opening: to open a pipe would wait for its writer.
        let properties = std::fs::metadata(path).map_err(unreadable)?;
        if properties.is_dir() {
            return Err(Error::Directory { path: path.into() });
        }
        if !properties.is_file() {
            return Err(Error::Special { path: path.into() });
        }
        let file = std::fs::File::open(path).map_err(unreadable)?;
        if file.metadata().map_err(unreadable)?.len() == 0 {
            return Err(Error::Empty { path: path.into() });
        }
        let map = map(&file).map_err(unreadable)?;
        Ok(Self {
            path: path.into(),
            _watched: mapping_fault::watch(&map, path),
            map,
            others: OnceLock::new(),
        })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// As [`Gguf::parse`], with errors that begin with the path of the file. If this is the first of
    /// several parts of a model, the others are mapped, too, and their tensors follow its own.
    ///
    /// # Errors
    ///
    /// [`Error::In`], holding what is wrong with the file or another part; a part that is missing, or
    /// another one than the first.
    pub fn parse<'a>(&'a self, overrides: &'a [Override]) -> Result<Gguf<'a>, Error> {
        let mut gguf = self.parse_alone(overrides)?;
        split::join(self, &mut gguf)?;
        Ok(gguf)
    }

    /// This file and, once it is parsed, the other parts of the model.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.others.get().into_iter().flatten())
    }

    /// As [`parse`](Self::parse), without other parts.
    pub(super) fn parse_alone<'a>(&'a self, overrides: &'a [Override]) -> Result<Gguf<'a>, Error> {
        Gguf::parse(self.bytes(), overrides).map_err(|e| e.of(&self.path))
    }

    /// The other parts, opened by `open` if that has not been done.
    pub(super) fn others(
        &self,
        open: impl FnOnce() -> Result<Vec<Self>, Error>,
    ) -> Result<&[Self], Error> {
        match self.others.get() {
            Some(others) => Ok(others),
            None => open().map(|others| self.others.get_or_init(|| others).as_slice()),
        }
    }
}

#[allow(unsafe_code, reason = "the one map of the program; there is no safe way to make one")]
fn map(file: &std::fs::File) -> std::io::Result<Mmap> {
    // SAFETY: the map is private and read-only, and lives no longer than the `File` that owns it.
    // That nobody shortens or rewrites the file meanwhile is left to whoever runs the program, as
    // with every mapped file: a shortened one ends the program when the missing part is read (see
    // `mapping_fault`). Values of all bit patterns are valid for the plain numbers that are read from it.
    let map = unsafe { Mmap::map(file) }?;
    pages::prefer_large(&map);
    Ok(map)
}
