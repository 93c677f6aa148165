//! macOS: calls sysctl.

mod answers;

use std::{
    ffi::{CString, c_void},
    path::PathBuf,
    ptr,
};

use memmap2::{Mmap, MmapMut};
use nix::{
    libc,
    sys::resource::{UsageWho, getrusage},
};

pub use super::unix::*;
use super::{memory::Available, path_variable, topology::Machine};

/// A limit of the memory of a process.
pub const MEMORY_LIMITS: &str = "ulimit -v, ulimit -d";

/// Returns the memory that is available now.
pub fn available_memory() -> Option<Available> {
    answers::available_memory(&ask)
}

/// Returns the peak resident memory in bytes.
pub fn peak_resident() -> Option<u64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    usage.max_rss().try_into().ok()
}

/// Does nothing: the system has no way to reset the peak.
pub fn reset_peak() {}

/// Does nothing: the system has large pages only on request, and not for files.
pub fn prefer_large_pages(_: &MmapMut) {}

/// Does nothing, like [`prefer_large_pages`].
pub fn prefer_large_file_pages(_: &Mmap) {}

/// Reads the processors and caches.
pub fn machine() -> Option<Machine> {
    answers::machine(&ask)
}

/// Returns the maker's name of the processor.
pub fn processor_name() -> Option<String> {
    answers::processor_name(&ask)
}

/// Gives this thread a quality-of-service class. The system runs this class on performance cores
/// while any is free.
#[allow(unsafe_code, reason = "the class of a thread has no safe interface")]
pub fn prefer_fast_cores() {
    let class = libc::qos_class_t::QOS_CLASS_USER_INITIATED;
    // SAFETY: changes the calling thread alone. If it fails, the class stays.
    unsafe { libc::pthread_set_qos_class_self_np(class, 0) };
}

/// Returns the user's directory for data of programs.
pub fn state_directory() -> Option<PathBuf> {
    Some(path_variable("HOME")?.join("Library/Application Support"))
}

/// Asks for the value of a name.
#[allow(unsafe_code, reason = "sysctl has no safe interface")]
fn ask(name: &str) -> Option<Vec<u8>> {
    /// Larger than any value that is asked for.
    const BYTES: usize = 1024;
    let name = CString::new(name).ok()?;
    let mut value = vec![0u8; BYTES];
    let (start, mut bytes) = (value.as_mut_ptr().cast::<c_void>(), BYTES);
    // SAFETY: the name ends with a zero; the system writes at most `bytes` bytes at `start`, where
    // `value` has as many, and sets `bytes` to their number.
    let code =
        unsafe { libc::sysctlbyname(name.as_ptr(), start, &raw mut bytes, ptr::null_mut(), 0) };
    value.truncate(bytes);
    (code == 0).then_some(value)
}
