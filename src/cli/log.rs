//! Results so far, as lines of JSON: what was computed once is not computed again.

use std::{
    fmt::Display,
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    args::{AdapterArgs, MemoryArgs, ModelArgs, all_overrides, named},
    error::Error,
};
use rope_cpu::json;

/// The model that all results of a file are about.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Subject {
    model: String,
    model_bytes: u64,
    /// Of parts of the file: see [`crc`].
    model_crc: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    overrides: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    adapters: Vec<String>,
    cache_type_k: String,
    cache_type_v: String,
}

/// What every line begins with.
const START: &[u8] = br#"{"model":"#;

#[derive(Serialize, Deserialize)]
struct Line<S, T> {
    #[serde(flatten)]
    subject: S,
    #[serde(flatten)]
    entry: T,
}

/// All results, and the file that they are kept in, if there is one.
pub struct Log<T> {
    kept: Option<Kept>,
    /// The results, in the order in which they were found.
    pub entries: Vec<T>,
}

struct Kept {
    path: PathBuf,
    file: File,
    subject: Subject,
}

impl<T: Serialize + DeserializeOwned> Log<T> {
    /// Reads the file at `path`, if there is one; a line that was not finished is forgotten.
    ///
    /// # Errors
    /// A file that cannot be read or written, or is about something else, which is left as it is.
    pub fn open(
        path: Option<&Path>,
        model: &ModelArgs,
        adapters: &AdapterArgs,
        memory: &MemoryArgs,
    ) -> Result<Self, Error> {
        let Some(path) = path else {
            return Ok(Log { kept: None, entries: Vec::new() });
        };
        let file = model.file()?;
        let (model_bytes, model_crc) = crc(file).map_err(|e| named(file, e))?;
        let subject = Subject {
            model: file.file_name().unwrap_or_default().to_string_lossy().into(),
            model_bytes,
            model_crc,
            overrides: all_overrides(&model.override_kv).iter().map(ToString::to_string).collect(),
            adapters: adapters.names(),
            cache_type_k: memory.cache_type_k.name().into(),
            cache_type_v: memory.cache_type_v.name().into(),
        };
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = file.map_err(|e| named(path, e))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|e| named(path, e))?;
        let mut whole = 0;
        let mut entries = Vec::new();
        for (number, line) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
            let wrong = |what: &dyn Display| named(path, format_args!("line {number} {what}"));
            let foreign =
                |why: &dyn Display| wrong(&format_args!("is no result of this command: {why}"));
            if !line.ends_with(b"\n") {
                if !line.starts_with(START) && !START.starts_with(line) {
                    return Err(foreign(&"it has no end"));
                }
                break;
            }
            whole += line.len();
            let line = str::from_utf8(line).map_err(|e| foreign(&e))?;
            let line: Line<Subject, T> = json::parse(line).map_err(|e| foreign(&e))?;
            if line.subject != subject {
                return Err(wrong(
                    &"is of another model, adapter or cache type, or of other --override-kv: give \
                      another --output",
                ));
            }
            entries.push(line.entry);
        }
        file.set_len(whole as u64).map_err(|e| named(path, e))?;
        Ok(Log { kept: Some(Kept { path: path.into(), file, subject }), entries })
    }

    /// Keeps a result.
    ///
    /// # Errors
    /// If the file does not take it.
    pub fn add(&mut self, entry: T) -> Result<(), Error> {
        if let Some(Kept { path, file, subject }) = &mut self.kept {
            let line = Line { subject: &*subject, entry: &entry };
            let unsaved = |e| Error::failed(format_args!("cannot write {}: {e}", path.display()));
            let mut bytes = serde_json::to_vec(&line).map_err(|e| unsaved(e.into()))?;
            bytes.push(b'\n');
            file.write_all(&bytes).map_err(unsaved)?;
        }
        self.entries.push(entry);
        Ok(())
    }
}

/// The length of a model's file, and a checksum of so much of it that other weights show: its first
/// MiB, then 64 KiB from each of 16 places that are spread evenly, the last of which ends it.
fn crc(path: &Path) -> io::Result<(u64, u32)> {
    const PART: u64 = 64 << 10;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut hash = crc32fast::Hasher::new();
    let mut add = |from: u64, count: u64| {
        let mut part = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        (&file).take(count).read_to_end(&mut part)?;
        hash.update(&part);
        io::Result::Ok(())
    };
    add(0, 1 << 20)?;
    let last = length.saturating_sub(PART);
    (0..16).try_for_each(|i| add((u128::from(last) * i / 15) as u64, PART))?;
    Ok((length, hash.finalize()))
}
