//! Tables in the style of all commands.

use std::io::Write;

use comfy_table::{CellAlignment, Table, presets};

/// Creates a table without lines; the columns in `right` are aligned to the right.
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

/// Prints a table below its title. A table without rows is omitted.
///
/// # Errors
/// If `out` cannot be written.
pub fn section(out: &mut dyn Write, title: Option<&str>, table: &Table) -> std::io::Result<()> {
    if table.is_empty() {
        return Ok(());
    }
    if let Some(title) = title {
        writeln!(out, "\n{title}")?;
    }
    writeln!(out, "{}", table.trim_fmt())
}
