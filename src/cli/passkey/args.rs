//! The options of `passkey`.

use std::path::PathBuf;

use crate::cli::args::{
    AdapterArgs, ComparisonArgs, EngineArgs, MemoryArgs, ModelArgs, RopeArgs, at_least_one,
    numbers, single_length,
};
use rope_cpu::eval::passkey::Test;

/// Test whether a model finds a number in a long text
///
/// A key of five digits is hidden in a text that repeats a few sentences, and the model is asked
/// for it at the end. It counts as found if the greedy answer is exactly the key.
///
/// With --output every answer is saved once it is complete, and the same command resumes a test
/// that was interrupted.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("context", single_length))]
#[command(mut_arg("lengths", |lengths| lengths.display_order(0)))]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub adapters: AdapterArgs,

    /// Key positions, from start to end
    ///
    /// The number of positions in the text at which keys are hidden.
    #[arg(long, value_name = "N", default_value = "5", help_heading = "Test")]
    #[arg(value_parser = numbers::between::<u32>(1, 101))]
    pub depths: u32,

    /// Keys at each position
    #[arg(long, value_name = "N", default_value = "3", value_parser = at_least_one)]
    #[arg(help_heading = "Test")]
    pub keys: usize,

    /// Seed of the keys
    #[arg(short, long, value_name = "N", default_value = "0", help_heading = "Test")]
    pub seed: u32,

    /// Required share for the effective window
    ///
    /// The effective context window is the largest length up to which at least this share
    /// of the keys is found.
    #[arg(long, value_name = "N", default_value = "0.2", value_parser = share)]
    #[arg(help_heading = "Output")]
    pub share: f64,

    #[command(flatten, next_help_heading = "Test")]
    pub comparison: ComparisonArgs,

    /// Draw heat maps to this SVG file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub plot: Option<PathBuf>,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub rope: RopeArgs,
    #[command(flatten)]
    pub machine: EngineArgs,
}

impl Args {
    /// Returns the positions at which keys are hidden, in percent of the text.
    pub fn percents(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        let last = self.depths - 1;
        (0..self.depths).map(move |i| (100 * i + last / 2).checked_div(last).unwrap_or(50))
    }

    /// Returns all tests at a length, by position of the key from start to end of the text.
    pub fn tests(&self, length: usize) -> impl DoubleEndedIterator<Item = Test> + use<> {
        let keys = self.keys;
        self.percents()
            .flat_map(move |depth| (0..keys).map(move |number| Test { length, depth, number }))
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        Ok(_) => Err("must be above 0 and at most 1".into()),
        Err(_) => Err("not a number".into()),
    }
}
