//! Reading text from files and standard input.

use std::{
    fmt::Display,
    fs::File,
    io::{self, Read},
    path::Path,
};

use super::{error::Error, note, unicode};
use rope_cpu::platform::interrupt;

/// Maximum bytes of a text.
const BYTES_MAX: u64 = 1 << 30;

/// Reads the text of a file, without the marks that editors add: a UTF-8 byte order mark at its
/// start, and a newline (LF or CRLF) at its end.
///
/// # Errors
/// If the file cannot be read, or is not UTF-8.
pub fn file(path: &Path) -> Result<String, Error> {
    text(&path.display().to_string(), file_bytes(path)?)
}

/// Reads a text for the model from a file, or from standard input if `path` is `-`. Removes the
/// marks that editors add, as [`file`] does, and prints a note if it is not entirely UTF-8.
///
/// # Errors
/// If the input cannot be read, or is UTF-16.
pub fn input(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = if is_stdin(path) { stdin_bytes() } else { file_bytes(path) }?;
    Ok(noted(path, bytes))
}

/// Reads a file like [`input`], unless it is binary. Reading stops at the first byte 0, and at
/// Ctrl-C.
///
/// # Errors
/// If the file cannot be read, is UTF-16, or has a byte 0, which no text has.
pub fn text_only(path: &Path) -> Result<Vec<u8>, Error> {
    let unreadable =
        |e: &dyn Display| Error::usage(format_args!("cannot read {}: {e}", path.display()));
    let mut file = File::open(path).map_err(|e| unreadable(&e))?;
    let (mut bytes, mut part) = (Vec::new(), [0; 1 << 16]);
    loop {
        let count = interrupt::read(&mut file, &mut part).map_err(|e| unreadable(&e))?;
        let read = &part[..count];
        if bytes.is_empty() {
            refuse_utf16(&path.display().to_string(), read)?;
        }
        if let Some(at) = read.iter().position(|byte| *byte == 0) {
            let at = bytes.len() + at;
            return Err(unreadable(&format_args!("it is binary (byte {at} is 0); give a text")));
        }
        if interrupt::raised() {
            return Err(unreadable(&"interrupted"));
        }
        if read.is_empty() {
            return Ok(noted(path, without_mark(&name(path), bytes)?));
        }
        bytes.extend_from_slice(read);
        check_size(&bytes).map_err(|e| unreadable(&e))?;
    }
}

/// Removes a newline at the end of a text, and prints a note if it is not entirely UTF-8.
fn noted(path: &Path, bytes: Vec<u8>) -> Vec<u8> {
    if let Some(invalid) = unicode::note(&name(path), &bytes) {
        note(invalid);
    }
    without_newline(bytes)
}

/// Reads the bytes of a file, without a UTF-8 byte order mark at its start.
///
/// # Errors
/// If the file cannot be read, or is UTF-16.
pub fn file_bytes(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = whole_file(path)
        .map_err(|e| Error::usage(format_args!("cannot read {}: {e}", path.display())))?;
    without_mark(&name(path), bytes)
}

/// Reads a file.
///
/// # Errors
/// If the file cannot be read, or does not end within 1 GiB, as `/dev/zero`.
pub fn whole_file(path: &Path) -> io::Result<Vec<u8>> {
    whole(File::open(path)?)
}

/// Reads all of standard input.
///
/// # Errors
/// If it cannot be read, or does not end within 1 GiB.
pub fn whole_stdin() -> io::Result<Vec<u8>> {
    whole(io::stdin())
}

fn whole(source: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    check_size(&bytes)?;
    Ok(bytes)
}

fn check_size(bytes: &[u8]) -> io::Result<()> {
    match bytes.len() as u64 > BYTES_MAX {
        true => Err(io::Error::other("it has more than 1 GiB, the maximum of a text")),
        false => Ok(()),
    }
}

fn stdin_bytes() -> Result<Vec<u8>, Error> {
    let bytes =
        whole_stdin().map_err(|e| Error::failed(format_args!("cannot read {STDIN}: {e}")))?;
    without_mark(STDIN, bytes)
}

/// Removes a UTF-8 byte order mark, which some editors on Windows write at the start of a file.
fn without_mark(source: &str, mut bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
    refuse_utf16(source, &bytes)?;
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    Ok(bytes)
}

/// Returns an error if a text starts with a byte order mark of UTF-16.
fn refuse_utf16(source: &str, start: &[u8]) -> Result<(), Error> {
    if start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff") {
        return Err(Error::usage(format_args!("{source} is UTF-16 text: save it as UTF-8")));
    }
    Ok(())
}

/// Returns whether the value of an option means standard input.
pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Returns the name of an [`input`] for messages.
pub fn name(path: &Path) -> String {
    if is_stdin(path) { STDIN.into() } else { path.display().to_string() }
}

const STDIN: &str = "standard input";

/// Converts bytes to text, without a newline at its end; `source` is their name in the error.
///
/// # Errors
/// If the bytes are not UTF-8.
pub fn text(source: &str, bytes: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(without_newline(bytes)).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::usage(format_args!("{source} is not UTF-8 text: byte {at} is not valid"))
    })
}

fn without_newline(mut bytes: Vec<u8>) -> Vec<u8> {
    let line = bytes
        .strip_suffix(b"\n")
        .map_or(&bytes[..], |line| line.strip_suffix(b"\r").unwrap_or(line));
    bytes.truncate(line.len());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_at_the_end_is_removed() {
        for (bytes, expected) in [
            ("a\r\n", "a"),
            ("a\n", "a"),
            ("a\r", "a\r"),
            ("a\r\n\r\n", "a\r\n"),
            ("a\n\n", "a\n"),
            ("\r\n", ""),
            ("", ""),
        ] {
            assert_eq!(text("a file", bytes.into()).unwrap(), expected, "{bytes:?}");
        }
    }
}
