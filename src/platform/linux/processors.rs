//! Processors and caches, from `/sys/devices`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::cgroup;
use crate::platform::topology::{Cache, Machine, Processor, counted};

/// Numbers of logical processors.
type Set = BTreeSet<usize>;

/// Reads the processors that are online, and their caches.
pub fn machine(root: &Path) -> Option<Machine> {
    let online = list(&root.join("sys/devices/system/cpu/online"))?;
    let (allowed, intel) = (affinity(root), intel_performance(root, &online));
    let slow_cores_help = intel.is_some();
    let performance = intel.or_else(|| arm_performance(root, &online));
    let processor = |&cpu: &usize| {
        let directory = cpu_directory(root, cpu);
        let siblings = list(&directory.join("topology/thread_siblings_list"));
        Processor {
            core: siblings.and_then(|siblings| siblings.first().copied()).unwrap_or(cpu),
            package: text(&directory, "topology/physical_package_id")
                .and_then(|package| package.parse().ok()),
            fast: performance.as_ref().is_none_or(|fast| fast.contains(&cpu)),
            allowed: allowed.as_ref().is_none_or(|allowed| allowed.contains(&cpu)),
        }
    };
    Some(Machine {
        processors: online.iter().map(processor).collect(),
        slow_cores_help,
        quota: quota(root),
        caches: caches(root, &online),
    })
}

