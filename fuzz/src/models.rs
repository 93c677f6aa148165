//! A tiny model of each family.

use std::sync::LazyLock;

use rope_cpu::{
    gguf::File,
    model::{Model, OpenOptions, Options},
    threads::Workers,
};
use rope_cpu_testing::{builder::Builder, tiny::Tiny};

use crate::vocabulary;

/// The files of all families, with a tokenizer.
pub static FILES: LazyLock<Vec<Builder>> = LazyLock::new(|| {
    let all = Tiny::all().into_iter().chain(Tiny::encoders());
    all.map(|(_, tiny)| vocabulary::bpe(tiny.builder(), "smollm", tiny.vocabulary)).collect()
});

/// Returns the file of a family.
pub fn file(family: u8) -> &'static Builder {
    &FILES[usize::from(family) % FILES.len()]
}

/// Opens a file, if it is a model.
pub fn open(bytes: &[u8]) -> Option<Model> {
    OpenOptions::new().load(File::in_memory("model.gguf", bytes).ok()?).ok()
}

/// Returns options for a context on one thread.
pub fn options(context: usize) -> Options {
    Options { micro_batch: 8, threads: Workers { answers: 1, prompts: 1 }, ..Options::new(context) }
}
