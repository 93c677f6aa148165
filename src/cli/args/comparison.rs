//! The options of a comparison of RoPE methods at several lengths.

use std::path::PathBuf;

use clap::Arg;

use super::at_least_one;
use crate::cli::methods::Method;

/// The options of a comparison of RoPE methods at several lengths. Give the command's own heading
/// with `next_help_heading`.
#[derive(Clone, Debug, clap::Args)]
pub struct ComparisonArgs {
    /// Lengths [default: 1/2, 1 and 2 x trained]
    ///
    /// Lengths in tokens. The prompt and its answer fill the length as far as possible. The length
    /// is also the context, except that a rolling context (--attention-sinks) is at most the
    /// trained length.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = at_least_one)]
    #[arg(conflicts_with = "context")]
    pub lengths: Vec<usize>,

    /// RoPE methods: METHOD[:FLAG=VALUE]...
    ///
    /// For example none,linear,yarn:rope-scale=4:yarn-beta-fast=16,dynamic. Without a factor, a
    /// method has exactly the factor that each length needs. By default the one method that the
    /// RoPE flags below select.
    #[arg(long, value_name = "METHOD,...", value_delimiter = ',')]
    pub methods: Vec<Method>,

    /// Save answers to this file, and resume from it
    ///
    /// One line of JSON for each answer; answers that are in the file are not computed again.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
}

/// Describes `--ctx` in commands that have `--lengths`.
pub fn single_length(context: Arg) -> Arg {
    let help = "A single length; see --lengths [--ctx-size]";
    context.help(help).long_help(help)
}
