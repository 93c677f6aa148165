//! Divisors of the frequencies that a file stores as tensors. They apply before any scaling rule.

use std::{fmt, sync::Arc};

use super::{Error, LONG, METHODS, Plan, Policy, SHORT, Scaling, Sourced, keys::Keys};
use crate::gguf::Gguf;

/// The name of the tensor of divisors that do not depend on the sequence length.
pub const ROPE_FREQS: &str = "rope_freqs.weight";

/// The tensors of divisors in a file: f32, one value for each rotated pair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Factors {
    /// `rope_freqs.weight`
    pub rope_freqs: Option<Vec<f32>>,
    /// `rope_factors_long.weight`
    pub long: Option<Vec<f32>>,
    /// `rope_factors_short.weight`
    pub short: Option<Vec<f32>>,
}

impl Factors {
    /// Reads the tensors that are in the file.
    ///
    /// # Errors
    /// If one of the tensors is not f32.
    pub fn read(gguf: &Gguf) -> Result<Factors, Error> {
        let read = |name: &'static str| {
            let Some(tensor) = gguf.tensor(name) else { return Ok(None) };
            if tensor.ggml_type.name != "f32" {
                return Err(Error::FactorType { tensor: name, found: tensor.ggml_type.name });
            }
            let values = tensor.bytes.as_chunks::<4>().0;
            Ok(Some(values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()))
        };
        Ok(Factors { rope_freqs: read(ROPE_FREQS)?, long: read(LONG)?, short: read(SHORT)? })
    }

    /// Returns the values of a tensor, if the file has it.
    pub(super) fn get(&self, tensor: &str) -> Option<&Vec<f32>> {
        let all = [(ROPE_FREQS, &self.rope_freqs), (LONG, &self.long), (SHORT, &self.short)];
        all.into_iter().find(|(name, _)| *name == tensor)?.1.as_ref()
    }
}

/// The divisors of the frequencies. They format as their tensors in the RoPE line, after a comma.
pub trait Divisors: fmt::Debug + fmt::Display + Send + Sync {
    /// Returns the divisors for a sequence of `length` tokens, one for each pair.
    fn at(&self, length: usize) -> &[f32];

    /// Returns one length for all lengths with the divisors of `tokens`, or `None` if the divisors
    /// do not depend on the length.
    fn effective_length(&self, _tokens: usize, _context: usize) -> Option<usize> {
        None
    }

    /// Returns the default policy if the divisors depend on the length.
    fn policy(&self) -> Option<Policy> {
        None
    }

    /// Returns the attention scale that belongs to the divisors, if the file has none.
    fn attention_scale(&self, _context_train: usize) -> Option<Sourced<f64>> {
        None
    }

    /// Returns whether the divisors extend the original context to the trained one.
    fn reach_trained(&self) -> bool {
        false
    }

    /// Returns an error if a file with one set of divisors cannot replace these.
    fn check_bakeable(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns a warning about settings of `plan` that are probably a mistake with the divisors.
    fn warning(&self, _plan: &Plan) -> Option<String> {
        None
    }

    /// Returns the differences from llama.cpp, one sentence each. `plan` has the divisors.
    fn unlike_llama_cpp(&self, _plan: &Plan) -> Vec<String> {
        Vec::new()
    }
}

/// Reads the divisors of a model with this trained length.
type Read = fn(&Keys, &Factors, &Sourced<usize>) -> Result<Arc<dyn Divisors>, Error>;

/// The divisors that files of one method store.
#[derive(Clone, Copy)]
pub(super) struct Stored {
    /// The name of the method in messages.
    pub title: &'static str,
    /// The tensors. In some families, the first marks a file of the method.
    pub tensors: &'static [&'static str],
    pub read: Read,
}

/// `rope_freqs.weight`: any rule that does not depend on the length, as computed by the
/// converter. For Llama 3.1 the values are 1 for high frequencies, the factor for low ones, and a
/// blend between.
#[derive(Debug)]
struct Fixed(Vec<f32>);

