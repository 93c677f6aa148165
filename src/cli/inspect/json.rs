//! A model file as JSON.

use std::io::Write;

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::Report;
use super::totals::{self, Total};
use rope_cpu::gguf::Value;

/// The number of elements that are shown of an array, without --full.
const ELEMENTS_SHOWN: usize = 8;

#[derive(Serialize)]
struct Output<'a> {
    file: String,
    bytes: u64,
    /// The files of a split model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Json>,
    version: u32,
    alignment: u64,
    data_offset: u64,
    verified: bool,
    architecture: Option<&'a str>,
    name: Option<&'a str>,
    tokenizer: Json,
    rope: Json,
    metadata: Map<String, Json>,
    tensors: Vec<Tensor<'a>>,
    types: Map<String, Json>,
    total: Json,
}

#[derive(Serialize)]
struct Tensor<'a> {
    name: &'a str,
    r#type: &'a str,
    shape: &'a [u64],
    offset: u64,
    bytes: usize,
}

pub fn write(report: &Report<'_>, out: &mut dyn Write) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &output(report))?;
    writeln!(out)
}

fn output<'a>(report: &Report<'a>) -> Output<'a> {
    let gguf = report.gguf;
    let elements_max = if report.args.full { usize::MAX } else { ELEMENTS_SHOWN };
    let pair = |(key, value): (&str, Value<'_>)| (key.to_string(), typed(value, elements_max));
    let tensor = |tensor: &'a rope_cpu::gguf::Tensor<'a>| Tensor {
        name: tensor.name,
        r#type: tensor.ggml_type.name,
        shape: tensor.shape(),
        offset: tensor.offset,
        bytes: tensor.bytes.len(),
    };
    let part = |part: &&rope_cpu::gguf::File| json!({ "file": part.path().display().to_string(), "bytes": part.bytes().len() });
    let parts: Vec<_> = report.parts.iter().map(part).collect();
    let parts = if parts.len() > 1 { parts } else { Vec::new() };
    let types = totals::by_type(gguf.tensors()).into_iter();
    Output {
        file: report.args.path().display().to_string(),
        bytes: report.file_bytes(),
        parts,
        version: gguf.version(),
        alignment: gguf.alignment(),
        data_offset: gguf.data_offset(),
        verified: report.args.verify,
        architecture: report.string("general.architecture"),
        name: report.string("general.name"),
        tokenizer: json!({
            "type": report.tokenizer_type(),
            "model": report.string("tokenizer.ggml.model"),
            "pre": report.string("tokenizer.ggml.pre"),
            "tokens": report.tokens(),
        }),
        rope: json!({
            "keys": report.rope_keys().map(pair).collect::<Map<_, _>>(),
            "tensors": report.rope_tensors().map(|tensor| tensor.name).collect::<Vec<_>>(),
        }),
        metadata: gguf.metadata().iter().map(pair).collect(),
        tensors: gguf.tensors().iter().map(tensor).collect(),
        types: types.map(|(name, sum)| (name.to_string(), total(sum))).collect(),
        total: total(totals::of_all(gguf.tensors())),
    }
}

fn total(total: Total) -> Json {
    json!({ "tensors": total.tensors, "weights": total.weights, "bytes": total.bytes })
}

/// Returns a value with its type, and an array also with its length.
fn typed(value: Value<'_>, elements_max: usize) -> Json {
    match value {
        Value::Array(array) => json!({
            "type": value.value_type().name(),
            "element": array.element.name(),
            "len": array.len,
            "value": array.values().take(elements_max).map(plain).collect::<Vec<_>>(),
        }),
        _ => json!({ "type": value.value_type().name(), "value": plain(value) }),
    }
}

/// Returns the value. NaN and infinities become strings, and text that is not UTF-8 an array of its
/// bytes, since JSON cannot express them.
fn plain(value: Value<'_>) -> Json {
    match value {
        Value::Bool(x) => x.into(),
        Value::U64(x) => x.into(),
        Value::F32(x) if x.is_finite() => shortest(x),
        Value::F64(x) if x.is_finite() => x.into(),
        Value::F32(_) | Value::F64(_) => value.to_string().into(),
        Value::String(text) => match str::from_utf8(text) {
            Ok(text) => text.into(),
            Err(_) => text.into(),
        },
        Value::Array(array) => array.values().map(plain).collect(),
        _ => value.integer().and_then(|x| i64::try_from(x).ok()).into(),
    }
}

/// Returns the number with the fewest digits that identify the `f32`.
fn shortest(x: f32) -> Json {
    x.to_string().parse::<f64>().unwrap_or(x.into()).into()
}
