//! The memory of requests: bodies, and answers until they are sent.
//!
//! Bytes are counted before they are allocated, since a failed allocation would end the process.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use super::error::ApiError;

/// Maximum bytes of all requests together, unless four bodies of maximum size need more.
const BYTES_MAX: usize = 512 << 20;

/// Memory of all requests in bytes.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<AtomicUsize>);

/// Memory reserved for a request. Released on drop.
#[derive(Debug)]
pub struct Held {
    memory: Memory,
    bytes: usize,
    max: usize,
}

/// Returns the maximum memory of all requests, with bodies of at most `body_max` bytes.
pub fn largest(body_max: usize) -> usize {
    BYTES_MAX.max(body_max.saturating_mul(4))
}

impl Memory {
    /// Returns a reservation without bytes. All requests together have at most `max` bytes.
    pub fn hold(&self, max: usize) -> Held {
        Held { memory: self.clone(), bytes: 0, max }
    }
}

impl Held {
    /// Reserves `bytes` more.
    ///
    /// # Errors
    /// If all requests together would have too many.
    pub fn add(&mut self, bytes: usize) -> Result<(), ApiError> {
        let within = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.max);
        self.memory.0.fetch_update(Relaxed, Relaxed, within).map_err(|_| {
            ApiError::unavailable(format_args!(
                "the bodies and answers of all requests take {} MiB already: try again later",
                self.max >> 20
            ))
        })?;
        self.bytes += bytes;
        Ok(())
    }

    /// Returns the maximum bytes of all requests.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Returns the number of reserved bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Relaxed);
    }
}

/// Returns whether the system can provide `bytes` of memory now. Allocates them as a test.
pub fn system_has(bytes: usize) -> bool {
    black_box(&mut Vec::<u8>::new()).try_reserve_exact(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_they_are_released() {
        let memory = Memory::default();
        let (mut first, mut second) = (memory.hold(100), memory.hold(100));
        first.add(60).unwrap();
        assert_eq!(second.add(41).unwrap_err().status, 503);
        // A refused reservation does not count.
        second.add(40).unwrap();
        drop(first);
        second.add(60).unwrap();
        assert_eq!(second.bytes(), 100);
        assert!(second.add(usize::MAX).is_err());
    }
}
