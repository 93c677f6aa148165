//! The Markdown tables: llama-bench's columns and widths, and some columns of rope-cpu's own.

use super::Subject;
use rope_cpu::rope::short;

/// The columns that are shown only if their option is given, or has several values.
#[derive(Clone, Copy, Debug, Default)]
pub struct OptionalColumns {
    pub model: bool,
    pub threads: bool,
    pub batch: bool,
    pub micro_batch: bool,
    pub keys: bool,
    pub values: bool,
    pub rope: bool,
    pub isa: bool,
    /// The speed of each phase of a test.
    pub phases: bool,
}

/// A column, with its value in one row.
pub struct Column {
    name: &'static str,
    width: usize,
    left: bool,
    value: String,
}

impl Column {
    /// Creates a column that is aligned to the left.
    pub fn left(name: &'static str, width: usize, value: impl Into<String>) -> Self {
        Column { name, width, left: true, value: value.into() }
    }

    /// Creates a column that is aligned to the right.
    pub fn right(name: &'static str, width: usize, value: impl Into<String>) -> Self {
        Column { name, width, left: false, value: value.into() }
    }
}

/// Returns the column of a model's name.
pub fn model(subject: &Subject<'_>) -> Column {
    Column::left("model", 30, &subject.model)
}

/// Returns the column of the number of threads.
pub fn threads(subject: &Subject<'_>) -> Column {
    Column::right("threads", 7, subject.setting.threads.to_string())
}

/// Returns the columns of a model that are always in llama-bench's table.
pub fn of_model(subject: &Subject<'_>) -> Vec<Column> {
    vec![
        model(subject),
        Column::right("size", 10, size(subject.work.weights_bytes)),
        Column::right("params", 10, params(subject.work.parameters)),
        Column::left("backend", 10, "CPU"),
        threads(subject),
    ]
}

/// Returns the optional columns of the setting.
pub fn of_setting(subject: &Subject<'_>, optional: &OptionalColumns) -> Vec<Column> {
    let Subject { setting, options, .. } = subject;
    let number = |name, width, value: usize| Column::right(name, width, value.to_string());
    let columns = [
        (optional.batch, number("n_batch", 7, setting.batch)),
        (optional.micro_batch, number("n_ubatch", 8, setting.micro_batch)),
        (optional.keys, Column::right("type_k", 6, setting.keys.name())),
        (optional.values, Column::right("type_v", 6, setting.values.name())),
        (optional.rope, Column::left("rope", 24, rope(subject))),
        (optional.isa, Column::left("isa", 10, options.cpu.name())),
    ];
    columns.into_iter().filter_map(|(shown, column)| shown.then_some(column)).collect()
}

/// Returns the header, and the line below it.
pub fn header(columns: &[Column]) -> String {
    let names = columns.iter().map(|column| cell(column, column.name));
    let lines = columns.iter().map(|Column { width, left, .. }| {
        format!(" {}{} |", "-".repeat(width - 1), if *left { "-" } else { ":" })
    });
    format!("|{}\n|{}\n", names.collect::<String>(), lines.collect::<String>())
}

/// Returns the line of a row.
pub fn row(columns: &[Column]) -> String {
    let cells = columns.iter().map(|column| cell(column, &column.value));
    format!("|{}\n", cells.collect::<String>())
}

fn cell(Column { width, left, .. }: &Column, text: &str) -> String {
    match left {
        true => format!(" {text:<width$} |"),
        false => format!(" {text:>width$} |"),
    }
}

fn size(bytes: u64) -> String {
    let mebibytes = bytes as f64 / (1 << 20) as f64;
    match bytes < 1 << 30 {
        true => format!("{mebibytes:.2} MiB"),
        false => format!("{:.2} GiB", mebibytes / 1024.0),
    }
}

fn params(count: u64) -> String {
    match count < 1_000_000_000 {
        true => format!("{:.2} M", count as f64 / 1e6),
        false => format!("{:.2} B", count as f64 / 1e9),
    }
}

fn rope(subject: &Subject<'_>) -> String {
    let plan = subject.rope;
    let mut shown = plan.effective_scaling().to_string();
    if plan.factor.value != 1.0 {
        shown += &format!(" x{}", short(plan.factor.value));
    }
    if plan.factor.value == 1.0 || plan.base.value != plan.base_train.value {
        shown += &format!(", base {}", short(plan.base.value));
    }
    shown
}
