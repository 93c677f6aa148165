//! The memory that is available, and the memory that this process has used.

use thiserror::Error;

/// An error for memory that the system refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the system refused {bytes} bytes of memory: raise its limit (ulimit -v, ulimit -d, or that of the \
     container), or choose a smaller context, fewer sequences or smaller cache types"
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

/// Memory that can be used without swapping or being killed.
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
    /// The memory of the machine that is free, or used by caches that can be dropped.
    Machine,
    /// The limit of the control group of a container or service.
    Cgroup,
    /// A limit of this process: of its address space or its data (`ulimit -v`, `ulimit -d`).
    Process,
}

/// Returns the memory that is available now, or `None` on systems that are not queried.
pub fn available() -> Option<Available> {
    #[cfg(target_os = "linux")]
    return linux::available(std::path::Path::new("/"));
    #[cfg(not(target_os = "linux"))]
    None
}

/// Returns the peak resident memory of this process in bytes, mapped file pages included, since
/// its start or since [`reset_peak`]; `None` on systems that are not queried.
pub fn peak_resident() -> Option<u64> {
    #[cfg(target_os = "linux")]
    return linux::kilobytes("/proc/self/status".as_ref(), "VmHWM:");
    #[cfg(not(target_os = "linux"))]
    None
}

/// Resets the value of [`peak_resident`] to the memory that is resident now. Has no effect on
/// systems that do not permit it.
pub fn reset_peak() {
    // See proc(5), clear_refs: 5 resets the peak. If the file cannot be written, the peak is the one
    // since the start.
    #[cfg(target_os = "linux")]
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{Available, Limit};
    use crate::platform::cgroup::{self, Group};
    use std::{fs, path::Path};

    pub fn available(root: &Path) -> Option<Available> {
        let machine = kilobytes(&root.join("proc/meminfo"), "MemAvailable:")?;
        let machine = Available { bytes: machine, limit: Limit::Machine };
        cgroup::groups(root, "memory")
            .iter()
            .filter_map(left_in)
            .map(|bytes| Available { bytes, limit: Limit::Cgroup })
            .chain(left_to_process(root).map(|bytes| Available { bytes, limit: Limit::Process }))
            .chain([machine])
            .min_by_key(|available| available.bytes)
    }

    /// Returns the bytes that a group's limit leaves. Cached file pages count as usage there, but
    /// the kernel drops them before it refuses memory, so they are subtracted: a model file that
    /// was read before does not reduce the available memory.
    fn left_in(group: &Group) -> Option<u64> {
        let (limit, usage, cached) = match group.unified {
            true => ("memory.max", "memory.current", ["inactive_file", "active_file"]),
            false => (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                ["total_inactive_file", "total_active_file"],
            ),
        };
        let (limit, usage) = (group.number(limit)?, group.number(usage)?);
        let stat = group.read("memory.stat").unwrap_or_default();
        let cached: u64 = stat
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(name, _)| cached.contains(name))
            .filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok())
            .sum();
        Some(limit.saturating_sub(usage.saturating_sub(cached)))
    }

    /// Returns the bytes that the limits of this process leave. A mapped model counts in its address
    /// space, but not in its usage here: whoever plans the memory adds the weights.
    fn left_to_process(root: &Path) -> Option<u64> {
        let limits = fs::read_to_string(root.join("proc/self/limits")).ok()?;
        let soft = |name: &str| {
            let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let status = root.join("proc/self/status");
        let used = |names: &[&str]| names.iter().filter_map(|name| kilobytes(&status, name)).sum();
        let left = |limit: u64, used: u64| limit.saturating_sub(used);
        let space = soft("Max address space")
            .map(|limit| left(limit, used(&["VmData:", "VmStk:", "VmExe:", "VmLib:"])));
        let data = soft("Max data size").map(|limit| left(limit, used(&["VmData:"])));
        space.into_iter().chain(data).min()
    }

    /// Reads the value of a line `name: 123 kB`, in bytes.
    pub fn kilobytes(file: &Path, name: &str) -> Option<u64> {
        let text = fs::read_to_string(file).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::platform::tests::tree;

        const MACHINE: (&str, &str) =
            ("proc/meminfo", "MemTotal: 900 kB\nMemAvailable:    500 kB\nSwapTotal: 0 kB\n");

        fn available_in(files: &[(&str, &str)]) -> Option<Available> {
            let mut all = vec![MACHINE];
            all.extend_from_slice(files);
            available(tree(&all).path())
        }

        #[test]
        fn without_groups_the_machine_decides() {
            let expected = Available { bytes: 500 * 1024, limit: Limit::Machine };
            assert_eq!(available_in(&[]), Some(expected));
            assert_eq!(
                available_in(&[
                    ("proc/self/cgroup", "0::/service\n"),
                    ("sys/fs/cgroup/service/memory.max", "max\n"),
                    ("sys/fs/cgroup/service/memory.current", "1\n"),
                ]),
                Some(expected)
            );
        }

        #[test]
        fn the_tightest_group_above_decides_and_its_file_cache_is_free() {
            assert_eq!(
                available_in(&[
                    ("proc/self/cgroup", "0::/slice/service\n"),
                    ("sys/fs/cgroup/slice/memory.max", "100000\n"),
                    ("sys/fs/cgroup/slice/memory.current", "90000\n"),
                    ("sys/fs/cgroup/slice/memory.stat", "inactive_file 300\nactive_file 40\n"),
                    ("sys/fs/cgroup/slice/service/memory.max", "90000\n"),
                    ("sys/fs/cgroup/slice/service/memory.current", "70000\n"),
                ]),
                Some(Available { bytes: 10_340, limit: Limit::Cgroup })
            );
        }

        #[test]
        fn version_1_in_a_container_that_sees_its_group_as_the_root() {
            assert_eq!(
                available_in(&[
                    ("proc/self/cgroup", "4:cpu,memory:/docker/0123\n1:cpuset:/\n"),
                    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n"),
                    ("sys/fs/cgroup/memory/memory.usage_in_bytes", "2000\n"),
                    ("sys/fs/cgroup/memory/memory.stat", "cache 7\ntotal_active_file 1000\n"),
                ]),
                Some(Available { bytes: 3096, limit: Limit::Cgroup })
            );
        }

        #[test]
        fn limits_of_the_process_count() {
            let status = ("proc/self/status", "VmSize: 999 kB\nVmData: 30 kB\nVmStk: 4 kB\n");
            let with = |space: &str, data: &str| {
                let limits = format!(
                    "Limit                     Soft Limit           Hard Limit           Units\n\
                     Max data size             {data:<20} unlimited            bytes\n\
                     Max address space         {space:<20} unlimited            bytes\n"
                );
                available_in(&[status, ("proc/self/limits", &limits)])
            };
            let process = |bytes| Some(Available { bytes, limit: Limit::Process });
            assert_eq!(with("204800", "unlimited"), process(204_800 - 34 * 1024));
            assert_eq!(with("204800", "102400"), process(102_400 - 30 * 1024));
            assert_eq!(with("1024", "unlimited"), process(0));
            let machine = Available { bytes: 500 * 1024, limit: Limit::Machine };
            assert_eq!(with("unlimited", "unlimited"), Some(machine));
        }

        #[test]
        fn usage_above_a_limit_leaves_nothing() {
            let left = available_in(&[
                ("proc/self/cgroup", "0::/\n"),
                ("sys/fs/cgroup/memory.max", "10\n"),
                ("sys/fs/cgroup/memory.current", "20\n"),
            ]);
            assert_eq!(left, Some(Available { bytes: 0, limit: Limit::Cgroup }));
        }

        #[test]
        fn this_process_has_a_peak_and_this_machine_has_memory() {
            assert!(crate::platform::memory::peak_resident().unwrap() > 100_000);
            assert!(crate::platform::memory::available().is_some());
            // More than all tests that run at the same time allocate.
            let large = std::hint::black_box(vec![1u8; 256 << 20]);
            let before = crate::platform::memory::peak_resident().unwrap();
            drop(large);
            crate::platform::memory::reset_peak();
            let after = crate::platform::memory::peak_resident().unwrap();
            assert!(after < before - (128 << 20), "{before}, {after}");
        }
    }
}
