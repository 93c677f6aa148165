//! The options of `bench`, named as llama-bench names them.

use std::path::PathBuf;

use clap::ArgGroup;
use rope_cpu_kernels::Cpu;

use super::{
    Setting,
    format::Format,
    lists::{self, Numbers, Pair},
    markdown::Shown,
};
use crate::cli::{
    args::{self, HubArgs, Overrides, RopeArgs, warn_of_threads},
    error::Error,
};
use rope_cpu::{eval::bench::Test, kv_cache::CacheType, platform::processors};

/// The options of `bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("source").args(["model", "hf_repo"]).required(true))]
#[command(after_help = "\
Several values are given as a,b,c, as first-last, first-last+step or
first-last*factor, or by repeating the option; every combination is measured.")]
pub struct Args {
    /// The models: GGUF files
    #[arg(short, long, value_name = "FILES", value_delimiter = ',')]
    #[arg(help_heading = "Model")]
    pub model: Vec<PathBuf>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub hub: HubArgs,

    /// Change metadata, as KEY=TYPE:VALUE[,...]
    #[arg(long, value_name = "LIST", value_parser = args::overrides, help_heading = "Model")]
    pub override_kv: Vec<Overrides>,

    /// Read so many tokens (pp) [default: 512]
    #[arg(short = 'p', long, value_name = "N", value_parser = lists::numbers)]
    #[arg(help_heading = "Tests")]
    pub n_prompt: Vec<Numbers>,

    /// Write so many tokens (tg) [default: 128]
    #[arg(short = 'n', long, value_name = "N", value_parser = lists::numbers)]
    #[arg(help_heading = "Tests")]
    pub n_gen: Vec<Numbers>,

    /// Read, then write, timed together [-pg]
    #[arg(long, value_name = "PP,TG", value_parser = lists::pair, help_heading = "Tests")]
    pub prompt_gen: Vec<Pair>,

    /// After so many other tokens [default: 0]
    ///
    /// They are read once, and the tests repeated behind them.
    #[arg(short = 'd', long, value_name = "N", value_parser = lists::numbers)]
    #[arg(help_heading = "Tests")]
    pub n_depth: Vec<Numbers>,

    /// Repeat each test [default: 5]
    #[arg(short, long, value_name = "N", value_parser = args::at_least_one, default_value = "5")]
    #[arg(hide_default_value = true, help_heading = "Tests")]
    pub repetitions: usize,

    /// Seconds to wait before each test [default: 0]
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_default_value = true)]
    #[arg(help_heading = "Tests")]
    pub delay: u64,

    /// Measure from the first run on
    #[arg(long, help_heading = "Tests")]
    pub no_warmup: bool,

    /// Keys: f16, or f32 bf16 q8_0 q4_0 [-ctk]
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "f16")]
    #[arg(hide_default_value = true, help_heading = "Context and memory")]
    pub cache_type_k: Vec<CacheType>,

    /// Values: f16, or f32 bf16 q8_0 q4_0 [-ctv]
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "f16")]
    #[arg(hide_default_value = true, help_heading = "Context and memory")]
    pub cache_type_v: Vec<CacheType>,

    /// Tokens computed together [-ub] [default: 512]
    #[arg(long, value_name = "N", value_parser = lists::sizes, help_heading = "Context and memory")]
    pub ubatch_size: Vec<Numbers>,

    /// An upper limit for -ub [default: 2048]
    #[arg(short, long, value_name = "N", value_parser = lists::sizes)]
    #[arg(help_heading = "Context and memory")]
    pub batch_size: Vec<Numbers>,

    /// Run even where the memory seems too small
    #[arg(long, help_heading = "Context and memory")]
    pub no_memory_check: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub rope: RopeArgs,

    /// Threads [default: one for each performance core]
    #[arg(short, long, value_name = "N", value_parser = lists::threads, help_heading = "Machine")]
    pub threads: Vec<Numbers>,

    /// The instruction set, instead of the best
    #[arg(long, value_name = "NAME")]
    #[arg(value_parser = args::isa, help_heading = "Machine")]
    pub isa: Option<Cpu>,

    /// The form: md, csv, json, jsonl or sql [default: md]
    #[arg(short, long, value_name = "FORM", default_value = "md", hide_default_value = true)]
    #[arg(hide_possible_values = true, help_heading = "Output")]
    pub output: Format,

    /// Also write to stderr, in this form [-oe]
    #[arg(long, value_name = "FORM", hide_possible_values = true, help_heading = "Output")]
    pub output_err: Option<Format>,

    /// Tell on stderr what is being done
    ///
    /// On a terminal that is shown without this, until it is done.
    #[arg(long, help_heading = "Output")]
    pub progress: bool,
}

impl Args {
    /// The tests, in llama-bench's order.
    ///
    /// # Errors
    /// If there are none.
    pub(super) fn tests(&self) -> Result<Vec<Test>, Error> {
        let prompts = lists::all(&self.n_prompt, 512).into_iter();
        let generations = lists::all(&self.n_gen, 128).into_iter();
        let tests: Vec<Test> = prompts
            .map(|prompt| Test { prompt, generation: 0 })
            .chain(generations.map(|generation| Test { prompt: 0, generation }))
            .chain(
                self.prompt_gen.iter().map(|&Pair(prompt, generation)| Test { prompt, generation }),
            )
            .filter(|test| test.prompt + test.generation > 0)
            .collect();
        match tests.is_empty() {
            true => Err(Error::usage("nothing to measure: -p, -n and -pg are all 0")),
            false => Ok(tests),
        }
    }

    /// Every combination of all else, in llama-bench's order.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for batch in lists::all(&self.batch_size, 2048) {
            for micro_batch in lists::all(&self.ubatch_size, 512) {
                for &keys in &self.cache_type_k {
                    for &values in &self.cache_type_v {
                        for threads in self.all_threads() {
                            for depth in lists::all(&self.n_depth, 0) {
                                settings.push(Setting {
                                    batch,
                                    micro_batch,
                                    keys,
                                    values,
                                    threads,
                                    depth,
                                });
                            }
                        }
                    }
                }
            }
        }
        settings
    }

    fn all_threads(&self) -> Vec<usize> {
        match self.threads.is_empty() {
            true => vec![processors::default_threads().count],
            false => {
                let all = lists::all(&self.threads, 1);
                warn_of_threads(all.iter().copied().max().unwrap_or_default());
                all
            }
        }
    }

    /// Columns of the table that are shown because they are not as always.
    pub(super) fn shown(&self) -> Shown {
        Shown {
            batch: lists::all(&self.batch_size, 2048) != [2048],
            micro_batch: lists::all(&self.ubatch_size, 512) != [512],
            keys: self.cache_type_k != [CacheType::F16],
            values: self.cache_type_v != [CacheType::F16],
            rope: self.rope.flags() != Default::default(),
            isa: self.isa.is_some(),
        }
    }
}
