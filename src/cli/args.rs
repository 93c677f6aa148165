//! Groups of options that several commands have.

mod adapters;
mod hub;
pub mod numbers;
mod rope;

pub use adapters::{AdapterArgs, adapters};
pub use hub::HubArgs;
pub use numbers::{at_least_one, up_to_limit};
pub use rope::{RopeArgs, resolve};

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    sync::{Once, OnceLock},
};

use clap::ArgGroup;
use rope_cpu_kernels::Cpu;

use super::{error::Error, note};
use rope_cpu::{
    gguf::Override,
    kv_cache::CacheType,
    platform::processors::{self, Threads, plural},
};

/// Which model.
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("source").args(["model", "hf_repo"]).required(true))]
pub struct ModelArgs {
    /// The model: a GGUF file
    ///
    /// To write text or converse, `rope-cpu FILE` does, too.
    #[arg(short, long, value_name = "FILE", help_heading = "Model")]
    pub model: Option<PathBuf>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    pub hub: HubArgs,

    /// Change metadata, as KEY=TYPE:VALUE[,...]
    ///
    /// The types are int, float, bool and str. An item with a comma in it is put in double quotes.
    #[arg(long, value_name = "LIST", value_parser = overrides, help_heading = "Model")]
    pub override_kv: Vec<Overrides>,

    /// Where the model from the hub is, once it is there.
    #[arg(skip)]
    pub fetched: OnceLock<PathBuf>,
}

impl ModelArgs {
    /// The file of the model, which is fetched if need be.
    ///
    /// # Errors
    /// If it cannot be fetched, or there is not one model.
    pub fn file(&self) -> Result<&Path, Error> {
        match self.known() {
            Some(file) => Ok(file),
            None => {
                let file = self.hub.one()?;
                Ok(self.fetched.get_or_init(|| file))
            }
        }
    }

    /// An error in the file, with its name.
    pub fn named(&self, error: impl Display) -> Error {
        named(self.known().unwrap_or("".as_ref()), error)
    }

    fn known(&self) -> Option<&Path> {
        self.model.as_deref().or_else(|| self.fetched.get().map(PathBuf::as_path))
    }
}

/// An error in a file, with its name.
pub fn named(file: &Path, error: impl Display) -> Error {
    Error::usage(format_args!("{}: {error}", file.display()))
}

/// The items of one `--override-kv`.
pub type Overrides = std::sync::Arc<[Override]>;

/// Parses the value of `--override-kv`.
///
/// # Errors
/// If it is no such list.
pub fn overrides(list: &str) -> Result<Overrides, String> {
    Override::parse_list(list).map(Into::into).map_err(|e| e.to_string())
}

/// All items of all of them.
pub fn all_overrides(lists: &[Overrides]) -> Vec<Override> {
    lists.iter().flat_map(|list| list.iter().cloned()).collect()
}

/// What the model keeps.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Context and memory")]
pub struct MemoryArgs {
    /// Room in tokens; 0: as trained [--ctx-size]
    ///
    /// By default the length that the model was trained for, or the most that memory allows, if
    /// that is less. More than the trained length needs one of the RoPE methods below. 32k is short
    /// for 32 x 1024 and 1m for 1024 x 1024, here and for the other numbers of tokens.
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

/// What computes.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Machine")]
pub struct MachineArgs {
    /// Threads; -1: one for each performance core
    #[arg(short, long, value_name = "N", default_value = "-1", allow_negative_numbers = true)]
    #[arg(value_parser = threads)]
    pub threads: i64,

    /// The instruction set, instead of the best
    #[arg(long, value_name = "NAME", value_parser = isa)]
    pub isa: Option<Cpu>,
}

impl MachineArgs {
    /// How many threads, and why. More than there are processors get a warning.
    pub fn threads(&self) -> Threads {
        match usize::try_from(self.threads) {
            Ok(count) => {
                warn_of_threads(count);
                Threads { count, reason: format!("--threads {count}") }
            }
            Err(_) => processors::default_threads(),
        }
    }
}

/// Warns, once, of more threads than processors: at each barrier all wait for those that do not run.
pub fn warn_of_threads(count: usize) {
    static WARNED: Once = Once::new();
    if let Some(usable) = processors::usable().filter(|usable| count > *usable) {
        WARNED.call_once(|| {
            note(format_args!(
                "warning: -t {count} is more than the {} that this process may use: it will be slower",
                plural(usable, "processor")
            ));
        });
    }
}

fn threads(text: &str) -> Result<i64, String> {
    match text.parse() {
        Ok(count @ (-1 | 1..=1024)) => Ok(count),
        Ok(_) => Err("choose from 1 to 1024, or -1".into()),
        Err(_) => Err("not a whole number".into()),
    }
}

/// An instruction set of this CPU.
///
/// # Errors
/// A name of none, or of one that the CPU lacks.
pub fn isa(name: &str) -> Result<Cpu, String> {
    if !Cpu::NAMES.contains(&name) {
        return Err(format!("choose one of {}", Cpu::NAMES.join(", ")));
    }
    Cpu::named(name).ok_or_else(|| "this CPU does not have it".into())
}
