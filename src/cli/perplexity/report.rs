//! Perplexities: in llama-perplexity's form, by position, and as JSON.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::{Value as Json, json};

use rope_cpu::eval::{
    likelihood::Sums,
    perplexity::{Point, Scored, windows::Windows},
};

/// The form of the estimates after each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputType {
    /// All on one line.
    #[value(name = "0")]
    Line,
    /// One per line: the window's first token, the perplexity, its logarithm and the error of the
    /// logarithm.
    #[value(name = "1")]
    Lines,
}

/// Prints the estimate after a window.
pub fn point(form: OutputType, point: &Point, out: &mut dyn Write) -> io::Result<()> {
    let ppl = point.so_far.perplexity().value;
    match form {
        OutputType::Line => write!(out, "[{}]{ppl:.4},", point.number)?,
        OutputType::Lines => {
            let mean = point.so_far.mean();
            let (value, error) = (mean.value, mean.uncertainty);
            writeln!(out, "{:>8}  {ppl:.4}  {value:>4.6}  {error:>4.6}", point.start)?;
        }
    }
    out.flush()
}

/// Prints the final estimate.
pub fn text(scored: &Scored, out: &mut dyn Write) -> io::Result<()> {
    let ppl = scored.all.perplexity();
    writeln!(out, "\nFinal estimate: PPL = {:.4} +/- {:.5}", ppl.value, ppl.uncertainty)?;
    if !scored.buckets.is_empty() {
        writeln!(out, "\n{:>17}  {:>8}  {:>10}", "positions", "tokens", "PPL")?;
    }
    for bucket in &scored.buckets {
        let positions = format!("{} - {}", bucket.positions.start, bucket.positions.end - 1);
        let ppl = bucket.nll.perplexity();
        writeln!(
            out,
            "{positions:>17}  {:>8}  {:>10.4} +/- {:.5}",
            bucket.nll.count, ppl.value, ppl.uncertainty
        )?;
    }
    out.flush()
}

/// Prints the final estimate as JSON.
pub fn json(
    scored: &Scored,
    windows: Windows,
    tokens: usize,
    rope: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "{:#}", object(scored, windows, tokens, rope))
}

/// Returns the final estimate as a JSON object.
pub fn object(scored: &Scored, windows: Windows, tokens: usize, rope: &str) -> Json {
    let (kind, stride) = match windows {
        Windows::Halves { .. } => ("halves", None),
        Windows::Strided { stride, .. } => ("ppl-stride", Some(stride)),
        Windows::Sliding { stride, .. } => ("sliding", Some(stride)),
    };
    let mut value = nll(&scored.all);
    value["kind"] = kind.into();
    value["window"] = windows.window().into();
    value["stride"] = stride.into();
    value["windows"] = scored.windows.into();
    value["text_tokens"] = tokens.into();
    value["rope"] = rope.into();
    let buckets = scored.buckets.iter().map(|bucket| {
        let mut value = nll(&bucket.nll);
        value["first"] = bucket.positions.start.into();
        value["last"] = (bucket.positions.end - 1).into();
        value
    });
    value["buckets"] = buckets.collect();
    value
}

fn nll(sums: &Sums) -> Json {
    let (ppl, mean) = (sums.perplexity(), sums.mean());
    json!({
        "perplexity": ppl.value,
        "uncertainty": ppl.uncertainty,
        "nll": mean.value,
        "nll_uncertainty": mean.uncertainty,
        "tokens": sums.count,
    })
}
