//! The row of a test of one sequence: llama-bench's columns, then rope-cpu's own.

use super::{
    Subject,
    format::{Cell, Row},
    markdown::{self, Column, OptionalColumns},
};
use rope_cpu::{
    eval::{bench::Measured, cost::Operations, probe::Probes, statistics::Spread},
    platform::topology,
};

/// Returns the row of a test.
pub fn row(
    subject: &Subject<'_>,
    probes: &Probes,
    measured: &Measured,
    optional: &OptionalColumns,
) -> Row {
    let speed = Spread::of(&measured.tokens_per_second());
    let speed = format!("{:.2} ± {:.2}", speed.mean, speed.deviation);
    let mut columns = markdown::of_model(subject);
    columns.extend(markdown::of_setting(subject, optional));
    columns.extend([Column::right("test", 15, test(measured)), Column::right("t/s", 20, speed)]);
    if optional.phases {
        columns.push(Column::right("pp, tg t/s", 18, phases(measured)));
    }
    columns.push(Column::right("of limit", 11, share(subject, probes, measured)));
    let ns = measured.nanoseconds().iter().map(u64::to_string).collect();
    let ts = measured.tokens_per_second().iter().map(|ts| format!("{ts:.6}")).collect();
    Row {
        markdown: columns,
        cells: cells(subject, probes, measured),
        samples: vec![("samples_ns", ns), ("samples_ts", ts)],
    }
}

pub fn text(text: impl Into<String>) -> Cell {
    Cell::Text(text.into())
}

pub fn integer<T: Into<i128>>(number: T) -> Cell {
    Cell::Integer(Some(number.into()))
}

pub fn number(number: f64) -> Cell {
    Cell::Number(Some(number))
}

/// Returns the names of all columns with their values. Columns about GPUs, and about settings that
/// rope-cpu does not have, contain llama-bench's defaults on a CPU.
fn cells(subject: &Subject<'_>, probes: &Probes, measured: &Measured) -> Vec<(&'static str, Cell)> {
    let Subject { path, model, work, setting, options, rope } = subject;
    let nanoseconds: Vec<f64> = measured.nanoseconds().iter().map(|&ns| ns as f64).collect();
    let nanoseconds = Spread::of(&nanoseconds);
    let speed = Spread::of(&measured.tokens_per_second());
    let giga = |per_second: Option<f64>| Cell::Number(per_second.map(|x| x / 1e9));
    let bytes_per_second = measured.bytes_per_second(work, options);
    let operations_per_second = measured.operations_per_second(work, options);
    vec![
        ("build_commit", text(env!("BUILD_ID"))),
        ("build_number", integer(0)),
        ("cpu_info", text(topology::model().unwrap_or_else(|| "CPU".into()))),
        ("gpu_info", text("")),
        ("backends", text("CPU")),
        ("model_filename", text(path.to_string_lossy())),
        ("model_type", text(model.clone())),
        ("model_size", integer(work.weights_bytes)),
        ("model_n_params", integer(work.parameters)),
        ("n_batch", integer(setting.batch as u64)),
        ("n_ubatch", integer(setting.micro_batch as u64)),
        ("n_threads", integer(setting.threads as u64)),
        ("cpu_mask", text("0x0")),
        ("cpu_strict", Cell::Bool(false)),
        ("poll", integer(50)),
        ("type_k", text(setting.keys.name())),
        ("type_v", text(setting.values.name())),
        ("n_gpu_layers", integer(-1)),
        ("n_cpu_moe", integer(0)),
        ("split_mode", text("layer")),
        ("main_gpu", integer(0)),
        ("no_kv_offload", Cell::Bool(false)),
        ("flash_attn", integer(-1)),
        ("devices", text("auto")),
        ("tensor_split", text("0.00")),
        ("tensor_buft_overrides", text("none")),
        ("load_mode", text("auto")),
        ("lazy_mode", text("auto")),
        ("embeddings", Cell::Bool(false)),
        ("no_op_offload", integer(0)),
        ("no_host", Cell::Bool(false)),
        ("repack", Cell::Bool(false)),
        ("fit_target", integer(0)),
        ("fit_min_ctx", integer(0)),
        ("n_prompt", integer(measured.test.prompt as u64)),
        ("n_gen", integer(measured.test.generation as u64)),
        ("n_depth", integer(measured.depth as u64)),
        ("test_time", text(measured.began.clone())),
        ("avg_ns", integer(nanoseconds.mean.round() as u64)),
        ("stddev_ns", integer(nanoseconds.deviation.round() as u64)),
        ("avg_ts", number(speed.mean)),
        ("stddev_ts", number(speed.deviation)),
        //
        ("rope_type", text(rope.effective_scaling().name)),
        ("rope_factor", number(rope.factor.value)),
        ("rope_base", number(rope.base.value)),
        ("isa", text(options.cpu.name())),
        ("cache_bytes", integer(measured.cache_bytes as u64)),
        ("gb_per_s", giga(bytes_per_second)),
        ("bandwidth_share", Cell::Number(measured.bandwidth_share(work, options, probes))),
        ("gops", giga(operations_per_second.map(|o: Operations| o.total()))),
        ("peak_share", Cell::Number(measured.peak_share(work, options, probes))),
        ("prompt_ts", Cell::Number(measured.prompt_tokens_per_second())),
        ("generation_ts", Cell::Number(measured.generation_tokens_per_second())),
        ("time_to_first_token_ns", integer((1e9 * measured.first_token_seconds()).round() as u64)),
        ("peak_memory_bytes", Cell::Integer(measured.peak_memory_bytes.map(i128::from))),
    ]
}

/// Returns the share of the machine's limit: `43 % peak` of the arithmetic for prompts, `71 % read`
/// of the memory bandwidth for answers, and both if the test has both.
fn share(subject: &Subject<'_>, probes: &Probes, measured: &Measured) -> String {
    let Subject { work, options, .. } = subject;
    let peak = measured.peak_share(work, options, probes).map(|share| 100.0 * share);
    let read = measured.bandwidth_share(work, options, probes).map(|share| 100.0 * share);
    match (peak, read) {
        (Some(peak), None) => format!("{peak:.0} % peak"),
        (None, Some(read)) => format!("{read:.0} % read"),
        (Some(peak), Some(read)) => format!("{peak:.0} %, {read:.0} %"),
        (None, None) => String::new(),
    }
}

/// Returns the speed of each phase of a test: `152.10, 38.42`.
fn phases(measured: &Measured) -> String {
    let phases = [measured.prompt_tokens_per_second(), measured.generation_tokens_per_second()];
    let phases = phases.into_iter().flatten().map(|speed| format!("{speed:.2}"));
    phases.collect::<Vec<_>>().join(", ")
}

/// Returns the name of a test: `pp512`, `tg128` or `pp512+tg128`, with the depth.
fn test(measured: &Measured) -> String {
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
