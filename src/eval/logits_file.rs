//! llama-perplexity's file of a run's log-probabilities, the base of a KL divergence.
//!
//! All numbers are little-endian. The header is the magic `_logits_`, then the window length, the
//! vocabulary size and the number of windows as `u32`. The tokens of the text follow as `u32`, one
//! window after the other; then a row for each scored token (see
//! [`Windows::Halves`](super::perplexity::Windows)). A row is an `f32` step, the minimum
//! log-probability as `f32`, and a `u16` for each token of the vocabulary, padded to an even
//! number. The `u16` is the number of steps above the minimum. Log-probabilities more than 16 below
//! the largest are stored as 16 below it.

use std::{
    cmp::Ordering,
    io::{self, Read, Write},
};

use thiserror::Error;

use super::likelihood::Softmax;
use crate::Token;

const MAGIC: &[u8; 8] = b"_logits_";

/// The range of log-probabilities that is stored, down from the largest.
const SPAN: f32 = 16.0;

/// An error while reading a file of log-probabilities.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages explain the variants")]
pub enum Error {
    #[error("not a file of log-probabilities: it does not begin with \"_logits_\"")]
    Magic,
    #[error("the header has {what} {value}, which is out of range")]
    Header { what: &'static str, value: u32 },
    #[error("the header declares {declared} bytes, but the file has {found}: it is incomplete")]
    TooShort { declared: u64, found: u64 },
    #[error("the header declares {declared} bytes, but the file has {found}: it is damaged")]
    TooLong { declared: u64, found: u64 },
    #[error("token {at} of the text is {token}, but the vocabulary has {vocabulary} tokens")]
    Token { at: usize, token: u32, vocabulary: usize },
    #[error("row {row} has invalid log-probabilities: the file is damaged")]
    Row { row: usize },
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
}

/// Returns the number of rows of a window, one for each scored token.
fn rows(window: usize) -> usize {
    window.saturating_sub(1 + window / 2)
}

/// Returns the size of a row in bytes.
fn row_bytes(vocabulary: usize) -> usize {
    8 + 2 * vocabulary.next_multiple_of(2)
}

/// A writer of a file of log-probabilities.
pub struct Writer<W> {
    out: W,
    row: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes the header for `tokens`, which are whole windows. A row for each scored token must
    /// follow.
    ///
    /// # Errors
    ///
    /// Returns an error if writing to `out` fails, or if a number is too large for the format.
    pub fn new(mut out: W, window: usize, vocabulary: usize, tokens: &[Token]) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        for number in [window, vocabulary, tokens.len() / window.max(1)] {
            let number = i32::try_from(number).map_err(io::Error::other)?;
            out.write_all(&number.to_le_bytes())?;
        }
        for token in tokens {
            out.write_all(&token.to_le_bytes())?;
        }
        Ok(Writer { out, row: Vec::with_capacity(row_bytes(vocabulary)) })
    }

    /// Writes the row of a token that was scored with `logits`.
    ///
    /// # Errors
    ///
    /// Returns an error if writing fails.
    pub fn row(&mut self, logits: &[f32], softmax: &Softmax) -> io::Result<()> {
        let max = softmax.max;
        let min = logits.iter().copied().fold(max, f32::min).max(max - SPAN);
        let step = (max - min) / 65535.0;
        let least = min - max - softmax.log_sum as f32;
        self.row.clear();
        self.row.extend(step.to_le_bytes());
        self.row.extend(least.to_le_bytes());
        let steps_per_nat = if step > 0.0 { 1.0 / step } else { 0.0 };
        for &logit in logits {
            let steps = (steps_per_nat * (logit.max(min) - min)).round_ties_even();
            self.row.extend((steps as u16).to_le_bytes());
        }
        self.row.resize(row_bytes(logits.len()), 0);
        self.out.write_all(&self.row)
    }
}

/// A reader of a file of log-probabilities, which is untrusted. Its memory follows the bytes that were
/// read, not the numbers of the header.
pub struct Reader<R> {
    input: R,
    window: usize,
    vocabulary: usize,
    tokens: Vec<Token>,
    /// The number of rows read.
    read: usize,
    row: Vec<u8>,
    log_probabilities: Vec<f32>,
}

