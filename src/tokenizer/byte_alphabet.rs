//! The alphabet of byte-level BPE, which maps each of the 256 bytes to a printable character.
//!
//! A byte that is printable in Latin-1 maps to that character; the other 68 map to U+0100 and
//! following. So a space is `Ġ` and a newline is `Ċ`. The rule is GPT-2's `bytes_to_unicode`.

const fn prints(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// The character of each byte.
pub(super) const CHARACTERS: [char; 256] = {
    let mut characters = ['\0'; 256];
    let mut byte = 0;
    let mut others = 0;
    while byte < 256 {
        characters[byte] = if prints(byte as u8) {
            byte as u8 as char
        } else {
            others += 1;
            // U+0100..U+0143 are assigned characters of two bytes in UTF-8.
            match char::from_u32(0xff + others) {
                Some(character) => character,
                None => unreachable!(),
            }
        };
        byte += 1;
    }
    characters
};

/// The number of characters of the alphabet, counted from U+0000.
const SPAN: usize = 0x144;

/// The byte of each character.
const BYTES: [Option<u8>; SPAN] = {
    let mut bytes = [None; SPAN];
    let mut byte = 0;
    while byte < 256 {
        bytes[CHARACTERS[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    bytes
};

/// Appends bytes to `text`, spelled in the alphabet.
pub(super) fn encode(bytes: &[u8], text: &mut String) {
    text.extend(bytes.iter().map(|byte| CHARACTERS[*byte as usize]));
}

/// Returns the bytes that a text spells. A character outside the alphabet, which only occurs in
/// tokens added to a vocabulary by hand, becomes its UTF-8 bytes.
pub(super) fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match BYTES.get(character as usize).copied().flatten() {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character_and_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        let mut text = String::new();
        encode(&all, &mut text);
        assert_eq!(decode(&text), all);
        assert_eq!((CHARACTERS[b' ' as usize], CHARACTERS[b'\n' as usize]), ('Ġ', 'Ċ'));
        assert_eq!((CHARACTERS[0], CHARACTERS[0xad]), ('Ā', 'Ń'));
    }

    #[test]
    fn characters_outside_the_alphabet_stand_for_themselves() {
        assert_eq!(decode("Ġ語 "), " 語 ".as_bytes());
    }
}
