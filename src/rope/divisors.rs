//! Divisors of the frequencies that a file carries as tensors, before any scaling rule.

use super::{Error, LongRope};
use crate::gguf::Gguf;

/// The tensor of divisors that do not depend on the length.
pub const ROPE_FREQS: &str = "rope_freqs.weight";
pub(super) const LONG: &str = "rope_factors_long.weight";
pub(super) const SHORT: &str = "rope_factors_short.weight";

/// The tensors as they are in the file, f32, one value for each rotated pair.
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
    /// Reads the tensors of a file, as many of the three as it has.
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

/// What divides the frequencies.
#[derive(Clone, Debug, PartialEq)]
pub enum Divisors {
    /// Nothing.
    None,
    /// `rope_freqs.weight`: any rule that does not depend on length, written into the file.
    /// Llama 3.1 has 1 for high frequencies, its factor for low ones, and a blend between.
    Fixed(Vec<f32>),
    /// One of two sets, by the length of the sequence.
    LongRope(LongRope),
}

impl Divisors {
    /// The divisors for a sequence of this length, if there are any.
    pub(super) fn at(&self, length: usize) -> Option<&[f32]> {
        match self {
            Divisors::None => None,
            Divisors::Fixed(divisors) => Some(divisors),
            Divisors::LongRope(sets) => Some(sets.divisors(length)),
        }
    }
}

/// The tensors of divisors that llama.cpp's graph of this architecture uses whatever the file says.
pub fn tensors_of(architecture: &str) -> &'static [&'static str] {
    match architecture {
        "llama" => &[ROPE_FREQS],
        "phi3" => &[LONG, SHORT],
        _ => &[],
    }
}

/// `divisors`, if there is one above zero for each pair.
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
