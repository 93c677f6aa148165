//! Compares two engines of a model, token by token at the end of a text: what cache types or sparse
//! attention cost in probabilities, and what they save in seconds.

use std::time::Instant;

use super::{kl::Divergence, likelihood::Softmax, perplexity::Error};
use crate::{
    Token,
    model::{Engine, Feed, Output, Role, Sequence},
};

/// The comparison of an engine with another one, the base.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// How far the probabilities are from the base's.
    pub divergence: Divergence,
    /// The number of blocks of keys that sparse attention has read, and the number of all.
    pub blocks: [u64; 2],
    /// The seconds of each step, of the base and of the other engine.
    pub seconds: Vec<[f64; 2]>,
}

impl Decoded {
    /// Returns the share of the keys that sparse attention has read, if layers are sparse.
    pub fn share_read(&self) -> Option<f64> {
        let [read, all] = self.blocks.map(|blocks| blocks as f64);
        (all > 0.0).then(|| read / all)
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
    engines: [&mut Engine; 2],
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
    for way in [0, 1] {
        read(engines[way], &mut sequences[way], Role::Prompt, prompt, &mut logits[way])?;
    }
    engines[1].take_blocks_read();
    for (i, pair) in rest.windows(2).enumerate() {
        let mut seconds = [0.0; 2];
        // In turns, so that neither always follows the other.
        for way in [i % 2, 1 - i % 2] {
            let start = Instant::now();
            let (sequence, logits) = (&mut sequences[way], &mut logits[way]);
            read(engines[way], sequence, Role::Answer, &pair[..1], logits)?;
            seconds[way] = start.elapsed().as_secs_f64();
        }
        decoded.seconds.push(seconds);
        let finite = |logits: &[f32]| Softmax::of(logits).ok_or(Error::NotFinite(prompt.len() + i));
        let (base, other) = (finite(&logits[0])?, finite(&logits[1])?);
        let log_total = base.max + base.log_sum as f32;
        logits[0].iter_mut().for_each(|logit| *logit -= log_total);
        let nll = other.nll(logits[1][pair[1] as usize]);
        decoded.divergence.add(&logits[0], pair[1], nll, &other, &logits[1]);
        each(i + 1);
    }
    let read = engines[1].take_blocks_read();
    decoded.blocks.iter_mut().zip(read).for_each(|(all, more)| *all += more);
    Ok(())
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

/// Returns the median; 0 without values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
