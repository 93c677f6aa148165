//! Times that clients wait for tokens.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::histogram::{FIRST_TOKEN, Histogram, NEXT_TOKEN};

/// Times to the first token, and times between tokens.
#[derive(Debug)]
pub struct Latency(Mutex<[Histogram; 2]>);

impl Default for Latency {
    fn default() -> Self {
        Latency(Mutex::new([FIRST_TOKEN, NEXT_TOKEN].map(Histogram::new)))
    }
}

impl Latency {
    /// Adds the time from the arrival of a request to the first token of an answer.
    pub fn first_token(&self, time: Duration) {
        self.add(0, time);
    }

    /// Adds the time between two tokens of an answer.
    pub fn next_token(&self, time: Duration) {
        self.add(1, time);
    }

    /// Returns the times to the first token, and the times between tokens.
    pub fn times(&self) -> [Histogram; 2] {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, index: usize, time: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[index].add(time);
    }
}
