//! Texts that are not entirely UTF-8, such as those in older encodings or cut within a character.

use std::borrow::Cow;

/// Returns a text with U+FFFD in place of each byte that is not part of a character, as llama.cpp's BPE
/// tokenizers read it.
pub fn replace_invalid_bytes(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::replace_invalid_bytes;

    #[test]
    fn each_invalid_byte_is_replaced() {
        for (bytes, text) in [
            ("aé€".as_bytes(), "aé€"),
            (b"", ""),
            (b"a\xe2\x82", "a\u{fffd}\u{fffd}"),
            (b"\xffa\x80b", "\u{fffd}a\u{fffd}b"),
            (b"\xc3\xa9\xf0\x9f\x98!", "é\u{fffd}\u{fffd}\u{fffd}!"),
        ] {
            assert_eq!(replace_invalid_bytes(bytes), text);
        }
    }
}
