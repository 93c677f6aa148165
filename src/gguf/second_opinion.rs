//! A second opinion on a header: that of gguf-rs, which shares no code with ours.
//!
//! It is asked, not trusted: it mis-sizes some types, knows fewer of them, drops the width of
//! numbers and may panic. So only what it gets right is compared, and its failure says nothing
//! about the file.

use std::io::Cursor;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use gguf_rs::{ByteOrder, GGUFContainer, GGUFModel};
use thiserror::Error;

use super::{Gguf, quoted};

/// Why the second opinion does not confirm ours.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    #[error("gguf-rs cannot read this file: {reason}")]
    Unreadable { reason: String },
    #[error("gguf-rs reads {what} as {theirs}, where it is {ours}")]
    Differs { what: String, theirs: String, ours: String },
}

/// Reads the header of `bytes` again with gguf-rs, and compares version, keys, and the name,
/// dimensions, type and offset of every tensor. `gguf` is what [`Gguf::parse`] made of `bytes`
/// without overrides.
///
/// # Errors
///
/// The first difference, or why gguf-rs could not read the header.
pub fn compare(bytes: &[u8], gguf: &Gguf<'_>) -> Result<(), Error> {
    let model = decode(bytes, gguf).map_err(|reason| Error::Unreadable { reason })?;
    same("the version", model.get_version(), format!("v{}", gguf.version()))?;
    same("the number of metadata keys", model.metadata().len(), gguf.metadata().iter().len())?;
    for ((theirs, _), ours) in model.metadata().iter().zip(sorted_keys(gguf)) {
        same("a metadata key", quoted(theirs), quoted(ours))?;
    }
    same("the number of tensors", model.tensors().len(), gguf.tensors().len())?;
    for (theirs, ours) in model.tensors().iter().zip(gguf.tensors()) {
        same("a tensor's name", quoted(&theirs.name), quoted(ours.name))?;
        let of = |what| format!("the {what} of tensor {}", quoted(ours.name));
        same(of("dimensions"), format!("{:?}", theirs.shape), format!("{:?}", ours.shape()))?;
        same(of("type"), theirs.kind, ours.ggml_type.number)?;
        same(of("offset"), theirs.offset, ours.offset)?;
    }
    same("the start of the data", model.data_offset(), gguf.data_offset())
}

fn same<T: PartialEq + ToString>(what: impl Into<String>, theirs: T, ours: T) -> Result<(), Error> {
    if theirs == ours {
        return Ok(());
    }
    let (theirs, ours) = (theirs.to_string(), ours.to_string());
    Err(Error::Differs { what: what.into(), theirs, ours })
}

/// In the order of gguf-rs, which does not keep that of the file.
fn sorted_keys<'a>(gguf: &Gguf<'a>) -> Vec<&'a str> {
    let mut keys: Vec<_> = gguf.metadata().iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    keys
}

fn decode(bytes: &[u8], gguf: &Gguf<'_>) -> Result<GGUFModel, String> {
    // It wants to own its reader; its opener would read the file byte by byte. Never beyond the
    // header: a wrong length must not send it through gigabytes of weights.
    let end = usize::try_from(gguf.data_offset()).unwrap_or(usize::MAX).min(bytes.len());
    let header = Cursor::new(bytes.get(b"GGUF".len()..end).unwrap_or_default().to_vec());
    // Of the long arrays, those of the tokenizer, it is to keep nothing.
    let mut container = GGUFContainer::new(ByteOrder::LE, Box::new(header), 0);
    quietly(move || container.decode())?.map_err(|e| e.to_string())
}

/// Runs what may panic. Nothing is printed, and the panic becomes the error.
fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // The hook belongs to the whole process: one change at a time, other threads are not silenced.
    static HOOK: Mutex<()> = Mutex::new(());
    let _one_at_a_time = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let previous = Arc::new(panic::take_hook());
    let (others, here) = (Arc::clone(&previous), thread::current().id());
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() != here {
            others(info);
        }
    }));
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    drop(panic::take_hook());
    if let Some(previous) = Arc::into_inner(previous) {
        panic::set_hook(previous);
    }
    result.map_err(|payload| {
        let message = payload.downcast_ref::<&str>().map(ToString::to_string);
        message
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or("it panicked".into())
    })
}

#[cfg(test)]
mod tests {
    use super::quietly;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(quietly(|| 7), Ok(7));
        assert_eq!(quietly(|| -> u8 { panic!("plain") }), Err("plain".into()));
        assert_eq!(quietly(|| -> u8 { panic!("number {}", 5) }), Err("number 5".into()));
    }
}
