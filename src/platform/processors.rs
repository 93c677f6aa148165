//! The default number of threads.
//!
//! The work is arithmetic in vector registers and streams from memory: the second thread of a
//! core shares both with the first and only waits. Slow cores among fast ones take fewer tasks of a
//! step, but the step ends with the last task of a slow one. Hence the default is one thread for
//! each physical performance core that this process may use, and no more than its CPU quota.

/// A number of threads and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threads {
    /// The number of threads.
    pub count: usize,
    /// The reason, as a phrase: `8 performance cores; 12 efficiency cores left out`.
    pub reason: String,
}

/// Returns the number of threads to use if the user does not set one.
pub fn default_threads() -> Threads {
    #[cfg(target_os = "linux")]
    if let Some(threads) = linux::threads(std::path::Path::new("/")) {
        return threads;
    }
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    Threads { count, reason: plural(count, "logical processor") }
}

/// Returns the number of logical processors that this process may use, by its affinity and its CPU
/// quota; `None` if the system does not report it.
pub fn usable() -> Option<usize> {
    std::thread::available_parallelism().ok().map(usize::from)
}

/// Formats a count with its noun: `1 core`, `2 cores`.
pub fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{Threads, plural};
    use crate::platform::topology::linux::{Processors, Set, quota};
    use std::path::Path;

    pub fn threads(root: &Path) -> Option<Threads> {
        let Processors { online, allowed, performance } = &Processors::read(root)?;
        let fast = performance.as_ref().unwrap_or(online);
        let hybrid = fast != online;
        // A process that is pinned to efficiency cores uses those.
        let chosen = if fast.is_disjoint(allowed) { allowed.clone() } else { fast & allowed };
        let cores = |set: &Set| Processors::cores(root, set);
        let mut count = cores(&chosen);
        if count == 0 {
            return None;
        }

        let kind = match (hybrid, fast.is_disjoint(allowed)) {
            (false, _) => "physical core",
            (true, false) => "performance core",
            (true, true) => "efficiency core",
        };
        let mut reason = plural(count, kind);
        let slow = cores(&(allowed - &chosen));
        if hybrid && slow > 0 {
            reason += &format!("; {} left out", plural(slow, "efficiency core"));
        }
        if allowed.len() < online.len() {
            reason += &format!("; {} of {} processors allowed", allowed.len(), online.len());
        }
        if let Some(quota) = quota(root)
            && quota < count as f64
        {
            count = (quota as usize).max(1);
            reason += &format!("; a CPU quota of {quota:.1}");
        }
        Some(Threads { count, reason })
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::platform::tests::tree;

        fn threads_in(files: &[(&str, &str)]) -> Option<(usize, String)> {
            threads(tree(files).path()).map(|t| (t.count, t.reason))
        }

        /// A machine whose processor `i` has the siblings `siblings[i]`.
        fn machine(siblings: &[&str]) -> Vec<(String, String)> {
            let mut files = vec![(
                "sys/devices/system/cpu/online".to_string(),
                format!("0-{}\n", siblings.len() - 1),
            )];
            for (cpu, list) in siblings.iter().enumerate() {
                let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
                files.push((path, format!("{list}\n")));
            }
            files
        }

        fn on(siblings: &[&str], more: &[(&str, &str)]) -> (usize, String) {
            let machine = machine(siblings);
            let mut files: Vec<_> =
                machine.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            files.extend_from_slice(more);
            threads_in(&files).unwrap()
        }

        #[test]
        fn siblings_share_one_thread() {
            let smt = ["0,2", "1,3", "0,2", "1,3"];
            assert_eq!(on(&smt, &[]), (2, "2 physical cores".into()));
            assert_eq!(on(&["0", "1"], &[]), (2, "2 physical cores".into()));
        }

        #[test]
        fn intel_efficiency_cores_are_left_out() {
            let hybrid = ["0-1", "0-1", "2", "3", "4"];
            let kinds =
                [("sys/devices/cpu_core/cpus", "0-1\n"), ("sys/devices/cpu_atom/cpus", "2-4\n")];
            let expected = "1 performance core; 3 efficiency cores left out";
            assert_eq!(on(&hybrid, &kinds), (1, expected.into()));
        }

        #[test]
        fn a_process_pinned_to_efficiency_cores_uses_them() {
            let hybrid = ["0-1", "0-1", "2", "3", "4"];
            let files = [
                ("sys/devices/cpu_core/cpus", "0-1\n"),
                ("sys/devices/cpu_atom/cpus", "2-4\n"),
                ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t3-4\n"),
            ];
            let expected = "2 efficiency cores; 2 of 5 processors allowed";
            assert_eq!(on(&hybrid, &files), (2, expected.into()));
        }

        #[test]
        fn arm_little_cores_are_left_out() {
            let files = [
                ("sys/devices/system/cpu/cpu0/cpu_capacity", "250\n"),
                ("sys/devices/system/cpu/cpu1/cpu_capacity", "250\n"),
                ("sys/devices/system/cpu/cpu2/cpu_capacity", "720\n"),
                ("sys/devices/system/cpu/cpu3/cpu_capacity", "1024\n"),
            ];
            let expected = "2 performance cores; 2 efficiency cores left out";
            assert_eq!(on(&["0", "1", "2", "3"], &files), (2, expected.into()));
        }

        #[test]
        fn the_quota_of_the_control_group_limits() {
            let four = ["0", "1", "2", "3"];
            let v2 = [
                ("proc/self/cgroup", "0::/a\n"),
                ("sys/fs/cgroup/cpu.max", "max 100000\n"),
                ("sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
            ];
            assert_eq!(on(&four, &v2), (2, "4 physical cores; a CPU quota of 2.5".into()));
            let v1 = [
                ("proc/self/cgroup", "3:cpu,cpuacct:/a\n"),
                ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000\n"),
                ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ];
            assert_eq!(on(&four, &v1), (1, "4 physical cores; a CPU quota of 0.5".into()));
        }

        #[test]
        fn a_system_without_information_gives_none() {
            assert_eq!(threads_in(&[("sys/devices/system/cpu/online", "x\n")]), None);
            assert_eq!(threads_in(&[]), None);
        }

        #[test]
        fn this_machine_runs_at_least_one_thread() {
            let threads = crate::platform::processors::default_threads();
            assert!(threads.count >= 1 && !threads.reason.is_empty(), "{threads:?}");
        }
    }
}
