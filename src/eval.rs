//! Measuring models and machines: functions that return numbers, and print nothing.
//!
//! [`mod@bench`] repeats tests at a depth, [`mod@sweep`] walks through a context, [`work`] counts what
//! a token takes in bytes and operations, [`mod@probe`] has what the machine can do at most, and
//! [`statistics`] has the mean and the deviation.
//! [`mod@rope`] looks at what RoPE methods do to frequencies, and [`table3`] repeats what one of their
//! papers found.
//!
//! [`mod@perplexity`] judges a model on a text, [`kl`] by its distance from another run, whose
//! log-probabilities are in a [`logits_file`]; [`likelihood`] has what both count. [`passkey`] judges it
//! by what it finds in a long one.

pub mod bench;
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
pub mod work;
