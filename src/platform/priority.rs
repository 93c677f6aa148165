//! The scheduling priority of the program.

use std::io;

use super::system;

/// Lowers the priority of this thread, and of each thread that it starts. `nice` is from 0, the usual
/// priority, to 19, the lowest.
///
/// # Errors
/// If the system does not change it.
pub fn lower(nice: u8) -> io::Result<()> {
    system::lower_priority(nice)
}
