//! Windows: memory, job objects, processor groups, the console.

#[cfg(feature = "program")]
mod console_events;
mod memory;
mod records;
mod system_calls;

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::windows::{ffi::OsStrExt, fs::OpenOptionsExt, io::AsHandle},
    path::{Path, PathBuf},
};

#[cfg(feature = "program")]
pub use console_events::handle_signals;
use memmap2::{Mmap, MmapMut};
use winapi_util::{HandleRef, console};
use windows_sys::Win32::{
    Storage::FileSystem::FILE_FLAG_OPEN_REPARSE_POINT,
    System::{
        Console::{ENABLE_ECHO_INPUT, ENABLE_VIRTUAL_TERMINAL_PROCESSING},
        Threading::{BELOW_NORMAL_PRIORITY_CLASS, IDLE_PRIORITY_CLASS},
    },
};

use super::{Access, memory::Available, pages::Reading, path_variable, topology::Machine};

/// A limit of the memory of a process.
pub const MEMORY_LIMITS: &str = "the size of the paging file, or the job object's";

/// Returns the memory that is available now.
pub fn available_memory() -> Option<Available> {
    memory::available()
}

/// Returns the peak resident memory in bytes.
pub fn peak_resident() -> Option<u64> {
    Some(system_calls::process_memory()?.PeakWorkingSetSize as u64)
}

/// Does nothing: the system has no way to reset the peak.
pub fn reset_peak() {}

/// Does nothing: the system has no limit on file sizes for a process.
#[cfg(feature = "program")]
pub fn report_file_size_limit() {}

/// Does nothing: large pages need a privilege that users lack by default, and are never swapped.
pub fn prefer_large_pages(_: &MmapMut) {}

/// Does nothing: the system reads missing pages, and drops pages that were not used for long.
pub fn advise(_: &[u8], _: Reading) {}

/// Does nothing: the system does not map files in large pages.
pub fn prefer_large_file_pages(_: &Mmap) {}

/// Reads the processors and caches.
pub fn machine() -> Option<Machine> {
    let records = system_calls::processor_records()?;
    records::machine(&records, system_calls::affinity(), system_calls::job_cpu_rate())
}

/// Returns the maker's name of the processor.
pub fn processor_name() -> Option<String> {
    let key = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0";
    let key = windows_registry::LOCAL_MACHINE.open(key).ok()?;
    Some(key.get_string("ProcessorNameString").ok()?.trim().into())
}

/// Does nothing: the system runs busy threads on fast cores.
pub fn prefer_fast_cores() {}

/// Returns the user's directory for data of programs on this machine.
pub fn state_directory() -> Option<PathBuf> {
    path_variable("LOCALAPPDATA")
}

/// Returns the bytes that this user may write to the disk with `path`, if the system reports them.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let wide: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
    system_calls::free_bytes(&wide)
}

/// Creates a directory and its parents. They have the access rights of the parent: in the user's
/// folders, only the user can read them.
///
/// # Errors
/// If the file system cannot create it.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Returns `false`: by default, a user's folders are closed to others.
pub fn others_may_write(_: &Path) -> bool {
    false
}

/// Creates a hard link at `link` to `target`, a path relative to the directory of `link`. Symbolic
/// links need a privilege.
///
/// # Errors
/// If the file system cannot create the link.
pub fn link(target: &Path, link: &Path) -> io::Result<()> {
    fs::hard_link(link.parent().unwrap_or(link).join(target), link)
}

/// Makes opening a link open the link itself, which is not a regular file.
pub fn open_without_following(options: &mut OpenOptions) {
    options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
}

/// Does nothing: a new file has the access that its folder grants.
pub fn set_new_file_access(_: &mut OpenOptions, _: Access) {}

/// `None`, since a backslash separates folders in paths.
pub const PATH_ESCAPE: Option<char> = None;

/// Returns whether standard input, if it is a pipe or a file, can be read without blocking. False
/// for consoles and other devices.
pub fn input_is_ready() -> bool {
    let stdin = io::stdin();
    let Ok(handle) = stdin.as_handle().try_clone_to_owned() else { return false };
    let is_file = File::from(handle).metadata().is_ok_and(|metadata| metadata.is_file());
    is_file || system_calls::bytes_in_pipe(&stdin).is_some_and(|bytes| bytes > 0)
}

/// Sets whether the console shows what is typed. Returns whether that changed.
pub fn set_echo(echo: bool) -> bool {
    set_mode(HandleRef::stdin(), ENABLE_ECHO_INPUT, echo)
}

/// Lets consoles interpret escape sequences, for colors.
pub fn prepare_terminal() {
    for console in [HandleRef::stdout(), HandleRef::stderr()] {
        set_mode(console, ENABLE_VIRTUAL_TERMINAL_PROCESSING, true);
    }
}

/// Sets a flag of a console. Returns whether that changed.
fn set_mode(console: HandleRef, flag: u32, on: bool) -> bool {
    let Ok(mode) = console::mode(&console) else { return false };
    let changed = if on { mode | flag } else { mode & !flag };
    changed != mode && console::set_mode(&console, changed).is_ok()
}

/// Lowers the priority of this program to one of the two classes below the usual one.
pub fn lower_priority(nice: u8) -> io::Result<()> {
    system_calls::set_priority(match nice {
        0 => return Ok(()),
        1..10 => BELOW_NORMAL_PRIORITY_CLASS,
        _ => IDLE_PRIORITY_CLASS,
    })
}

/// Mapped files, which the system refuses to shorten.
pub mod mapping_fault {
    use std::path::Path;

    /// A file that would be watched.
    #[derive(Debug)]
    pub struct Registered;

    /// Does nothing.
    pub fn watch(_: &[u8], _: &Path) -> Registered {
        Registered
    }

    /// Does nothing.
    pub fn remove_on_fault(_: &Path) -> Option<Registered> {
        None
    }
}
