//! Texts that are not entirely UTF-8, such as those in older encodings or cut within a character.

/// Returns the text with U+FFFD in place of each byte that is not part of a character, as in llama.cpp's
/// BPE tokenizers, and a note if there are such bytes.
pub fn replaced(source: &str, bytes: &[u8]) -> (String, Option<String>) {
    let mut text = String::with_capacity(bytes.len());
    let (mut count, mut first) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if count == 0 {
            first += chunk.valid().len();
        }
        count += chunk.invalid().len();
        chunk.invalid().iter().for_each(|_| text.push(char::REPLACEMENT_CHARACTER));
    }
    let note = (count > 0).then(|| {
        format!(
            "{source} is not entirely UTF-8: {count} bytes, the first of them byte {first}, are read as \
             U+FFFD"
        )
    });
    (text, note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_invalid_byte_is_replaced_and_counted() {
        assert_eq!(replaced("x", "aé€".as_bytes()), ("aé€".into(), None));
        assert_eq!(replaced("x", b""), (String::new(), None));
        for (bytes, text, count, first) in [
            (&b"a\xe2\x82"[..], "a\u{fffd}\u{fffd}", "2 bytes", "byte 1,"),
            (b"\xffa\x80b", "\u{fffd}a\u{fffd}b", "2 bytes", "byte 0,"),
            (b"\xc3\xa9\xf0\x9f\x98!", "é\u{fffd}\u{fffd}\u{fffd}!", "3 bytes", "byte 2,"),
        ] {
            let (found, note) = replaced("x", bytes);
            let note = note.unwrap();
            assert_eq!(found, text);
            assert!(note.contains(count) && note.contains(first), "{note}");
        }
    }
}
