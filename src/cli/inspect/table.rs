//! A model file as tables.

use std::io::Write;

use comfy_table::Table;
use indicatif::HumanBytes;

use super::Report;
use super::totals::{self, Total};
use crate::cli::table::{section, table};
use rope_cpu::gguf::{Value, escaped};

/// The number of elements that are shown of an array, without --full.
const ELEMENTS_SHOWN: usize = 6;

/// The number of characters that are shown of a string, without --full.
const CHARS_SHOWN: usize = 60;

pub fn write(report: &Report<'_>, out: &mut dyn Write) -> std::io::Result<()> {
    let gguf = report.gguf;
    section(out, None, &summary(report))?;

    let mut rope = table(&[], &[]);
    for (key, value) in report.rope_keys() {
        rope.add_row([name(key), shown(value, report.args.full)]);
    }
    for tensor in report.rope_tensors() {
        rope.add_row([name(tensor.name), shape(tensor.shape())]);
    }
    section(out, Some("RoPE"), &rope)?;

    let mut metadata = table(&["key", "type", "value"], &[]);
    for (key, value) in gguf.metadata().iter() {
        metadata.add_row([&name(key), &type_name(value), &shown(value, report.args.full)]);
    }
    section(out, Some("Metadata"), &metadata)?;

    if gguf.tensors().is_empty() {
        return Ok(());
    }
    let mut tensors = table(&["tensor", "type", "shape", "bytes", "offset"], &[3, 4]);
    for tensor in gguf.tensors() {
        tensors.add_row([
            &name(tensor.name),
            tensor.ggml_type.name,
            &shape(tensor.shape()),
            &tensor.bytes.len().to_string(),
            &tensor.offset.to_string(),
        ]);
    }
    section(out, Some("Tensors"), &tensors)?;

    let mut sums = table(&["type", "tensors", "weights", "bytes", "bits/weight"], &[1, 2, 3, 4]);
    for (name, total) in totals::by_type(gguf.tensors()) {
        sums.add_row(sum(name, total));
    }
    sums.add_row(sum("all", totals::of_all(gguf.tensors())));
    section(out, Some("Totals"), &sums)
}

fn summary(report: &Report<'_>) -> Table {
    let gguf = report.gguf;
    let mut summary = table(&[], &[]);
    let mut row = |name: &str, text: String| {
        summary.add_row([name, &text]);
    };
    let string = |key| report.string(key).map(|text| escaped(text, CHARS_SHOWN));
    row("file", report.args.path().display().to_string());
    row("format", format!("GGUF version {}, alignment {}", gguf.version(), gguf.alignment()));
    let bytes = report.file_bytes();
    row("size", format!("{} ({bytes} bytes)", HumanBytes(bytes)));
    if report.parts.len() > 1 {
        for part in &report.parts {
            row("part", format!("{} ({} bytes)", part.path().display(), part.bytes().len()));
        }
    }
    if report.args.verify {
        row("verified", "gguf-rs reads the same header".into());
    }
    row("architecture", string("general.architecture").unwrap_or("not stated".into()));
    row("name", string("general.name").unwrap_or("not stated".into()));
    row("tokenizer", tokenizer(report));
    summary
}

fn tokenizer(report: &Report<'_>) -> String {
    let Some(kind) = report.tokenizer_type() else { return "none".into() };
    let string = |key| report.string(key).map(|text| escaped(text, CHARS_SHOWN));
    let mut text = format!("{kind} ({})", string("tokenizer.ggml.model").unwrap_or_default());
    if let Some(pre) = string("tokenizer.ggml.pre") {
        text += &format!(", pre-tokenizer {pre}");
    }
    if let Some(tokens) = report.tokens() {
        text += &format!(", {tokens} tokens");
    }
    text
}

fn sum(name: &str, total: Total) -> [String; 5] {
    [
        name.into(),
        total.tensors.to_string(),
        total.weights.to_string(),
        total.bytes.to_string(),
        total.bits_per_weight().map_or("-".into(), |bits| format!("{bits:.2}")),
    ]
}

fn shape(dims: &[u64]) -> String {
    dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ")
}

fn name(name: &str) -> String {
    escaped(name, usize::MAX)
}

fn type_name(value: Value<'_>) -> String {
    match value {
        Value::Array(array) => format!("[{}]", array.element.name()),
        other => other.value_type().name().into(),
    }
}

fn shown(value: Value<'_>, full: bool) -> String {
    match value {
        Value::String(text) => string(text, full),
        Value::Array(array) => {
            let count = if full { usize::MAX } else { ELEMENTS_SHOWN };
            let mut parts: Vec<_> = array.values().take(count).map(|v| shown(v, full)).collect();
            if parts.len() < array.len {
                parts.push(format!("… {} more", array.len - parts.len()));
            }
            format!("[{}]", parts.join(", "))
        }
        other => other.to_string(),
    }
}

/// Formats a string on one line, with its length if it is shortened.
fn string(bytes: &[u8], full: bool) -> String {
    let text = String::from_utf8_lossy(bytes);
    let chars_max = if full { usize::MAX } else { CHARS_SHOWN };
    let shown = format!("\"{}\"", escaped(&text, chars_max).replace('"', "\\\""));
    match text.chars().nth(chars_max) {
        Some(_) => format!("{shown} ({} bytes)", bytes.len()),
        None => shown,
    }
}
