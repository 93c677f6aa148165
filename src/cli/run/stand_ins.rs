//! Bytes that are not UTF-8, in the text of a chat template.
//!
//! A template renders text, but a question may have other bytes. Each becomes a private-use
//! character in the message, and a byte again in the rendered text.

use std::ops::RangeInclusive;

/// The stand-in of byte 0. ASCII needs none.
const ZERO: u32 = 0x10_f800;

const STAND_INS: RangeInclusive<u32> = ZERO + 0x80..=ZERO + 0xff;

/// Returns a text for a template. Stand-ins in `bytes` are replaced byte by byte.
pub fn embed(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if STAND_INS.contains(&character.into()) {
                text.extend(character.to_string().bytes().filter_map(stand_in));
            } else {
                text.push(character);
            }
        }
        text.extend(chunk.invalid().iter().copied().filter_map(stand_in));
    }
    text
}

/// Returns the bytes of a rendered text.
pub fn extract(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        if STAND_INS.contains(&character.into()) {
            bytes.push((u32::from(character) - ZERO) as u8);
        } else {
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    bytes
}

fn stand_in(byte: u8) -> Option<char> {
    char::from_u32(ZERO + u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::{embed, extract};

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).chain("a é 😀".bytes()).collect();
        let own = "\u{10f880}\u{10f8ff}\u{10f87f}\u{10f900}".as_bytes();
        for bytes in [&all, own, b"r\xe4in \xf4\x8f\xa2", "the räin".as_bytes(), b""] {
            assert_eq!(extract(&embed(bytes)), bytes);
        }
        assert_eq!(embed("the räin".as_bytes()), "the räin");
    }
}
