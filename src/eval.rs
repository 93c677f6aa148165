//! Measuring models and machines: functions that return numbers, and print nothing.
//!
//! [`mod@bench`] repeats tests at a depth, [`mod@sweep`] walks through a context, [`work`] counts what
//! a token takes in bytes and operations, [`mod@probe`] has what the machine can do at most, and
//! [`statistics`] has the mean and the deviation.

pub mod bench;
pub mod probe;
mod random;
pub mod statistics;
pub mod sweep;
pub mod work;
