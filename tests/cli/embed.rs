//! `rope-cpu embed`, with a tiny BERT.

use std::{collections::HashMap, io::Write};

use serde::Deserialize;
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::cli::{finish, rope_cpu, run};
use rope_cpu_testing::{
    builder::{ARRAY, Builder, I32, STRING, U32, array, string, strings},
    models::fetched,
    reader::tiny_with_carriage_return,
    tiny::{Tiny, files::add_tensor},
};

/// Returns a model with a tokenizer of letters.
fn bert() -> Builder {
    let mut tokens = ["[UNK]", "[CLS]", "[SEP]"].map(String::from).to_vec();
    tokens.extend(('a'..='z').map(|letter| format!("▁{letter}")));
    tokens.extend(('a'..='u').map(String::from));
    let tiny = Tiny::named("bert");
    assert_eq!(tokens.len(), tiny.vocabulary);
    let kinds = (0..50).map(|i| if i < 3 { 3i32 } else { 1 }.to_le_bytes());
    tiny.builder()
        .key("tokenizer.ggml.model", STRING, string("bert"))
        .key("tokenizer.ggml.tokens", ARRAY, strings(&tokens))
        .key("tokenizer.ggml.token_type", ARRAY, array(I32, 50, kinds))
        .key("tokenizer.ggml.unknown_token_id", U32, 0u32.to_le_bytes())
        .key("tokenizer.ggml.cls_token_id", U32, 1u32.to_le_bytes())
        .key("tokenizer.ggml.seperator_token_id", U32, 2u32.to_le_bytes())
}

/// Runs the command with a model, and returns its output.
fn embed(model: &NamedTempFile, arguments: &[&str]) -> String {
    let model = model.path().to_str().unwrap();
    let run = run(&[&["embed", "-t", "2", "-m", model], arguments].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.stdout
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

#[test]
fn texts_have_embeddings_in_each_format() {
    let model = bert().file();
    let texts = ["the cat", "a dog sat", "the cat"];
    let json = |format| -> Value {
        let text = embed(&model, &[&["--format", format], &texts[..]].concat());
        rope_cpu::json::parse(&text).unwrap()
    };
    let list = json("json+");
    let rows: Vec<_> = (0..3).map(|i| numbers(&list["data"][i]["embedding"])).collect();
    for row in &rows {
        assert_eq!(row.len(), 72);
        assert!((row.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-5);
    }
    assert_eq!(rows[0], rows[2]);
    let cosine: f64 = rows[0].iter().zip(&rows[1]).map(|(a, b)| a * b).sum();
    assert!(cosine < 0.99, "{cosine}");
    assert!((numbers(&list["cosineSimilarity"][0])[1] - cosine).abs() < 1e-5);
    assert_eq!(json("json")["data"], list["data"]);
    assert_eq!(numbers(&json("array")[1]), rows[1]);
    let raw = embed(&model, &[&["--embd-output-format", "raw"], &texts[..]].concat());
    let line = raw.lines().nth(1).unwrap().split(' ').map(|x| x.parse::<f32>().unwrap());
    assert!(line.map(f64::from).zip(&rows[1]).all(|(a, b)| (a - b).abs() < 1e-7));
    let text = embed(&model, &texts);
    assert!(text.starts_with("embedding 0: ") && text.contains(" and 67 more\n"), "{text}");
    let similarities = text.split("cosine similarities:\n").nth(1).unwrap();
    let first = similarities.lines().next().unwrap();
    assert!(first.starts_with(" 1.000 ") && first.ends_with("  the cat"), "{first}");
}

#[test]
fn texts_come_from_arguments_files_and_standard_input() {
    let model = bert().file();
    let expected = embed(&model, &["--format", "raw", "a cat", "a dog"]);
    let mut file = NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, b"a cat\na dog\n").unwrap();
    let path = file.path().to_str().unwrap();
    assert_eq!(embed(&model, &["--format", "raw", "-f", path]), expected);
    assert_eq!(embed(&model, &["--format", "raw", "-p", "a cat\na dog"]), expected);
    let separator = ["--format", "raw", "--embd-separator", "<#>", "-p", "a cat<#>a dog"];
    assert_eq!(embed(&model, &separator), expected);
    let name = model.path().to_str().unwrap();
    let mut command = rope_cpu(&["embed", "-t", "2", "-m", name, "--format", "raw", "-f", "-"]);
    command.write_stdin("a cat\na dog");
    assert_eq!(finish(command).stdout, expected);
    // [CLS], the letters and [SEP].
    let rows = embed(&model, &["--format", "raw", "--pooling", "none", "a cat"]);
    assert_eq!(rows.lines().count(), 6);
    let own = embed(&model, &["--format", "raw", "--embd-normalize", "-1", "a cat", "a dog"]);
    assert_ne!(own, expected);
}

#[test]
fn carriage_returns_are_no_part_of_lines() {
    let model = tiny_with_carriage_return(7);
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "the rain\r\nthe north\r\n").unwrap();
    let path = file.path().to_str().unwrap();
    let expected = embed(&model, &["--format", "raw", "the rain", "the north"]);
    assert_eq!(embed(&model, &["--format", "raw", "-f", path]), expected);
    // Within a text they count.
    let within = ["--format", "raw", "the rain\r", "the north"];
    assert_ne!(embed(&model, &within), expected);
}

#[test]
fn a_reranker_scores_pairs() {
    let row: Vec<f32> = (0..72).map(|i| (i * i % 7) as f32 / 7.0 - 0.4).collect();
    let model = add_tensor(bert(), "cls.output.weight", &[72, 1], &row);
    let model = model.key("bert.pooling_type", U32, 4u32.to_le_bytes()).file();
    let text = embed(&model, &["a cat\ta dog", "a cat\tthe cat"]);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("score 0: ") && lines[0].ends_with("  a cat a dog"), "{text}");
    assert_eq!(lines.len(), 2);
    let one = embed(&model, &["--format", "raw", "--cls-separator", "|", "a cat|a dog"]);
    let score = lines[0].split_whitespace().nth(2).unwrap().parse::<f32>().unwrap();
    assert!((one.trim().parse::<f32>().unwrap() - score).abs() < 1e-4, "{one} {score}");
    let name = model.path().to_str().unwrap();
    run(&["embed", "-m", name, "a cat"]).refused(2, &["text 0 has no \"\\t\""]);
}

