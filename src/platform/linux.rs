//! Linux: reads `/proc`, `/sys` and control groups.

mod cgroup;
mod memory;
mod processors;
#[cfg(test)]
mod threads_tests;

use std::{
    fs,
    path::{Path, PathBuf},
};

use memmap2::{Advice, Mmap, MmapMut};

pub use super::unix::*;
use super::{memory::Available, path_variable, topology::Machine};

/// A limit of the memory of a process.
pub const MEMORY_LIMITS: &str = "ulimit -v, ulimit -d, or the container's";

/// Returns the root of the files that describe the system.
fn root() -> &'static Path {
    Path::new("/")
}

/// Returns the memory that is available now.
pub fn available_memory() -> Option<Available> {
    memory::available(root())
}

/// Returns the peak resident memory in bytes.
pub fn peak_resident() -> Option<u64> {
    memory::kilobytes("/proc/self/status".as_ref(), "VmHWM:")
}

/// Resets the peak: see proc(5), clear_refs. If the write fails, the peak since the start remains.
pub fn reset_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Advises the system to use large pages. It may ignore this.
pub fn prefer_large_pages(map: &MmapMut) {
    let _ = map.advise(Advice::HugePage);
}

/// Advises the system to read a mapped file in large pages, if its file system supports that.
pub fn prefer_large_file_pages(map: &Mmap) {
    let _ = map.advise(Advice::HugePage);
}

/// Reads the processors and caches.
pub fn machine() -> Option<Machine> {
    processors::machine(root())
}

/// Returns the maker's name of the processor.
pub fn processor_name() -> Option<String> {
    processors::name(root())
}

/// Does nothing: the scheduler moves busy threads to the cores of the highest capacity.
pub fn prefer_fast_cores() {}

/// Returns the user's directory for data that may be lost.
pub fn state_directory() -> Option<PathBuf> {
    // https://specifications.freedesktop.org/basedir-spec: relative paths must be ignored.
    path_variable("XDG_STATE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| Some(path_variable("HOME")?.join(".local/state")))
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write, thread, time::Duration};

    use crate::{
        gguf::File,
        platform::pages::{Reading, advise},
    };

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

    #[test]
    fn bytes_that_are_read_late_leave_memory() {
        const BYTES: usize = 4 << 20;
        // Not in the temporary directory, which may be in memory: then the pages cannot be dropped.
        if nix::sys::statfs::statfs(".").unwrap().filesystem_type() == nix::sys::statfs::TMPFS_MAGIC
        {
            return;
        }
        let mut file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.write_all(&vec![1; BYTES]).unwrap();
        file.as_file().sync_all().unwrap();
        let map = File::open(file.path()).unwrap();
        let sum = |bytes: &[u8]| bytes.iter().map(|byte| usize::from(*byte)).sum::<usize>();
        let resident = || {
            let maps = fs::read_to_string("/proc/self/smaps").unwrap();
            let name = file.path().file_name().unwrap().to_str().unwrap();
            let (_, this) = maps.split_once(name).unwrap();
            let kilobytes = this.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
            kilobytes.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
        };
        assert_eq!(sum(map.bytes()), BYTES);
        assert_eq!(resident(), BYTES);
        // From the middle of a page to the middle of another. Linux keeps pages that another
        // processor is adding to its lists.
        let left = (0..100).any(|_| {
            advise(&map.bytes()[10..BYTES / 2], Reading::Late);
            thread::sleep(Duration::from_millis(10));
            resident() <= BYTES / 2 + (64 << 10)
        });
        assert!(left, "{}", resident());
        advise(&map.bytes()[10..], Reading::Soon);
        assert_eq!(sum(map.bytes()), BYTES);
    }
}
