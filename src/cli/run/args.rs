//! The options of `run`, named as llama-cli names them.

use std::{ffi::OsString, path::PathBuf};

use crate::cli::args::{
    AdapterArgs, ConstraintArgs, MachineArgs, MemoryArgs, ModelArgs, RopeArgs, SamplingArgs,
    SpeculationArgs, TemplateArgs, numbers,
};
use clap::ValueEnum;

/// The options of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub model: ModelArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub adapters: AdapterArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub prompt: PromptArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub answer: AnswerArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub constraint: ConstraintArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub memory: MemoryArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub rope: RopeArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub speculation: SpeculationArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub machine: MachineArgs,
}

/// The options of the prompt.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Prompt")]
pub struct PromptArgs {
    /// Prompt text; may be repeated
    ///
    /// A model with a chat template answers it, as the first message of a conversation. Any other
    /// model continues it, and so does every model with -no-cnv. Each further text, and last the one
    /// of -f, follows on a new line: `rope-cpu -p 'Summarise:' -f -`.
    ///
    /// Without -p and -f, standard input is read if it is not a terminal; if it is one, a
    /// conversation begins.
    #[arg(short, long, value_name = "TEXT")]
    pub prompt: Vec<OsString>,

    /// Read the prompt from a file; -: stdin
    ///
    /// The text is not changed, except that a newline at its end is removed. Bytes that are not UTF-8 are
    /// read as by llama.cpp's tokenizers: as tokens of single bytes, or as U+FFFD with BPE models.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// System message [-sys]
    ///
    /// Implies -cnv.
    #[arg(long, value_name = "TEXT", conflicts_with = "system_prompt_file")]
    pub system_prompt: Option<String>,

    /// File with the system message [-sysf]
    #[arg(long, value_name = "FILE")]
    pub system_prompt_file: Option<PathBuf>,

    /// Do not process escapes such as \n and \t
    ///
    /// Otherwise \n, \r, \t, \', \", \\ and \xHH in -p, -sys and -r are replaced by the
    /// characters that they stand for.
    #[arg(long, overrides_with = "escape")]
    pub no_escape: bool,

    /// Process escapes such as \n and \t (the default)
    #[arg(short, long, hide_short_help = true)]
    pub escape: bool,

    /// Conversation mode (chat template) [-cnv]
    ///
    /// This is the default if the model has a template. With -p or -f, that text is the first
    /// message. The conversation then continues if standard input is a terminal (without -cnv:
    /// standard output too), unless -st is given.
    #[arg(long, overrides_with = "no_conversation")]
    pub conversation: bool,

    /// Continue plain text, no template [-no-cnv]
    ///
    /// With -p or -f, the text is continued once.
    #[arg(long, overrides_with = "conversation")]
    pub no_conversation: bool,

    /// Exit after one answer [-st]
    ///
    /// Implies -cnv.
    #[arg(long)]
    pub single_turn: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub template: TemplateArgs,

    /// File that caches the prompt's state
    ///
    /// The next run with this file and with the same model, cache types and RoPE settings reads
    /// only the part of its prompt that differs from the first prompt of this run. The file
    /// contains keys and values, and is as large as they are in memory.
    #[arg(long, value_name = "FILE")]
    pub prompt_cache: Option<PathBuf>,

    /// Cache the answers too
    #[arg(long, requires = "prompt_cache", conflicts_with = "prompt_cache_ro")]
    pub prompt_cache_all: bool,

    /// Use the prompt cache but do not write it
    #[arg(long, requires = "prompt_cache")]
    pub prompt_cache_ro: bool,

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
    /// -1: no limit; the answer ends when the model ends it or, without --context-shift, when the
    /// context is full. -2: the same, but a full context ends the answer even with --context-shift.
    #[arg(short = 'n', long, alias = "n-predict", value_name = "N", default_value_t = -1)]
    #[arg(value_parser = numbers::from(-2), allow_negative_numbers = true)]
    #[arg(hide_default_value = true)]
    pub predict: i64,

    /// Stop string; may be repeated
    ///
    /// The answer ends before this text.
    #[arg(short, long, alias = "stop", value_name = "TEXT")]
    pub reverse_prompt: Vec<String>,

    /// When the context is full, evict old tokens
    ///
    /// The oldest half of the tokens that --keep does not protect is evicted, in whole pages of 256,
    /// and the positions of later tokens move down. Otherwise, and always with -n -2, a full context
    /// ends the answer.
    #[arg(long, overrides_with = "no_context_shift")]
    pub context_shift: bool,

    /// End the answer when the context is full (the default)
    #[arg(long, overrides_with = "context_shift", hide_short_help = true)]
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

    /// Print special tokens too [-sp]
    ///
    /// Such as <|im_end|>.
    #[arg(long)]
    pub special: bool,

    /// Color the user's text: on, off or auto [-co]
    #[arg(long, value_name = "WHEN", num_args = 0..=1, default_missing_value = "on")]
    #[arg(default_value = "auto", hide_default_value = true, hide_possible_values = true)]
    pub color: When,

    /// Do not print timings after an answer
    #[arg(long, alias = "no-perf", overrides_with = "show_timings")]
    pub no_show_timings: bool,

    /// Print timings after an answer (the default)
    #[arg(long, alias = "perf", hide_short_help = true)]
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
