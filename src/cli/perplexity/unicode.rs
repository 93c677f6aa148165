//! Texts that are not UTF-8 throughout, such as those cut within a character.

/// A text in which U+FFFD stands for each byte that is not part of a character, as llama.cpp's BPE
/// tokenizers have it, and what to say of that: nothing where there is no such byte.
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
            "{source} is not UTF-8 throughout: each of the {count} bytes that are part of no \
             character, the first of them byte {first}, is read as U+FFFD"
        )
    });
    (text, note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_no_character_is_replaced_and_counted() {
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
