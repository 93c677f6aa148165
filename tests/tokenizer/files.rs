//! The files that the tests read, which scripts fetch.

use std::path::PathBuf;

use rope_cpu::{
    gguf::{File, Gguf},
    tokenizer::Tokenizer,
};

/// A file under `models/`. Without it the test is skipped, and says so; where CI is set it fails.
pub fn fetched(name: &str, script: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models").join(name);
    if path.exists() {
        return Some(path);
    }
    let message = format!("models/{name} is not there: run scripts/{script}");
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
