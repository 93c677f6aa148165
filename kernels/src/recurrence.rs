//! Recurrent layers: a causal convolution, and a scan of tokens into a state.
//!
//! A call computes [`LANES`](crate::isa::LANES) channels for some consecutive tokens, and moves
//! their state forward. The bits do not depend on how you cut the tokens into calls.

mod convolution;
mod scan;

pub use self::{
    convolution::{TAPS_MAX, convolve},
    scan::{Rule, ScanTokens, scan},
};
