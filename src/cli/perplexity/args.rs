//! The options of `perplexity`, with llama-perplexity's names where it has the option.

use std::path::PathBuf;

use super::report::OutputType;
use crate::cli::{
    args::{
        AdapterArgs, EngineArgs, MemoryArgs, ModelArgs, RopeArgs, SparseArgs, at_least_one,
        up_to_limit,
    },
    methods::Method,
};

/// Compute the perplexity of a text, as llama-perplexity does
///
/// The text is cut into windows, which are read one by one. A token's negative log-likelihood
/// measures how unexpected it is after the tokens before it in its window; the perplexity is e to
/// the power of the mean over all scored tokens.
///
/// By default the windows lie side by side, and the second half of each is scored. Results are then
/// comparable with llama-perplexity. With --window or --stride a window slides over the text and
/// each token is scored once, after as many tokens as the window holds. Results are then comparable
/// with papers.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("sparse_attention", |arg| arg.requires("decode")))]
#[command(mut_arg("context", |arg| arg
    .help("Context size [default: the window] [--ctx-size]")
    .long_help("Context size in tokens, and the window if --window is not given [default: 512]. With \
        --attention-sinks the context rolls, and may be smaller than a window [default: the window, \
        or the trained length if that is less]")))]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub adapters: AdapterArgs,

    /// Text file; -: stdin
    ///
    /// The text is not changed, except that a newline at its end is removed.
    #[arg(short, long, value_name = "FILE", required_unless_present = "kl_divergence")]
    #[arg(help_heading = "Text")]
    pub file: Option<PathBuf>,

    /// Maximum number of windows; -1: all
    #[arg(long, value_name = "N", default_value = "-1", allow_negative_numbers = true)]
    #[arg(value_parser = chunks, help_heading = "Text")]
    pub chunks: i64,

    /// Size of a sliding window [default: -c]
    #[arg(long, value_name = "N,...", value_parser = at_least_one, help_heading = "Text")]
    #[arg(value_delimiter = ',')]
    pub window: Vec<usize>,

    /// Stride of the window [default with --window: 256]
    ///
    /// All but the first token of the first window are scored, then the last N of each.
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Text")]
    pub stride: Option<usize>,

    /// llama-perplexity's stride; 0: off
    ///
    /// A window of -c + N/2 tokens starts every N tokens, and its last N tokens are scored.
    /// llama-perplexity computes the same if its -b is not above its -c, and -c + N/2 is a multiple
    /// of 256. It rounds up other sizes.
    #[arg(long, value_name = "N", default_value = "0", value_parser = up_to_limit)]
    #[arg(conflicts_with_all = ["window", "stride"], help_heading = "Text")]
    pub ppl_stride: usize,

    /// Compare N generated tokens with the defaults
    ///
    /// The last tokens of each window of -c tokens are generated one by one, as the text continues,
    /// with --cache-type-k, --cache-type-v, --sparse-attention and --sparse-prompt, and in turns with an
    /// f16 cache and dense attention.
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Text")]
    #[arg(conflicts_with_all = ["window", "stride", "ppl_stride"])]
    #[arg(conflicts_with_all = ["methods", "kl_divergence_base", "output", "buckets"])]
    #[arg(conflicts_with = "ppl_output_type")]
    pub decode: Option<usize>,

    /// RoPE methods: METHOD[:FLAG=VALUE]...
    ///
    /// For example none,linear,yarn:rope-scale=4:yarn-beta-fast=16,dynamic. Without a factor, a
    /// method has exactly the factor that each window needs. By default the one method that the
    /// RoPE flags below select. Several methods or windows are shown side by side.
    #[arg(long, value_name = "METHOD,...", value_delimiter = ',', help_heading = "Text")]
    #[arg(conflicts_with_all = ["kl_divergence_base", "ppl_output_type"])]
    pub methods: Vec<Method>,

    /// Group results by position, N tokens per row
    ///
    /// The position of a token in its window.
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Output")]
    pub buckets: Option<usize>,

    /// Save results to this file, and resume from it
    ///
    /// One line of JSON for each method and window; results that are in the file are not computed
    /// again.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    #[arg(conflicts_with_all = ["kl_divergence_base", "ppl_output_type"])]
    pub output: Option<PathBuf>,

    /// Draw the --buckets to this SVG file
    #[arg(long, value_name = "FILE", requires = "buckets", help_heading = "Output")]
    #[arg(conflicts_with = "kl_divergence_base")]
    pub plot: Option<PathBuf>,

    /// 0: on one line; 1: one per line
    ///
    /// The estimates after each window.
    #[arg(long, value_name = "TYPE", default_value = "0", hide_possible_values = true)]
    #[arg(conflicts_with_all = ["json", "plot", "kl_divergence"], help_heading = "Output")]
    pub ppl_output_type: OutputType,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// Save all log-probabilities to this file
    ///
    /// The format is llama-perplexity's; each program reads the other's files. With --kl-divergence
    /// the file is read instead.
    #[arg(long, alias = "save-all-logits", value_name = "FILE", help_heading = "Comparison")]
    #[arg(conflicts_with_all = ["window", "stride", "ppl_stride"])]
    pub kl_divergence_base: Option<PathBuf>,

    /// Compute the KL divergence to that file
    ///
    /// The text and the windows come from the --kl-divergence-base file.
    #[arg(long, requires = "kl_divergence_base", help_heading = "Comparison")]
    #[arg(conflicts_with = "buckets")]
    pub kl_divergence: bool,

    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub sparse: SparseArgs,
    #[command(flatten)]
    pub rope: RopeArgs,
    #[command(flatten)]
    pub machine: EngineArgs,
}

/// Parses a maximum number of windows.
///
/// # Errors
/// If it is neither positive nor -1.
pub fn chunks(text: &str) -> Result<i64, String> {
    match text.parse() {
        Ok(count @ (-1 | 1..)) => Ok(count),
        Ok(_) => Err("must be 1 or more, or -1".into()),
        Err(_) => Err("not a whole number".into()),
    }
}
