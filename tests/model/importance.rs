//! Importance matrices, compared with sums of llama.cpp's activations
//! (`scripts/make-imatrix-golden`).

use std::collections::BTreeMap;

use rope_cpu::{
    eval::{
        importance::{Tensors, importance},
        perplexity::{Settings, Windows},
    },
    gguf::Gguf,
    imatrix::Imatrix,
    json,
};
use rope_cpu_testing::tiny::Tiny;

use super::session::{How, tokens, with_engine};

/// The sums of a tensor, and the number of inputs.
type Golden = BTreeMap<String, BTreeMap<String, (Vec<f64>, Vec<f64>)>>;

const WINDOW: usize = 32;
const WINDOWS: usize = 2;

/// Returns the file with the importance matrix of two windows of tokens.
fn computed(tiny: &Tiny, how: &How, tensors: Tensors) -> Vec<u8> {
    let text = tokens(tiny, WINDOW * WINDOWS);
    let windows = Windows::Halves { window: WINDOW };
    let settings = Settings { windows, windows_max: None, bos: None, bucket: None };
    let (imatrix, scored) = with_engine(tiny, how, |engine| {
        importance(engine, &text, settings, tensors, &mut |_| Ok(())).unwrap()
    });
    assert_eq!((imatrix.chunks, imatrix.chunk_size), (WINDOWS as u32, WINDOW as u32));
    assert_eq!(scored.windows, WINDOWS);
    let mut file = Vec::new();
    imatrix.write(&mut file).unwrap();
    file
}

fn numbers(gguf: &Gguf<'_>, name: &str) -> Vec<f64> {
    let bytes = gguf.tensor(name).unwrap_or_else(|| panic!("{name} is missing")).bytes;
    bytes.as_chunks().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
}

#[test]
fn sums_are_those_of_llama_cpp() {
    let golden: Golden = json::parse(include_str!("../data/imatrix.json")).unwrap();
    assert_eq!(golden.len(), 3);
    for (model, tensors) in &golden {
        let file = computed(&Tiny::named(model), &How::default(), Tensors::Layers);
        let file = aligned(&file);
        let gguf = Gguf::parse(bytemuck::cast_slice(&file), &[]).unwrap();
        assert_eq!(gguf.tensors().len(), 2 * tensors.len(), "{model}");
        for (name, (squares, counts)) in tensors {
            assert_eq!(&numbers(&gguf, &format!("{name}.counts")), counts, "{model} {name}");
            let found = numbers(&gguf, &format!("{name}.in_sum2"));
            assert_eq!(found.len(), squares.len(), "{model} {name}");
            // Activations differ by rounding, which each layer amplifies.
            let largest = squares.iter().copied().fold(0.0, f64::max);
            for (found, expected) in found.iter().zip(squares) {
                let difference = (found - expected).abs();
                assert!(difference <= 1e-4 * largest, "{model} {name}: {found} {expected}");
            }
        }
    }
}

/// Copies a file to memory that is aligned as a map is.
fn aligned(file: &[u8]) -> Vec<[u64; 4]> {
    let mut blocks = vec![[0u64; 4]; file.len().div_ceil(32)];
    bytemuck::cast_slice_mut::<_, u8>(&mut blocks)[..file.len()].copy_from_slice(file);
    blocks
}

#[test]
fn a_file_is_the_same_on_any_number_of_threads() {
    let tiny = Tiny::named("qwen3moe");
    let one = computed(&tiny, &How::default(), Tensors::All);
    let three = computed(&tiny, &How { threads: 3, ..How::default() }, Tensors::All);
    assert!(one == three);
    let file = aligned(&one);
    let gguf = Gguf::parse(bytemuck::cast_slice(&file), &[]).unwrap();
    let outputs = gguf.tensors().iter().filter(|tensor| !tensor.name.starts_with("blk."));
    let names: Vec<&str> = outputs.map(|tensor| tensor.name).collect();
    assert!(
        names.iter().all(|name| name.starts_with("output.") || name.starts_with("token_embd."))
    );
    assert_eq!(names.len(), 2, "{names:?}");
    // The output is computed for the second half of each window.
    let scored = (WINDOW / 2 - 1) * WINDOWS;
    let counts = names.iter().find(|name| name.ends_with(".counts")).unwrap();
    assert_eq!(numbers(&gguf, counts), [scored as f64]);
}

#[test]
fn what_is_written_is_read_again() {
    let file = computed(&Tiny::named("qwen3moe"), &How::default(), Tensors::Layers);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("imatrix.gguf");
    std::fs::write(&path, &file).unwrap();
    let mut again = Vec::new();
    Imatrix::open(&path).unwrap().write(&mut again).unwrap();
    assert!(file == again);
}
