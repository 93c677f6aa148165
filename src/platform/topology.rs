//! The processors and caches of the machine, and the processors that this process may use.

use std::collections::{BTreeMap, BTreeSet};

use super::system;

/// The processors and caches of the machine, and the part that this process may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// The maker's name of the processor.
    pub model: Option<String>,
    /// The number of sockets.
    pub packages: usize,
    /// The number of physical cores.
    pub cores: usize,
    /// The number of logical processors that are online: two or more for a core that runs several
    /// threads.
    pub processors: usize,
    /// The number of fast and of slow cores, if the machine has two kinds.
    pub kinds: Option<CoreKinds>,
    /// The number of logical processors in this process's affinity mask.
    pub allowed: usize,
    /// The CPU time that the control groups grant, in processors, if they limit it.
    pub quota: Option<f64>,
    /// The caches, the smallest level first.
    pub caches: Vec<Cache>,
}

/// The numbers of physical cores of a machine with two kinds of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreKinds {
    /// The number of fast cores.
    pub performance: usize,
    /// The number of slow cores.
    pub efficiency: usize,
}

/// The caches of one level, type and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The level and type: `L1d`, `L1i`, `L2`, ...
    pub name: String,
    /// The size of each cache in bytes.
    pub bytes: u64,
    /// The number of such caches.
    pub count: usize,
}

/// The processors that a system reports.
pub(super) struct Machine {
    /// The logical processors that are online.
    pub processors: Vec<Processor>,
    /// Whether a slow core is at least about a third as fast as a fast one.
    pub slow_cores_help: bool,
    /// The CPU time that this process may use, in processors, if it is limited.
    pub quota: Option<f64>,
    /// The caches, the smallest level first.
    pub caches: Vec<Cache>,
}

/// A logical processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Processor {
    /// The physical core: equal for the processors that share it.
    pub core: usize,
    /// The socket, if it is known.
    pub package: Option<u32>,
    /// Whether the core is a fast one, or the machine has one kind.
    pub fast: bool,
    /// Whether this process may run on it.
    pub allowed: bool,
}

/// Returns the number of physical cores of `processors`.
pub(super) fn cores<'p>(processors: impl IntoIterator<Item = &'p Processor>) -> usize {
    processors.into_iter().map(|processor| processor.core).collect::<BTreeSet<_>>().len()
}

/// Adds up the caches of one name and size.
pub(super) fn counted(caches: impl IntoIterator<Item = Cache>) -> Vec<Cache> {
    let mut counts = BTreeMap::<_, usize>::new();
    for Cache { name, bytes, count } in caches {
        *counts.entry((name, bytes)).or_default() += count;
    }
    counts.into_iter().map(|((name, bytes), count)| Cache { name, bytes, count }).collect()
}

/// Reads the topology of this machine; `None` if the system does not report it.
pub fn topology() -> Option<Topology> {
    system::machine().map(|machine| Topology::of(machine, model()))
}

/// Returns the maker's name of the processor, if the system provides it.
pub fn model() -> Option<String> {
    system::processor_name()
}

impl Topology {
    pub(super) fn of(machine: Machine, model: Option<String>) -> Self {
        let Machine { processors, quota, caches, .. } = machine;
        let (fast, slow): (Vec<_>, Vec<_>) = processors.iter().partition(|p| p.fast);
        let kinds = CoreKinds { performance: cores(fast), efficiency: cores(slow.iter().copied()) };
        let packages: BTreeSet<_> = processors.iter().map(|processor| processor.package).collect();
        Topology {
            model,
            packages: packages.len(),
            cores: cores(&processors),
            processors: processors.len(),
            kinds: (!slow.is_empty()).then_some(kinds),
            allowed: processors.iter().filter(|processor| processor.allowed).count(),
            quota,
            caches,
        }
    }
}
