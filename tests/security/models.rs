//! Advisories about the metadata that describes a model, with a model of every family.

use rope_cpu::{
    gguf::File,
    model::{Model, OpenOptions},
};
use rope_cpu_testing::{
    builder::{ARRAY, BOOL, Builder, F32, I32, STRING, U32, U64, array, string},
    tiny::Tiny,
};

fn open(file: &Builder) -> Result<Model, String> {
    let file = File::in_memory("model.gguf", &file.bytes()).map_err(|e| e.to_string())?;
    OpenOptions::new().load(file).map_err(|e| e.to_string())
}

fn families() -> impl Iterator<Item = (&'static str, Builder)> {
    let all = Tiny::all().into_iter().chain(Tiny::encoders());
    all.map(|(name, tiny)| (name, tiny.builder()))
}

/// Returns the name of a key.
fn name(key: &[u8]) -> &[u8] {
    let len = u64::from_le_bytes(key[..8].try_into().unwrap());
    &key[8..][..len as usize]
}

/// Returns the file with another value for a key.
fn with(file: &Builder, suffix: &str, kind: u32, value: impl AsRef<[u8]>) -> Option<Builder> {
    let at = file.keys.iter().position(|key| name(key).ends_with(suffix.as_bytes()))?;
    let mut file = file.clone();
    let key = file.keys.remove(at);
    Some(file.key(name(&key), kind, value))
}

/// CVE-2025-0312: a missing value is a null pointer.
#[test]
fn cve_2025_0312() {
    for (_, file) in families() {
        for at in 0..file.keys.len() {
            let mut without = file.clone();
            let key = without.keys.remove(at);
            if let Err(error) = open(&without) {
                assert!(!error.is_empty(), "{:?}", String::from_utf8_lossy(name(&key)));
            }
        }
        let none = open(&Builder { keys: Vec::new(), ..file }).unwrap_err();
        assert!(none.contains("general.architecture is missing"), "{none}");
    }
}

/// CVE-2024-8063: a key of another type, such as the number of layers.
#[test]
fn cve_2024_8063() {
    for (family, file) in families() {
        let others: [(u32, Vec<u8>); 6] = [
            (STRING, string("two")),
            (ARRAY, array(U32, 0, [[0; 4]; 0])),
            (ARRAY, array(F32, 2, [[0; 4]; 2])),
            (F32, f32::NAN.to_le_bytes().into()),
            (BOOL, vec![1]),
            (U64, u64::MAX.to_le_bytes().into()),
        ];
        for (kind, value) in &others {
            let error = open(&with(&file, ".block_count", *kind, value).unwrap()).unwrap_err();
            assert!(error.contains(".block_count"), "{family}: {error}");
            for at in 0..file.keys.len() {
                let mut other = file.clone();
                let key = other.keys.remove(at);
                // It is refused, or the key means nothing to this family.
                let _ = open(&other.key(name(&key), *kind, value));
            }
        }
    }
}

/// llama.cpp #25821: more layers than an array of 512 holds.
#[test]
fn llama_cpp_25821() {
    for (family, file) in families() {
        let count = |kind, value: &[u8]| {
            let error = open(&with(&file, ".block_count", kind, value).unwrap());
            error.err().unwrap_or_else(|| panic!("{family} opens"))
        };
        for layers in [0u32, 4097, 1 << 31, u32::MAX] {
            let error = count(U32, &layers.to_le_bytes());
            assert!(error.contains("must be from 1 to 4096"), "{family}: {error}");
        }
        for layers in [513u32, 600, 4096] {
            count(U32, &layers.to_le_bytes());
        }
        assert!(count(I32, &(-1i32).to_le_bytes()).contains(".block_count"), "{family}");
    }
}

/// More shared experts than the largest width holds: an error with the key, not a smaller number.
#[test]
fn the_number_of_shared_experts_is_never_cut() {
    let mut tried = 0;
    for (family, file) in families() {
        let has_width = |key: &Vec<u8>| name(key).ends_with(b".expert_shared_feed_forward_length");
        let many = with(&file, ".expert_shared_count", U32, u32::MAX.to_le_bytes());
        let Some(many) = many.filter(|_| !file.keys.iter().any(has_width)) else { continue };
        let error = open(&many).unwrap_err();
        let named = error.contains(".expert_shared_count is 4294967295: must be from 1 to ");
        assert!(named, "{family}: {error}");
        tried += 1;
    }
    assert!(tried > 0);
}

/// llama.cpp #28345: no expert computes a token in a layer, and its number divides.
#[test]
fn llama_cpp_28345() {
    let mut tried = 0;
    for (family, file) in families() {
        let Some(none) = with(&file, ".expert_used_count", U32, [0; 4]) else { continue };
        let error = open(&none).err().unwrap_or_else(|| panic!("{family} opens"));
        assert!(error.contains("expert_used_count"), "{family}: {error}");
        // A list with 0 for each layer, and for the one that predicts.
        for layers in 1..6 {
            let list = array(U32, layers, (0..layers).map(|_| [0; 4]));
            let error = open(&with(&file, ".expert_used_count", ARRAY, list).unwrap());
            let error = error.err().unwrap_or_else(|| panic!("{family} opens"));
            assert!(error.contains("expert_used_count"), "{family}: {error}");
        }
        for key in [".expert_count", ".expert_feed_forward_length"] {
            let _ = with(&file, key, U32, [0; 4]).map(|file| open(&file));
        }
        tried += 1;
    }
    assert!(tried > 15, "{tried}");
}

/// CVE-2026-7482: weights beyond the end of the file are read while a model is quantized.
#[cfg(feature = "program")]
#[test]
fn cve_2026_7482() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.gguf");
    let model = Tiny::llama().builder();
    let whole = model.bytes();
    let cuts = [64, 4096, model.data.len() / 2, model.data.len()].map(|cut| whole.len() - cut);
    for len in cuts {
        let file = rope_cpu_testing::builder::file(&whole[..len]);
        let mut command = assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("rope-cpu"));
        let run = command.arg("quantize").arg(file.path()).arg(&output).arg("Q8_0");
        let run = run.output().unwrap();
        assert_eq!(run.status.code(), Some(2), "{len}");
        let error = String::from_utf8(run.stderr).unwrap();
        assert!(error.contains("lies outside the file"), "{len}: {error}");
        assert!(!output.exists());
    }
}
