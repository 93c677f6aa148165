//! Everything that differs between operating systems: memory, processors, input, interrupts,
//! directories, links.
//!
//! Written for Linux. On other systems every function returns `None` or a plain default where the
//! system is not queried; a port to another system changes this module only.

pub mod echo;
pub mod input;
pub mod interrupt;
#[cfg(unix)]
pub(crate) mod mapping_fault;
pub mod memory;
pub(crate) mod pages;
pub mod processors;
pub mod topology;

#[cfg(target_os = "linux")]
mod cgroup;

use std::{
    env, io,
    path::{Path, PathBuf},
};

/// Does nothing: other systems refuse to shorten a file that is mapped, or raise no signal.
#[cfg(not(unix))]
pub(crate) mod mapping_fault {
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

/// Returns the directory for data that may be lost, such as the history of typed lines; `None` if
/// the environment names no home directory.
pub fn state_directory() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let directory = if cfg!(windows) {
        set("LOCALAPPDATA")?
    } else if cfg!(target_os = "macos") {
        set("HOME")?.join("Library/Application Support")
    } else {
        // https://specifications.freedesktop.org/basedir-spec: relative paths are to be ignored.
        set("XDG_STATE_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| Some(set("HOME")?.join(".local/state")))?
    };
    Some(directory.join("rope-cpu"))
}

/// Creates a link at `link` to `target`, a path relative to the directory of `link`: a symbolic
/// link on Unix, a hard link elsewhere.
///
/// # Errors
/// If the file system cannot create the link.
pub fn link(target: &Path, link: &Path) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::symlink(target, link);
    #[cfg(not(unix))]
    return std::fs::hard_link(link.parent().unwrap_or(link).join(target), link);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    /// Creates a directory with `files` (path, text), to be used in place of a system's root.
    pub fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }
}
