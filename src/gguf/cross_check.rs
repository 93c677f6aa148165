//! Compares a header with the result of gguf-rs, an independent parser.
//!
//! gguf-rs computes wrong sizes for some types, supports fewer types, discards the width of numbers
//! and may panic. So only values that it reads correctly are compared. If gguf-rs fails, the file
//! may still be valid.

use std::io::Cursor;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use gguf_rs::{ByteOrder, GGUFContainer, GGUFModel};
use thiserror::Error;

use super::{Gguf, quoted};

/// An error of the cross-check: gguf-rs failed or read another value.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum Error {
    #[error("gguf-rs cannot read this file: {reason}")]
    Unreadable { reason: String },
    #[error("gguf-rs reads {what} as {theirs}, where it is {ours}")]
    Differs { what: String, theirs: String, ours: String },
}

/// Reads the header of `bytes` again with gguf-rs, and compares version, keys, and the name,
/// dimensions, type and offset of every tensor. `gguf` must be the result of [`Gguf::parse`] for
/// `bytes` without overrides.
///
/// # Errors
///
/// Returns the first difference, or the reason why gguf-rs could not read the header.
pub fn compare(bytes: &[u8], gguf: &Gguf<'_>) -> Result<(), Error> {
    let model = decode(bytes, gguf).map_err(|reason| Error::Unreadable { reason })?;
    expect_equal("the version", model.get_version(), format!("v{}", gguf.version()))?;
    expect_equal(
        "the number of metadata keys",
        model.metadata().len(),
        gguf.metadata().iter().len(),
    )?;
    for ((theirs, _), ours) in model.metadata().iter().zip(sorted_keys(gguf)) {
        expect_equal("a metadata key", quoted(theirs), quoted(ours))?;
    }
    expect_equal("the number of tensors", model.tensors().len(), gguf.tensors().len())?;
    for (theirs, ours) in model.tensors().iter().zip(gguf.tensors()) {
        expect_equal("a tensor's name", quoted(&theirs.name), quoted(ours.name))?;
        let of = |what| format!("the {what} of tensor {}", quoted(ours.name));
        expect_equal(
            of("dimensions"),
            format!("{:?}", theirs.shape),
            format!("{:?}", ours.shape()),
        )?;
        expect_equal(of("type"), theirs.kind, ours.ggml_type.number)?;
        expect_equal(of("offset"), theirs.offset, ours.offset)?;
    }
    expect_equal("the start of the data", model.data_offset(), gguf.data_offset())
}

fn expect_equal<T: PartialEq + ToString>(
    what: impl Into<String>,
    theirs: T,
    ours: T,
) -> Result<(), Error> {
    if theirs == ours {
        return Ok(());
    }
    let (theirs, ours) = (theirs.to_string(), ours.to_string());
    Err(Error::Differs { what: what.into(), theirs, ours })
}

/// Returns the keys in gguf-rs's order: sorted.
fn sorted_keys<'a>(gguf: &Gguf<'a>) -> Vec<&'a str> {
    let mut keys: Vec<_> = gguf.metadata().iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    keys
}

fn decode(bytes: &[u8], gguf: &Gguf<'_>) -> Result<GGUFModel, String> {
    // gguf-rs requires an owned reader, and its `open` reads the file byte by byte. Pass only the
    // header, so that a wrong length cannot make it read gigabytes of weights.
    let end = usize::try_from(gguf.data_offset()).unwrap_or(usize::MAX).min(bytes.len());
    let header = Cursor::new(bytes.get(b"GGUF".len()..end).unwrap_or_default().to_vec());
    // 0 elements: do not store long arrays, such as the tokenizer's.
    let mut container = GGUFContainer::new(ByteOrder::LE, Box::new(header), 0);
    catch_panic(move || container.decode())?.map_err(|e| e.to_string())
}

/// Runs `work` and returns the message of a panic as the error, without printing it.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // The whole process shares the hook. So one thread at a time changes it, and panics of other
    // threads are still printed.
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
    use super::catch_panic;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(catch_panic(|| 7), Ok(7));
        assert_eq!(catch_panic(|| -> u8 { panic!("plain") }), Err("plain".into()));
        assert_eq!(catch_panic(|| -> u8 { panic!("number {}", 5) }), Err("number 5".into()));
    }
}
