//! The forms of embeddings, with llama-embedding's names.

use std::io::{self, Write};

use clap::ValueEnum;
use rope_cpu::model::Pooling;
use serde_json::{Value, json};

/// The numbers that a line shows of an embedding.
const SHOWN: usize = 5;

/// The characters that a line shows of a text.
const TEXT_SHOWN: usize = 40;

/// A form of embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines for people.
    Text,
    /// OpenAI's form.
    Json,
    /// OpenAI's form with similarities.
    #[value(name = "json+")]
    JsonWithSimilarities,
    /// A list of lists.
    Array,
    /// Numbers on each line.
    Raw,
}

impl Format {
    /// Writes the embeddings of texts: one of each, or one of each token without pooling.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write(
        self,
        texts: &[String],
        pooling: Pooling,
        embeddings: &[Vec<Vec<f32>>],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let all: Vec<&[f32]> = embeddings.iter().flatten().map(|x| &x[..]).collect();
        // Without pooling there is no embedding of a text, and ranks are no vectors.
        let compares = !matches!(pooling, Pooling::None | Pooling::Rank);
        match self {
            Format::Text if pooling == Pooling::Rank => {
                for (index, (scores, text)) in all.iter().zip(texts).enumerate() {
                    let score = scores.first().copied().unwrap_or(f32::NAN);
                    writeln!(out, "score {index}: {score:8.4}  {}", shortened(text))?;
                }
            }
            Format::Text => {
                for (index, embedding) in all.iter().enumerate() {
                    write!(out, "embedding {index}:")?;
                    for x in embedding.iter().take(SHOWN) {
                        write!(out, " {x:9.6}")?;
                    }
                    let rest = embedding.len().saturating_sub(SHOWN);
                    if rest > 0 { writeln!(out, " and {rest} more")? } else { writeln!(out)? }
                }
                if compares && all.len() > 1 {
                    writeln!(out, "\ncosine similarities:")?;
                    for (a, text) in all.iter().zip(texts) {
                        for b in &all {
                            write!(out, "{:6.3} ", cosine(a, b))?;
                        }
                        writeln!(out, " {}", shortened(text))?;
                    }
                }
            }
            Format::Json | Format::JsonWithSimilarities => {
                let data = all.iter().enumerate().map(|(index, embedding)| {
                    json!({ "object": "embedding", "index": index, "embedding": embedding })
                });
                let mut list = json!({ "object": "list", "data": data.collect::<Vec<_>>() });
                if compares && self == Format::JsonWithSimilarities {
                    let row = |a: &&[f32]| all.iter().map(|b| cosine(a, b)).collect::<Vec<_>>();
                    list["cosineSimilarity"] = all.iter().map(row).collect::<Vec<_>>().into();
                }
                writeln!(out, "{list}")?;
            }
            Format::Array => writeln!(out, "{}", Value::from_iter(all.iter().copied()))?,
            Format::Raw => {
                for embedding in all {
                    let numbers: Vec<_> = embedding.iter().map(f32::to_string).collect();
                    writeln!(out, "{}", numbers.join(" "))?;
                }
            }
        }
        out.flush()
    }
}

/// Returns the start of a text, on one line.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(TEXT_SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Computes the cosine of the angle between two vectors; 0 if one of them is 0.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 { dot(a, b) / lengths } else { 0.0 }
}
