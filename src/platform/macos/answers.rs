//! Interprets the replies of sysctl. Tests check it on every system.
//!
//! Apple documents the names under "Determining system capabilities". The cores of performance level
//! 0 are the fastest. Machines with Intel processors have no levels.

use crate::platform::{
    memory::{Available, Limit},
    topology::{Cache, Machine, Processor, counted},
};

/// Returns the value of a name: an integer of 4 or 8 bytes, a list of them, or a text.
pub type Ask<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// More than the processors and levels of any Mac. The limit prevents a long loop if a reply is
/// wrong.
const COUNT_MAX: usize = 4096;

/// Returns the memory that is free, or that holds file contents and caches that can be dropped.
pub fn available_memory(ask: Ask<'_>) -> Option<Available> {
    let names =
        ["vm.page_free_count", "vm.page_pageable_external_count", "vm.page_purgeable_count"];
    let pages = names.iter().map(|name| number(ask, name)).sum::<Option<u64>>()?;
    let bytes = pages.checked_mul(number(ask, "hw.pagesize")?)?;
    Some(Available { bytes, limit: Limit::Machine })
}

/// Returns the maker's name of the processor.
pub fn processor_name(ask: Ask<'_>) -> Option<String> {
    let name = String::from_utf8(ask("machdep.cpu.brand_string")?).ok()?;
    Some(name.trim_end_matches('\0').trim().into())
}

/// Reads the processors and caches. The system has no affinity and no CPU quota.
pub fn machine(ask: Ask<'_>) -> Option<Machine> {
    let levels = count(ask, "hw.nperflevels").unwrap_or(0);
    let prefixes: Vec<_> = match levels {
        0 => vec!["hw.".to_string()],
        levels => (0..levels).map(|level| format!("hw.perflevel{level}.")).collect(),
    };
    let (mut processors, mut caches) = (Vec::new(), Vec::new());
    let mut cores = 0;
    for (level, prefix) in prefixes.iter().enumerate() {
        let of = |name: &str| count(ask, &format!("{prefix}{name}"));
        let (physical, logical) = (of("physicalcpu")?, of("logicalcpu")?);
        processors.extend((0..logical).map(|index| Processor {
            core: cores + index * physical / logical,
            package: None,
            fast: level == 0,
            allowed: true,
        }));
        cores += physical;
        caches.extend(caches_of(ask, prefix, physical, logical));
    }
    if processors.is_empty() {
        return None;
    }
    let (packages, all) = (count(ask, "hw.packages").unwrap_or(1), processors.len());
    for (index, processor) in processors.iter_mut().enumerate() {
        processor.package = u32::try_from(index * packages / all).ok();
    }
    Some(Machine { processors, slow_cores_help: true, quota: None, caches: counted(caches) })
}

/// Returns the caches of the cores that a prefix names.
fn caches_of(ask: Ask<'_>, prefix: &str, physical: usize, logical: usize) -> Vec<Cache> {
    // On Intel: how many processors share the memory, an L1, an L2 and an L3 cache.
    let shared = ask("hw.cacheconfig").unwrap_or_default();
    let shared = |level: usize| integer(shared.chunks_exact(8).nth(level)?);
    let cache = |(name, file, level): (&str, &str, usize)| {
        let bytes = number(ask, &format!("{prefix}{file}size")).filter(|bytes| *bytes > 0)?;
        let sharers = count(ask, &format!("{prefix}cpusperl{level}"))
            .or_else(|| usize::try_from(shared(level)?).ok())
            .filter(|sharers| *sharers > 0);
        let count = match level {
            1 => physical,
            _ => logical.div_ceil(sharers?),
        };
        Some(Cache { name: name.into(), bytes, count })
    };
    let all = [
        ("L1d", "l1dcache", 1),
        ("L1i", "l1icache", 1),
        ("L2", "l2cache", 2),
        ("L3", "l3cache", 3),
    ];
    all.into_iter().filter_map(cache).collect()
}

fn count(ask: Ask<'_>, name: &str) -> Option<usize> {
    usize::try_from(number(ask, name)?).ok().filter(|count| *count <= COUNT_MAX)
}

fn number(ask: Ask<'_>, name: &str) -> Option<u64> {
    integer(&ask(name)?)
}

