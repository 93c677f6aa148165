//! Reuses parts of a prompt that a kept sequence has computed at other positions.
//!
//! ```text
//! kept      | system | document A | question |      | system | document B | ...
//! prompt    | system | document B | document A | other question |
//!             reused   moved        moved          computed
//! ```
//! The first tokens of each part are computed again. They restore some of the precision that a part
//! loses when it is moved: see [`Engine::place`].

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ops::Range,
};

use crate::{
    Token,
    model::{Engine, Error, Sequence},
};

/// Kept sequences are searched in blocks of this many tokens.
const BLOCK: usize = 32;

/// The number of tokens at the start of a part that are computed again.
const COMPUTED: usize = 32;

/// Maximum tokens to move between two steps, so that other answers do not wait for a long copy.
const PLACED_MAX: usize = 512;

/// The shortest part that is always found, wherever it starts.
pub const LEAST: usize = 2 * BLOCK - 1;

/// The parts of a prompt to move, in order.
#[derive(Default)]
pub struct Moves(VecDeque<Part>);

struct Part {
    /// The index of its first token in the prompt.
    start: usize,
    source: Sequence,
    tokens: Range<usize>,
}

impl Moves {
    /// Finds the parts of at least `least` tokens that follow the first `reused` tokens of a prompt and
    /// are in `sources`. The last token of the prompt is never moved, for its logits.
    pub fn find<'s>(
        prompt: &[Token],
        reused: usize,
        least: usize,
        sources: impl Iterator<Item = &'s Sequence>,
    ) -> Self {
        let sources: Vec<&Sequence> = sources.collect();
        let texts: Vec<_> = sources.iter().map(|source| source.tokens()).collect();
        let parts =
            parts(prompt, reused, least, &texts).into_iter().map(|(start, text, tokens)| {
                // A clone shares the pages until the part is moved.
                let source = sources[text].clone();
                let (start, tokens) = (start + COMPUTED, tokens.start + COMPUTED..tokens.end);
                Part { start, source, tokens }
            });
        Moves(parts.collect())
    }

    /// Returns the index in the prompt up to which tokens are computed next. While a part is moved in
    /// several steps, no token is computed.
    pub fn next(&self) -> usize {
        self.0.front().map_or(usize::MAX, |part| part.start)
    }

    /// Moves tokens of the parts that follow the tokens of a sequence, and returns their number. If
    /// the cache has no room for a part, this part and all later ones are computed instead.
    ///
    /// # Errors
    /// As for [`Engine::place`].
    pub fn place(&mut self, engine: &Engine, sequence: &mut Sequence) -> Result<usize, Error> {
        let before = sequence.tokens().len();
        // None is earlier, so that the tokens up to the next one can be counted.
        self.0.retain(|part| part.start >= before);
        let mut placed = 0;
        while let Some(Part { start, source, tokens }) = self.0.front_mut()
            && *start == before + placed
            && placed < PLACED_MAX
        {
            let end = tokens.end.min(tokens.start + PLACED_MAX - placed);
            if !engine.place(sequence, source, tokens.start..end)? {
                self.0.clear();
                break;
            }
            let count = end - tokens.start;
            (placed, *start, tokens.start) = (placed + count, *start + count, end);
            if tokens.start == tokens.end {
                self.0.pop_front();
            }
        }
        Ok(placed)
    }
}

/// The set of all blocks of a prompt. It finds out quickly that a text shares nothing with the
/// prompt.
pub struct Blocks<'p>(HashSet<&'p [Token]>);

impl<'p> Blocks<'p> {
    /// Returns the blocks after the first `reused` tokens of a prompt.
    pub fn of(prompt: &'p [Token], reused: usize) -> Self {
        Blocks(prompt[reused..].windows(BLOCK).collect())
    }

    /// Returns whether a text has one of the blocks at a multiple of the block length. Every part
    /// that can be found has such a block.
    pub fn any_in(&self, text: &[Token]) -> bool {
        text.chunks_exact(BLOCK).any(|block| self.0.contains(block))
    }
}

/// Returns the number of tokens after the first `reused` ones of a prompt that could be moved from
/// `texts`.
pub fn count(prompt: &[Token], reused: usize, least: usize, texts: &[&[Token]]) -> usize {
    parts(prompt, reused, least, texts).iter().map(|(.., tokens)| tokens.len() - COMPUTED).sum()
}

/// Returns the parts of a prompt that are in `texts`: the index of the part's first token, the
/// index of the text, and the range in the text.
fn parts(
    prompt: &[Token],
    reused: usize,
    least: usize,
    texts: &[&[Token]],
) -> Vec<(usize, usize, Range<usize>)> {
    let mut blocks = HashMap::new();
    for (text, tokens) in texts.iter().enumerate() {
        for (i, block) in tokens.chunks_exact(BLOCK).enumerate() {
            blocks.entry(block).or_insert((text, i * BLOCK));
        }
    }
    let end = prompt.len().saturating_sub(1);
    let (mut found, mut done, mut at) = (Vec::new(), reused, reused);
    while at + BLOCK <= end {
        let Some(&(text, there)) = blocks.get(&prompt[at..at + BLOCK]) else {
            at += 1;
            continue;
        };
        let tokens = texts[text];
        let alike = |(a, b): &(&Token, &Token)| a == b;
        let before = prompt[done..at].iter().rev().zip(tokens[..there].iter().rev());
        let before = before.take_while(alike).count();
        let after = prompt[at..end].iter().zip(&tokens[there..]).take_while(alike).count();
        if before + after >= least.max(COMPUTED + 1) {
            found.push((at - before, text, there - before..there + after));
            done = at + after;
        }
        at += after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns tokens that occur nowhere else.
    fn text(number: u32, len: u32) -> Vec<Token> {
        (0..len).map(|i| 10_000 * number + i).collect()
    }

    #[test]
    fn parts_are_found_at_any_place_and_as_long_as_they_are() {
        let (a, b) = (text(1, 500), text(2, 300));
        for offset in [0, 1, 31, 32, 77] {
            let prompt = [&text(3, 40)[..], &b[offset..], &a[..400], &text(4, 9)].concat();
            let found = parts(&prompt, 0, 64, &[&a, &b]);
            let after = 40 + 300 - offset;
            assert_eq!(found, [(40, 1, offset..300), (after, 0, 0..400)], "{offset}");
        }
    }

    #[test]
    fn neither_reused_tokens_nor_the_last_one_are_moved() {
        let a = text(1, 300);
        assert_eq!(parts(&a, 100, 64, &[&a]), [(100, 0, 100..299)]);
        assert_eq!(parts(&a, 240, 64, &[&a]), []);
        assert_eq!(parts(&[], 0, 64, &[&a]), []);
        assert_eq!(parts(&a, 0, 64, &[]), []);
    }

    #[test]
    fn every_part_of_the_least_length_is_found() {
        let a = text(1, 400);
        for start in 0..100 {
            for (len, is_found) in [(LEAST, true), (LEAST - 1, false)] {
                let prompt = [&text(3, 7)[..], &a[start..start + len], &text(4, 1)].concat();
                assert_eq!(parts(&prompt, 0, LEAST, &[&a]).len() == 1, is_found, "{start} {len}");
            }
            let prompt = [&text(3, 7)[..], &a[start..start + LEAST], &text(4, 1)].concat();
            assert!(Blocks::of(&prompt, 0).any_in(&a), "{start}");
        }
        assert!(!Blocks::of(&a, 400 - BLOCK + 1).any_in(&a));
        assert!(!Blocks::of(&text(2, 400), 0).any_in(&a));
    }
}
