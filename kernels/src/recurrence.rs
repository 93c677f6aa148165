//! Recurrent layers: a causal convolution, and a scan that updates a state token by token.
//!
//! A call computes [`LANES`](crate::isa::LANES) channels for some consecutive tokens, and advances
//! their state. The bits do not depend on how you split the tokens into calls.

mod convolution;
mod scan;

pub use self::{
    convolution::{TAPS_MAX, convolve},
    scan::{Rule, ScanTokens, scan},
};
