//! The files that the tests read.

use rope_cpu::{
    gguf::{File, Gguf},
    tokenizer::Tokenizer,
};

/// Calls `test` with the tokenizer of a file.
pub fn with_tokenizer(path: &std::path::Path, test: impl FnOnce(&Tokenizer)) {
    let file = File::open(path).unwrap();
    let gguf = Gguf::parse(file.bytes(), &[]).unwrap();
    test(&Tokenizer::from_metadata(gguf.metadata()).unwrap());
}
