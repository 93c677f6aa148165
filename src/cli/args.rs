//! Groups of options that several commands have.

mod adapters;
mod cache;
mod comparison;
mod constraint;
mod hub;
pub mod log;
mod opening;
pub mod parameters;
mod rope;
mod sampling;
mod server;
mod shelf;
mod sparse;
mod speculation;
mod template;

pub use adapters::AdapterArgs;
pub use cache::CacheArgs;
pub use comparison::{ComparisonArgs, single_length};
pub use constraint::ConstraintArgs;
pub use hub::HubArgs;
pub use log::LogArgs;
pub use opening::OpeningArgs;
pub use rope::RopeArgs;
pub use sampling::SamplingArgs;
pub use server::ServeArgs;
pub use shelf::ShelfArgs;
pub use sparse::SparseArgs;
pub use speculation::{PrefillArgs, SpeculationArgs};
pub use template::TemplateArgs;

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    sync::{Once, OnceLock},
};

use clap::{ArgAction, ArgGroup, ValueEnum};
use rope_cpu_kernels::Cpu;

use super::{error::Error, note};
pub(crate) use crate::numbers::{self, at_least_one, up_to_limit};
use rope_cpu::{
    gguf::Override,
    platform::processors::{self, Threads, plural},
    threads::Power,
};

/// The options that select a model.
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("source").args(["model", "hf_repo"]).required(true))]
pub struct ModelArgs {
    /// Model file (GGUF), or the name of a model
    ///
    /// `rope-cpu list` shows the names. `rope-cpu FILE` is short for `rope-cpu -m FILE`.
    #[arg(short, long, alias = "LLAMA_ARG_MODEL", value_name = "FILE", help_heading = "Model")]
    #[arg(action = ArgAction::Append)]
    pub model: Vec<PathBuf>,

    #[command(flatten)]
    pub hub: HubArgs,

    /// Override metadata: KEY=TYPE:VALUE[,...]
    ///
    /// TYPE is int, float, bool or str. Put an item that contains a comma in double quotes.
    #[arg(long, value_name = "LIST", value_parser = overrides, help_heading = "Model")]
    pub override_kv: Vec<Overrides>,

    /// The path of the model from the hub, once it is downloaded.
    #[arg(skip)]
    pub fetched: OnceLock<PathBuf>,
}

impl ModelArgs {
    /// Returns the path of the model file, after downloading it if necessary.
    ///
    /// # Errors
    /// If the download fails, or not exactly one model is given.
    pub fn file(&self) -> Result<&Path, Error> {
        if let [first, second, ..] = &self.model[..] {
            return Err(Error::usage(format_args!(
                "-m is given twice, as {} and {}: a command has one model; remove one of them",
                first.display(),
                second.display()
            )));
        }
        match self.known() {
            Some(file) => Ok(file),
            None => {
                let file = self.hub.one()?;
                Ok(self.fetched.get_or_init(|| file))
            }
        }
    }

    /// Returns whether a model is given.
    pub fn is_given(&self) -> bool {
        !self.model.is_empty() || !self.hub.hf_repo.is_empty()
    }

    /// Returns a usage error that starts with the name of the model file.
    pub fn named(&self, error: impl Display) -> Error {
        named(self.known().unwrap_or("".as_ref()), error)
    }

    fn known(&self) -> Option<&Path> {
        self.model
            .first()
            .map(PathBuf::as_path)
            .or_else(|| self.fetched.get().map(PathBuf::as_path))
    }
}

/// Returns a usage error that starts with the name of a file.
pub fn named(file: &Path, error: impl Display) -> Error {
    Error::usage(format_args!("{}: {error}", file.display()))
}

/// The items of one `--override-kv`.
pub type Overrides = std::sync::Arc<[Override]>;

/// Parses the value of `--override-kv`.
///
/// # Errors
/// If `list` is not of the form KEY=TYPE:VALUE[,...].
pub fn overrides(list: &str) -> Result<Overrides, String> {
    Override::parse_list(list).map(Into::into).map_err(|e| e.to_string())
}

