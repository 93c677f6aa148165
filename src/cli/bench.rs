//! `rope-cpu bench`: the tests and tables of llama-bench.

mod args;
mod columns;
mod format;
mod lists;
mod markdown;
mod progress;

use std::{
    collections::{HashMap, hash_map::Entry},
    io::{self, Write},
    path::Path,
    time::Duration,
};

use rope_cpu_kernels::Cpu;

pub use args::Args;

use super::{args::all_overrides, error::Error};
use columns::Outcome;
use format::Printer;
use progress::Progress;
use rope_cpu::{
    eval::{
        bench::{Bench, Test},
        cost::Cost,
        probe::{Probes, probe},
    },
    gguf::File,
    kv_cache::CacheType,
    model::{
        Model, OpenOptions, Options,
        memory::{Request, Shape},
    },
    platform,
    rope::{Rope, Sourced},
    threads::Threads,
};

/// The settings of a round of tests.
#[derive(Clone, Copy, Debug)]
struct Setting {
    batch: usize,
    micro_batch: usize,
    keys: CacheType,
    values: CacheType,
    threads: usize,
    depth: usize,
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, or too little memory.
pub fn run(args: &Args) -> Result<(), Error> {
    let tests = args.tests()?;
    let settings = args.settings();
    let mut models = args.model.clone();
    models.extend(args.hub.fetch()?);
    // All files are opened before the first is measured.
    let files: Result<Vec<_>, _> = models.iter().map(File::open).collect();
    let files = files.map_err(Error::usage)?;
    let mut printers = Vec::new();
    let outputs: [(_, Box<dyn Write>); 2] =
        [(Some(args.output), Box::new(io::stdout())), (args.output_err, Box::new(io::stderr()))];
    for (output, to) in outputs {
        if let Some(format) = output {
            printers.push(Printer::new(format, to, args.optional_columns()));
        }
    }
    for printer in &mut printers {
        printer.begin()?;
    }
    let mut progress = Progress::new(args.progress, models.len() * settings.len() * tests.len());
    let settings = with_probes(args, settings)?;
    for (path, file) in models.iter().zip(files) {
        bench_model(args, path, file, &settings, &tests, &mut printers, &mut progress)?;
    }
    drop(progress);
    printers.iter_mut().try_for_each(Printer::end)?;
    Ok(())
}

fn cpu(args: &Args) -> Cpu {
    args.isa.unwrap_or_else(Cpu::best)
}

/// Returns each setting with the peak rates of the machine for its number of threads.
fn with_probes(args: &Args, settings: Vec<Setting>) -> Result<Vec<(Setting, Probes)>, Error> {
    let mut known = HashMap::new();
    let with_probe = |setting: Setting| {
        let probes = match known.entry(setting.threads) {
            Entry::Occupied(probes) => *probes.get(),
            Entry::Vacant(entry) => {
                let team = Threads::new(setting.threads).map_err(Error::failed)?;
                *entry.insert(probe(&team, cpu(args)))
            }
        };
        Ok((setting, probes))
    };
    settings.into_iter().map(with_probe).collect()
}

/// Runs all tests of a model.
fn bench_model(
    args: &Args,
    path: &Path,
    file: File,
    settings: &[(Setting, Probes)],
    tests: &[Test],
    printers: &mut [Printer],
    progress: &mut Progress,
) -> Result<(), Error> {
    let options = OpenOptions::new().overrides(all_overrides(&args.override_kv));
    let model = options.load(file).map_err(Error::usage)?;
    let all = Cost::new(&model);
    let longest = tests.iter().map(|test| test.prompt + test.generation).max().unwrap_or(0);
    for (setting, probes) in settings {
        let context = setting.depth + longest;
        let options = Options {
            micro_batch: setting.micro_batch.min(setting.batch),
            keys: setting.keys,
            values: setting.values,
            threads: setting.threads,
            cpu: cpu(args),
            ..Options::new(context)
        };
        let asked = Sourced::given(context, format!("a test at depth {}", setting.depth));
        let plan = model.rope_plan(&args.rope.flags(), asked).map_err(Error::usage)?;
        let rope = Rope::new(plan.clone());
        progress.warn(&plan);
        let work = all.clone().within(&plan.visibility);
        if !args.no_memory_check {
            check_memory(&model, work.weights_bytes, &options, longest)?;
        }
        let mut stage = |stage| progress.show(stage);
        let mut bench = Bench::new(&model, rope, options.clone(), setting.depth, &mut stage)
            .map_err(Error::failed)?;
        for test in tests {
            progress.next();
            std::thread::sleep(Duration::from_secs(args.delay));
            let mut stage = |stage| progress.show(stage);
            let measured = bench
                .measure(*test, args.repetitions, !args.no_warmup, &mut stage)
                .map_err(Error::failed)?;
            let outcome = Outcome {
                path,
                model: describe(&model),
                work: &work,
                setting,
                options: &options,
                rope: &plan,
                probes,
                measured: &measured,
            };
            progress.hide(|| printers.iter_mut().try_for_each(|printer| printer.row(&outcome)))?;
        }
    }
    Ok(())
}

/// Checks that enough memory is available for tests of up to `longest` tokens after the depth, if that
/// is known.
fn check_memory(
    model: &Model,
    weights_bytes: u64,
    options: &Options,
    longest: usize,
) -> Result<(), Error> {
    let Options { context, micro_batch, keys, values, .. } = *options;
    let Some(available) = platform::memory::available() else { return Ok(()) };
    let mut shape = Shape::of(model, weights_bytes, options.threads);
    // Sliding windows retain the keys at the depth during a test.
    shape.window = shape.window.saturating_add(longest);
    let (sequences, shared) = (1, 0);
    let request = Request { context, sequences, shared, rolling: false, micro_batch, keys, values };
    shape.check(&request, available).map(drop).map_err(Error::failed)
}

/// Describes the model: `llama 135M Q4_1`.
fn describe(model: &Model) -> String {
    let gguf = model.gguf();
    let label = gguf.metadata().string("general.size_label").ok().flatten();
    let label = label.filter(|label| label.len() <= 16 && !label.contains(char::is_control));
    // The format of the most weights.
    let mut formats: Vec<(&str, u64)> = Vec::new();
    for tensor in gguf.tensors() {
        let name = tensor.ggml_type.name;
        match formats.iter_mut().find(|(known, _)| *known == name) {
            Some((_, weights)) => *weights += tensor.elements(),
            None => formats.push((name, tensor.elements())),
        }
    }
    let format = formats.iter().max_by_key(|(_, weights)| *weights).map_or("", |(name, _)| *name);
    let words = [model.config().architecture.name, label.unwrap_or(""), &format.to_uppercase()];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}
