//! The options of `passkey`.

use std::path::PathBuf;

use crate::cli::{
    args::{AdapterArgs, MachineArgs, MemoryArgs, ModelArgs, RopeArgs, at_least_one, numbers},
    methods::Method,
};
use rope_cpu::eval::passkey::Test;

/// Judge a model by whether it finds a number in a long text
///
/// A key of five digits stands somewhere in a text of the same few sentences again and again, and the
/// model is asked for it at the end. It counts as found if the greedy answer is exactly the key.
///
/// With --output every answer is kept as it comes; the same command goes on where it was stopped.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("context", |arg| arg.help("One length, as --lengths [--ctx-size]")
    .long_help("One length, as --lengths [--ctx-size]")))]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub model: ModelArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub adapters: AdapterArgs,

    /// Lengths in tokens [default: 1/2, 1 and 2 x trained]
    ///
    /// A prompt and its answer are as long as can be within the length, which is the context too; one that
    /// rolls (--attention-sinks) is no larger than trained.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = at_least_one)]
    #[arg(conflicts_with = "context", help_heading = "Test")]
    pub lengths: Vec<usize>,

    /// Places of the key, from the start to the end
    #[arg(long, value_name = "N", default_value = "5", help_heading = "Test")]
    #[arg(value_parser = numbers::between::<u32>(1, 101))]
    pub depths: u32,

    /// Keys at each place
    #[arg(long, value_name = "N", default_value = "3", value_parser = at_least_one)]
    #[arg(help_heading = "Test")]
    pub keys: usize,

    /// Same seed, same keys
    #[arg(short, long, value_name = "N", default_value = "0", help_heading = "Test")]
    pub seed: u32,

    /// Methods, as METHOD[:FLAG=VALUE]...
    ///
    /// For example none,linear,yarn:rope-scale=4:yarn-beta-fast=16,dynamic. Without a factor, a
    /// method has just what each length needs. By default the one method of the RoPE flags below.
    #[arg(long, value_name = "METHOD,...", value_delimiter = ',', help_heading = "Test")]
    pub methods: Vec<Method>,

    /// Share of keys for the effective window
    ///
    /// The effective context window is the largest length up to which at least this share
    /// of the keys is found.
    #[arg(long, value_name = "N", default_value = "0.2", value_parser = share)]
    #[arg(help_heading = "Output")]
    pub share: f64,

    /// Keep answers here, and go on from them
    ///
    /// A line of JSON for each; what is there already is not computed again.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,

    /// Draw heat maps into this SVG file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub plot: Option<PathBuf>,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,

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

impl Args {
    /// Where keys are hidden, in percent of the text.
    pub fn percents(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        let last = self.depths - 1;
        (0..self.depths).map(move |i| (100 * i + last / 2).checked_div(last).unwrap_or(50))
    }

    /// All tests at a length, from the top of the text to its end.
    pub fn tests(&self, length: usize) -> impl DoubleEndedIterator<Item = Test> + use<> {
        let keys = self.keys;
        self.percents()
            .flat_map(move |depth| (0..keys).map(move |number| Test { length, depth, number }))
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        Ok(_) => Err("choose a number above 0, at most 1".into()),
        Err(_) => Err("not a number".into()),
    }
}