impl<R: Read> Reader<R> {
    /// Reads the header and the tokens of a file of `length` bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the header does not match the length, or a token is not in the
    /// vocabulary.
    pub fn new(mut input: R, length: u64) -> Result<Self, Error> {
        let mut header = [0; 20];
        if length < header.len() as u64 {
            return Err(Error::Magic);
        }
        input.read_exact(&mut header)?;
        let (magic, numbers) = header.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(Error::Magic);
        }
        let mut numbers = numbers.chunks_exact(4).map(u32_of);
        let mut number = |what, least| match numbers.next().unwrap_or_default() {
            value if value < least || value > i32::MAX as u32 => Err(Error::Header { what, value }),
            value => Ok(value as usize),
        };
        let window = number("a window of", 3)?;
        let vocabulary = number("a vocabulary of", 1)?;
        let windows = number("a number of windows of", 1)?;

        // Each number is below 2^31, so the bytes of one window are below 2^64. The sum of all may
        // not be.
        let window_bytes = 4 * window as u64 + rows(window) as u64 * row_bytes(vocabulary) as u64;
        let declared = window_bytes.saturating_mul(windows as u64).saturating_add(20);
        match declared.cmp(&length) {
            Ordering::Greater => {
                return Err(Error::TooShort { declared, found: length });
            }
            Ordering::Less => return Err(Error::TooLong { declared, found: length }),
            Ordering::Equal => {}
        }
        let mut bytes = Vec::new();
        read_to(&mut input, (4 * window as u64).saturating_mul(windows as u64), &mut bytes)?;
        let tokens: Vec<Token> = bytes.chunks_exact(4).map(u32_of).collect();
        let outside = tokens.iter().position(|&token| token as usize >= vocabulary);
        if let Some(at) = outside {
            return Err(Error::Token { at, token: tokens[at], vocabulary });
        }
        let (row, log_probabilities) = (Vec::new(), Vec::new());
        Ok(Reader { input, window, vocabulary, tokens, read: 0, row, log_probabilities })
    }

    /// Returns the number of tokens of a window.
    pub fn window(&self) -> usize {
        self.window
    }

    /// Returns the number of tokens of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Returns the tokens of the text, which are whole windows.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Reads the next row and returns its log-probabilities.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no further row, or its values are not log-probabilities.
    pub fn row(&mut self) -> Result<&[f32], Error> {
        read_to(&mut self.input, row_bytes(self.vocabulary) as u64, &mut self.row)?;
        self.log_probabilities.clear();
        let room = self.log_probabilities.try_reserve(self.vocabulary);
        room.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        self.read += 1;
        let (head, steps) = self.row.split_at(8);
        let [step, least] = [&head[..4], &head[4..]].map(|bytes| f32::from_bits(u32_of(bytes)));
        // A log-probability is at most 0; the limit of 1 allows for rounding.
        let largest = step * 65535.0 + least;
        if !(step >= 0.0 && least.is_finite() && largest <= 1.0) {
            return Err(Error::Row { row: self.read });
        }
        let steps = steps.as_chunks().0.iter().map(|steps| f32::from(u16::from_le_bytes(*steps)));
        let all = steps.map(|steps| step * steps + least).take(self.vocabulary);
        self.log_probabilities.extend(all);
        Ok(&self.log_probabilities)
    }
}

