//! The points of a sweep as text: llama-sweep-bench's table and JSON lines, and CSV.

use clap::ValueEnum;

use rope_cpu::{
    eval::{cost::Cost, sweep::Point},
    model::Options,
    threads::Workers,
};

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A Markdown table.
    Md,
    /// An object on each line.
    Jsonl,
    /// Rows of values.
    Csv,
}

/// The settings that all points of a sweep have in common.
pub struct SweepSettings<'a> {
    pub options: &'a Options,
    pub batch: usize,
    pub work: &'a Cost,
    /// The memory bandwidth in bytes per second.
    pub read_bandwidth: f64,
}

impl SweepSettings<'_> {
    /// Returns the part before the first point.
    pub fn header(&self, format: Format) -> String {
        match format {
            Format::Md => format!(
                "|{:>6} | {:>6} | {:>6} | {:>8} | {:>8} | {:>8} | {:>8} |\n\
                 |{}-|-{}-|-{}-|-{}-|-{}-|-{}-|-{}-|\n",
                "PP",
                "TG",
                "N_KV",
                "T_PP s",
                "S_PP t/s",
                "T_TG s",
                "S_TG t/s",
                "------",
                "------",
                "------",
                "--------",
                "--------",
                "--------",
                "--------",
            ),
            Format::Jsonl => String::new(),
            Format::Csv => "pp,tg,n_kv,t_pp,speed_pp,t_tg,speed_tg,limit_tg,cache_bytes\n".into(),
        }
    }

    /// Returns the largest possible number of generated tokens per second at a point.
    pub fn limit(&self, point: &Point) -> f64 {
        point.generation_limit(self.work, self.options, self.read_bandwidth)
    }

    /// Formats a point as a line.
    pub fn row(&self, format: Format, point: &Point) -> String {
        let Point { depth, prompt, generation, cache_bytes, .. } = *point;
        let (prompt_time, generation_time) =
            (point.prompt_time.as_secs_f64(), point.generation_time.as_secs_f64());
        let (read, written) = (point.prompt_per_second(), point.generation_per_second());
        let limit = self.limit(point);
        match format {
            Format::Md => format!(
                "|{prompt:>6} | {generation:>6} | {depth:>6} | {prompt_time:>8.3} | {read:>8.2} | \
                 {generation_time:>8.3} | {written:>8.2} |\n"
            ),
            Format::Csv => format!(
                "{prompt},{generation},{depth},{prompt_time:.6},{read:.6},{generation_time:.6},\
                 {written:.6},{limit:.6},{cache_bytes}\n"
            ),
            Format::Jsonl => {
                let SweepSettings { options, batch, .. } = *self;
                let (context, Workers { answers, prompts }) = (options.context, options.threads);
                format!(
                    "{{\"n_kv_max\": {context}, \"n_batch\": {batch}, \"n_ubatch\": {}, \
                     \"flash_attn\": 1, \"n_gpu_layers\": 0, \"n_threads\": {answers}, \
                     \"n_threads_batch\": {prompts}, \"pp\": {prompt}, \"tg\": {generation}, \
                     \"n_kv\": {depth}, \"t_pp\": {prompt_time:.6}, \"speed_pp\": {read:.6}, \
                     \"t_tg\": {generation_time:.6}, \"speed_tg\": {written:.6}, \
                     \"limit_tg\": {limit:.6}, \"cache_bytes\": {cache_bytes}}}\n",
                    options.micro_batch
                )
            }
        }
    }
}
