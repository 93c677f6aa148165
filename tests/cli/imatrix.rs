//! `imatrix` on a tiny model.

use std::fs;

use rope_cpu::gguf::{File, Value};
use rope_cpu_testing::reader::tiny_reader;

use crate::cli::run;

#[test]
fn a_matrix_is_computed_and_improves_a_model() {
    let (model, folder) = (tiny_reader(1, true), tempfile::tempdir().unwrap());
    let model = model.path().to_str().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (text, output, quantized) = (path("text"), path("imatrix.gguf"), path("q4_0.gguf"));
    fs::write(&text, "the inner reason, ron. ".repeat(30)).unwrap();

    let arguments = ["imatrix", "-m", model, "-f", &text, "-o", &output, "-c", "64"];
    let computed = run(&[&arguments[..], &["--chunks", "2", "-t", "2"]].concat());
    assert_eq!(computed.code, Some(0), "{}", computed.stderr);
    for part in ["[2]", "Final estimate: PPL = ", "imatrix.gguf: 14 tensors, 2 chunks"] {
        assert!(computed.stdout.contains(part), "{part}: {}", computed.stdout);
    }
    // Closed before it is replaced, which Windows requires.
    {
        let file = File::open(&output).unwrap();
        let gguf = file.parse(&[]).unwrap();
        let key = |name: &str| gguf.metadata().get(name);
        assert_eq!(key("general.type"), Some(Value::String(b"imatrix")));
        assert_eq!(key("imatrix.chunk_count"), Some(Value::U32(2)));
        assert_eq!(key("imatrix.chunk_size"), Some(Value::U32(64)));
        let datasets = gguf.metadata().strings("imatrix.datasets").unwrap().unwrap();
        assert_eq!(datasets, [text.as_bytes()]);
        let counts = gguf.tensor("blk.1.ffn_down.weight.counts").unwrap().bytes;
        assert_eq!(counts, 128f32.to_le_bytes());
    }

    let made = run(&["quantize", "--imatrix", &output, model, &quantized, "q4_0"]);
    assert_eq!(made.code, Some(0));
    assert!(!made.stderr.contains("importance"), "{}", made.stderr);

    // An existing file is replaced by one with the output's tensor too.
    let again = run(&[&arguments[..], &["--process-output"]].concat());
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let file = File::open(&output).unwrap();
    assert!(file.parse(&[]).unwrap().tensors().len() > 28);
}

#[test]
fn what_cannot_be_computed_is_refused_and_leaves_nothing() {
    let (model, folder) = (tiny_reader(1, true), tempfile::tempdir().unwrap());
    let model = model.path().to_str().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (text, output) = (path("text"), path("imatrix.gguf"));
    fs::write(&text, "too short").unwrap();
    let with = |options: &[&str]| run(&[&["imatrix", "-m", model][..], options].concat());
    with(&["-f", &text, "-o", &output]).refused(2, &[&text, "choose a longer text"]);
    with(&["-o", &output]).refused(2, &["no text is given: give one with -f FILE"]);
    with(&["-f", &text, "-o", folder.path().to_str().unwrap()]).refused(2, &["is a directory"]);
    with(&["-f", &text, "-o", "/no/such/folder/x"]).refused(2, &["/no/such/folder does not exist"]);
    with(&["-f", "/no/such/text", "-o", &output]).refused(2, &["/no/such/text"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
