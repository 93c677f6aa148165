//! Default thread counts on machines as Linux describes them.

use super::{processors::machine, tests::tree};
use crate::platform::processors::threads;

fn threads_in(files: &[(&str, &str)]) -> Option<(usize, String)> {
    machine(tree(files).path())
        .and_then(|machine| threads(&machine))
        .map(|t| (t.workers.answers, t.reason))
}

/// A machine: processor `i` has the siblings `siblings[i]`.
fn files_of(siblings: &[&str]) -> Vec<(String, String)> {
    let mut files =
        vec![("sys/devices/system/cpu/online".to_string(), format!("0-{}\n", siblings.len() - 1))];
    for (cpu, list) in siblings.iter().enumerate() {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        files.push((path, format!("{list}\n")));
    }
    files
}

fn on(siblings: &[&str], more: &[(&str, &str)]) -> (usize, String) {
    let machine = files_of(siblings);
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
fn intel_efficiency_cores_compute_prompts() {
    let hybrid = ["0-1", "0-1", "2", "3", "4"];
    let kinds = [("sys/devices/cpu_core/cpus", "0-1\n"), ("sys/devices/cpu_atom/cpus", "2-4\n")];
    let expected = "1 performance core; prompts: 4 cores";
    assert_eq!(on(&hybrid, &kinds), (1, expected.into()));
    let quota = [("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/cpu.max", "250000 100000\n")];
    let expected = "1 performance core; prompts: 4 cores; a CPU quota of 2.5";
    let files = [kinds, quota].concat();
    assert_eq!(on(&hybrid, &files), (1, expected.into()));
}

/// A Core i9-12900HX: eight fast cores of two threads, eight slow ones.
#[test]
fn eight_fast_and_eight_slow_cores() {
    let fast = (0..16).map(|cpu| format!("{}-{}", cpu / 2 * 2, cpu / 2 * 2 + 1));
    let siblings: Vec<_> = fast.chain((16..24).map(|cpu| cpu.to_string())).collect();
    let siblings: Vec<_> = siblings.iter().map(String::as_str).collect();
    let kinds = [("sys/devices/cpu_core/cpus", "0-15\n"), ("sys/devices/cpu_atom/cpus", "16-23\n")];
    let expected = "8 performance cores; prompts: 16 cores";
    assert_eq!(on(&siblings, &kinds), (8, expected.into()));
    // Four fast cores and four slow ones, as taskset -c 0-7,16-19 leaves.
    let pinned = [("proc/self/status", "Cpus_allowed_list:\t0-7,16-19\n")];
    let expected = "4 performance cores; prompts: 8 cores; 12 of 24 processors allowed";
    assert_eq!(on(&siblings, &[&kinds[..], &pinned].concat()), (4, expected.into()));
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
    assert!(threads.workers.answers >= 1 && !threads.reason.is_empty(), "{threads:?}");
}
