//! The options of `run`, named as llama-cli names them.

use std::path::{Path, PathBuf};

use crate::{
    cli::error::Error,
    gguf::Override,
    kv_cache::CacheType,
    rope::{self, Scaling},
    sample,
};
use clap::ValueEnum;
use rope_cpu_kernels::Cpu;

/// The options of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The model: a GGUF file
    #[arg(short, long, value_name = "FILE", required = true, help_heading = "Model")]
    pub model: Option<PathBuf>, // an option for the sake of other commands, which lack it

    /// Change metadata, as KEY=TYPE:VALUE[,...]
    ///
    /// The types are int, float, bool and str. An item with a comma in it is put in double quotes.
    #[arg(long, value_name = "LIST", value_parser = overrides, help_heading = "Model")]
    pub override_kv: Vec<Overrides>,

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

impl Args {
    /// The file of the model.
    ///
    /// # Errors
    /// If none is given, which clap does not let happen.
    pub fn model(&self) -> Result<&Path, Error> {
        self.model.as_deref().ok_or_else(|| Error::usage("no model: give one with -m FILE"))
    }
}

/// The items of one `--override-kv`.
pub type Overrides = std::sync::Arc<[Override]>;

fn overrides(list: &str) -> Result<Overrides, String> {
    Override::parse_list(list).map(Into::into).map_err(|e| e.to_string())
}

/// What the model reads.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Prompt")]
pub struct PromptArgs {
    /// The text to continue, or to answer
    ///
    /// It is continued as it is, or with -cnv answered as the first message.
    ///
    /// Without -p and -f, standard input is read if it is not a terminal; if it is one, a
    /// conversation begins.
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    pub prompt: Option<String>,

    /// The file whose text is the prompt
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
    /// Without a limit, the model or the context ends the answer. -2 means the same.
    #[arg(short = 'n', long, alias = "n-predict", value_name = "N", default_value_t = -1)]
    #[arg(value_parser = clap::value_parser!(i64).range(-2..), allow_negative_numbers = true)]
    pub predict: i64,

    /// Stop before this text; may be repeated
    #[arg(short, long, value_name = "TEXT")]
    pub reverse_prompt: Vec<String>,

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
    #[arg(long, overrides_with = "show_timings")]
    pub no_show_timings: bool,

    /// Show timings after an answer (the default)
    #[arg(long, hide_short_help = true)]
    pub show_timings: bool,
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

/// What the model keeps.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Context and memory")]
pub struct MemoryArgs {
    /// Room in tokens; 0: as trained [--ctx-size]
    ///
    /// By default the length that the model was trained for, or the most that memory allows, if
    /// that is less. More than the trained length needs one of the RoPE methods below.
    #[arg(short, long = "ctx", alias = "ctx-size", value_name = "N", default_value = "0")]
    #[arg(value_parser = up_to_limit, hide_default_value = true)]
    pub context: usize,

    /// Keys: f16, or f32 bf16 q8_0 q4_0 [-ctk]
    ///
    /// How the keys of past tokens are stored.
    #[arg(long, value_name = "TYPE", default_value = "f16", hide_default_value = true)]
    pub cache_type_k: CacheType,

    /// Values: f16, or f32 bf16 q8_0 q4_0 [-ctv]
    ///
    /// How the values of past tokens are stored.
    #[arg(long, value_name = "TYPE", default_value = "f16", hide_default_value = true)]
    pub cache_type_v: CacheType,

    /// Tokens computed together [-ub]
    #[arg(long, value_name = "N", default_value = "512", value_parser = at_least_one)]
    pub ubatch_size: usize,

    /// An upper limit for -ub
    #[arg(short, long, value_name = "N", default_value = "2048", value_parser = at_least_one)]
    pub batch_size: usize,

    /// Show what the run would take, and stop
    #[arg(long)]
    pub dry_run: bool,

    /// Run even where the memory seems too small
    #[arg(long)]
    pub no_memory_check: bool,
}

/// More tokens than any model has seen, and few enough that sizes cannot overflow.
const TOKENS_MAX: usize = 1 << 30;

fn up_to_limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(tokens) if tokens <= TOKENS_MAX => Ok(tokens),
        Ok(_) => Err(format!("at most {TOKENS_MAX} are possible")),
        Err(e) => Err(format!("{e}")),
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match up_to_limit(text)? {
        0 => Err("at least 1 is needed".into()),
        tokens => Ok(tokens),
    }
}

/// How positions are rotated.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "RoPE: a context longer than trained")]
pub struct RopeArgs {
    /// The method: none, linear, yarn or longrope
    #[arg(long, value_name = "METHOD")]
    pub rope_scaling: Option<Scaling>,

