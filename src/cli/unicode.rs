//! Notes about texts that are not entirely UTF-8.

/// Returns a note if there are bytes in a text that are not part of a character; `source` is its
/// name.
pub fn note(source: &str, text: &[u8]) -> Option<String> {
    let first = text.utf8_chunks().next()?.valid().len();
    let count: usize = text.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    (count > 0).then(|| {
        format!(
            "note: {source} is not entirely UTF-8: {count} bytes, the first of them byte {first}, are not \
             part of a character"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::note;

    #[test]
    fn invalid_bytes_are_counted() {
        assert_eq!(note("x", "aé€".as_bytes()), None);
        assert_eq!(note("x", b""), None);
        for (bytes, count, first) in [
            (&b"a\xe2\x82"[..], "2 bytes", "byte 1,"),
            (b"\xffa\x80b", "2 bytes", "byte 0,"),
            (b"\xc3\xa9\xf0\x9f\x98!", "3 bytes", "byte 2,"),
        ] {
            let note = note("x", bytes).unwrap();
            assert!(note.contains(count) && note.contains(first), "{note}");
        }
    }
}
