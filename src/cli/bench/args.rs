//! The options of `bench`, named as llama-bench and llama-batched-bench name them.

use std::path::PathBuf;

use clap::ArgGroup;
use rope_cpu_kernels::Cpu;

use super::{
    Setting,
    format::Format,
    lists::{self, Numbers, Pair},
    markdown::OptionalColumns,
};
use crate::cli::args::{self, HubArgs, Overrides, RopeArgs, SparseArgs, warn_of_threads};
use rope_cpu::{kv_cache::CacheType, platform::processors};

/// The options of `bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("source").args(["model", "hf_repo"]).required(true))]
#[command(after_help = "\
Several values are given as a,b,c, as first-last, first-last+step or
first-last*factor, or by repeating the option. Every combination is measured.")]
pub struct Args {
    /// Model files (GGUF)
    #[arg(short, long, alias = "LLAMA_ARG_MODEL", value_name = "FILES", value_delimiter = ',')]
    #[arg(help_heading = "Model")]
    pub model: Vec<PathBuf>,

    #[command(flatten)]
    pub hub: HubArgs,

    /// Override metadata: KEY=TYPE:VALUE[,...]
    #[arg(long, value_name = "LIST", value_parser = args::overrides, help_heading = "Model")]
    pub override_kv: Vec<Overrides>,

    /// Prompt tokens to read (pp) [default: 512]
    #[arg(short = 'p', long, alias = "-npp", value_name = "N", value_parser = lists::numbers)]
    #[arg(help_heading = "Tests")]
    pub n_prompt: Vec<Numbers>,

    /// Tokens to generate (tg) [default: 128]
    #[arg(short = 'n', long, alias = "-ntg", value_name = "N", value_parser = lists::numbers)]
    #[arg(help_heading = "Tests")]
    pub n_gen: Vec<Numbers>,

    /// Read and generate, timed together
    #[arg(long, alias = "-pg", value_name = "PP,TG", value_parser = lists::pair)]
    #[arg(help_heading = "Tests")]
    pub prompt_gen: Vec<Pair>,

    /// Tokens in the context before a test [default: 0]
    ///
    /// They are read once; every repetition of the test starts after them.
    #[arg(short = 'd', long, value_name = "N", value_parser = lists::numbers)]
    #[arg(help_heading = "Tests")]
    pub n_depth: Vec<Numbers>,

    /// Sequences side by side
    ///
    /// Measures what llama-batched-bench does: each of N sequences reads a prompt of -p tokens,
    /// then every step generates a token of each sequence, -n times. Without it, -p and -n are
    /// separate tests of one sequence.
    #[arg(long, alias = "-npl", value_name = "N", value_parser = lists::sizes)]
    #[arg(conflicts_with_all = ["prompt_gen", "n_depth"], help_heading = "Tests")]
    pub n_parallel: Vec<Numbers>,

    /// Skip tests with more tokens in all sequences [-c]
    ///
    /// As in llama-batched-bench. By default there is no limit; each test takes the memory that it
    /// needs.
    #[arg(short, long = "ctx", alias = "ctx-size", value_name = "N", requires = "n_parallel")]
    #[arg(value_parser = args::at_least_one, help_heading = "Tests")]
    pub context: Option<usize>,

    /// Share one prompt among the sequences
    ///
    /// The prompt is read once, and its keys and values are shared.
    #[arg(long, alias = "-pps", requires = "n_parallel", help_heading = "Tests")]
    pub shared_prompt: bool,

    /// Repetitions of each test [default: 5]
    #[arg(short, long, value_name = "N", value_parser = args::at_least_one, default_value = "5")]
    #[arg(hide_default_value = true, help_heading = "Tests")]
    pub repetitions: usize,

    /// Seconds to wait before each test [default: 0]
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_default_value = true)]
    #[arg(help_heading = "Tests")]
    pub delay: u64,

    /// Skip the warm-up runs
    #[arg(long, help_heading = "Tests")]
    pub no_warmup: bool,

    /// K: f16 (default) f32 bf16 q8_0 q5_0 q4_0
    #[arg(long, alias = "-ctk", value_name = "TYPES", value_delimiter = ',')]
    #[arg(default_value = "f16", hide_default_value = true, help_heading = "Context and memory")]
    pub cache_type_k: Vec<CacheType>,

    /// V: f16 (default) f32 bf16 q8_0 q5_0 q4_0
    #[arg(long, alias = "-ctv", value_name = "TYPES", value_delimiter = ',')]
    #[arg(default_value = "f16", hide_default_value = true, help_heading = "Context and memory")]
    pub cache_type_v: Vec<CacheType>,

    /// Micro-batch size in tokens [default: 512]
    #[arg(long, alias = "-ub", value_name = "N", value_parser = lists::sizes)]
    #[arg(help_heading = "Context and memory")]
    pub ubatch_size: Vec<Numbers>,

    /// Upper limit of the micro-batch [default: 2048]
    #[arg(short, long, value_name = "N", value_parser = lists::sizes)]
    #[arg(help_heading = "Context and memory")]
    pub batch_size: Vec<Numbers>,

    /// Run even if memory seems insufficient
    #[arg(long, help_heading = "Context and memory")]
    pub no_memory_check: bool,

    #[command(flatten)]
    pub sparse: SparseArgs,

    #[command(flatten)]
    pub rope: RopeArgs,

    /// Threads [default: one per performance core]
    #[arg(short, long, value_name = "N", value_parser = lists::threads, help_heading = "Machine")]
    pub threads: Vec<Numbers>,

    /// Instruction set [default: the best supported]
    #[arg(long, value_name = "NAME")]
    #[arg(value_parser = args::isa, help_heading = "Machine")]
    pub isa: Option<Cpu>,

    /// Format: md, csv, json, jsonl or sql [default: md]
    #[arg(short, long, value_name = "FORMAT", default_value = "md", hide_default_value = true)]
    #[arg(hide_possible_values = true, help_heading = "Output")]
    pub output: Format,

    /// Also write to stderr, in this format
    #[arg(long, alias = "-oe", value_name = "FORMAT", hide_possible_values = true)]
    #[arg(help_heading = "Output")]
    pub output_err: Option<Format>,

    /// Print progress to stderr
    ///
    /// On a terminal, progress is shown without this flag, and removed at the end.
    #[arg(long, help_heading = "Output")]
    pub progress: bool,
}

impl Args {
    /// Returns every combination of the other options, in llama-bench's order.
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
            true => vec![processors::default_threads().workers.answers],
            false => {
                let all = lists::all(&self.threads, 1);
                warn_of_threads(all.iter().copied().max().unwrap_or_default());
                all
            }
        }
    }

    /// Returns the optional columns of the Markdown table: one for each option that was given.
    pub(super) fn optional_columns(&self) -> OptionalColumns {
        OptionalColumns {
            model: self.model.len() + self.hub.hf_repo.len() > 1,
            threads: self.threads.len() > 1 || self.threads.iter().any(|list| list.len() > 1),
            batch: lists::all(&self.batch_size, 2048) != [2048],
            micro_batch: lists::all(&self.ubatch_size, 512) != [512],
            keys: self.cache_type_k != [CacheType::F16],
            values: self.cache_type_v != [CacheType::F16],
            rope: self.rope.flags() != Default::default(),
            isa: self.isa.is_some(),
            phases: !self.prompt_gen.is_empty(),
        }
    }
}