    /// Extend the context N times
    ///
    /// Linear scaling keeps the distances between far tokens within what the model has seen,
    /// YaRN (with --rope-scaling yarn) those between near ones too, and needs no fine-tuning.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub rope_scale: Option<f64>,

    /// The inverse: 0.25 extends it 4 times
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub rope_freq_scale: Option<f64>,

    /// The base of the frequencies
    ///
    /// NTK-aware scaling raises it.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub rope_freq_base: Option<f64>,

    /// YaRN: the context before; 0: as trained
    #[arg(long, value_name = "N")]
    pub yarn_orig_ctx: Option<usize>,

    /// YaRN: 1 keeps high frequencies, 0 scales all
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub yarn_ext_factor: Option<f64>,

    /// YaRN: multiplies the attention scale
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub yarn_attn_factor: Option<f64>,

    /// YaRN: scale what turns less often
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub yarn_beta_slow: Option<f64>,

    /// YaRN: keep what turns more often
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub yarn_beta_fast: Option<f64>,
}

impl RopeArgs {
    /// The same, for the library.
    pub fn flags(&self) -> rope::Flags {
        rope::Flags {
            scaling: self.rope_scaling,
            scale: self.rope_scale,
            freq_scale: self.rope_freq_scale,
            freq_base: self.rope_freq_base,
            yarn_orig_ctx: self.yarn_orig_ctx,
            yarn_ext_factor: self.yarn_ext_factor,
            yarn_attn_factor: self.yarn_attn_factor,
            yarn_beta_fast: self.yarn_beta_fast,
            yarn_beta_slow: self.yarn_beta_slow,
        }
    }
}

/// How the next token is chosen.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Same seed, same text; -1: random
    #[arg(short, long, value_name = "N", default_value = "-1", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i64).range(-1..=u32::MAX as i64))]
    pub seed: i64,

    /// Temperature; 0: the likeliest
    #[arg(long = "temp", alias = "temperature", value_name = "N", default_value_t = 0.8)]
    #[arg(allow_negative_numbers = true)]
    pub temperature: f32,

    /// Of the N likeliest; 0: of all
    #[arg(long, value_name = "N", default_value_t = 40, allow_negative_numbers = true)]
    pub top_k: i32,

    /// Of the likeliest that sum to N
    #[arg(long, value_name = "N", default_value_t = 0.95)]
    pub top_p: f32,

    /// Of those N times the likeliest
    #[arg(long, value_name = "N", default_value_t = 0.05)]
    pub min_p: f32,

    /// Of the most typical that sum to N
    #[arg(long = "typical", alias = "typical-p", value_name = "N", default_value_t = 1.0)]
    pub typical_p: f32,

    /// Tokens the penalties look back at
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub repeat_last_n: usize,

    /// For repeated tokens; 1: none
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub repeat_penalty: f32,

    /// For tokens that are there; 0: none
    #[arg(long, value_name = "N", default_value_t = 0.0, allow_negative_numbers = true)]
    pub presence_penalty: f32,

    /// For each time they are; 0: none
    #[arg(long, value_name = "N", default_value_t = 0.0, allow_negative_numbers = true)]
    pub frequency_penalty: f32,
}

impl SamplingArgs {
    /// The same, for the library.
    pub fn settings(&self) -> sample::Settings {
        sample::Settings {
            seed: u32::try_from(self.seed).ok(),
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_last_n: self.repeat_last_n,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
        }
    }
}

/// What computes.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Machine")]
pub struct MachineArgs {
    /// Threads; -1: one for each performance core
    #[arg(short, long, value_name = "N", default_value = "-1", allow_negative_numbers = true)]
    #[arg(value_parser = threads)]
    pub threads: i64,

    /// The instruction set, instead of the best
    ///
    /// Also by the environment variable ROPE_CPU_ISA.
    #[arg(long, value_name = "NAME", env = "ROPE_CPU_ISA", hide_env = true, value_parser = isa)]
    pub isa: Option<Cpu>,
}

fn threads(text: &str) -> Result<i64, String> {
    match text.parse() {
        Ok(count @ (-1 | 1..=1024)) => Ok(count),
        Ok(_) => Err("choose from 1 to 1024, or -1".into()),
        Err(e) => Err(format!("{e}")),
    }
}

fn isa(name: &str) -> Result<Cpu, String> {
    if !Cpu::NAMES.contains(&name) {
        return Err(format!("choose one of {}", Cpu::NAMES.join(", ")));
    }
    Cpu::named(name).ok_or_else(|| "this CPU does not have it".into())
}
