//! Measuring models: functions that return numbers, and print nothing.
//!
//! [`mod@bench`] repeats tests at a depth, [`mod@sweep`] walks through a context, [`work`] counts what
//! a token takes in bytes and operations, and [`statistics`] has the mean and the deviation.

pub mod bench;
mod random;
pub mod statistics;
pub mod sweep;
pub mod work;
