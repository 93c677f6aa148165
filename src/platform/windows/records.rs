//! Interprets the records of `GetLogicalProcessorInformationEx`. Tests check it on every system.
//!
//! A record starts with its kind and its size. It names processors as groups of up to 64, each with
//! a mask. The offsets are documented, as `SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX`.

use std::iter;

use crate::platform::topology::{Cache, Machine, Processor, counted};

/// The kinds of records.
const CORE: u32 = 0;
const CACHE: u32 = 2;
const PACKAGE: u32 = 3;

/// A logical processor: its group, and its bit in masks.
type Number = (u16, u32);

/// Builds the machine from the records. `affinity` has the processors of the first group that this
/// process may use. `cpu_rate` has the flags and the rate of its job object.
pub fn machine(
    records: &[u8],
    affinity: Option<u64>,
    cpu_rate: Option<[u32; 2]>,
) -> Option<Machine> {
    let of_kind = |kind| all(records).filter(move |record| u32_at(record, 0) == Some(kind));
    let packages: Option<Vec<_>> = of_kind(PACKAGE).map(|record| numbers(record, 30)).collect();
    let packages = packages?;
    // Higher classes are faster. If all cores are alike, they have class 0.
    let class = |record: &[u8]| record.get(9).copied();
    let fastest = of_kind(CORE).filter_map(class).max()?;
    let mut processors = Vec::new();
    for (core, record) in of_kind(CORE).enumerate() {
        processors.extend(numbers(record, 30)?.into_iter().map(|number| {
            Processor {
                core,
                package: packages
                    .iter()
                    .position(|package| package.contains(&number))
                    .and_then(|package| u32::try_from(package).ok()),
                fast: class(record) == Some(fastest),
                allowed: affinity.is_none_or(|mask| number.0 == 0 && mask >> number.1 & 1 == 1),
            }
        }));
    }
    let quota = cpu_rate.and_then(|rate| quota(rate, processors.len()));
    let caches: Option<Vec<_>> = of_kind(CACHE).map(cache).collect();
    // Slow cores of Arm processors may be far slower.
    let slow_cores_help = cfg!(target_arch = "x86_64");
    Some(Machine { processors, slow_cores_help, quota, caches: counted(caches?) })
}

/// Returns the CPU time that a job object grants, in processors, if it has a hard limit.
fn quota([flags, rate]: [u32; 2], processors: usize) -> Option<f64> {
    const ENABLED: u32 = 1;
    const HARD_CAP: u32 = 4;
    const MIN_MAX: u32 = 16;
    let share = match flags {
        flags if flags & ENABLED == 0 => return None,
        flags if flags & MIN_MAX != 0 => rate >> 16,
        flags if flags & HARD_CAP != 0 => rate,
        _ => return None,
    };
    // The rate is in hundredths of a percent of all processors.
    Some(f64::from(share) / 1e4 * processors as f64)
}

fn cache(record: &[u8]) -> Option<Cache> {
    let kind = match u32_at(record, 16)? {
        1 => "i",
        2 => "d",
        _ => "",
    };
    let (level, bytes) = (record.get(8)?, u32_at(record, 12)?);
    Some(Cache { name: format!("L{level}{kind}"), bytes: bytes.into(), count: 1 })
}

/// Splits the records. Stops at a truncated one.
fn all(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    iter::from_fn(move || {
        let size = usize::try_from(u32_at(bytes, 4)?).ok().filter(|size| *size >= 8)?;
        let (record, rest) = bytes.split_at_checked(size)?;
        bytes = rest;
        Some(record)
    })
}

