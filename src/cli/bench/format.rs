//! The output formats of llama-bench, so that programs that read its output also read this one.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::Value;

use super::{
    columns::{Cell, Outcome, columns},
    markdown::{self, OptionalColumns},
};

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Rows of quoted values.
    Csv,
    /// A list of objects.
    Json,
    /// An object on each line.
    Jsonl,
    /// A Markdown table.
    Md,
    /// Statements that create and fill a table.
    Sql,
}

/// Writes rows in a format, each as soon as it is measured.
pub struct Printer {
    format: Format,
    out: Box<dyn Write>,
    optional: OptionalColumns,
    rows: usize,
}

impl Printer {
    /// Creates a printer.
    pub fn new(format: Format, out: Box<dyn Write>, optional: OptionalColumns) -> Self {
        Printer { format, out, optional, rows: 0 }
    }

    /// Writes the part before the first row that does not depend on it.
    pub fn begin(&mut self) -> io::Result<()> {
        let text = match self.format {
            Format::Json => "[\n".into(),
            Format::Md => markdown::header(&self.optional),
            Format::Csv | Format::Jsonl | Format::Sql => return Ok(()),
        };
        self.write(&text)
    }

    /// Writes a row.
    pub fn row(&mut self, outcome: &Outcome<'_>) -> io::Result<()> {
        let row = columns(outcome);
        let first = self.rows == 0;
        let mut text = match self.format {
            Format::Csv if first => names(&row, ",") + "\n",
            Format::Sql if first => create_table(&row),
            Format::Json if !first => ",\n".into(),
            _ => String::new(),
        };
        match self.format {
            Format::Csv => text += &csv(&row),
            Format::Sql => text += &insert(&row),
            Format::Md => text += &markdown::row(outcome, &self.optional),
            Format::Json => {
                let lines: Vec<_> =
                    fields(&row, outcome).iter().map(|field| format!("    {field}")).collect();
                text += &format!("  {{\n{}\n  }}", lines.join(",\n"));
            }
            Format::Jsonl => text += &format!("{{{}}}\n", fields(&row, outcome).join(", ")),
        }
        self.rows += 1;
        self.write(&text)
    }

    /// Writes the part after the last row.
    pub fn end(&mut self) -> io::Result<()> {
        match self.format {
            Format::Json => self.write("\n]\n"),
            Format::Md => {
                self.write(concat!("\nbuild: rope-cpu-", env!("CARGO_PKG_VERSION"), " (0)\n"))
            }
            Format::Csv | Format::Jsonl | Format::Sql => Ok(()),
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

fn names(row: &[(&str, Cell)], separator: &str) -> String {
    row.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(separator)
}

fn csv(row: &[(&str, Cell)]) -> String {
    let quoted = |cell: &Cell| format!("\"{}\"", plain(cell).replace('"', "\"\""));
    row.iter().map(|(_, cell)| quoted(cell)).collect::<Vec<_>>().join(",") + "\n"
}

fn create_table(row: &[(&str, Cell)]) -> String {
    let columns: Vec<_> =
        row.iter().map(|(name, cell)| format!("  {name} {}", sql_type(cell))).collect();
    format!("CREATE TABLE IF NOT EXISTS llama_bench (\n{}\n);\n\n", columns.join(",\n"))
}

fn sql_type(cell: &Cell) -> &'static str {
    match cell {
        Cell::Text(_) => "TEXT",
        Cell::Bool(_) | Cell::Integer(_) => "INTEGER",
        Cell::Number(_) => "REAL",
    }
}

fn insert(row: &[(&str, Cell)]) -> String {
    let quoted = |cell: &Cell| match cell {
        Cell::Integer(None) | Cell::Number(None) => "NULL".into(),
        cell => format!("'{}'", plain(cell).replace('\'', "''")),
    };
    let values: Vec<_> = row.iter().map(|(_, cell)| quoted(cell)).collect();
    format!("INSERT INTO llama_bench ({}) VALUES ({});\n", names(row, ", "), values.join(", "))
}

/// Formats a value as text: a boolean as 0 or 1, a missing number as an empty string.
fn plain(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Bool(truth) => u8::from(*truth).to_string(),
        Cell::Integer(Some(number)) => number.to_string(),
        Cell::Number(Some(number)) => format!("{number:.6}"),
        Cell::Integer(None) | Cell::Number(None) => String::new(),
    }
}

/// Returns `"name": value` for each column, then for the samples.
fn fields(row: &[(&str, Cell)], outcome: &Outcome<'_>) -> Vec<String> {
    let value = |cell: &Cell| match cell {
        Cell::Text(text) => Value::from(text.as_str()).to_string(),
        Cell::Bool(truth) => truth.to_string(),
        Cell::Integer(None) | Cell::Number(None) => "null".into(),
        cell => plain(cell),
    };
    let list = |values: Vec<String>| format!("[ {} ]", values.join(", "));
    let measured = outcome.measured;
    let ns = measured.nanoseconds().iter().map(u64::to_string).collect();
    let ts = measured.tokens_per_second().iter().map(|ts| format!("{ts:.6}")).collect();
    row.iter()
        .map(|(name, cell)| format!("\"{name}\": {}", value(cell)))
        .chain([format!("\"samples_ns\": {}", list(ns)), format!("\"samples_ts\": {}", list(ts))])
        .collect()
}