/// Joins the items of several `--override-kv`, in order.
pub fn all_overrides(lists: &[Overrides]) -> Vec<Override> {
    lists.iter().flat_map(|list| list.iter().cloned()).collect()
}

/// The options of the context and its memory.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Context and memory")]
pub struct MemoryArgs {
    /// Context size in tokens; 0: as trained [--ctx-size]
    ///
    /// By default the length that the model was trained for, or the largest that fits in memory if
    /// that is less. A context longer than the trained one requires one of the RoPE methods below.
    /// 32k means 32 x 1024 and 1m means 1024 x 1024, here and for other numbers of tokens. In `run`,
    /// auto makes the default context longer if the prompt needs it, with --rope-scaling auto
    /// unless you choose RoPE options.
    #[arg(short, long = "ctx", aliases = ["ctx-size", "LLAMA_ARG_CTX_SIZE"], value_name = "N")]
    #[arg(default_value = "0", value_parser = numbers::context, hide_default_value = true)]
    pub context: usize,

    #[command(flatten)]
    pub cache: CacheArgs,

    /// Micro-batch size in tokens
    ///
    /// The number of prompt tokens that are computed in one pass.
    #[arg(long, aliases = ["-ub", "LLAMA_ARG_UBATCH"], value_name = "N")]
    #[arg(default_value = "512", value_parser = at_least_one)]
    pub ubatch_size: usize,

    /// Upper limit of the micro-batch
    #[arg(short, long, alias = "LLAMA_ARG_BATCH", value_name = "N", default_value = "2048")]
    #[arg(value_parser = at_least_one)]
    pub batch_size: usize,

    /// Show the plan of a run and its memory, and exit
    ///
    /// --dry-run=json shows it as JSON: each value with its origin, and whether it fits.
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "text", hide_possible_values = true)]
    pub dry_run: Option<Form>,

    /// Run even if memory seems insufficient
    #[arg(long)]
    pub no_memory_check: bool,
}

/// The form of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Lines of text.
    Text,
    /// A JSON object.
    Json,
}

/// The options of the threads and the instruction set.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Machine")]
pub struct MachineArgs {
    /// Threads; -1: one per performance core
    #[arg(short, long, alias = "LLAMA_ARG_THREADS", value_name = "N", default_value = "-1")]
    #[arg(value_parser = threads, allow_negative_numbers = true)]
    pub threads: i64,

    /// Instruction set [default: the best supported]
    #[arg(long, value_name = "NAME", value_parser = isa)]
    pub isa: Option<Cpu>,
}

/// The options of the machine for commands that run a model.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Machine")]
pub struct EngineArgs {
    #[command(flatten)]
    pub machine: MachineArgs,

    /// Threads of prompts; -1: as -t if set, else also efficiency cores
    #[arg(long, alias = "-tb", value_name = "N", default_value = "-1")]
    #[arg(value_parser = threads, allow_negative_numbers = true, hide_short_help = true)]
    pub threads_batch: i64,

    /// Percent of the processors' time to use, 1 to 100
    ///
    /// Threads rest in proportion to their work: less heat and noise, and slower answers.
    #[arg(long, value_name = "PERCENT", default_value = "100", hide_default_value = true)]
    #[arg(value_parser = power, hide_short_help = true)]
    pub power: Power,

    /// Priority below other programs, 0 to 19
    ///
    /// As by `nice -n N`: other programs run first, and what they leave is used.
    #[arg(long, value_name = "N", value_parser = numbers::between::<u8>(0, 19), hide_short_help = true)]
    pub nice: Option<u8>,
}

impl MachineArgs {
    /// Returns the numbers of threads, with the reason for them. Warns if they exceed the number of
    /// processors.
    pub fn threads(&self) -> Threads {
        match usize::try_from(self.threads) {
            Ok(count) => {
                warn_of_threads(count);
                Threads { workers: count.into(), reason: format!("--threads {count}") }
            }
            Err(_) => processors::default_threads(),
        }
    }

