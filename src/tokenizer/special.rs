//! Finding tokens that a text names in full: `<|im_end|>`, and user-defined ones.
//!
//! The longest token is looked for first, in the whole text; the next only in what remains. This
//! differs from taking the longest token at each place: of `<a` and `a><b`, the text `<a><b` holds
//! only the second. Of two of the same length the lower number comes first.

use std::cmp::Reverse;

use super::{
    Error, Special,
    vocabulary::{Kind, Vocabulary},
};
use crate::{Token, gguf::Metadata};

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    /// Text still to be cut into tokens; never empty.
    Text(&'t str),
    /// A token that was written out.
    Token(Token),
}

/// Looks for the special tokens of one vocabulary.
#[derive(Debug)]
pub(super) struct Finder {
    /// For each byte, how long the special tokens are that begin with it.
    lengths: Vec<Vec<usize>>,
    /// The tokens that take the white space after them along. llama.cpp has a rule for white space
    /// before tokens as well, but only for embedding models.
    strips_after: Vec<Token>,
}

impl Finder {
    pub fn new(vocabulary: &Vocabulary, metadata: &Metadata) -> Result<Self, Error> {
        let mut lengths = vec![Vec::new(); 256];
        let mut strips_after = Vec::new();
        let name = metadata.string("general.name")?.unwrap_or_default().to_lowercase();
        // A Phi 3 file does not say that its tokens strip, so llama.cpp goes by its name.
        let is_phi3 = name.contains("phi-3") || name.contains("phi3");
        for (token, text, kind) in vocabulary.iter() {
            let special = matches!(kind, Kind::Control | Kind::UserDefined | Kind::Unknown);
            if special && let Some(&first) = text.as_bytes().first() {
                lengths[first as usize].push(text.len());
            }
            if is_phi3
                && (special || text == "</s>")
                && !["<unk>", "<s>", "<|endoftext|>"].contains(&text)
            {
                strips_after.push(token);
            }
        }
        for lengths in &mut lengths {
            lengths.sort_unstable();
            lengths.dedup();
        }
        Ok(Self { lengths, strips_after })
    }

    /// Cuts the special tokens out of a text.
    pub fn split<'t>(
        &self,
        text: &'t str,
        vocabulary: &Vocabulary,
        special: Special,
    ) -> Vec<Fragment<'t>> {
        let mut found = self.occurrences(text, vocabulary, special);
        found.sort_unstable_by_key(|&(start, token, len)| (Reverse(len), token, start));

        let mut taken = vec![false; if found.is_empty() { 0 } else { text.len() }];
        found.retain(|&(start, token, len)| {
            if taken[start..start + len].contains(&true) {
                return false;
            }
            let mut end = start + len;
            if self.strips_after.contains(&token) {
                let is_space = |&b: &u8| b.is_ascii_whitespace() || b == b'\x0b';
                let after = text.as_bytes()[end..].iter().zip(&taken[end..]);
                end += after.take_while(|(byte, taken)| is_space(byte) && !**taken).count();
            }
            taken[start..end].fill(true);
            true
        });
        found.sort_unstable();

        let mut fragments = Vec::with_capacity(2 * found.len() + 1);
        let mut start = 0;
        for (at, token, len) in found {
            // What was stripped is taken, but part of no token.
            while start < at && taken[start] {
                start += 1;
            }
            if start < at {
                fragments.push(Fragment::Text(&text[start..at]));
            }
            fragments.push(Fragment::Token(token));
            start = at + len;
        }
        while taken.get(start) == Some(&true) {
            start += 1;
        }
        if start < text.len() {
            fragments.push(Fragment::Text(&text[start..]));
        }
        fragments
    }

    /// Where each special token stands in a text, overlapping ones included: start, token, bytes.
    fn occurrences(
        &self,
        text: &str,
        vocabulary: &Vocabulary,
        special: Special,
    ) -> Vec<(usize, Token, usize)> {
        let mut found = Vec::new();
        for (start, first) in text.bytes().enumerate() {
            for &len in &self.lengths[first as usize] {
                let Some(candidate) = text.get(start..start + len) else { continue };
                let Some(token) = vocabulary.token(candidate) else { continue };
                let wanted = match vocabulary.kind(token) {
                    Kind::UserDefined => true,
                    Kind::Control | Kind::Unknown => special == Special::Parse,
                    _ => false,
                };
                if wanted {
                    found.push((start, token, len));
                }
            }
        }
        found
    }
}
