//! Buffers that the system may refuse.

use std::collections::TryReserveError;

/// Allocates a buffer of `len` copies of a value.
pub(crate) fn filled<T: Clone>(value: T, len: usize) -> Result<Vec<T>, TryReserveError> {
    let mut buffer = with_capacity(len)?;
    buffer.resize(len, value);
    Ok(buffer)
}

/// Allocates an empty buffer for `len` values.
pub(crate) fn with_capacity<T>(len: usize) -> Result<Vec<T>, TryReserveError> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(len)?;
    Ok(buffer)
}