fn integer(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4 => Some(u32::from_le_bytes(bytes.try_into().ok()?).into()),
        8 => Some(u64::from_le_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{
        processors::{Workers, threads},
        topology::{CoreKinds, Topology},
    };

    /// A MacBook Pro of 2021, as `sysctl -a` prints it.
    const M1_PRO: &str = "\
machdep.cpu.brand_string: Apple M1 Pro
hw.nperflevels: 2
hw.packages: 1
hw.perflevel0.physicalcpu: 8
hw.perflevel0.logicalcpu: 8
hw.perflevel0.l1icachesize: 196608
hw.perflevel0.l1dcachesize: 131072
hw.perflevel0.l2cachesize: 12582912
hw.perflevel0.cpusperl2: 4
hw.perflevel1.physicalcpu: 2
hw.perflevel1.logicalcpu: 2
hw.perflevel1.l1icachesize: 131072
hw.perflevel1.l1dcachesize: 65536
hw.perflevel1.l2cachesize: 4194304
hw.perflevel1.cpusperl2: 2
hw.physicalcpu: 10
hw.logicalcpu: 10
hw.cacheconfig: 10 1 2 0 0 0 0 0 0 0
hw.l1icachesize: 131072
hw.l1dcachesize: 65536
hw.l2cachesize: 4194304";

    /// A MacBook Pro with a Core i7 of four cores.
    const INTEL: &str = "\
hw.packages: 1
hw.physicalcpu: 4
hw.logicalcpu: 8
hw.cacheconfig: 8 2 2 8 0 0 0 0 0 0
hw.l1icachesize: 32768
hw.l1dcachesize: 32768
hw.l2cachesize: 262144
hw.l3cachesize: 6291456";

    /// Replies like a machine with this `sysctl -a`: integers of 8 bytes, lists of them, and texts
    /// that end with a zero.
    fn recorded(text: &'static str) -> impl Fn(&str) -> Option<Vec<u8>> {
        move |name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
            let numbers: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
            Some(match numbers {
                Ok(numbers) => numbers.iter().flat_map(|n| n.to_le_bytes()).collect(),
                Err(_) => format!("{line}\0").into_bytes(),
            })
        }
    }

    fn topology(text: &'static str) -> Topology {
        let ask = recorded(text);
        Topology::of(machine(&ask).unwrap(), processor_name(&ask))
    }

    fn cache(name: &str, kib: u64, count: usize) -> Cache {
        Cache { name: name.into(), bytes: kib << 10, count }
    }

    #[test]
    fn two_levels_of_performance() {
        let expected = Topology {
            model: Some("Apple M1 Pro".into()),
            packages: 1,
            cores: 10,
            processors: 10,
            kinds: Some(CoreKinds { performance: 8, efficiency: 2 }),
            allowed: 10,
            quota: None,
            caches: vec![
                cache("L1d", 64, 2),
                cache("L1d", 128, 8),
                cache("L1i", 128, 2),
                cache("L1i", 192, 8),
                cache("L2", 4096, 1),
                cache("L2", 12288, 2),
            ],
        };
        assert_eq!(topology(M1_PRO), expected);
        let threads = threads(&machine(&recorded(M1_PRO)).unwrap()).unwrap();
        assert_eq!(threads.workers, Workers { answers: 8, prompts: 10 });
        assert_eq!(threads.reason, "8 performance cores; prompts: 10 cores");
    }

    #[test]
    fn eight_fast_and_eight_slow_cores() {
        let levels = "\
hw.nperflevels: 2
hw.perflevel0.physicalcpu: 8
hw.perflevel0.logicalcpu: 8
hw.perflevel1.physicalcpu: 8
hw.perflevel1.logicalcpu: 8";
        let kinds = Some(CoreKinds { performance: 8, efficiency: 8 });
        assert_eq!(topology(levels).kinds, kinds);
        let threads = threads(&machine(&recorded(levels)).unwrap()).unwrap();
        assert_eq!(threads.workers, Workers { answers: 8, prompts: 16 });
        assert_eq!(threads.reason, "8 performance cores; prompts: 16 cores");
    }

    #[test]
    fn intel_has_two_threads_a_core_and_no_levels() {
        let expected = Topology {
            model: None,
            packages: 1,
            cores: 4,
            processors: 8,
            kinds: None,
            allowed: 8,
            quota: None,
            caches: vec![
                cache("L1d", 32, 4),
                cache("L1i", 32, 4),
                cache("L2", 256, 4),
                cache("L3", 6144, 1),
            ],
        };
        assert_eq!(topology(INTEL), expected);
        assert_eq!(threads(&machine(&recorded(INTEL)).unwrap()).unwrap().workers, 4.into());
    }

    #[test]
    fn free_and_droppable_pages_are_available() {
        let answers = "\
hw.pagesize: 16384
vm.page_free_count: 100
vm.page_pageable_external_count: 20
vm.page_purgeable_count: 3";
        let expected = Available { bytes: 123 * 16384, limit: Limit::Machine };
        assert_eq!(available_memory(&recorded(answers)), Some(expected));
    }

    #[test]
    fn strange_answers_give_none() {
        assert_eq!(available_memory(&recorded("hw.pagesize: 4096")), None);
        for text in ["", "hw.physicalcpu: 99999999\nhw.logicalcpu: 1", "hw.physicalcpu: x"] {
            assert!(machine(&recorded(text)).is_none(), "{text}");
        }
        assert!(machine(&|_| Some(vec![1, 2, 3])).is_none());
        assert!(machine(&|_| Some(vec![0; 8])).is_none());
    }
}
