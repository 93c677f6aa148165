//! Texts that are not entirely UTF-8. For example, a text may be in an older encoding, or cut in
//! the middle of a character.

use std::borrow::Cow;

/// Replaces a surrogate, which a `str` cannot contain. It has the same number of bytes, and no
/// pattern distinguishes the two.
const SURROGATE: char = '\u{e000}';

/// A text as llama.cpp's BPE tokenizers read it.
///
/// Each byte that is not part of a character becomes U+FFFD. Overlong forms, such as Java's NUL,
/// and surrogates are characters here, although UTF-8 excludes them.
#[derive(Debug)]
pub(super) struct Characters<'t> {
    /// The text for patterns, with U+E000 in place of surrogates.
    pub text: Cow<'t, str>,
    /// The bytes of the text, at the same places, with the surrogates themselves.
    pub bytes: Cow<'t, [u8]>,
}

impl<'t> Characters<'t> {
    /// Reads a text.
    pub fn new(bytes: &'t [u8]) -> Self {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Self { text: text.into(), bytes: bytes.into() };
        }
        let (mut text, mut spelled) = (String::with_capacity(bytes.len()), Vec::new());
        let mut rest = bytes;
        while !rest.is_empty() {
            let found = character(rest).filter(|(code, _)| *code <= char::MAX.into());
            let (code, len) = found.unwrap_or((char::REPLACEMENT_CHARACTER.into(), 1));
            match char::from_u32(code) {
                Some(character) => {
                    text.push(character);
                    spelled.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                None => {
                    text.push(SURROGATE);
                    let low = |bits: u32| 0x80 | (bits & 0x3f) as u8;
                    spelled.extend([0xed, low(code >> 6), low(code)]);
                }
            }
            rest = &rest[len..];
        }
        Self { text: text.into(), bytes: spelled.into() }
    }
}

/// Decodes the character at the start of `bytes`. Returns its number and its bytes; `None` if the
/// bytes do not follow the scheme of UTF-8.
fn character(bytes: &[u8]) -> Option<(u32, usize)> {
    let first = *bytes.first()?;
    let len = len(first);
    let value = match first {
        0x80..=0xbf | 0xf8.. => return None,
        0xf0.. => first & 0x07,
        0xe0.. => first & 0x0f,
        0xc0.. => first & 0x1f,
        _ => first,
    };
    let code = bytes.get(1..len)?.iter().try_fold(u32::from(value), |code, byte| {
        (byte & 0xc0 == 0x80).then_some(code << 6 | u32::from(byte & 0x3f))
    });
    Some((code?, len))
}

/// Splits a text into characters, each as long as its first byte says. In text that is not UTF-8, a
/// character may include bytes of others.
pub(super) fn characters(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let len = len(*rest.first()?).min(rest.len());
        rest.split_off(..len)
    })
}

/// Returns the number of bytes of a character with this first byte; 1 if no character starts with
/// it.
fn len(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::Characters;

    fn read(bytes: &[u8]) -> (String, Vec<u8>) {
        let Characters { text, bytes } = Characters::new(bytes);
        assert_eq!(text.len(), bytes.len());
        (text.into(), bytes.into())
    }

    #[test]
    fn each_byte_outside_characters_is_replaced() {
        for (bytes, text) in [
            ("aé€😀".as_bytes(), "aé€😀"),
            (b"", ""),
            (b"a\xe2\x82", "a\u{fffd}\u{fffd}"),
            (b"\xffa\x80b", "\u{fffd}a\u{fffd}b"),
            (b"\xc3\xa9\xf0\x9f\x98!", "é\u{fffd}\u{fffd}\u{fffd}!"),
            (b"\xf8\x88\x80\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
            // Beyond U+10FFFF, where llama.cpp stops.
            (b"\xf4\x90\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(read(bytes), (text.into(), text.into()));
        }
    }

    #[test]
    fn what_only_the_scheme_can_spell_is_a_character() {
        for (bytes, text) in
            [(&b"a\xc0\x80b"[..], "a\0b"), (b"\xc1\x81\xff", "A\u{fffd}"), (b"\xe0\x83\xa9", "é")]
        {
            assert_eq!(read(bytes), (text.into(), text.into()));
        }
        let surrogates = b"x\xed\xa0\xbd\xed\xb8\x80";
        assert_eq!(read(surrogates), ("x\u{e000}\u{e000}".into(), surrogates.into()));
        assert_eq!(read(b"x\xf0\x8d\xa0\xbd\xed\xb8\x80").1, surrogates);
    }
}
