//! The options of `run`, named as llama-cli names them.

mod sampling;

pub use sampling::SamplingArgs;

use std::path::PathBuf;

use crate::cli::args::{AdapterArgs, MachineArgs, MemoryArgs, ModelArgs, RopeArgs, numbers};
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
    pub memory: MemoryArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub rope: RopeArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub machine: MachineArgs,
}

/// What the model reads.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Prompt")]
pub struct PromptArgs {
    /// The text to continue, or to answer
    ///
    /// It is continued as it is, or with -cnv answered as the first message. With -f too, the text
    /// of the file follows on a line of its own: `rope-cpu -p 'Summarise:' -f -`.
    ///
    /// Without -p and -f, standard input is read if it is not a terminal; if it is one, a
    /// conversation begins.
    #[arg(short, long, value_name = "TEXT")]
    pub prompt: Option<String>,

    /// A file whose text is the prompt; -: stdin
    ///
    /// It is taken as it is, but for a newline at its end.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// The system message [-sys]
    ///
    /// Implies -cnv.
    #[arg(long, value_name = "TEXT", conflicts_with = "system_prompt_file")]
    pub system_prompt: Option<String>,

    /// The file with the system message [-sysf]
    #[arg(long, value_name = "FILE")]
    pub system_prompt_file: Option<PathBuf>,

    /// Take \n, \t and the like literally
    ///
    /// Otherwise \n, \r, \t, \', \", \\ and \xHH in -p, -sys and -r are what they stand for.
    #[arg(long, overrides_with = "escape")]
    pub no_escape: bool,

    /// Take \n, \t and the like as what they stand for (the default)
    #[arg(short, long, hide_short_help = true)]
    pub escape: bool,

    /// Use the model's chat template [-cnv]
    ///
    /// This is the default on a terminal without -p and -f, if the model has a template. With -p
    /// or -f, that text is the first message; the conversation then goes on if standard input is
    /// a terminal.
    #[arg(long, overrides_with = "no_conversation")]
    pub conversation: bool,

    /// Continue plain text [-no-cnv]
    #[arg(long, overrides_with = "conversation")]
    pub no_conversation: bool,

    /// End after one answer [-st]
    ///
    /// Implies -cnv.
    #[arg(long)]
    pub single_turn: bool,

    /// Use this instead of the model's
    ///
    /// A chat template in the Jinja language, or one of the names chatml, llama3 and gemma.
    /// Implies -cnv.
    #[arg(long, value_name = "JINJA", conflicts_with = "chat_template_file")]
    pub chat_template: Option<String>,

    /// Use the chat template in this file
    ///
    /// Implies -cnv.
    #[arg(long, value_name = "FILE")]
    pub chat_template_file: Option<PathBuf>,

    /// More for the template to read
    ///
    /// A JSON object, for example {"enable_thinking": false}. Implies -cnv.
    #[arg(long, value_name = "JSON")]
    pub chat_template_kwargs: Option<String>,

    /// Keep what was read in this file
    ///
    /// The next run with this file, and with the same model, cache types and RoPE settings, reads
    /// only what differs from the first prompt of this one. Keys and values take much room: as
    /// much as in memory.
    #[arg(long, value_name = "FILE")]
    pub prompt_cache: Option<PathBuf>,

    /// Keep answers there too
    #[arg(long, requires = "prompt_cache", conflicts_with = "prompt_cache_ro")]
    pub prompt_cache_all: bool,

    /// Use that file, but do not change it
    #[arg(long, requires = "prompt_cache")]
    pub prompt_cache_ro: bool,

    /// Write the continuation alone
    #[arg(long, overrides_with = "display_prompt")]
    pub no_display_prompt: bool,

    /// Write the prompt, then its continuation (the default)
    #[arg(long, hide_short_help = true)]
    pub display_prompt: bool,

    /// Show the prompt's tokens on stderr
    #[arg(long)]
    pub verbose_prompt: bool,
}

/// What the model writes.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Answer")]
pub struct AnswerArgs {
    /// At most N tokens; -1: no limit
    ///
    /// Without a limit, the model or the context ends the answer. -2: the context ends it in any case.
    #[arg(short = 'n', long, alias = "n-predict", value_name = "N", default_value_t = -1)]
    #[arg(value_parser = numbers::from(-2), allow_negative_numbers = true)]
    pub predict: i64,

    /// Stop before this text; may be repeated
    #[arg(short, long, alias = "stop", value_name = "TEXT")]
    pub reverse_prompt: Vec<String>,

    /// Go on where the context is full
    ///
    /// The oldest half of the tokens that are not kept is lost, in whole pages of 256; positions then
    /// are as if they had never been. Without this the answer ends there, and with -n -2 in any case.
    #[arg(long, overrides_with = "no_context_shift")]
    pub context_shift: bool,

    /// End the answer where the context is full (the default)
    #[arg(long, overrides_with = "context_shift", hide_short_help = true)]
    pub no_context_shift: bool,

    /// Then keep N tokens of the prompt; -1: all
    ///
    /// The first ones, and the BOS token in any case. By default no others.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(allow_negative_numbers = true)]
    #[arg(value_parser = numbers::from(-1))]
    pub keep: i64,

    /// Write on where the model would end
    #[arg(long)]
    pub ignore_eos: bool,

    /// Write special tokens too [-sp]
    ///
    /// Such as <|im_end|>.
    #[arg(long)]
    pub special: bool,

    /// Color what was typed: on, off or auto [-co]
    #[arg(long, value_name = "WHEN", num_args = 0..=1, default_missing_value = "on")]
    #[arg(default_value = "auto", hide_default_value = true, hide_possible_values = true)]
    pub color: When,

    /// Do not show timings after an answer
    #[arg(long, alias = "no-perf", overrides_with = "show_timings")]
    pub no_show_timings: bool,

    /// Show timings after an answer (the default)
    #[arg(long, alias = "perf", hide_short_help = true)]
    pub show_timings: bool,

    /// Show no header, progress or timings
    ///
    /// Warnings, notes and errors are shown all the same.
    #[arg(short, long)]
    pub quiet: bool,
}

impl AnswerArgs {
    /// Whether timings are shown.
    pub fn timings(&self) -> bool {
        !self.no_show_timings && !self.quiet
    }
}

/// A choice between yes, no, and what suits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// Always.
    On,
    /// Never.
    Off,
    /// If the output is a terminal.
    Auto,
}