    /// Returns the instruction set. See [`cpu`].
    pub fn cpu(&self) -> Cpu {
        cpu(self.isa)
    }
}

/// Returns the instruction set `isa`, or else the best that this CPU supports. Warns, once, if this is
/// none: the program runs, but slowly.
pub fn cpu(isa: Option<Cpu>) -> Cpu {
    static WARNED: Once = Once::new();
    let cpu = isa.unwrap_or_else(Cpu::best);
    if isa.is_none()
        && let Some(warning) = slow(cpu)
    {
        WARNED.call_once(|| note(warning));
    }
    cpu
}

/// Returns a warning if `cpu` is portable code.
fn slow(cpu: Cpu) -> Option<String> {
    if cpu.name() != "scalar" {
        return None;
    }
    let vectors = Cpu::NAMES[1..].join(", ");
    // Measured on x86-64 alone.
    let gain = if cfg!(target_arch = "x86_64") {
        "AVX2 generates tokens 20 times as fast, and reads prompts 70 times as fast"
    } else {
        "expect it to be many times slower"
    };
    Some(format!(
        "warning: this CPU supports none of the instruction sets that rope-cpu uses ({vectors}), so \
         portable code runs: {gain}"
    ))
}

impl EngineArgs {
    /// Returns the numbers of threads, with the reason for them.
    pub fn threads(&self) -> Threads {
        let mut threads = self.machine.threads();
        if let Ok(prompts) = usize::try_from(self.threads_batch) {
            warn_of_threads(prompts);
            threads.workers.prompts = prompts;
            threads.reason += &format!("; --threads-batch {prompts}");
        }
        threads
    }
}

/// Warns, once, if there are more threads than processors: threads then take turns on a processor,
/// and a task waits for its thread's turn.
pub fn warn_of_threads(count: usize) {
    static WARNED: Once = Once::new();
    if let Some(usable) = processors::usable().filter(|usable| count > *usable) {
        WARNED.call_once(|| {
            note(format_args!(
                "warning: -t {count} exceeds the {} that this process may use, which slows it down",
                plural(usable, "processor")
            ));
        });
    }
}

fn power(text: &str) -> Result<Power, String> {
    text.parse().ok().and_then(Power::percent).ok_or("must be from 1 to 100".into())
}

fn threads(text: &str) -> Result<i64, String> {
    match text.parse() {
        Ok(count @ (-1 | 1..=1024)) => Ok(count),
        Ok(_) => Err("must be from 1 to 1024, or -1".into()),
        Err(_) => Err("not a whole number".into()),
    }
}

/// Parses the name of an instruction set.
///
/// # Errors
/// If no instruction set has this name, or the CPU does not support it.
pub fn isa(name: &str) -> Result<Cpu, String> {
    Cpu::named(name).ok_or_else(|| {
        let usable: Vec<_> = Cpu::available().into_iter().map(Cpu::name).collect();
        let reason = match Cpu::NAMES.contains(&name) {
            true => "not supported by this CPU",
            false => "no instruction set of this name",
        };
        format!("{reason}; choose one of {}", usable.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use rope_cpu_kernels::Cpu;

    use super::{isa, slow};

    #[test]
    fn only_portable_code_is_slow() {
        for cpu in Cpu::available() {
            assert_eq!(slow(cpu).is_some(), cpu.name() == "scalar", "{cpu:?}");
        }
    }

    #[test]
    fn instruction_sets_that_are_refused_come_with_those_to_choose_from() {
        let usable: Vec<_> = Cpu::available().into_iter().map(Cpu::name).collect();
        for name in Cpu::NAMES.iter().chain(&["sse9"]) {
            match isa(name) {
                Ok(cpu) => assert_eq!(cpu.name(), *name),
                Err(e) => assert!(e.ends_with(&format!("choose one of {}", usable.join(", ")))),
            }
        }
    }
}
