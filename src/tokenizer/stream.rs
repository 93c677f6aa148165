//! Decodes a stream of pieces that may end in the middle of a character.

/// Turns the bytes of successive tokens into text, in whole characters.
///
/// The bytes of an incomplete character are kept until it is complete; bytes that cannot be a part
/// of any character become U+FFFD, as in [`String::from_utf8_lossy`].
///
/// ```
/// let mut stream = rope_cpu::tokenizer::Stream::default();
/// let [first, last] = [0xc3, 0xa9]; // the bytes of é
/// assert_eq!(stream.push(&[b'a', first]), "a");
/// assert_eq!(stream.push(&[last]), "é");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stream {
    held: Vec<u8>,
}

impl Stream {
    /// Adds `bytes` and returns the text that is complete.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let whole = match self.held.utf8_chunks().last() {
            // Without an error length, the last chunk is a character that lacks its last bytes.
            Some(last) => match std::str::from_utf8(last.invalid()) {
                Err(e) if e.error_len().is_none() => self.held.len() - last.invalid().len(),
                _ => self.held.len(),
            },
            None => 0,
        };
        let text = String::from_utf8_lossy(&self.held[..whole]).into_owned();
        self.held.drain(..whole);
        text
    }

    /// Returns whether the last character is complete.
    pub fn is_whole(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the rest at the end of the text: U+FFFD if the last character is incomplete.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.held).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_wait_for_their_last_byte() {
        let mut stream = Stream::default();
        let pieces: Vec<String> = "aé語🦙".bytes().map(|byte| stream.push(&[byte])).collect();
        assert_eq!(pieces, ["a", "", "é", "", "", "語", "", "", "", "🦙"]);
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn invalid_bytes_are_replaced_as_soon_as_they_are_known_to_be() {
        let mut stream = Stream::default();
        assert_eq!(stream.push(b"a\xff"), "a\u{fffd}");
        assert_eq!(stream.push(b"\xe8\xaa"), "");
        assert_eq!(stream.push(b"b"), "\u{fffd}b");
        assert_eq!(stream.push(b"\xf0\x9f"), "");
        assert_eq!(stream.finish(), "\u{fffd}");
    }

    #[test]
    fn any_cut_of_any_bytes_gives_the_text_of_the_whole() {
        let samples: [&[u8]; 4] = [
            "naïve 語 🦙\u{301}".as_bytes(),
            b"\xf0\x9f\xa6",
            b"\xe8a\xaa\xc0\x80",
            b"\xed\xa0\x80z",
        ];
        for bytes in samples {
            for cut in 0..=bytes.len() {
                let mut stream = Stream::default();
                let text =
                    stream.push(&bytes[..cut]) + &stream.push(&bytes[cut..]) + &stream.finish();
                assert_eq!(text, String::from_utf8_lossy(bytes), "{bytes:x?} cut at {cut}");
            }
        }
    }
}
