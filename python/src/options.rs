//! The arguments that a model is opened with.

use std::path::PathBuf;

use pyo3::prelude::*;
use rope_cpu::{
    gguf::Override,
    model::OpenOptions,
    platform::processors::{Threads, default_threads},
    rope::Sourced,
    runtime::{Scheduling, Sequences, Settings, parameters},
    settings::Values,
};

use crate::{
    errors::{invalid, of_plan},
    rope::flags,
};

/// The arguments, as the Python package passes them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Options {
    #[pyo3(default)]
    ctx: Option<usize>,
    rope: Option<String>,
    /// Names and values of the settings of RoPE.
    rope_settings: Vec<(String, String)>,
    /// Names and values of the settings of [`parameters`].
    run_settings: Vec<(String, String)>,
    #[pyo3(default)]
    context_shift: bool,
    #[pyo3(default)]
    threads: Option<usize>,
    #[pyo3(default)]
    ubatch_size: Option<usize>,
    #[pyo3(default)]
    memory_check: Option<bool>,
    #[pyo3(default)]
    override_kv: Vec<String>,
    #[pyo3(default)]
    lora: Vec<(PathBuf, f32)>,
    #[pyo3(default)]
    parallel: Option<usize>,
    #[pyo3(default)]
    cache_disk: Option<PathBuf>,
}

impl Options {
    /// Returns how to open the file, and the settings of the run.
    pub fn parts(self) -> PyResult<(OpenOptions, Settings, Scheduling)> {
        let overrides = self.override_kv.iter().map(|text| text.parse::<Override>());
        let overrides = overrides.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
        let open = OpenOptions::new().overrides(overrides);
        let open = self.lora.into_iter().fold(open, |o, (path, scale)| o.adapter(path, scale));

        let given =
            |count: usize| Threads { workers: count.into(), reason: format!("threads={count}") };
        let slots = self.parallel.unwrap_or(1);
        let default = Settings::default();
        let settings = Settings {
            context: self.ctx.map(|ctx| Sourced::given(ctx, "ctx")),
            rope: flags(self.rope.as_deref(), &self.rope_settings, self.context_shift)?,
            micro_batch: self.ubatch_size.unwrap_or(default.micro_batch),
            sequences: Sequences::UpTo(slots),
            threads: self.threads.map_or_else(default_threads, given),
            must_fit: self.memory_check.unwrap_or(true),
            ..default
        };
        let values = values(&self.run_settings)?;
        let settings = settings.with(&values, self.cache_disk.is_some()).map_err(of_plan)?;
        let disk = self.cache_disk.map(|folder| (folder, u64::MAX));
        Ok((open, settings, Scheduling { slots, disk, ..Scheduling::default() }))
    }
}

/// Parses the settings of a run.
fn values(given: &[(String, String)]) -> PyResult<Values> {
    given.iter().try_fold(Values::default(), |values, (name, text)| {
        let row = parameters::all().find(|row| row.setting.0 == name);
        let row = row.ok_or_else(|| invalid(format_args!("there is no setting {name:?}")))?;
        let value = row.parse(text).ok_or_else(|| {
            invalid(format_args!("{name} {text:?}: must be {}", row.kind.expected()))
        })?;
        Ok(values.with(row, value))
    })
}
