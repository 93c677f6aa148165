//! Everything that differs between operating systems: memory, processors, terminal, signals, files.
//!
//! `linux`, `macos` and `windows` have the same functions; the modules here call them as `system`.
//! No other code depends on the operating system. To add one, write its file and name it below.

pub mod echo;
pub mod interrupt;
pub mod memory;
pub(crate) mod pages;
pub mod priority;
pub mod processors;
pub mod topology;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as system;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as system;

#[cfg(unix)]
mod unix;

// These modules interpret replies of a system in plain Rust, so they are tested on all systems.
#[cfg(all(test, not(target_os = "macos")))]
#[path = "platform/macos/answers.rs"]
mod macos_answers;
#[cfg(all(test, not(windows)))]
#[path = "platform/windows/records.rs"]
mod windows_records;

#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
compile_error!(
    "rope-cpu runs on Linux, macOS and Windows: write src/platform/NAME.rs for another system"
);

pub(crate) use system::mapping_fault;
pub use system::{
    PATH_ESCAPE, create_private_directory, free_bytes, input_is_ready, link,
    open_without_following, others_may_write, prefer_fast_cores, prepare_terminal,
    set_new_file_access,
};

#[cfg(feature = "program")]
pub use system::report_file_size_limit;

use std::{env, path::PathBuf};

/// Who can read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody, unless the process's mask removes the permission.
    All,
    /// Its owner alone.
    Owner,
}

/// Returns the directory for data that can be lost, such as the input history; `None` if the
/// environment sets no home directory.
pub fn state_directory() -> Option<PathBuf> {
    Some(system::state_directory()?.join("rope-cpu"))
}

/// Returns the path in an environment variable, unless it is empty.
fn path_variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
