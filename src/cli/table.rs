//! Tables on a terminal, as all commands print them.

use std::io::Write;

use comfy_table::{CellAlignment, Table, presets};

/// A table without lines; `right` are the columns of numbers.
pub fn table(header: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    if !header.is_empty() {
        table.set_header(header);
    }
    for &column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Prints a table, below its title, if it has rows.
///
/// # Errors
/// If `out` does not take it.
pub fn section(out: &mut dyn Write, title: Option<&str>, table: &Table) -> std::io::Result<()> {
    if table.is_empty() {
        return Ok(());
    }
    if let Some(title) = title {
        writeln!(out, "\n{title}")?;
    }
    writeln!(out, "{}", table.trim_fmt())
}
