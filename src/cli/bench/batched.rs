//! The row of a test of several sequences: llama-batched-bench's columns, then rope-cpu's own.

use super::{
    Subject,
    columns::{integer, number, text},
    format::{Cell, Row},
    markdown::{self, Column, OptionalColumns},
};
use rope_cpu::eval::batched::{Measured, Sample, Test};

/// Returns the row of a test; all sequences together have `positions_max` positions at most.
pub fn row(
    subject: &Subject<'_>,
    measured: &Measured,
    positions_max: usize,
    optional: &OptionalColumns,
) -> Row {
    let mut columns = Vec::new();
    columns.extend(optional.model.then(|| markdown::model(subject)));
    columns.extend(optional.threads.then(|| markdown::threads(subject)));
    columns.extend(markdown::of_setting(subject, optional));
    columns.extend(of_test(measured));
    let seconds = |part: fn(&Sample) -> f64| {
        measured.samples.iter().map(|sample| format!("{:.6}", part(sample))).collect()
    };
    Row {
        markdown: columns,
        cells: cells(subject, measured, positions_max),
        samples: vec![
            ("samples_t_pp", seconds(|sample| sample.prompt.as_secs_f64())),
            ("samples_t_tg", seconds(|sample| sample.generation.as_secs_f64())),
        ],
    }
}

/// Returns llama-batched-bench's columns.
fn of_test(measured: &Measured) -> [Column; 10] {
    let Test { sequences, prompt, generation, .. } = measured.test;
    let (prompt_seconds, seconds) = (measured.prompt_seconds(), measured.generation_seconds());
    let count = |name, width, count: usize| Column::right(name, width, count.to_string());
    let time = |name, seconds: f64| Column::right(name, 8, format!("{seconds:.3}"));
    let speed = |name, speed: Option<f64>| {
        Column::right(name, 8, speed.map_or_else(String::new, |speed| format!("{speed:.2}")))
    };
    [
        count("PP", 5, prompt),
        count("TG", 6, generation),
        count("B", 4, sequences),
        count("N_KV", 6, positions(&measured.test)),
        time("T_PP s", prompt_seconds),
        speed("S_PP t/s", measured.prompt_speed()),
        time("T_TG s", seconds),
        speed("S_TG t/s", measured.generation_speed()),
        time("T s", prompt_seconds + seconds),
        speed("S t/s", measured.speed()),
    ]
}

/// Returns the names of all columns with their values.
fn cells(
    subject: &Subject<'_>,
    measured: &Measured,
    positions_max: usize,
) -> Vec<(&'static str, Cell)> {
    let Subject { path, model, setting, options, rope, .. } = subject;
    let Test { sequences, prompt, generation, shared } = measured.test;
    let (prompt_seconds, seconds) = (measured.prompt_seconds(), measured.generation_seconds());
    let count = |count: usize| integer(count as u64);
    let cache_bytes = measured.samples.iter().map(|sample| sample.cache_bytes).max();
    vec![
        ("n_kv_max", count(positions_max)),
        ("n_batch", count(setting.batch)),
        ("n_ubatch", count(setting.micro_batch)),
        ("flash_attn", integer(-1)),
        ("is_pp_shared", integer(u8::from(shared))),
        ("n_gpu_layers", integer(-1)),
        ("n_threads", count(setting.threads)),
        ("n_threads_batch", count(setting.threads)),
        ("pp", count(prompt)),
        ("tg", count(generation)),
        ("pl", count(sequences)),
        ("n_kv", count(positions(&measured.test))),
        ("t_pp", number(prompt_seconds)),
        ("speed_pp", Cell::Number(measured.prompt_speed())),
        ("t_tg", number(seconds)),
        ("speed_tg", Cell::Number(measured.generation_speed())),
        ("t", number(prompt_seconds + seconds)),
        ("speed", Cell::Number(measured.speed())),
        //
        ("model_filename", text(path.to_string_lossy())),
        ("model_type", text(model.clone())),
        ("type_k", text(setting.keys.name())),
        ("type_v", text(setting.values.name())),
        ("rope_type", text(rope.effective_scaling().name)),
        ("rope_factor", number(rope.factor.value)),
        ("rope_base", number(rope.base.value)),
        ("isa", text(options.cpu.name())),
        ("cache_bytes", count(cache_bytes.unwrap_or(0))),
        ("peak_memory_bytes", Cell::Integer(measured.peak_memory_bytes.map(i128::from))),
    ]
}

/// Returns the number of positions of all sequences at the end of a test.
pub fn positions(test: &Test) -> usize {
    test.read() + test.generated()
}
