//! Finds the first place in a step that computes a value that is not finite.
//!
//! Rounding to 8 bits, the softmax, limits, soft caps and some activations turn such values into
//! ordinary numbers, so a damaged weight could change a text unnoticed. All values are therefore
//! checked before these. The values are still in the L1 cache, so this costs little compared with the
//! products with all weights.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

/// A place in the computation of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The row of the embeddings.
    Embedding,
    /// Attention in a layer.
    Attention {
        /// The index of the layer.
        layer: usize,
    },
    /// The recurrence of a layer.
    Recurrence {
        /// The index of the layer.
        layer: usize,
    },
    /// The feed-forward network of a layer.
    FeedForward {
        /// The index of the layer.
        layer: usize,
    },
    /// The network of a layer's own input.
    LayerInput {
        /// The index of the layer.
        layer: usize,
    },
    /// The input of the layer that predicts the token after the next one.
    Prediction {
        /// The index of the layer.
        layer: usize,
    },
    /// The logits, or the normalized output of the last layer.
    Output,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Embedding => write!(f, "the embedding (token_embd)"),
            Place::Attention { layer } => {
                write!(f, "attention in layer {layer} (blk.{layer}.attn)")
            }
            Place::Recurrence { layer } => {
                write!(f, "the recurrence in layer {layer} (blk.{layer})")
            }
            Place::FeedForward { layer } => {
                write!(f, "the feed-forward network in layer {layer} (blk.{layer}.ffn)")
            }
            Place::LayerInput { layer } => {
                write!(f, "the per-layer input of layer {layer} (blk.{layer}.inp_gate, proj)")
            }
            Place::Prediction { layer } => {
                write!(f, "the input of layer {layer}, which predicts tokens (blk.{layer}.nextn)")
            }
            Place::Output => write!(f, "the output"),
        }
    }
}

/// A place that computed a value that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub place: Place,
    /// The row of the batch.
    pub row: usize,
}

/// The first fault of a step. Workers compute phase by phase, so the first one that any of them
/// reports is in the first phase that has one.
#[derive(Default)]
pub struct FirstFault(Mutex<Option<Fault>>);

impl FirstFault {
    /// Forgets the fault of an earlier step.
    pub fn clear(&mut self) {
        *self.0.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the fault, if the step has one.
    pub fn found(&self) -> Option<Fault> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a fault if not all values are finite, and there is no earlier one.
    #[inline]
    pub fn check(&self, values: &[f32], place: Place, row: usize) {
        if !are_finite(values) {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(Fault { place, row });
        }
    }
}

/// Returns whether all values are finite. It has no early exit, so that it is compiled to vector
/// operations.
pub fn are_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = f32::INFINITY.to_bits();
    !values.iter().fold(false, |found, x| found | (x.to_bits() & EXPONENT == EXPONENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_infinities_and_nan_are_not_finite() {
        for x in [0.0, -1.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE / 2.0] {
            assert!(are_finite(&[1.0, x]));
        }
        for x in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!are_finite(&[x, 1.0]) && !are_finite(&[1.0; 99].map(|one| one * x)));
        }
    }

    #[test]
    fn the_first_fault_is_kept() {
        let mut first = FirstFault::default();
        first.check(&[1.0], Place::Embedding, 0);
        assert_eq!(first.found(), None);
        let fault = Fault { place: Place::Attention { layer: 2 }, row: 3 };
        first.check(&[f32::NAN], fault.place, fault.row);
        first.check(&[f32::NAN], Place::Output, 1);
        assert_eq!(first.found(), Some(fault));
        first.clear();
        assert_eq!(first.found(), None);
    }
}
