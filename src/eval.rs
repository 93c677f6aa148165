//! Measures models and machines. The functions return numbers and print nothing.
//!
//! Speed: [`mod@bench`] repeats tests at a depth, [`batched`] measures several sequences side by
//! side, [`mod@sweep`] measures at every step through a context, [`cost`] counts the bytes and
//! operations of a token, [`mod@probe`] measures the peaks of the machine, and [`statistics`]
//! computes means and deviations.
//!
//! RoPE: [`mod@rope`] computes the effect of RoPE methods on frequencies, and [`table3`] reproduces
//! a table of the DPRoPE paper.
//!
//! Quality: [`mod@perplexity`] scores a text, and [`kl`] compares the probabilities with another
//! run's, which are in a [`logits_file`]; both use the sums of [`likelihood`]. [`passkey`] measures
//! retrieval from a long text.

pub mod batched;
pub mod bench;
pub mod cost;
pub mod kl;
pub mod likelihood;
pub mod logits_file;
pub mod passkey;
pub mod perplexity;
pub mod probe;
mod random;
pub mod rope;
pub mod statistics;
pub mod sweep;
pub mod table3;
