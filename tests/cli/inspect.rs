//! `rope-cpu inspect`.

use std::path::Path;

use crate::cli::{Run, run};
use rope_cpu_testing::builder::{ARRAY, Builder, F32, STRING, array, model, string};

fn inspect(path: &Path, flags: &[&str]) -> Run {
    run(&[&["inspect", path.to_str().unwrap()], flags].concat())
}

fn shown(path: &Path, flags: &[&str]) -> String {
    let Run { code, stdout, stderr } = inspect(path, flags);
    assert_eq!(code, Some(0), "{stderr}");
    stdout
}

/// A model with values that are shortened in a table.
fn long_model() -> Builder {
    model()
        .key("tokenizer.chat_template", STRING, string("{{ x }}\n".repeat(20)))
        .key("test.long", ARRAY, array(F32, 9, (0..9).map(|i| (i as f32 / 8.0).to_le_bytes())))
        .key("test.escapes", STRING, string("\x1b]0;title\x07"))
        .tensor("rope_freqs.weight", &[2], 0, 160)
        .data(168)
}

#[test]
fn tables() {
    let file = long_model().file();
    let text = shown(file.path(), &["--verify"]);
    let text = text.replace(&file.path().display().to_string(), "small.gguf");
    assert_eq!(text, include_str!("inspect.txt"));
}

#[test]
fn full_tables_leave_nothing_out() {
    let file = long_model().file();
    let text = shown(file.path(), &["--full"]);
    assert!(text.contains(&format!("\"{}\"", "{{ x }}\\n".repeat(20))));
    assert!(text.contains("[0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0]"));
    assert!(!text.contains('…'));
}

#[test]
fn json() {
    let file = long_model().file();
    let text = shown(file.path(), &["--json", "--verify"]);
    let value: serde_json::Value = text.parse().unwrap();
    assert_eq!(value["version"], 3);
    assert_eq!(value["alignment"], 32);
    assert_eq!(value["bytes"].as_u64(), Some(file.path().metadata().unwrap().len()));
    assert_eq!(value["verified"], true);
    assert_eq!(value["architecture"], "llama");
    assert_eq!(
        value["tokenizer"].to_string(),
        r#"{"type":"byte-level BPE","model":"gpt2","pre":"smollm","tokens":3}"#
    );
    assert_eq!(
        value["rope"].to_string(),
        r#"{"keys":{"llama.context_length":{"type":"u32","value":4096},"llama.rope.freq_base":{"type":"f32","value":10000.0}},"tensors":["rope_freqs.weight"]}"#
    );
    let key = |key: &str| value["metadata"][key].to_string();
    assert_eq!(
        key("llama.attention.layer_norm_rms_epsilon"),
        r#"{"type":"f32","value":1e-6}"#,
        "the digits of an f32"
    );
    assert_eq!(key("test.u64"), r#"{"type":"u64","value":18446744073709551615}"#);
    assert_eq!(key("test.i64"), r#"{"type":"i64","value":-9223372036854775808}"#);
    assert_eq!(
        key("test.long"),
        r#"{"type":"array","element":"f32","len":9,"value":[0.0,0.125,0.25,0.375,0.5,0.625,0.75,0.875]}"#
    );
    assert_eq!(
        value["tensors"][1].to_string(),
        r#"{"name":"token_embd.weight","type":"q8_0","shape":[32,3],"offset":32,"bytes":102}"#
    );
    assert_eq!(
        value["types"].to_string(),
        r#"{"f32":{"tensors":2,"weights":6,"bytes":24},"q8_0":{"tensors":1,"weights":96,"bytes":102}}"#
    );
    assert_eq!(value["total"].to_string(), r#"{"tensors":3,"weights":102,"bytes":126}"#);
}

#[test]
fn what_json_cannot_say_is_kept_in_another_form() {
    let file = Builder::new()
        .key("raw", STRING, string(b"\xff!"))
        .key("nan", F32, f32::NAN.to_le_bytes())
        .key("floats", ARRAY, array(F32, 2, [1e+30, f32::NEG_INFINITY].map(f32::to_le_bytes)))
        .file();
    let text = shown(file.path(), &["--json", "--full"]);
    let value: serde_json::Value = text.parse().unwrap();
    assert_eq!(
        value["metadata"].to_string(),
        r#"{"raw":{"type":"string","value":[255,33]},"nan":{"type":"f32","value":"NaN"},"floats":{"type":"array","element":"f32","len":2,"value":[1e+30,"-inf"]}}"#
    );
}

#[test]
fn a_vocabulary_alone_has_no_table_of_tensors() {
    let file = Builder::new().key("tokenizer.ggml.model", STRING, string("llama")).file();
    let text = shown(file.path(), &[]);
    assert!(text.contains("SPM (llama)"), "{text}");
    assert!(!text.contains("Tensors"), "{text}");
}

#[test]
fn a_cross_check_that_fails_is_an_error() {
    let file = Builder::new().tensor("x", &[64], 40, 0).data(36).file();
    let path = file.path().display();
    let message = format!("{path}: gguf-rs cannot read this file: ");
    inspect(file.path(), &["--verify"]).refused(2, &[&message]);
    assert!(shown(file.path(), &[]).contains("nvfp4"));
}
