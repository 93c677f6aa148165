//! The memory map of a model file.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use memmap2::{Mmap, MmapMut};

use super::{Error, Gguf, Override, split};
use crate::platform::{mapping_fault, pages};

/// A model file, mapped into memory. If the file is the first part of a split model, parsing it
/// maps the other parts as well.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    /// Declared before the map, so that it is dropped first.
    _watched: Option<mapping_fault::Registered>,
    map: Mmap,
    others: OnceLock<Vec<File>>,
}

impl File {
    /// Maps a file. The system loads its contents when they are used.
    ///
    /// The file must not change while it is open, since its contents are checked only once. If it
    /// is shortened while it is open, the program exits with a message and code 2. Windows refuses
    /// to shorten it.
    ///
    /// # Errors
    ///
    /// If `path` is not a readable, regular, non-empty file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let unreadable = |source| Error::Open { path: path.into(), source };
        // Check before opening: opening a pipe would wait for its writer.
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
            _watched: Some(mapping_fault::watch(&map, path)),
            map,
            others: OnceLock::new(),
        })
    }

    /// Copies `bytes` into memory as if they were a file. Error messages name it `path`.
    ///
    /// # Errors
    ///
    /// If `bytes` is empty, or there is too little memory.
    ///
    /// ```
    /// use rope_cpu::gguf::File;
    ///
    /// let file = File::in_memory("test.gguf", b"GGML, an older format")?;
    /// let error = file.parse(&[]).unwrap_err();
    /// assert!(error.to_string().contains("test.gguf"));
    /// # Ok::<(), rope_cpu::gguf::Error>(())
    /// ```
    pub fn in_memory(path: impl Into<PathBuf>, bytes: &[u8]) -> Result<Self, Error> {
        let path = path.into();
        if bytes.is_empty() {
            return Err(Error::Empty { path });
        }
        // A map is aligned as tensors require.
        let map = MmapMut::map_anon(bytes.len()).and_then(|mut map| {
            map.copy_from_slice(bytes);
            map.make_read_only()
        });
        match map {
            Ok(map) => Ok(Self { path, _watched: None, map, others: OnceLock::new() }),
            Err(source) => Err(Error::Open { path, source }),
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the contents of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Parses the file like [`Gguf::parse`]; errors include its path. If it is the first file of a
    /// split model, maps the other files as well and appends their tensors.
    ///
    /// # Errors
    ///
    /// [`Error::In`] with the error in this or another file. Fails if a file of the model is
    /// missing, or if this is not the first one.
    pub fn parse<'a>(&'a self, overrides: &'a [Override]) -> Result<Gguf<'a>, Error> {
        let mut gguf = self.parse_alone(overrides)?;
        split::join(self, &mut gguf)?;
        Ok(gguf)
    }

    /// Returns this file and, after parsing, the other files of a split model.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.others.get().into_iter().flatten())
    }

    /// Parses this file like [`parse`](Self::parse), but does not load the other files.
    pub(super) fn parse_alone<'a>(&'a self, overrides: &'a [Override]) -> Result<Gguf<'a>, Error> {
        Gguf::parse(self.bytes(), overrides).map_err(|e| e.of(&self.path))
    }

    /// Returns the other files of the model. The first call opens them with `open`.
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

#[allow(unsafe_code, reason = "a mapped file may change while it is in use")]
fn map(file: &std::fs::File) -> std::io::Result<Mmap> {
    // SAFETY: the bytes are borrowed from the `File` that owns the map, and nothing here writes to
    // the file. Other programs can, so `File::open` requires that nobody rewrites it.
    // If the file is rewritten, numbers change, which are valid with any bits, and lengths, which
    // are checked at each use; but names and texts were found to be UTF-8 only once. If it is
    // shortened, the program exits when it reads the missing part (see `mapping_fault`).
    let map = unsafe { Mmap::map(file) }?;
    pages::prefer_large(&map);
    Ok(map)
}
