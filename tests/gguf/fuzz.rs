//! Random damage: parsing never panics, whatever the bytes.

use assert_cmd::Command;
use proptest::prelude::*;
use rope_cpu::gguf::{Gguf, Value};

use rope_cpu_testing::builder::{file, model};

/// One change to a file.
#[derive(Clone, Debug)]
enum Damage {
    Byte { at: prop::sample::Index, value: u8 },
    Number { at: prop::sample::Index, value: u64 },
    Cut { at: prop::sample::Index },
    Twice { at: prop::sample::Index, len: usize },
}

fn damage() -> impl Strategy<Value = Damage> {
    // Counts and lengths are most likely to be mishandled around powers of two.
    let number =
        (0..64u32, -1..2i64).prop_map(|(bits, near)| (1u64 << bits).wrapping_add_signed(near));
    let at = any::<prop::sample::Index>;
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, value)| Damage::Byte { at, value }),
        4 => (at(), number).prop_map(|(at, value)| Damage::Number { at, value }),
        1 => at().prop_map(|at| Damage::Cut { at }),
        1 => (at(), 0..100usize).prop_map(|(at, len)| Damage::Twice { at, len }),
    ]
}

fn apply(damage: &Damage, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    match damage {
        Damage::Byte { at, value } => {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        Damage::Number { at, value } => {
            let at = at.index(bytes.len());
            let end = bytes.len().min(at + 8);
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        Damage::Cut { at } => bytes.truncate(at.index(bytes.len())),
        Damage::Twice { at, len } => {
            let at = at.index(bytes.len());
            let part = bytes[at..bytes.len().min(at + len)].to_vec();
            bytes.splice(at..at, part);
        }
    }
}

/// Reads everything that a parsed file returns.
fn walk(gguf: &Gguf<'_>, file_bytes: usize) {
    for (key, value) in gguf.metadata().iter() {
        assert!(!key.is_empty());
        if let Value::Array(array) = value {
            assert_eq!(array.values().count(), array.len, "{key}");
            assert!(array.len <= file_bytes, "{key}");
        }
    }
    let mut bytes = 0;
    for tensor in gguf.tensors() {
        assert_eq!(tensor.rows() * tensor.row_bytes(), tensor.bytes.len() as u64);
        assert_eq!(gguf.tensor(tensor.name).unwrap().offset, tensor.offset);
        bytes += tensor.bytes.len();
    }
    assert!(bytes <= file_bytes, "tensors do not overlap");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn damaged_files_are_read_or_refused(damages in prop::collection::vec(damage(), 1..6)) {
        let mut bytes = model().bytes();
        damages.iter().for_each(|damage| apply(damage, &mut bytes));
        if let Ok(gguf) = Gguf::parse(&bytes, &[]) {
            walk(&gguf, bytes.len());
        }
    }

    #[test]
    fn noise_after_the_counts_is_read_or_refused(
        keys in 0..4u64,
        tensors in 0..4u64,
        noise in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => 0..16u8, 1 => any::<u8>()], 0..200),
    ) {
        let counts = [tensors.to_le_bytes(), keys.to_le_bytes()].concat();
        let bytes = [b"GGUF\x03\0\0\0", &counts[..], &noise].concat();
        if let Ok(gguf) = Gguf::parse(&bytes, &[]) {
            walk(&gguf, bytes.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damaged_files_are_shown_or_refused(
        damages in prop::collection::vec(damage(), 1..4),
        flags in prop::sample::subsequence(vec!["--json", "--full", "--verify"], 0..=3),
    ) {
        let mut bytes = model().bytes();
        damages.iter().for_each(|damage| apply(damage, &mut bytes));
        prop_assume!(!bytes.is_empty());
        let file = file(&bytes);
        let path = file.path().to_str().unwrap();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("rope-cpu"));
        let output = command.arg("inspect").arg(path).args(&flags).output().unwrap();
        prop_assert!(matches!(output.status.code(), Some(0 | 2)), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let json = flags.contains(&"--json");
        prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control() || json));
    }
}
