//! The files that the tests read, which are downloaded by scripts.

use std::path::PathBuf;

use rope_cpu::{
    gguf::{File, Gguf},
    tokenizer::Tokenizer,
};

/// Returns a file under `models/`. If it is missing, the test is skipped with a message, or fails
/// if CI is set.
pub fn fetched(name: &str, script: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models").join(name);
    if path.exists() {
        return Some(path);
    }
    let message = format!("models/{name} is missing: run scripts/{script}");
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{message}");
    println!("skipped: {message}");
    None
}

/// Calls `test` with the tokenizer of a file.
pub fn with_tokenizer(path: &std::path::Path, test: impl FnOnce(&Tokenizer)) {
    let file = File::open(path).unwrap();
    let gguf = Gguf::parse(file.bytes(), &[]).unwrap();
    test(&Tokenizer::from_metadata(gguf.metadata()).unwrap());
}