#[test]
fn what_an_encoder_cannot_do_is_refused() {
    let model = bert().file();
    let name = model.path().to_str().unwrap();
    run(&["embed", "-m", name]).refused(2, &["no text is given"]);
    run(&["embed", "-m", name, "a", " "]).refused(2, &["text 1 is empty"]);
    run(&["embed", "-m", name, "--embd-normalize", "1", "a"]).refused(2, &["choose 2"]);
    run(&["embed", "-m", name, "--pooling", "rank", "a"]).refused(2, &["no reranker"]);
    run(&["embed", "-m", name, "--pooling", "sum", "a"]).refused(2, &["mean, cls, last, rank"]);
    let encoders = "bert models are encoders";
    run(&["-m", name, "-no-cnv", "-p", "a cat"]).refused(2, &[encoders]);
    run(&["-m", name, "-st", "-p", "a cat"]).refused(2, &[encoders]);
    let long = "a ".repeat(1100);
    let said = "tokens, more than the context of 1100: shorten it, or raise --ctx";
    run(&["embed", "-m", name, &long]).refused(1, &["text 0 has ", said]);
    let mut file = NamedTempFile::new().unwrap();
    write!(file, "a cat\r\na dog\r\n{long}\r\na cat\r\n").unwrap();
    let path = file.path().to_str().unwrap();
    let line = format!("{path}: line 3 has ");
    run(&["embed", "-m", name, "a", "-f", path]).refused(1, &[&line, said]);
    run(&["embed", "-m", name, "-p", "a||b", "--embd-separator", "|"])
        .refused(2, &["--prompt: part 2 is empty"]);
    run(&["embed", "-m", name, "-c", "1101", "a"]).refused(1, &["1100 positions"]);
}

#[derive(Deserialize)]
struct Golden {
    texts: Vec<String>,
    tokens: Vec<Vec<u32>>,
    /// The first numbers of the embedding of each text.
    embeddings: Vec<Vec<f64>>,
    similarities: Vec<Vec<f64>>,
}

/// Products in single precision of activations that are not quantized: their relative errors after
/// 24 layers are of order 24 x sqrt(1152) x 6e-8 = 5e-5, and the numbers are below 0.2.
const REAL_BOUND: f64 = 1e-5;

#[test]
fn minilm_computes_what_its_definition_says() {
    computes_what_its_definition_says("all-MiniLM-L6-v2.F32.gguf", "fetch-embedding-models");
}

#[test]
fn embeddinggemma_computes_what_its_definition_says() {
    let script = "fetch-embedding-models --gemma";
    computes_what_its_definition_says("embeddinggemma-300m.BF16.gguf", script);
}

/// The golden embeddings are from `scripts/make-embedding-golden`, in double precision.
fn computes_what_its_definition_says(name: &str, script: &str) {
    let golden: HashMap<String, Golden> =
        rope_cpu::json::parse(include_str!("../data/embeddings.json")).unwrap();
    assert_eq!(golden.len(), 2);
    let golden = &golden[name];
    let Some(path) = fetched(name, script) else { return };
    let path = path.to_str().unwrap();
    for (text, tokens) in golden.texts.iter().zip(&golden.tokens) {
        let found = run(&["tokenize", "--ids", "-m", path, "-p", text]).stdout;
        // The command does not add the last token, as llama-tokenize.
        let found: Vec<u32> = rope_cpu::json::parse(&found).unwrap();
        assert_eq!(found, tokens[..found.len()], "{name}: {text}");
        assert!(tokens.len() - found.len() <= 1);
    }
    let texts: Vec<_> = golden.texts.iter().map(String::as_str).collect();
    let options = ["embed", "-m", path, "-ctk", "f32", "-ctv", "f32", "--format", "json+"];
    let run = run(&[&options, &texts[..]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let list: Value = rope_cpu::json::parse(&run.stdout).unwrap();
    for (i, expected) in golden.embeddings.iter().enumerate() {
        let found = numbers(&list["data"][i]["embedding"]);
        for (found, expected) in found.iter().zip(expected) {
            let error = (found - expected).abs();
            assert!(error < REAL_BOUND, "{name}, text {i}: {found} {expected}");
        }
        let similarities = numbers(&list["cosineSimilarity"][i]);
        for (found, expected) in similarities.iter().zip(&golden.similarities[i]) {
            assert!((found - expected).abs() < REAL_BOUND, "{name}: {found} {expected}");
        }
    }
}
