//! Results as text, Markdown, JSON, and one page of HTML.

mod origin;
mod page;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::{Value as Json, json};

pub use origin::Origin;

use super::summary::{Cell, SIGNIFICANT, Summary, Table};
use crate::cli::{
    args::named,
    error::Error,
    table::{section, table},
};
use rope_cpu::{
    eval::ruler::EFFECTIVE_SHARE,
    platform::processors::plural,
    whole_file::{whole_file, writable},
};

/// The files of a report: HTML, Markdown and JSON.
pub struct Files([PathBuf; 3]);

/// Returns the files of a report, after checking that they can be written.
///
/// # Errors
/// If one of them cannot be written.
pub fn files(path: &Path) -> Result<Files, Error> {
    let with = |ending: &str| {
        let mut path = path.as_os_str().to_os_string();
        path.push(ending);
        PathBuf::from(path)
    };
    let files = [".html", ".md", ".json"].map(with);
    files.iter().try_for_each(|file| writable(file).map_err(|e| named(file, e)))?;
    Ok(Files(files))
}

/// Writes a report.
///
/// # Errors
/// If a file cannot be written, or a chart cannot be drawn.
pub fn write(
    Files([html, markdown, json]): Files,
    summary: &Summary,
    origin: &Origin,
) -> Result<(), Error> {
    let page = page::page(summary, origin).map_err(Error::failed)?;
    let mut object = object(summary);
    object["origin"] = origin.object();
    let text = format!("{object:#}\n");
    let markdown_text = self::markdown(summary, origin);
    for (path, text) in [(html, page), (markdown, markdown_text), (json, text)] {
        whole_file(&path, |file| file.write_all(text.as_bytes()))
            .map_err(|e| Error::failed(format_args!("cannot write {}: {e}", path.display())))?;
    }
    Ok(())
}

/// A table of words: a title, a header and rows, which start with the method.
struct Words {
    title: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Returns what a report says about its numbers.
fn notes(summary: &Summary) -> Vec<String> {
    let mut notes = vec![
        "Shares in percent, with a 95 % interval (bootstrap over samples). Few or equal samples make \
         intervals too narrow."
            .to_string(),
    ];
    if let [first, _, ..] = &summary.methods[..] {
        notes.push(format!(
            "+ and -: better and worse than {first} on the same samples, with a probability of chance \
             below {SIGNIFICANT} (paired test by random signs, adjusted for all comparisons of a \
             table). Without a mark there is no evidence of a difference."
        ));
    }
    notes
}

/// Returns all results as tables of words.
fn all(summary: &Summary) -> Vec<Words> {
    let mut all: Vec<Words> = summary.tables.iter().map(|table| words(summary, table)).collect();
    if !summary.effective.is_empty() {
        let rows = summary.methods.iter().zip(&summary.effective).map(|(method, length)| {
            let length = length.map_or("none".into(), |length| length.to_string());
            vec![method.clone(), length]
        });
        all.push(Words {
            title: format!(
                "Effective length: the longest up to which RULER's average is at least {:.1} %",
                100.0 * EFFECTIVE_SHARE
            ),
            header: vec!["method".into(), "tokens".into()],
            rows: rows.collect(),
        });
    }
    all
}

fn words(summary: &Summary, table: &Table) -> Words {
    let lengths = summary.lengths.iter().map(|length| format!("{length} tokens"));
    let rows =
        summary.methods.iter().zip(&table.cells).map(|(method, cells)| {
            [vec![method.clone()], cells.iter().map(cell).collect()].concat()
        });
    Words {
        title: title(table),
        header: std::iter::once("method".to_string()).chain(lengths).collect(),
        rows: rows.collect(),
    }
}

fn title(Table { task, metric, samples, .. }: &Table) -> String {
    format!("{task}, {metric}, {}", plural(*samples, "sample"))
}

fn cell(cell: &Cell) -> String {
    let [mean, low, high] =
        [cell.interval.mean, cell.interval.low, cell.interval.high].map(|share| 100.0 * share);
    let mark = match cell.comparison.as_ref().and_then(|comparison| comparison.verdict()) {
        Some("better") => " +",
        Some(_) => " -",
        None => "",
    };
    format!("{mean:.1} ({low:.1} to {high:.1}){mark}")
}

/// Prints tables.
///
/// # Errors
/// If `out` cannot be written.
pub fn text(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    for Words { title, header, rows } in all(summary) {
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let right: Vec<usize> = (1..header.len()).collect();
        let mut shown = table(&header, &right);
        for row in rows {
            shown.add_row(row);
        }
        section(out, Some(&title), &shown)?;
    }
    writeln!(out)?;
    notes(summary).iter().try_for_each(|note| writeln!(out, "{note}"))
}

/// Prints the results as JSON.
///
/// # Errors
/// If `out` cannot be written.
pub fn json(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:#}", object(summary))
}

fn object(summary: &Summary) -> Json {
    let mut cells = Vec::new();
    for Table { task, metric, cells: rows, .. } in &summary.tables {
        for (method, row) in summary.methods.iter().zip(rows) {
            for (length, cell) in summary.lengths.iter().zip(row) {
                let comparison = cell.comparison.as_ref();
                cells.push(json!({
                    "task": task,
                    "metric": metric,
                    "method": method,
                    "length": length,
                    "samples": cell.count,
                    "mean": cell.interval.mean,
                    "low": cell.interval.low,
                    "high": cell.interval.high,
                    "difference": comparison.map(|comparison| comparison.difference),
                    "probability": comparison.map(|comparison| comparison.probability),
                    "verdict": comparison.and_then(|comparison| comparison.verdict()),
                    "seconds": cell.seconds,
                }));
            }
        }
    }
    let effective = summary.methods.iter().zip(&summary.effective);
    let effective: Vec<_> =
        effective.map(|(method, length)| json!({"method": method, "length": length})).collect();
    json!({"compared_with": summary.methods.first(), "cells": cells, "effective_lengths": effective})
}

fn markdown(summary: &Summary, origin: &Origin) -> String {
    let mut text = "# Evaluation\n\n".to_string();
    text += &notes(summary).join("\n\n");
    text += "\n\n";
    for (name, fact) in origin.facts() {
        text += &format!("- {name}: `{}`\n", fact.replace('`', "'"));
    }
    text.truncate(text.trim_end().len());
    for Words { title, header, rows } in all(summary) {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        text += &format!("\n\n## {title}\n\n{}|---|", line(&header));
        text += &"--:|".repeat(header.len() - 1);
        text.push('\n');
        rows.iter().for_each(|row| text += &line(row));
        text.truncate(text.trim_end().len());
    }
    text + "\n"
}
