//! Small files with large counts: reading them takes little memory and little time.
//!
//! The test has a program of its own, since the peak memory of the whole process, and of the processes
//! that it starts, is measured.
#![cfg(target_os = "linux")]

use std::{io::Write, time::Duration};

use assert_cmd::Command;
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::{TimeVal, TimeValLike},
};
use rope_cpu::gguf::{Gguf, Value};

/// The limit of the memory that reading a hostile file of less than 1 MB may take, in KiB.
const GROWTH_MAX_KIB: u64 = 64 << 10;

/// The limit of the processor time that reading a hostile file may take.
const TIME_MAX: Duration = Duration::from_secs(5);

const FILE_BYTES: usize = 1_000_000;

#[test]
fn a_small_hostile_file_takes_little() {
    let files = [
        ("keys of one byte", keys()),
        ("tensors of one byte", tensors()),
        ("an array of bytes", array(0, 1)),
        ("an array of truth values", array(7, 1)),
        ("an array of empty strings", array(8, 8)),
        ("a long key in every message", long_key()),
        ("2^63 bytes", [&array(0, 1)[..45], &[0xff; 8]].concat()),
    ];
    show(&[header(0, 1), string(b"a"), vec![0, 0, 0, 0, 1]].concat());
    let before = [peak_kib(), children_peak_kib()];
    for (what, bytes) in &files {
        let start = processor_time();
        assert!(bytes.len() <= FILE_BYTES, "{what}: {} bytes", bytes.len());
        match Gguf::parse(bytes, &[]) {
            Ok(gguf) => {
                gguf.metadata().iter().for_each(|(_, value)| read(value));
                show(bytes);
            }
            Err(error) => assert!(error.to_string().len() < 1000, "{what}: a message too long"),
        }
        for (now, before) in [peak_kib(), children_peak_kib()].into_iter().zip(before) {
            assert!(now - before < GROWTH_MAX_KIB, "{what}: {} KiB", now - before);
        }
        let time = processor_time() - start;
        assert!(time < TIME_MAX, "{what}: {time:?}");
    }
}

/// Decodes arrays as a tokenizer does.
fn read(value: Value<'_>) {
    if let Value::Array(array) = value {
        let lengths = [
            array.strings().map(|x| x.len()),
            array.integers().map(|x| x.len()),
            array.f32s().map(|x| x.len()),
            Some(array.values().count()),
        ];
        assert!(lengths.into_iter().flatten().all(|len| len == array.len));
    }
}

/// Shows the file as `rope-cpu inspect` does.
fn show(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    for json in [false, true] {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("rope-cpu"));
        command.arg("inspect").arg(file.path()).args(json.then_some("--json")).assert().success();
    }
}

/// Returns the processor time of this process, and of the processes that it has waited for.
fn processor_time() -> Duration {
    let times = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN].map(|who| {
        let usage = getrusage(who).unwrap();
        [usage.user_time(), usage.system_time()]
    });
    let micros = times.iter().flatten().map(TimeVal::num_microseconds).sum::<i64>();
    Duration::from_micros(micros as u64)
}

/// Returns the peak resident memory of the processes that this one has waited for, in KiB.
fn children_peak_kib() -> u64 {
    getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss() as u64
}

/// Returns the peak resident memory of the process in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn header(tensors: u64, keys: u64) -> Vec<u8> {
    [b"GGUF\x03\0\0\0", &tensors.to_le_bytes()[..], &keys.to_le_bytes()].concat()
}

fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}

/// Returns a file with the maximum number of keys, each as short as a distinct key can be.
fn keys() -> Vec<u8> {
    let count = 1 << 14;
    let mut file = header(0, count);
    for index in 0..count {
        file.extend(string(format!("{index:x}").as_bytes()));
        file.extend([0, 0, 0, 0, 1]);
    }
    file
}

fn tensors() -> Vec<u8> {
    let count = (FILE_BYTES / 45) as u64;
    let mut file = header(count, 1);
    // The smallest alignment, so that the data of all tensors fits.
    file.extend(string(b"general.alignment"));
    file.extend([4, 0, 0, 0, 8, 0, 0, 0]);
    for index in 0..count {
        file.extend(string(format!("{index:x}").as_bytes()));
        file.extend([&1u32.to_le_bytes()[..], &1u64.to_le_bytes(), &24u32.to_le_bytes()].concat());
        file.extend((index * 8).to_le_bytes());
    }
    file.resize(FILE_BYTES, 0);
    file
}

fn array(element: u32, element_bytes: usize) -> Vec<u8> {
    let mut file = header(0, 1);
    file.extend(string(b"a"));
    file.extend(9u32.to_le_bytes());
    file.extend(element.to_le_bytes());
    let len = (FILE_BYTES - file.len() - 8) / element_bytes;
    file.extend((len as u64).to_le_bytes());
    file.resize(file.len() + len * element_bytes, 0);
    file
}

fn long_key() -> Vec<u8> {
    let mut file = header(0, 1);
    file.extend(string(&[0x1b; 65535]));
    file.extend(77u32.to_le_bytes());
    file.resize(100_000, 0);
    file
}