/// Returns the processors of a record. The number of masks is at `count_at`.
fn numbers(record: &[u8], count_at: usize) -> Option<Vec<Number>> {
    let masks = u16::from_le_bytes(field(record, count_at)?);
    let mut numbers = Vec::new();
    for index in 0..usize::from(masks) {
        let at = count_at + 2 + 16 * index;
        let mask = u64::from_le_bytes(field(record, at)?);
        let group = u16::from_le_bytes(field(record, at + 8)?);
        numbers.extend((0..64).filter(|bit| mask >> bit & 1 == 1).map(|bit| (group, bit)));
    }
    Some(numbers)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    field(bytes, at).map(u32::from_le_bytes)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{
        processors::{Workers, threads},
        topology::{CoreKinds, Topology},
    };

    /// Returns a record of a core or a package, with the masks of its groups.
    fn relation(kind: u32, class: u8, masks: &[(u16, u64)]) -> Vec<u8> {
        let size = 32 + 16 * masks.len() as u32;
        let mut record = [kind.to_le_bytes(), size.to_le_bytes()].concat();
        record.extend([u8::from(kind == CORE), class]);
        record.extend([0; 20]);
        record.extend((masks.len() as u16).to_le_bytes());
        for (group, mask) in masks {
            record.extend(mask.to_le_bytes());
            record.extend(group.to_le_bytes());
            record.extend([0; 6]);
        }
        record
    }

    /// Returns a record of a cache.
    fn cache_record(level: u8, kind: u32, bytes: u32) -> Vec<u8> {
        let mut record = [CACHE.to_le_bytes(), 56u32.to_le_bytes()].concat();
        record.extend([level, 8, 64, 0]);
        record.extend(bytes.to_le_bytes());
        record.extend(kind.to_le_bytes());
        record.resize(56, 0);
        record
    }

    /// A Core i5-1240P: four fast cores of two threads, eight slow ones.
    fn laptop() -> Vec<u8> {
        hybrid(4)
    }

    /// A processor with `fast` cores of two threads, and eight slow ones.
    fn hybrid(fast: u32) -> Vec<u8> {
        let all = (1 << (2 * fast + 8)) - 1;
        let mut records = relation(PACKAGE, 0, &[(0, all)]);
        for core in 0..fast {
            records.extend(relation(CORE, 1, &[(0, 3 << (2 * core))]));
            records.extend(cache_record(1, 2, 48 << 10));
            records.extend(cache_record(1, 1, 32 << 10));
            records.extend(cache_record(2, 0, 1280 << 10));
        }
        for core in 2 * fast..2 * fast + 8 {
            records.extend(relation(CORE, 0, &[(0, 1 << core)]));
            records.extend(cache_record(1, 2, 32 << 10));
            records.extend(cache_record(1, 1, 64 << 10));
        }
        records.extend(cache_record(2, 0, 2048 << 10));
        records.extend(cache_record(2, 0, 2048 << 10));
        records.extend(cache_record(3, 0, 12 << 20));
        // A NUMA node, which is skipped.
        records.extend(relation(1, 0, &[(0, all)]));
        records
    }

    fn cache(name: &str, kib: u64, count: usize) -> Cache {
        Cache { name: name.into(), bytes: kib << 10, count }
    }

    #[test]
    fn a_laptop_with_two_kinds_of_cores() {
        let expected = Topology {
            model: None,
            packages: 1,
            cores: 12,
            processors: 16,
            kinds: Some(CoreKinds { performance: 4, efficiency: 8 }),
            allowed: 16,
            quota: None,
            caches: vec![
                cache("L1d", 32, 8),
                cache("L1d", 48, 4),
                cache("L1i", 32, 4),
                cache("L1i", 64, 8),
                cache("L2", 1280, 4),
                cache("L2", 2048, 2),
                cache("L3", 12288, 1),
            ],
        };
        let machine = machine(&laptop(), Some(0xffff), None).unwrap();
        let threads = threads(&machine).unwrap();
        assert_eq!(threads.reason, "4 performance cores; prompts: 12 cores");
        assert_eq!(threads.workers, Workers { answers: 4, prompts: 12 });
        assert_eq!(Topology::of(machine, None), expected);
    }

    /// A Core i9-12900HX.
    #[test]
    fn eight_fast_and_eight_slow_cores() {
        let of = |affinity| {
            let machine = machine(&hybrid(8), Some(affinity), None).unwrap();
            let threads = threads(&machine).unwrap();
            (Topology::of(machine, None).kinds, threads.workers, threads.reason)
        };
        let kinds = Some(CoreKinds { performance: 8, efficiency: 8 });
        let all = Workers { answers: 8, prompts: 16 };
        let reason = "8 performance cores; prompts: 16 cores";
        assert_eq!(of(0xff_ffff), (kinds, all, reason.into()));
        // Four fast cores and four slow ones.
        let half = Workers { answers: 4, prompts: 8 };
        let reason = "4 performance cores; prompts: 8 cores; 12 of 24 processors allowed";
        assert_eq!(of(0x0f_00ff), (kinds, half, reason.into()));
    }

    #[test]
    fn affinity_and_job_objects_limit() {
        let of = |affinity, rate| {
            let threads = threads(&machine(&laptop(), affinity, rate).unwrap()).unwrap();
            (threads.workers.answers, threads.reason)
        };
        let pinned = "2 efficiency cores; 2 of 16 processors allowed";
        assert_eq!(of(Some(0x300), None), (2, pinned.into()));
        // A hard cap of 12.5 %, then a range up to 15 %, then a weight, which is no limit.
        let capped = "4 performance cores; prompts: 12 cores; a CPU quota of";
        assert_eq!(of(None, Some([5, 1250])), (2, format!("{capped} 2.0")));
        assert_eq!(of(None, Some([17, 1500 << 16 | 100])), (2, format!("{capped} 2.4")));
        assert_eq!(of(None, Some([3, 5])).0, 4);
        assert_eq!(of(None, Some([0, 0])).0, 4);
    }

    #[test]
    fn two_packages_in_two_groups() {
        let mut records = Vec::new();
        for group in 0..2 {
            records.extend(relation(PACKAGE, 0, &[(group, 3)]));
            records.extend(relation(CORE, 0, &[(group, 1)]));
            records.extend(relation(CORE, 0, &[(group, 2)]));
        }
        let both = Topology::of(machine(&records, None, None).unwrap(), None);
        assert_eq!((both.packages, both.cores, both.allowed, both.kinds), (2, 4, 4, None));
        let first = Topology::of(machine(&records, Some(3), None).unwrap(), None);
        assert_eq!(first.allowed, 2);
    }

    #[test]
    fn records_that_are_cut_off_are_left_out() {
        assert!(machine(&[], None, None).is_none());
        assert!(machine(&[0; 64], None, None).is_none());
        let mut records = relation(CORE, 0, &[(0, 1)]);
        records.extend(relation(CORE, 0, &[(0, 2)]));
        records.pop();
        assert_eq!(machine(&records, None, None).unwrap().processors.len(), 1);
        // More masks than the record has.
        records[30] = 9;
        assert!(machine(&records[..48], None, None).is_none());
    }
}