/// Replaces the contents of a buffer by the next `length` bytes. The buffer grows as they come.
fn read_to(input: impl Read, length: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    match input.take(length).read_to_end(buffer)? as u64 == length {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: usize = 8;
    const TOKENS: [Token; 16] = [0, 1, 2, 3, 4, 4, 3, 2, 1, 0, 1, 2, 3, 4, 0, 1];

    /// Returns logits of five tokens, one of them far below the others.
    fn logits(row: usize) -> [f32; 5] {
        [1.0, -2.5, row as f32, -40.0, 0.125]
    }

    fn file() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, WINDOW, 5, &TOKENS).unwrap();
        for row in 0..6 {
            let logits = logits(row);
            writer.row(&logits, &Softmax::of(&logits).unwrap()).unwrap();
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Reader<&[u8]>, Error> {
        Reader::new(bytes, bytes.len() as u64)
    }

    #[test]
    fn a_written_file_is_read_back() {
        let bytes = file();
        // 20 of the header, 4 for each token, and rows of 2 floats and 6 steps.
        assert_eq!(bytes.len(), 20 + 4 * 16 + 6 * (8 + 12));
        assert_eq!(bytes[..20], *b"_logits_\x08\0\0\0\x05\0\0\0\x02\0\0\0");
        let mut reader = read(&bytes).unwrap();
        assert_eq!((reader.window(), reader.vocabulary()), (WINDOW, 5));
        assert_eq!(reader.tokens(), TOKENS);
        for row in 0..6 {
            let logits = logits(row);
            let softmax = Softmax::of(&logits).unwrap();
            let found = reader.row().unwrap();
            for (&logit, &log) in logits.iter().zip(found) {
                let exact = -softmax.nll(logit.max(softmax.max - 16.0));
                // Half a step of 16 / 65535, and the rounding of numbers of at most 20.
                let bound = 8.0 / 65535.0 + 1e-5;
                assert!((f64::from(log) - exact).abs() < bound, "{row}: {log} {exact}");
            }
        }
        assert!(matches!(reader.row(), Err(Error::Read(_))));
    }

    #[test]
    fn equal_logits_have_no_steps() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, 3, 4, &[0, 1, 2]).unwrap();
        writer.row(&[2.0; 4], &Softmax::of(&[2.0; 4]).unwrap()).unwrap();
        let mut reader = read(&bytes).unwrap();
        for &log in reader.row().unwrap() {
            assert!((log + 4f32.ln()).abs() < 1e-6);
        }
    }

    #[test]
    fn a_file_of_another_length_is_refused() {
        let bytes = file();
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length}");
        }
        assert!(matches!(read(&bytes[..100]), Err(Error::TooShort { found: 100, .. })));
        let longer = [&bytes[..], &[0]].concat();
        assert!(matches!(read(&longer), Err(Error::TooLong { .. })));
    }

    #[test]
    fn hostile_headers_allocate_nothing() {
        for (at, what) in [(0, "begin"), (8, "window"), (12, "vocabulary"), (16, "windows")] {
            for value in [0u32, 1 << 31, u32::MAX] {
                let mut bytes = file();
                bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
                let message = read(&bytes).map(drop).unwrap_err().to_string();
                assert!(message.contains(what), "{at} {value}: {message}");
            }
        }
        let mut bytes = file();
        for at in [8, 12, 16] {
            bytes[at..at + 4].copy_from_slice(&i32::MAX.to_le_bytes());
        }
        assert!(matches!(read(&bytes), Err(Error::TooShort { declared: u64::MAX, .. })));
        // Even if the file claims to have all of it.
        let claimed = Reader::new(&bytes[..], u64::MAX).map(drop);
        assert!(
            matches!(claimed, Err(Error::Read(error)) if error.kind() == io::ErrorKind::UnexpectedEof)
        );
    }

    #[test]
    fn tokens_and_rows_that_are_none_are_refused() {
        let mut bytes = file();
        bytes[20 + 4 * 3] = 5;
        assert!(matches!(read(&bytes), Err(Error::Token { at: 3, token: 5, vocabulary: 5 })));
        let first = 20 + 4 * 16;
        for (at, value) in [
            (0, f32::NAN),
            (0, -1.0),
            (0, f32::INFINITY),
            (0, 1.0),
            (4, f32::NAN),
            (4, f32::NEG_INFINITY),
            (4, 30.0),
        ] {
            let mut bytes = file();
            let at = first + 20 + at;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let mut reader = read(&bytes).unwrap();
            reader.row().unwrap();
            assert!(matches!(reader.row(), Err(Error::Row { row: 2 })), "{at} {value}");
        }
    }
}
