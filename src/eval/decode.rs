//! Compares two engines of a model, token by token at the end of a text. For example, it measures how
//! much a cache type or sparse attention changes the probabilities, and how much time it saves.

use std::{ops::AddAssign, time::Instant};

use super::{kl::Divergence, likelihood::Softmax, perplexity::Error};
use crate::{
    Token,
    model::{Engine, Feed, Output, Role, Sequence},
};

/// The comparison of an engine with another one, the base.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// The divergence of the probabilities from the base's.
    pub divergence: Divergence,
    /// The number of blocks of keys that sparse attention has read, and the number of all.
    pub blocks: [u64; 2],
    /// The seconds of each step, of the base and of the other engine.
    pub seconds: Vec<[f64; 2]>,
    /// The prompts.
    pub prompts: Prompts,
}

/// The comparison of prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prompts {
    /// The number of blocks of keys that sparse attention has read, and the number of all.
    pub blocks: [u64; 2],
    /// The seconds of all prompts, of the base and of the other engine.
    pub seconds: [f64; 2],
    /// The seconds of the tokens that sparse attention can serve, of the base and of the other engine.
    pub sparse_seconds: [f64; 2],
}

impl Prompts {
    /// Returns the share of the keys that sparse attention has read, if layers are sparse.
    pub fn share_read(&self) -> Option<f64> {
        share(self.blocks)
    }
}

impl Decoded {
    /// Returns the share of the keys that sparse attention has read, if layers are sparse.
    pub fn share_read(&self) -> Option<f64> {
        share(self.blocks)
    }

    /// Returns the median seconds of a step, of the base and of the other engine.
    pub fn seconds(&self) -> [f64; 2] {
        [0, 1].map(|i| median(self.seconds.iter().map(|step| step[i])))
    }

    /// Returns how many times faster the other engine is: the median of the ratios of neighbouring
    /// steps.
    pub fn speedup(&self) -> f64 {
        median(self.seconds.iter().map(|[base, other]| base / other))
    }
}

/// Reads a text as a prompt, except its last `steps + 1` tokens, with the base and with another engine
/// of the same model. Then both read all but the last of these one by one. Adds the comparison to
/// `decoded`.
///
/// `each` is called with the number of steps so far.
///
/// # Errors
/// If the text is too short, the model cannot be computed, or logits are not finite.
pub fn decode(
    mut engines: [&mut Engine; 2],
    text: &[Token],
    steps: usize,
    decoded: &mut Decoded,
    each: &mut dyn FnMut(usize),
) -> Result<(), Error> {
    let (tokens, needed) = (text.len(), steps.saturating_add(2));
    if tokens < needed {
        return Err(Error::ShortText { tokens, window: tokens, needed });
    }
    let (prompt, rest) = text.split_at(tokens - steps - 1);
    let mut sequences = [engines[0].sequence(), engines[1].sequence()];
    let mut logits = [Vec::new(), Vec::new()];
    let sparse = engines[1].options().sparse_prompt;
    let sparse_from = sparse.map_or(usize::MAX, |sparse| sparse.length_min);
    let micro_batch = engines[1].options().micro_batch;
    for (i, part) in prompt.chunks(micro_batch).enumerate() {
        let seconds = both(&mut engines, &mut sequences, Role::Prompt, part, &mut logits, i)?;
        let prompts = &mut decoded.prompts;
        add(&mut prompts.seconds, seconds);
        if i * micro_batch >= sparse_from {
            add(&mut prompts.sparse_seconds, seconds);
        }
    }
    add(&mut decoded.prompts.blocks, engines[1].take_blocks_read());
    for (i, pair) in rest.windows(2).enumerate() {
        let seconds = both(&mut engines, &mut sequences, Role::Answer, &pair[..1], &mut logits, i)?;
        decoded.seconds.push(seconds);
        let finite = |logits: &[f32]| Softmax::of(logits).ok_or(Error::NotFinite(prompt.len() + i));
        let (base, other) = (finite(&logits[0])?, finite(&logits[1])?);
        let log_total = base.max + base.log_sum as f32;
        logits[0].iter_mut().for_each(|logit| *logit -= log_total);
        let nll = other.nll(logits[1][pair[1] as usize]);
        decoded.divergence.add(&logits[0], pair[1], nll, &other, &logits[1]);
        each(i + 1);
    }
    add(&mut decoded.blocks, engines[1].take_blocks_read());
    Ok(())
}

/// Reads tokens with both engines. Writes the logits of the last token, and returns the seconds of
/// each.
fn both(
    engines: &mut [&mut Engine; 2],
    sequences: &mut [Sequence; 2],
    role: Role,
    tokens: &[Token],
    logits: &mut [Vec<f32>; 2],
    turn: usize,
) -> Result<[f64; 2], Error> {
    let mut seconds = [0.0; 2];
    // Alternate which engine is first, so that neither has an advantage.
    for way in [turn % 2, 1 - turn % 2] {
        let start = Instant::now();
        read(engines[way], &mut sequences[way], role, tokens, &mut logits[way])?;
        seconds[way] = start.elapsed().as_secs_f64();
    }
    Ok(seconds)
}

/// Reads tokens into a sequence, and writes the logits of the last one to `logits`.
fn read(
    engine: &mut Engine,
    sequence: &mut Sequence,
    role: Role,
    mut tokens: &[Token],
    logits: &mut Vec<f32>,
) -> Result<(), Error> {
    let last = sequence.tokens().len() + tokens.len() - 1;
    while !tokens.is_empty() {
        let (wanted, output) = (last..last + 1, Output::Logits);
        let mut feeds = [Feed { sequence: &mut *sequence, tokens, role, wanted, output }];
        engine.step(&mut feeds, &mut |_, _, found| {
            logits.clear();
            logits.extend_from_slice(found);
        })?;
        tokens = feeds[0].tokens;
    }
    Ok(())
}

/// Adds to both of two sums.
fn add<T: AddAssign>(sums: &mut [T; 2], more: [T; 2]) {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

/// Returns the share of all blocks that was read, if there are any.
fn share([read, all]: [u64; 2]) -> Option<f64> {
    (all > 0).then(|| read as f64 / all as f64)
}

/// Returns the median; 0 without values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
