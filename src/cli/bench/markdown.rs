//! The Markdown table: llama-bench's columns and widths, and the most important of rope-cpu's own.

use super::columns::Outcome;
use rope_cpu::{eval::statistics::Spread, rope::short};

/// The columns that are shown only if their option is given.
#[derive(Clone, Copy, Debug, Default)]
pub struct OptionalColumns {
    pub batch: bool,
    pub micro_batch: bool,
    pub keys: bool,
    pub values: bool,
    pub rope: bool,
    pub isa: bool,
}

/// A column: its name, its width, whether it is aligned to the left, and its value in a row.
struct Column {
    name: &'static str,
    width: usize,
    left: bool,
    value: fn(&Outcome<'_>) -> String,
}

/// Returns all columns of the table.
fn columns(optional: &OptionalColumns) -> Vec<Column> {
    let column = |shown: bool, name, width, value: fn(&Outcome<'_>) -> String| {
        shown.then_some(Column { name, width, left: false, value })
    };
    let left = |shown: bool, name, width, value: fn(&Outcome<'_>) -> String| {
        shown.then_some(Column { name, width, left: true, value })
    };
    [
        left(true, "model", 30, |r| r.model.clone()),
        column(true, "size", 10, |r| size(r.work.weights_bytes)),
        column(true, "params", 10, |r| params(r.work.parameters)),
        left(true, "backend", 10, |_| "CPU".into()),
        column(true, "threads", 7, |r| r.setting.threads.to_string()),
        column(optional.batch, "n_batch", 7, |r| r.setting.batch.to_string()),
        column(optional.micro_batch, "n_ubatch", 8, |r| r.setting.micro_batch.to_string()),
        column(optional.keys, "type_k", 6, |r| r.setting.keys.name().into()),
        column(optional.values, "type_v", 6, |r| r.setting.values.name().into()),
        left(optional.rope, "rope", 24, rope),
        left(optional.isa, "isa", 10, |r| r.options.cpu.name().into()),
        column(true, "test", 15, test),
        column(true, "t/s", 20, |r| {
            let speed = Spread::of(&r.measured.tokens_per_second());
            format!("{:.2} ± {:.2}", speed.mean, speed.deviation)
        }),
        column(true, "of limit", 11, share),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the header, and the line below it.
pub fn header(optional: &OptionalColumns) -> String {
    let columns = columns(optional);
    let names = columns.iter().map(|column| cell(column, column.name));
    let lines = columns.iter().map(|Column { width, left, .. }| {
        format!(" {}{} |", "-".repeat(width - 1), if *left { "-" } else { ":" })
    });
    format!("|{}\n|{}\n", names.collect::<String>(), lines.collect::<String>())
}

/// Returns the row of a test.
pub fn row(outcome: &Outcome<'_>, optional: &OptionalColumns) -> String {
    let columns = columns(optional);
    let cells =
        columns.iter().map(|column| cell(column, &(column.value)(outcome))).collect::<String>();
    format!("|{cells}\n")
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

fn rope(outcome: &Outcome<'_>) -> String {
    let plan = outcome.rope;
    let mut shown = plan.effective_scaling().to_string();
    if plan.factor.value != 1.0 {
        shown += &format!(" x{}", short(plan.factor.value));
    }
    if plan.factor.value == 1.0 || plan.base.value != plan.base_train.value {
        shown += &format!(", base {}", short(plan.base.value));
    }
    shown
}

/// Returns the share of the machine's limit: `43 % peak` of the arithmetic for prompts, `71 % read` of
/// the memory bandwidth for answers, and both if the test has both.
fn share(outcome: &Outcome<'_>) -> String {
    let Outcome { work, options, probes, measured, .. } = outcome;
    let peak = measured.peak_share(work, probes).map(|share| 100.0 * share);
    let read = measured.bandwidth_share(work, options, probes).map(|share| 100.0 * share);
    match (peak, read) {
        (Some(peak), None) => format!("{peak:.0} % peak"),
        (None, Some(read)) => format!("{read:.0} % read"),
        (Some(peak), Some(read)) => format!("{peak:.0} %, {read:.0} %"),
        (None, None) => String::new(),
    }
}

/// Returns the name of a test: `pp512`, `tg128` or `pp512+tg128`, with the depth.
fn test(outcome: &Outcome<'_>) -> String {
    let measured = outcome.measured;
    let name = match (measured.test.prompt, measured.test.generation) {
        (prompt, 0) => format!("pp{prompt}"),
        (0, generation) => format!("tg{generation}"),
        (prompt, generation) => format!("pp{prompt}+tg{generation}"),
    };
    match measured.depth {
        0 => name,
        depth => format!("{name} @ d{depth}"),
    }
}
