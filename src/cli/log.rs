//! Results so far, as lines of JSON: what was computed once is not computed again.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    args::{AdapterArgs, MemoryArgs, ModelArgs, named},
    error::Error,
};
use crate::json;

/// The model that all results of a file are about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Subject {
    model: String,
    model_bytes: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    adapters: Vec<String>,
    cache_type_k: String,
    cache_type_v: String,
}

#[derive(Serialize, Deserialize)]
struct Line<T> {
    #[serde(flatten)]
    subject: Subject,
    #[serde(flatten)]
    entry: T,
}

/// All results, and the file that they are kept in, if there is one.
pub struct Log<T> {
    subject: Subject,
    file: Option<(PathBuf, File)>,
    /// The results, in the order in which they were found.
    pub entries: Vec<T>,
}

impl<T: Serialize + DeserializeOwned> Log<T> {
    /// Reads the file at `path`, if there is one; a line that was not finished is forgotten.
    ///
    /// # Errors
    /// A file that cannot be read or written, or is about something else.
    pub fn open(
        path: Option<&Path>,
        model: &ModelArgs,
        adapters: &AdapterArgs,
        memory: &MemoryArgs,
    ) -> Result<Self, Error> {
        let file = model.file()?;
        let subject = Subject {
            model: file.file_name().unwrap_or_default().to_string_lossy().into(),
            model_bytes: file.metadata().map_err(|e| named(file, e))?.len(),
            adapters: adapters.names(),
            cache_type_k: memory.cache_type_k.name().into(),
            cache_type_v: memory.cache_type_v.name().into(),
        };
        let Some(path) = path else {
            return Ok(Log { subject, file: None, entries: Vec::new() });
        };
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = file.map_err(|e| named(path, e))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|e| named(path, e))?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);

        let mut entries = Vec::new();
        for (number, line) in (1..).zip(text[..whole].lines()) {
            let wrong = |what: String| named(path, format_args!("line {number} {what}"));
            let line: Line<T> = json::parse(line)
                .map_err(|e| wrong(format!("is no result of this command: {e}")))?;
            if line.subject != subject {
                return Err(wrong(
                    "is of another model, adapter or cache type: give another --output".into(),
                ));
            }
            entries.push(line.entry);
        }
        // Only of a file that is known to be ours.
        file.set_len(whole as u64).map_err(|e| named(path, e))?;
        Ok(Log { subject, file: Some((path.into(), file)), entries })
    }

    /// Keeps a result.
    ///
    /// # Errors
    /// If the file does not take it.
    pub fn add(&mut self, entry: T) -> Result<(), Error> {
        let line = Line { subject: self.subject.clone(), entry };
        if let Some((path, file)) = &mut self.file {
            let unsaved = |e| Error::failed(format_args!("cannot write {}: {e}", path.display()));
            let mut bytes = serde_json::to_vec(&line).map_err(|e| unsaved(e.into()))?;
            bytes.push(b'\n');
            file.write_all(&bytes).map_err(unsaved)?;
        }
        self.entries.push(line.entry);
        Ok(())
    }
}