/// Reads the processors that this process may run on.
fn affinity(root: &Path) -> Option<Set> {
    let status = fs::read_to_string(root.join("proc/self/status")).ok()?;
    parse(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
}

/// Reads which processors of an Intel hybrid are performance cores. Each kind of core has its
/// performance-counter device.
fn intel_performance(root: &Path, online: &Set) -> Option<Set> {
    let device = |kind| list(&root.join("sys/devices").join(kind).join("cpus"));
    device("cpu_atom").and(device("cpu_core")).map(|core| &core & online)
}

/// Reads the fast cores of an Arm processor, by capacities relative to the fastest core, which has
/// 1024. Middle cores of a three-tier design (about 70 %) help; little ones (20 to 40 %) do not.
fn arm_performance(root: &Path, online: &Set) -> Option<Set> {
    let capacity =
        |cpu: &usize| text(&cpu_directory(root, *cpu), "cpu_capacity")?.parse::<u32>().ok();
    let capacities: Option<Vec<_>> =
        online.iter().map(|cpu| Some((*cpu, capacity(cpu)?))).collect();
    let capacities = capacities?;
    let most = capacities.iter().map(|&(_, capacity)| capacity).max()?;
    Some(capacities.iter().filter(|(_, c)| *c > most / 2).map(|(cpu, _)| *cpu).collect())
}

/// Returns the CPU time that the control groups grant, in processors.
fn quota(root: &Path) -> Option<f64> {
    cgroup::groups(root, "cpu")
        .iter()
        .filter_map(|group| {
            let (quota, period) = if group.unified {
                let text = group.read("cpu.max")?; // "max 100000" or "200000 100000"
                let (quota, period) = text.trim().split_once(' ')?;
                (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?)
            } else {
                // A quota of -1 means none, and does not parse as u64.
                (group.number("cpu.cfs_quota_us")?, group.number("cpu.cfs_period_us")?)
            };
            (period > 0).then_some(quota as f64 / period as f64)
        })
        .reduce(f64::min)
}

/// Reads the processor's name. Only x86 has one; on Arm the kernel reports only part numbers.
pub fn name(root: &Path) -> Option<String> {
    let info = fs::read_to_string(root.join("proc/cpuinfo")).ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.split_once(':')?.1.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Reads all caches. A cache shared by several processors is counted once.
fn caches(root: &Path, online: &Set) -> Vec<Cache> {
    let mut found = BTreeSet::new();
    for &cpu in online {
        let directory = cpu_directory(root, cpu).join("cache");
        for index in (0..).map(|i| directory.join(format!("index{i}"))) {
            let Some(level) = text(&index, "level") else { break };
            let Some(bytes) = text(&index, "size").and_then(|size| bytes(&size)) else {
                continue;
            };
            let kind = match text(&index, "type").as_deref() {
                Some("Data") => "d",
                Some("Instruction") => "i",
                _ => "",
            };
            let sharers = text(&index, "shared_cpu_list").unwrap_or(cpu.to_string());
            found.insert((format!("L{level}{kind}"), bytes, sharers));
        }
    }
    counted(found.into_iter().map(|(name, bytes, _)| Cache { name, bytes, count: 1 }))
}

/// Parses a size such as `48K`, as the kernel writes it.
fn bytes(size: &str) -> Option<u64> {
    size.strip_suffix('K')?.parse::<u64>().ok()?.checked_mul(1024)
}

fn cpu_directory(root: &Path, cpu: usize) -> PathBuf {
    root.join(format!("sys/devices/system/cpu/cpu{cpu}"))
}

fn text(directory: &Path, file: &str) -> Option<String> {
    Some(fs::read_to_string(directory.join(file)).ok()?.trim().to_string())
}

fn list(path: &Path) -> Option<Set> {
    parse(&fs::read_to_string(path).ok()?)
}

/// Parses a list such as `0-3,8,10-11`, as the kernel writes it.
fn parse(text: &str) -> Option<Set> {
    /// More than Linux supports. The limit prevents a long loop if a file is wrong.
    const PROCESSORS_MAX: usize = 1 << 16;
    let mut set = Set::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if last >= PROCESSORS_MAX {
            return None;
        }
        set.extend(first..=last);
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{
        linux::tests::tree,
        topology::{CoreKinds, Topology},
    };

    fn topology(root: &Path) -> Option<Topology> {
        machine(root).map(|machine| Topology::of(machine, name(root)))
    }

    /// Type, level, size and sharers of a cache, as in the kernel's files.
    type CacheFiles<'a> = (&'a str, &'a str, &'a str, &'a str);

    /// Returns the files of a machine: processor `i` has the siblings and caches `cpus[i]`.
    fn files_of(cpus: &[(&str, &[CacheFiles<'_>])]) -> Vec<(String, String)> {
        let base = "sys/devices/system/cpu";
        let mut files = vec![(format!("{base}/online"), format!("0-{}\n", cpus.len() - 1))];
        for (cpu, (siblings, caches)) in cpus.iter().enumerate() {
            let mut file = |name: String, text: &str| {
                files.push((format!("{base}/cpu{cpu}/{name}"), format!("{text}\n")));
            };
            file("topology/thread_siblings_list".into(), siblings);
            file("topology/physical_package_id".into(), "0");
            for (index, (kind, level, size, sharers)) in caches.iter().enumerate() {
                file(format!("cache/index{index}/type"), kind);
                file(format!("cache/index{index}/level"), level);
                file(format!("cache/index{index}/size"), size);
                file(format!("cache/index{index}/shared_cpu_list"), sharers);
            }
        }
        files
    }

    fn topology_of(files: &[(String, String)], more: &[(&str, &str)]) -> Topology {
        let files = files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        let files: Vec<_> = files.chain(more.iter().copied()).collect();
        topology(tree(&files).path()).unwrap()
    }

    fn cache(name: &str, kib: u64, count: usize) -> Cache {
        Cache { name: name.into(), bytes: kib * 1024, count }
    }

    #[test]
    fn a_laptop_with_two_kinds_of_cores() {
        let fast = [
            ("Data", "1", "48K", "0-1"),
            ("Instruction", "1", "32K", "0-1"),
            ("Unified", "2", "1280K", "0-1"),
            ("Unified", "3", "12288K", "0-3"),
        ];
        let slow = |own| {
            [
                ("Data", "1", "32K", own),
                ("Instruction", "1", "64K", own),
                ("Unified", "2", "2048K", "2-3"),
                ("Unified", "3", "12288K", "0-3"),
            ]
        };
        let files =
            files_of(&[("0-1", &fast), ("0-1", &fast), ("2", &slow("2")), ("3", &slow("3"))]);
        let more = [
            ("sys/devices/cpu_core/cpus", "0-1\n"),
            ("sys/devices/cpu_atom/cpus", "2-3\n"),
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: 12th Gen  Intel(R) Core(TM)\n"),
            ("proc/self/status", "Cpus_allowed_list:\t0-2\n"),
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/cpu.max", "150000 100000\n"),
        ];
        let expected = Topology {
            model: Some("12th Gen Intel(R) Core(TM)".into()),
            packages: 1,
            cores: 3,
            processors: 4,
            kinds: Some(CoreKinds { performance: 1, efficiency: 2 }),
            allowed: 3,
            quota: Some(1.5),
            caches: vec![
                cache("L1d", 32, 2),
                cache("L1d", 48, 1),
                cache("L1i", 32, 1),
                cache("L1i", 64, 2),
                cache("L2", 1280, 1),
                cache("L2", 2048, 1),
                cache("L3", 12288, 1),
            ],
        };
        assert_eq!(topology_of(&files, &more), expected);
    }

    #[test]
    fn siblings_are_one_core_and_packages_are_counted() {
        let mut files = files_of(&[("0,2", &[]), ("1,3", &[]), ("0,2", &[]), ("1,3", &[])]);
        for (path, text) in &mut files {
            if path.contains("/cpu1/") || path.contains("/cpu3/") {
                *text = text.replace("0\n", "1\n");
            }
        }
        let topology = topology_of(&files, &[]);
        assert_eq!((topology.packages, topology.cores, topology.processors), (2, 2, 4));
        assert_eq!((topology.kinds, topology.quota, topology.allowed), (None, None, 4));
        assert_eq!((topology.model, topology.caches), (None, vec![]));
    }

    #[test]
    fn arm_cores_are_distinguished_by_capacity() {
        let files = files_of(&[("0", &[]), ("1", &[]), ("2", &[])]);
        let capacity = |least| {
            [
                ("sys/devices/system/cpu/cpu0/cpu_capacity", least),
                ("sys/devices/system/cpu/cpu1/cpu_capacity", "720\n"),
                ("sys/devices/system/cpu/cpu2/cpu_capacity", "1024\n"),
            ]
        };
        let kinds = Some(CoreKinds { performance: 2, efficiency: 1 });
        assert_eq!(topology_of(&files, &capacity("250\n")).kinds, kinds);
        assert_eq!(topology_of(&files, &capacity("1024\n")).kinds, None);
    }

    #[test]
    fn malformed_lists_are_rejected() {
        assert_eq!(parse("0-2,5\n"), Some(Set::from([0, 1, 2, 5])));
        assert_eq!(parse(""), Some(Set::new()));
        for text in ["a", "1-", "0-99999999999", "-1"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert!(topology(tree(&[]).path()).is_none());
    }

    #[test]
    fn this_machine_has_a_core() {
        let topology = crate::platform::topology::topology().unwrap();
        assert!(topology.cores >= 1 && topology.processors >= topology.cores, "{topology:?}");
    }
}
