//! Divisors of the frequencies that a file stores as tensors. They apply before any scaling rule.

use super::{Error, LongRope};
use crate::gguf::Gguf;

/// The name of the tensor of divisors that do not depend on the sequence length.
pub const ROPE_FREQS: &str = "rope_freqs.weight";
/// The name of the tensor of LongRoPE's divisors for long sequences.
pub const LONG: &str = "rope_factors_long.weight";
/// The name of the tensor of LongRoPE's divisors for short sequences.
pub const SHORT: &str = "rope_factors_short.weight";

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
}

/// The divisors of the frequencies.
#[derive(Clone, Debug, PartialEq)]
pub enum Divisors {
    /// No divisors.
    None,
    /// `rope_freqs.weight`: any rule that does not depend on the length, as computed by the
    /// converter. For Llama 3.1 the values are 1 for high frequencies, the factor for low ones, and
    /// a blend between.
    Fixed(Vec<f32>),
    /// Two sets of divisors. The length of the sequence selects one.
    LongRope(LongRope),
}

impl Divisors {
    /// Returns the divisors for a sequence of `length` tokens, if there are any.
    pub(super) fn at(&self, length: usize) -> Option<&[f32]> {
        match self {
            Divisors::None => None,
            Divisors::Fixed(divisors) => Some(divisors),
            Divisors::LongRope(sets) => Some(sets.divisors(length)),
        }
    }
}

/// Returns `divisors` if there is one for each pair and all are positive normal numbers.
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
