//! The options of `eval`.

use std::path::PathBuf;

use crate::cli::args::{
    AdapterArgs, ComparisonArgs, EngineArgs, MemoryArgs, ModelArgs, PrefillArgs, RopeArgs,
    SparseArgs, at_least_one, single_length,
};

/// Evaluate a model on tasks, methods and lengths
///
/// Every task is answered with every RoPE method at every length. Methods are compared on the same
/// samples.
///
/// With --output every answer is saved once it is complete, and the same command resumes a run that
/// was interrupted.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("context", single_length))]
#[command(mut_arg("lengths", |arg| arg.long_help("Lengths [default: 1/2, 1 and 2 x trained]\n\n\
    Lengths in tokens. A generated prompt and its answer fill the length as far as possible; \
    questions of a file must fit in each. The length is also the context, except that a rolling \
    context (--attention-sinks) is at most the trained length.")))]
#[command(mut_arg("methods", |arg| arg.long_help("RoPE methods: METHOD[:FLAG=VALUE]...\n\n\
    For example none,linear,yarn:rope-scale=4:yarn-beta-fast=16,dynamic. Without a factor, a method \
    has exactly the factor that each length needs. The others are compared with the first. By \
    default the one method that the RoPE flags below select.")))]
#[command(after_long_help = super::tasks::list())]
pub struct Args {
    /// Tasks: NAME or NAME=FILE
    ///
    /// For example ruler,passkey,qa_1=dev-v2.0.json,hellaswag=val.jsonl. The list is below.
    #[arg(value_name = "TASK,...", value_delimiter = ',', required = true)]
    pub tasks: Vec<String>,

    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub adapters: AdapterArgs,

    #[command(flatten, next_help_heading = "Evaluation")]
    pub comparison: ComparisonArgs,

    /// Samples of each task
    ///
    /// Of a file the first questions are used. RULER has 500 samples.
    #[arg(long, value_name = "N", default_value = "20", value_parser = at_least_one)]
    #[arg(help_heading = "Evaluation")]
    pub samples: usize,

    /// Seed of generated samples
    #[arg(short, long, value_name = "N", default_value = "0", help_heading = "Evaluation")]
    pub seed: u32,

    /// Text that hides what a task asks for
    ///
    /// Needed by the tasks of RULER that hide needles in a text, and by cwe, which counts its words.
    /// A text that is too short is repeated.
    #[arg(long, value_name = "FILE", help_heading = "Evaluation")]
    pub haystack: Option<PathBuf>,

    /// Ask with the model's chat template
    ///
    /// A generated prompt is a message of the user, and the start of its answer is the model's.
    /// Without it, prompts are plain text. Choices are always scored as plain text.
    #[arg(long, help_heading = "Evaluation")]
    pub chat: bool,

    /// Answers side by side, as memory allows
    #[arg(long, value_name = "N", default_value = "4", value_parser = at_least_one)]
    #[arg(help_heading = "Evaluation")]
    pub parallel: usize,

    /// Write PATH.html, PATH.md and PATH.json
    ///
    /// The page contains everything that it shows: tables, heat maps and curves. All have the command,
    /// the model with the SHA-256 of its file, the seed and the RoPE settings.
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    pub report: Option<PathBuf>,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub sparse: SparseArgs,
    #[command(flatten)]
    pub rope: RopeArgs,
    #[command(flatten)]
    pub prefill: PrefillArgs,
    #[command(flatten)]
    pub machine: EngineArgs,
}
