//! The memory that is available, and the memory that this process uses.

use thiserror::Error;

use super::system;

/// The system refused to allocate memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the system refused {bytes} bytes of memory: raise its limit ({}), or choose a smaller context, \
     fewer sequences or smaller cache types",
    system::MEMORY_LIMITS
)]
pub struct Refused {
    /// The size in bytes.
    pub bytes: usize,
}

/// Allocates a buffer of `len` copies of a value.
///
/// # Errors
/// If the system has no memory left.
pub fn filled<T: Clone>(value: T, len: usize) -> Result<Vec<T>, Refused> {
    let mut buffer = Vec::new();
    let refused = |_| Refused { bytes: len.saturating_mul(size_of::<T>()) };
    buffer.try_reserve_exact(len).map_err(refused)?;
    buffer.resize(len, value);
    Ok(buffer)
}

/// Memory that this process can use without swapping or being killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// The size in bytes.
    pub bytes: u64,
    /// The source of the limit.
    pub limit: Limit,
}

/// The source of the limit on the memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The machine's memory that is free, or used by caches that can be dropped.
    Machine,
    /// The limit of the control group of a container or service.
    Cgroup,
    /// The limit of the job object of a container or service.
    Job,
    /// A limit of this process on its address space or data (`ulimit -v`, `ulimit -d`).
    Process,
}

/// Returns the memory that is available now; `None` if the system does not report it.
pub fn available() -> Option<Available> {
    system::available_memory()
}

/// Returns the peak resident memory of this process in bytes, including mapped file pages; `None`
/// if the system does not report it. The peak is since the start or since [`reset_peak`].
pub fn peak_resident() -> Option<u64> {
    system::peak_resident()
}

/// Resets [`peak_resident`] to the memory that is resident now. Does nothing if the system does not
/// support this.
pub fn reset_peak() {
    system::reset_peak();
}
