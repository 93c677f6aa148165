//! Finds special tokens in a text: control tokens such as `<|im_end|>`, and user-defined tokens.
//!
//! The longest tokens are searched for first, in the whole text, and shorter ones in the rest. This
//! differs from taking the longest token at each position. For example, with the tokens `<a` and
//! `a><b`, only the second one is found in the text `<a><b`. Among tokens of the same length, the
//! lower number comes first.

use std::collections::BTreeMap;

use super::{
    Error, Special,
    vocabulary::{Kind, Vocabulary},
};
use crate::{Token, gguf::Metadata};

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    /// Text that is not tokenized yet; never empty.
    Text(&'t [u8]),
    /// A special token.
    Token(Token),
}

/// Searches for the special tokens of one vocabulary.
#[derive(Debug)]
pub(super) struct Finder {
    /// The lengths of special tokens, the longest first.
    lengths: Vec<Length>,
    /// The tokens that remove the white space after them. llama.cpp also has a rule for white space
    /// before tokens, but only for embedding models.
    strips_after: Vec<Token>,
}

/// The special tokens of one length.
#[derive(Debug)]
struct Length {
    /// The length in bytes.
    len: usize,
    /// For each byte value, whether a special token of this length starts with it.
    begins: Vec<bool>,
}

impl Finder {
    pub fn new(vocabulary: &Vocabulary, metadata: &Metadata) -> Result<Self, Error> {
        let mut begins = BTreeMap::new();
        let mut strips_after = Vec::new();
        let name = metadata.string("general.name")?.unwrap_or_default().to_lowercase();
        // A Phi 3 file has no key for this rule, so the model's name decides, as in llama.cpp.
        let is_phi3 = name.contains("phi-3") || name.contains("phi3");
        for (token, text, kind) in vocabulary.iter() {
            let special = matches!(kind, Kind::Control | Kind::UserDefined | Kind::Unknown);
            if special && let Some(&first) = text.as_bytes().first() {
                begins.entry(text.len()).or_insert_with(|| vec![false; 256])[first as usize] = true;
            }
            if is_phi3
                && (special || text == "</s>")
                && !["<unk>", "<s>", "<|endoftext|>"].contains(&text)
            {
                strips_after.push(token);
            }
        }
        let lengths = begins.into_iter().rev().map(|(len, begins)| Length { len, begins });
        Ok(Self { lengths: lengths.collect(), strips_after })
    }

    /// Cuts the special tokens out of a text.
    pub fn split<'t>(
        &self,
        text: &'t [u8],
        vocabulary: &Vocabulary,
        special: Special,
    ) -> Vec<Fragment<'t>> {
        let mut taken = vec![false; text.len()];
        let mut found = Vec::new();
        for length in &self.lengths {
            let mut candidates = length.candidates(text, &taken, vocabulary, special);
            candidates.sort_unstable();
            for (token, start) in candidates {
                let mut end = start + length.len;
                if taken[start..end].contains(&true) {
                    continue;
                }
                found.push((start, end, token));
                if self.strips_after.contains(&token) {
                    end += spaces_at(&text[end..], &taken[end..]);
                }
                taken[start..end].fill(true);
            }
        }
        found.sort_unstable();

        let mut fragments = Vec::with_capacity(2 * found.len() + 1);
        let mut rest = 0;
        let end_of_text = (text.len(), text.len(), None);
        let found = found.into_iter().map(|(start, end, token)| (start, end, Some(token)));
        for (start, end, token) in found.chain([end_of_text]) {
            // White space that was removed is taken, but is not a part of any token.
            let stripped = taken[rest..start].iter().take_while(|taken| **taken).count();
            if rest + stripped < start {
                fragments.push(Fragment::Text(&text[rest + stripped..start]));
            }
            fragments.extend(token.map(Fragment::Token));
            rest = end;
        }
        fragments
    }
}

impl Length {
    /// Returns the special tokens of this length in the text that is not `taken`, each with its
    /// start. Matches may overlap.
    fn candidates(
        &self,
        text: &[u8],
        taken: &[bool],
        vocabulary: &Vocabulary,
        special: Special,
    ) -> Vec<(Token, usize)> {
        let mut candidates = Vec::new();
        for (start, first) in text.iter().enumerate() {
            if !self.begins[*first as usize] || taken[start] {
                continue;
            }
            let Some(candidate) = text.get(start..start + self.len) else { continue };
            let Some(token) = vocabulary.token(candidate) else { continue };
            let wanted = match vocabulary.kind(token) {
                Kind::UserDefined => true,
                Kind::Control | Kind::Unknown => special == Special::Parse,
                _ => false,
            };
            if wanted {
                candidates.push((token, start));
            }
        }
        candidates
    }
}

/// Returns the number of bytes at the start that are white space and not taken.
fn spaces_at(bytes: &[u8], taken: &[bool]) -> usize {
    let is_space = |b: u8| b.is_ascii_whitespace() || b == b'\x0b';
    bytes.iter().zip(taken).take_while(|(byte, taken)| is_space(**byte) && !**taken).count()
}
