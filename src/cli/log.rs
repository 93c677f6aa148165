//! The file of `--output`: finished results as lines of JSON, which are not computed again.

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
use rope_cpu::{json, runtime::Sparse};

/// The model and settings that all results of a file have in common.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Provenance {
    model: String,
    model_bytes: u64,
    /// A checksum of parts of the model's file: see [`crc`].
    model_crc: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    overrides: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    adapters: Vec<String>,
    cache_type_k: String,
    cache_type_v: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sparse_attention: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sparse_prompt: Option<f32>,
    /// The share of prompts that is computed, and the model that chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefill: Option<String>,
}

/// The start of every line.
const LINE_START: &[u8] = br#"{"model":"#;

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct LogLine<P, T> {
    #[serde(flatten)]
    provenance: P,
    #[serde(flatten)]
    entry: T,
}

/// All results so far, and the file that they are saved in, if any.
pub struct Log<T> {
    file: Option<LogFile>,
    /// The results, in the order in which they were computed.
    pub entries: Vec<T>,
}

struct LogFile {
    path: PathBuf,
    file: File,
    provenance: Provenance,
}

impl<T: Serialize + DeserializeOwned> Log<T> {
    /// Reads the optional file at `path`. An incomplete last line is removed.
    ///
    /// # Errors
    /// If the file cannot be read or written, or has results of another command or model. The file
    /// is not changed then.
    pub fn open(
        path: Option<&Path>,
        model: &ModelArgs,
        adapters: &AdapterArgs,
        memory: &MemoryArgs,
    ) -> Result<Self, Error> {
        Self::with_attention(path, model, adapters, memory, (Sparse::default(), None))
    }

    /// Reads the file like [`Log::open`], for results with this attention and speculative prefill.
    ///
    /// # Errors
    /// As for [`Log::open`].
    pub fn with_attention(
        path: Option<&Path>,
        model: &ModelArgs,
        adapters: &AdapterArgs,
        memory: &MemoryArgs,
        (sparse, prefill): (Sparse, Option<String>),
    ) -> Result<Self, Error> {
        let Some(path) = path else {
            return Ok(Log { file: None, entries: Vec::new() });
        };
        let file = model.file()?;
        let (model_bytes, model_crc) = crc(file).map_err(|e| named(file, e))?;
        let provenance = Provenance {
            model: file.file_name().unwrap_or_default().to_string_lossy().into(),
            model_bytes,
            model_crc,
            overrides: all_overrides(&model.override_kv).iter().map(ToString::to_string).collect(),
            adapters: adapters.names(),
            cache_type_k: memory.cache.keys().name().into(),
            cache_type_v: memory.cache.values().name().into(),
            sparse_attention: sparse.answers.map(|sparse| sparse.mass),
            sparse_prompt: sparse.prompts.map(|sparse| sparse.mass),
            prefill,
        };
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = file.map_err(|e| named(path, e))?;
        if !file.metadata().map_err(|e| named(path, e))?.is_file() {
            return Err(named(path, "is not a regular file, which can keep results"));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|e| named(path, e))?;
        let mut complete_bytes = 0;
        let mut entries = Vec::new();
        for (number, line) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
            let invalid =
                |reason: &dyn Display| named(path, format_args!("line {number} {reason}"));
            let foreign = |why: &dyn Display| {
                invalid(&format_args!("is not a result of this command: {why}"))
            };
            if !line.ends_with(b"\n") {
                if !line.starts_with(LINE_START) && !LINE_START.starts_with(line) {
                    return Err(foreign(&"it is incomplete"));
                }
                break;
            }
            complete_bytes += line.len();
            let line = str::from_utf8(line).map_err(|e| foreign(&e))?;
            let line: LogLine<Provenance, T> = json::parse(line).map_err(|e| foreign(&e))?;
            if line.provenance != provenance {
                return Err(invalid(
                    &"is of another model, adapter, cache type, attention or --override-kv: choose \
                      another --output file",
                ));
            }
            entries.push(line.entry);
        }
        file.set_len(complete_bytes as u64).map_err(|e| named(path, e))?;
        Ok(Log { file: Some(LogFile { path: path.into(), file, provenance }), entries })
    }

    /// Adds a result, and writes it to the file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add(&mut self, entry: T) -> Result<(), Error> {
        if let Some(LogFile { path, file, provenance }) = &mut self.file {
            let line = LogLine { provenance: &*provenance, entry: &entry };
            let unsaved = |e| Error::failed(format_args!("cannot write {}: {e}", path.display()));
            let mut bytes = serde_json::to_vec(&line).map_err(|e| unsaved(e.into()))?;
            bytes.push(b'\n');
            file.write_all(&bytes).map_err(unsaved)?;
        }
        self.entries.push(entry);
        Ok(())
    }
}

/// Returns the length of a model's file, and a checksum that changes with the weights. It covers
/// the first MiB and 16 evenly spaced blocks of 64 KiB; the last block is the end of the file.
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
