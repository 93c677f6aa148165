//! The options of `perplexity`, named as llama-perplexity names them where it has them.

use std::path::PathBuf;

use super::report::OutputType;
use crate::cli::{
    args::{AdapterArgs, MachineArgs, MemoryArgs, ModelArgs, RopeArgs, at_least_one, up_to_limit},
    methods::Method,
};

/// Judge a model on a text, as llama-perplexity does
///
/// The text is cut into windows, which are read one by one. A token's negative log-likelihood is
/// how unexpected it was to the model after those before it in its window; the perplexity is e to
/// the mean of them.
///
/// By default the windows lie side by side, and the second half of each is scored: numbers then
/// compare with those of llama-perplexity. With --window or --stride a window slides over the
/// text and each token is scored once, with as much before it as the window has room for:
/// numbers then compare with those of papers.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("context", |arg| arg
    .help("Room in tokens [default: a window] [--ctx-size]")
    .long_help("Room in tokens, and the window if there is no --window [default: 512]. With \
        --attention-sinks the context rolls, and may be smaller than a window [default: the window, \
        or the trained length if that is less]")))]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub model: ModelArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub adapters: AdapterArgs,

    /// The file with the text; -: stdin
    ///
    /// It is taken as it is, but for a newline at its end.
    #[arg(short, long, value_name = "FILE", required_unless_present = "kl_divergence")]
    #[arg(help_heading = "Text")]
    pub file: Option<PathBuf>,

    /// At most N windows; -1: all
    #[arg(long, value_name = "N", default_value = "-1", allow_negative_numbers = true)]
    #[arg(value_parser = chunks, help_heading = "Text")]
    pub chunks: i64,

    /// Tokens of sliding windows [default: -c]
    #[arg(long, value_name = "N,...", value_parser = at_least_one, help_heading = "Text")]
    #[arg(value_delimiter = ',')]
    pub window: Vec<usize>,

    /// Tokens it slides by [default with --window: 256]
    ///
    /// All but the first token of the first window are scored, then the last N of each.
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Text")]
    pub stride: Option<usize>,

    /// llama-perplexity's own stride; 0: none
    ///
    /// Windows of half N more than -c begin every N tokens, and the last N of each are scored.
    /// This is what llama-perplexity computes where its -b is not above its -c, and -c + N/2 is a
    /// multiple of 256, to which it rounds up.
    #[arg(long, value_name = "N", default_value = "0", value_parser = up_to_limit)]
    #[arg(conflicts_with_all = ["window", "stride"], help_heading = "Text")]
    pub ppl_stride: usize,

    /// Methods, as METHOD[:FLAG=VALUE]...
    ///
    /// For example none,linear,yarn:rope-scale=4:yarn-beta-fast=16,dynamic. Without a factor, a
    /// method has just what each window needs. By default the one method of the RoPE flags below.
    /// Several methods or windows are shown side by side.
    #[arg(long, value_name = "METHOD,...", value_delimiter = ',', help_heading = "Text")]
    #[arg(conflicts_with_all = ["kl_divergence_base", "ppl_output_type"])]
    pub methods: Vec<Method>,

    /// Also by position in the window, N to a row
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Output")]
    pub buckets: Option<usize>,

    /// Keep results here, and go on from them
    ///
    /// A line of JSON for each method and window; what is there already is not computed again.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    #[arg(conflicts_with_all = ["kl_divergence_base", "ppl_output_type"])]
    pub output: Option<PathBuf>,

    /// Draw these into an SVG file
    #[arg(long, value_name = "FILE", requires = "buckets", help_heading = "Output")]
    #[arg(conflicts_with = "kl_divergence_base")]
    pub plot: Option<PathBuf>,

    /// 0: running values in a line; 1: one a line
    #[arg(long, value_name = "TYPE", default_value = "0", hide_possible_values = true)]
    #[arg(conflicts_with_all = ["json", "plot", "kl_divergence"], help_heading = "Output")]
    pub ppl_output_type: OutputType,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// Save log-probabilities, to compare with
    ///
    /// The format is llama-perplexity's: files may come from it or go to it. With --kl-divergence
    /// the file is read instead.
    #[arg(long, alias = "save-all-logits", value_name = "FILE", help_heading = "Comparison")]
    #[arg(conflicts_with_all = ["window", "stride", "ppl_stride"])]
    pub kl_divergence_base: Option<PathBuf>,

    /// Compare with those in that file
    ///
    /// The text and the windows are those of the file.
    #[arg(long, requires = "kl_divergence_base", help_heading = "Comparison")]
    #[arg(conflicts_with = "buckets")]
    pub kl_divergence: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub memory: MemoryArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub rope: RopeArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub machine: MachineArgs,
}

fn chunks(text: &str) -> Result<i64, String> {
    match text.parse() {
        Ok(count @ (-1 | 1..)) => Ok(count),
        Ok(_) => Err("choose 1 or more, or -1".into()),
        Err(_) => Err("not a whole number".into()),
    }
}
