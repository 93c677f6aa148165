//! The output formats of llama-bench, so that programs that read its output also read this one.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::Value;

use super::markdown::{self, Column};

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

/// A measured row. All rows of an output have the same columns.
pub struct Row {
    /// The columns of the Markdown table.
    pub markdown: Vec<Column>,
    /// The columns of the other formats: their names and values.
    pub cells: Vec<(&'static str, Cell)>,
    /// The values of each repetition, which only JSON has.
    pub samples: Vec<(&'static str, Vec<String>)>,
}

/// A value. A number is `None` if it does not apply, such as the speed of generation without any.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(String),
    Bool(bool),
    Integer(Option<i128>),
    Number(Option<f64>),
}

/// Writes rows in a format, each as soon as it is measured.
pub struct Printer {
    format: Format,
    out: Box<dyn Write>,
    /// The name of the SQL table.
    table: &'static str,
    rows: usize,
}

impl Printer {
    /// Creates a printer.
    pub fn new(format: Format, out: Box<dyn Write>, table: &'static str) -> Self {
        Printer { format, out, table, rows: 0 }
    }

    /// Writes a row.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        let Row { markdown, cells, .. } = row;
        let first = self.rows == 0;
        let mut text = match self.format {
            Format::Csv if first => names(cells, ",") + "\n",
            Format::Json if first => "[\n".into(),
            Format::Json => ",\n".into(),
            Format::Md if first => markdown::header(markdown),
            Format::Sql if first => create_table(self.table, cells),
            _ => String::new(),
        };
        match self.format {
            Format::Csv => text += &csv(cells),
            Format::Sql => text += &insert(self.table, cells),
            Format::Md => text += &markdown::row(markdown),
            Format::Json => {
                let lines: Vec<_> =
                    fields(row).iter().map(|field| format!("    {field}")).collect();
                text += &format!("  {{\n{}\n  }}", lines.join(",\n"));
            }
            Format::Jsonl => text += &format!("{{{}}}\n", fields(row).join(", ")),
        }
        self.rows += 1;
        self.write(&text)
    }

    /// Writes the part after the last row.
    pub fn end(&mut self) -> io::Result<()> {
        match self.format {
            Format::Json => self.write("\n]\n"),
            Format::Md => self.write(concat!("\nbuild: ", env!("BUILD_ID"), " (0)\n")),
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

fn create_table(table: &str, row: &[(&str, Cell)]) -> String {
    let columns: Vec<_> =
        row.iter().map(|(name, cell)| format!("  {name} {}", sql_type(cell))).collect();
    format!("CREATE TABLE IF NOT EXISTS {table} (\n{}\n);\n\n", columns.join(",\n"))
}

fn sql_type(cell: &Cell) -> &'static str {
    match cell {
        Cell::Text(_) => "TEXT",
        Cell::Bool(_) | Cell::Integer(_) => "INTEGER",
        Cell::Number(_) => "REAL",
    }
}

fn insert(table: &str, row: &[(&str, Cell)]) -> String {
    let quoted = |cell: &Cell| match cell {
        Cell::Integer(None) | Cell::Number(None) => "NULL".into(),
        cell => format!("'{}'", plain(cell).replace('\'', "''")),
    };
    let values: Vec<_> = row.iter().map(|(_, cell)| quoted(cell)).collect();
    format!("INSERT INTO {table} ({}) VALUES ({});\n", names(row, ", "), values.join(", "))
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
fn fields(row: &Row) -> Vec<String> {
    let value = |cell: &Cell| match cell {
        Cell::Text(text) => Value::from(text.as_str()).to_string(),
        Cell::Bool(truth) => truth.to_string(),
        Cell::Integer(None) | Cell::Number(None) => "null".into(),
        cell => plain(cell),
    };
    let cells = row.cells.iter().map(|(name, cell)| format!("\"{name}\": {}", value(cell)));
    let list = |values: &[String]| format!("[ {} ]", values.join(", "));
    let samples = row.samples.iter().map(|(name, all)| format!("\"{name}\": {}", list(all)));
    cells.chain(samples).collect()
}
