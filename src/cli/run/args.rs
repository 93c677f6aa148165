//! The options of `run`, named as llama-cli names them.

use std::{ffi::OsString, path::PathBuf};

use crate::cli::args::{
    AdapterArgs, ConstraintArgs, EngineArgs, MemoryArgs, ModelArgs, OpeningArgs, RopeArgs,
    SamplingArgs, SparseArgs, SpeculationArgs, numbers,
};
use clap::ValueEnum;

/// The options of `run`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("context", |context| context.value_parser(numbers::context_or_auto)))]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub adapters: AdapterArgs,
    #[command(flatten)]
    pub prompt: PromptArgs,
    #[command(flatten)]
    pub answer: AnswerArgs,
    #[command(flatten)]
    pub constraint: ConstraintArgs,
    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub sparse: SparseArgs,
    #[command(flatten)]
    pub rope: RopeArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    #[command(flatten)]
    pub machine: EngineArgs,
}

/// The options of the prompt.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Prompt")]
pub struct PromptArgs {
    /// Prompt text; may be repeated
    ///
    /// A model with a chat template answers it, as the first message of a conversation. Any other
    /// model continues it, and so does every model with -no-cnv. Each further text, and last the
    /// one of -f, follows on a new line: `rope-cpu -p 'Summarise:' -f -`.
    ///
    /// Without -p and -f, standard input is read if it is not a terminal. At a terminal, a
    /// conversation starts.
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Vec<OsString>,

    /// Read the prompt from a file; -: stdin
    ///
    /// The text is not changed, except that a newline at its end is removed. Bytes that are not
    /// UTF-8 are read as by llama.cpp's tokenizers: as tokens of single bytes, or as U+FFFD with
    /// BPE models.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    #[command(flatten)]
    pub opening: OpeningArgs,

    /// Exit after one answer
    ///
    /// Implies -cnv. Otherwise a conversation continues after the message of -p or -f, if standard
    /// input is a terminal (without -cnv: standard output too). With -no-cnv, the text is always
    /// continued once.
    #[arg(long, alias = "-st")]
    pub single_turn: bool,

    /// File that caches the prompt's state
    ///
    /// The next run with this file processes only the part of its prompt that differs from the
    /// first prompt of this run. It needs the same model, cache types and RoPE settings. The file
    /// contains keys and values, and is as large as they are in memory.
    #[arg(long, value_name = "FILE")]
    pub prompt_cache: Option<PathBuf>,

    /// Cache the answers too
    #[arg(long, requires = "prompt_cache", conflicts_with = "prompt_cache_ro")]
    pub prompt_cache_all: bool,

    /// Use the prompt cache but do not write it
    #[arg(long, requires = "prompt_cache")]
    pub prompt_cache_ro: bool,

    /// Folder of documents from `rope-cpu read`
    ///
    /// A prompt that starts with a document continues from its keys and values, with the same bits.
    /// With -p and -f, the file goes first if it is one of the documents. They are for one model with
    /// its cache types and RoPE settings. Nothing is written.
    #[arg(long, value_name = "DIR")]
    pub cache_disk: Option<PathBuf>,

    /// Do not print the prompt
    #[arg(long, overrides_with = "display_prompt")]
    pub no_display_prompt: bool,

    /// Print the prompt before its continuation (the default)
    #[arg(long, hide_short_help = true)]
    pub display_prompt: bool,

    /// Print the prompt's tokens to stderr
    #[arg(long)]
    pub verbose_prompt: bool,
}

/// The options of the answer.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Answer")]
pub struct AnswerArgs {
    /// Maximum tokens to generate [default: no limit]
    ///
    /// -1: no limit; the answer stops when the model stops or, without --context-shift, when the
    /// context is full. -2: the same, but it stops at a full context even with --context-shift.
    #[arg(short = 'n', long, aliases = ["n-predict", "LLAMA_ARG_N_PREDICT"], value_name = "N")]
    #[arg(default_value_t = -1, value_parser = numbers::from(-2), allow_negative_numbers = true)]
    #[arg(hide_default_value = true)]
    pub predict: i64,

    /// Stop string; may be repeated
    ///
    /// The answer stops before this text.
    #[arg(short, long, alias = "stop", value_name = "TEXT", allow_hyphen_values = true)]
    pub reverse_prompt: Vec<String>,

    /// When the context is full, evict old tokens
    ///
    /// Of the tokens that --keep does not protect, the oldest half is evicted, in whole pages of
    /// 256. The positions of later tokens move down. A prompt may then be longer than the context.
    /// Otherwise, and always with -n -2, the answer stops when the context is full.
    #[arg(long, alias = "LLAMA_ARG_CONTEXT_SHIFT", overrides_with = "no_context_shift")]
    pub context_shift: bool,

    /// End the answer when the context is full (the default)
    #[arg(long, alias = "LLAMA_ARG_NO_CONTEXT_SHIFT", overrides_with = "context_shift")]
    #[arg(hide_short_help = true)]
    pub no_context_shift: bool,

    /// Prompt tokens that are never evicted; -1: all
    ///
    /// With --context-shift, the first N tokens of the prompt are protected, and always the BOS
    /// token. By default no others.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(allow_negative_numbers = true)]
    #[arg(value_parser = numbers::from(-1))]
    pub keep: i64,

    /// Never generate a token that ends the answer
    #[arg(long)]
    pub ignore_eos: bool,

    /// Print special tokens too
    ///
    /// Such as <|im_end|>.
    #[arg(long, alias = "-sp")]
    pub special: bool,

    /// Color the user's text: on, off or auto
    #[arg(long, alias = "-co", value_name = "WHEN", num_args = 0..=1, default_missing_value = "on")]
    #[arg(default_value = "auto", hide_default_value = true, hide_possible_values = true)]
    pub color: When,

    /// Do not print timings after an answer
    #[arg(long, aliases = ["no-perf", "LLAMA_ARG_NO_SHOW_TIMINGS"])]
    #[arg(overrides_with = "show_timings")]
    pub no_show_timings: bool,

    /// Print timings after an answer (the default)
    #[arg(long, aliases = ["perf", "LLAMA_ARG_SHOW_TIMINGS"], hide_short_help = true)]
    pub show_timings: bool,

    /// Do not print the header, progress and timings
    ///
    /// Warnings, notes and errors are still printed.
    #[arg(short, long)]
    pub quiet: bool,
}

impl AnswerArgs {
    /// Returns whether timings are printed.
    pub fn timings(&self) -> bool {
        !self.no_show_timings && !self.quiet
    }
}

/// A choice between on, off and automatic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// Always.
    On,
    /// Never.
    Off,
    /// If the output is a terminal.
    Auto,
}
