//! Measures models and machines. The functions return numbers and print nothing.
//!
//! Speed: [`mod@bench`] repeats a test at a given depth. [`batched`] measures several sequences at
//! once, and [`mod@sweep`] measures at each depth through a context. [`cost`] counts the bytes and
//! operations of a token. [`mod@probe`] measures the peaks of the machine, and [`statistics`]
//! computes means and deviations.
//!
//! RoPE: [`mod@attention`] measures attention scores by distance, and [`mod@recall`] the perplexity of needles.
//!
//! Quality: [`mod@perplexity`] scores a text. [`kl`] compares its probabilities with those that
//! another run saved in a [`logits_file`]; both use the sums of [`likelihood`]. [`mod@decode`]
//! compares sparse attention with dense attention. [`mod@importance`] computes importance matrices
//! for quantization. [`passkey`] measures retrieval from a long text. [`mod@ruler`] generates RULER's
//! tasks, and [`task_file`] reads questions from a user's file. [`choices`] computes the likelihood
//! of answers, and [`scores`] compares words.

#[doc(hidden)]
pub mod attention;
pub mod batched;
pub mod bench;
#[doc(hidden)]
pub mod choices;
#[doc(hidden)]
pub mod cost;
pub mod decode;
pub mod importance;
pub mod kl;
pub mod likelihood;
#[doc(hidden)]
pub mod logits_file;
pub mod passkey;
pub mod perplexity;
#[doc(hidden)]
pub mod probe;
mod random;
#[doc(hidden)]
pub mod recall;
#[doc(hidden)]
pub mod ruler;
#[doc(hidden)]
pub mod scores;
#[doc(hidden)]
pub mod statistics;
pub mod sweep;
#[doc(hidden)]
pub mod task_file;