impl Divisors for Fixed {
    fn at(&self, _length: usize) -> &[f32] {
        &self.0
    }
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", frequencies divided ({ROPE_FREQS})")
    }
}

/// Pairs with at least this divisor count as still: no context is long enough for them to turn
/// noticeably. Files with proportional RoPE have 1e30 for such pairs.
pub(super) const STILL: f32 = 1e20;

/// Returns the number of pairs that turn: all before the last ones that the divisors hold still.
pub(super) fn turning(keys: &Keys) -> usize {
    let used = keys.family.divisors.contains(&ROPE_FREQS);
    let divisors = keys.factors.rope_freqs.as_ref().filter(|all| used && all.len() == keys.pairs);
    let last = divisors.and_then(|all| all.iter().rposition(|d| d.is_nan() || *d < STILL));
    last.map_or(keys.pairs, |last| last + 1)
}

/// Returns the divisors in the file. They are part of the model: no setting disables them.
pub(super) fn resolve(
    keys: &Keys,
    scaling: &Sourced<&'static Scaling>,
    context_train: &Sourced<usize>,
    warnings: &mut Vec<String>,
) -> Result<Option<Arc<dyn Divisors>>, Error> {
    let mut ignored = |tensor: &str, reason: &str| {
        warnings.push(format!("tensor {tensor} is ignored: {reason}"));
    };
    let (factors, acting) = (keys.factors, scaling.value);
    let file = keys.scaling().ok(); // an unknown name is no error here, as a setting may replace it
    let marked = keys.scaling_by_tensor();
    let named = [Some(acting), file.map(|file| file.value), marked.map(|one| one.value)];
    let mut named = named.into_iter().flatten();
    if let Some((owner, stored)) = named.find_map(|owner| Some((owner, owner.stored?))) {
        let Stored { title, read, .. } = stored;
        if !acting.in_llama_cpp {
            return Err(Error::DivisorsOfOther { scaling: acting, title, owner });
        }
        if factors.rope_freqs.is_some() {
            ignored(ROPE_FREQS, &format!("{title} uses its own divisors"));
        }
        return read(keys, factors, context_train).map(Some);
    }
    for method in METHODS {
        let tensors = method.stored.iter().flat_map(|stored| stored.tensors);
        for tensor in tensors.filter(|tensor| factors.get(tensor).is_some()) {
            ignored(tensor, &format!("the scaling in the file is not {method}"));
        }
    }
    let turning = turning(keys);
    match &factors.rope_freqs {
        // These divisors do nothing but hold pairs still.
        Some(all) if turning < keys.pairs && all[..turning].iter().all(|one| *one == 1.0) => {
            Ok(None)
        }
        Some(_) if acting.replaces_divisors => {
            warnings.push(format!("tensor {ROPE_FREQS} is replaced by {}", scaling.origin));
            Ok(None)
        }
        Some(_) if !keys.family.divisors.contains(&ROPE_FREQS) => {
            ignored(ROPE_FREQS, &format!("{} models do not use it", keys.architecture));
            Ok(None)
        }
        Some(divisors) => {
            Ok(Some(Arc::new(Fixed(check(ROPE_FREQS, divisors.clone(), keys.pairs)?))))
        }
        None => Ok(None),
    }
}

/// Returns `divisors` if each pair has one and all are positive normal numbers.
pub(super) fn check(
    tensor: &'static str,
    divisors: Vec<f32>,
    pairs: usize,
) -> Result<Vec<f32>, Error> {
    if divisors.len() != pairs {
        return Err(Error::FactorCount { tensor, found: divisors.len(), expected: pairs });
    }
    match divisors.iter().position(|f| !(f.is_normal() && *f > 0.0)) {
        Some(index) => Err(Error::FactorValue { tensor, index, value: divisors[index] }),
        None => Ok(divisors),
    }
}
