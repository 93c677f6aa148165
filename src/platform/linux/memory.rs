//! The memory that the machine, the control groups and the process's limits leave free.

use std::{fs, path::Path};

use super::cgroup::{self, Group};
use crate::platform::memory::{Available, Limit};

/// Returns the smallest amount of memory that any limit leaves free.
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

/// Returns the bytes that a group's limit leaves free. The group counts cached file pages as usage,
/// but the kernel drops them before it refuses memory. So they are subtracted: a model file that
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

/// Returns the bytes that the limits of this process leave free. A mapped model counts towards its
/// address space, but is not subtracted here: the memory plan adds the weights.
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
    use crate::platform::linux::tests::tree;

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
        // More than all tests allocate at the same time.
        let large = std::hint::black_box(vec![1u8; 256 << 20]);
        let before = crate::platform::memory::peak_resident().unwrap();
        drop(large);
        crate::platform::memory::reset_peak();
        let after = crate::platform::memory::peak_resident().unwrap();
        assert!(after < before - (128 << 20), "{before}, {after}");
    }
}
