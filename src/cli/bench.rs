//! `rope-cpu bench`: the tests and tables of llama-bench and llama-batched-bench.

mod args;
mod batched;
mod columns;
mod format;
mod lists;
mod markdown;
mod progress;
mod selection;

use std::{
    collections::{HashMap, hash_map::Entry},
    io::{self, Write},
    path::Path,
    time::Duration,
};

use rope_cpu_kernels::Cpu;

pub use args::Args;

use super::{args::all_overrides, error::Error, load, note};
use format::{Printer, Row};
use progress::Progress;
use rope_cpu::{
    eval::{
        self,
        batched::measure,
        bench::{Bench, Test},
        cost::Cost,
        probe::{Probes, probe},
    },
    gguf::File,
    kv_cache::CacheType,
    model::{
        Engine, Model, OpenOptions, Options,
        memory::{Request, Shape},
    },
    platform,
    rope::{Plan, Rope, Sourced},
    runtime::experts_warning,
    threads::Threads,
};
use selection::Tests;

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

/// A model in a setting, which tests measure.
struct Subject<'a> {
    path: &'a Path,
    model: String,
    work: &'a Cost,
    setting: &'a Setting,
    options: &'a Options,
    rope: &'a Plan,
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, or too little memory.
pub fn run(args: &Args) -> Result<(), Error> {
    let tests = Tests::of(args)?;
    let settings = args.settings();
    let mut models = args.model.clone();
    models.extend(args.hub.fetch()?);
    // All files are opened before the first is measured.
    let files: Result<Vec<_>, _> = models.iter().map(File::open).collect();
    let files = files.map_err(Error::usage)?;
    let table = match &tests {
        Tests::Single(_) => "llama_bench",
        Tests::Batched(_) => "batched_bench",
    };
    let mut printers = Vec::new();
    let outputs: [(_, Box<dyn Write>); 2] =
        [(Some(args.output), Box::new(io::stdout())), (args.output_err, Box::new(io::stderr()))];
    for (output, to) in outputs {
        if let Some(format) = output {
            printers.push(Printer::new(format, to, table));
        }
    }
    args.sparse.settings().lines().for_each(note);
    let progress = Progress::new(args.progress, models.len() * settings.len() * tests.len());
    let mut round = Round { args, tests: &tests, probes: HashMap::new(), printers, progress };
    for (path, file) in models.iter().zip(files) {
        round.model(path, file, &settings)?;
    }
    let Round { mut printers, progress, .. } = round;
    drop(progress);
    printers.iter_mut().try_for_each(Printer::end)?;
    Ok(())
}

fn cpu(args: &Args) -> Cpu {
    super::args::cpu(args.isa)
}

/// The tests that run with every model in every setting, and the output of their results.
struct Round<'a> {
    args: &'a Args,
    tests: &'a Tests,
    /// The peak rates of the machine by number of threads.
    probes: HashMap<usize, Probes>,
    printers: Vec<Printer>,
    progress: Progress,
}

impl Round<'_> {
    /// Runs all tests of a model.
    fn model(&mut self, path: &Path, file: File, settings: &[Setting]) -> Result<(), Error> {
        let args = self.args;
        let options = OpenOptions::new().overrides(all_overrides(&args.override_kv));
        let model = options.load(file).map_err(Error::usage)?;
        load::note_media(&model);
        let all = Cost::new(&model);
        let longest = self.tests.longest();
        for setting in settings {
            let context = setting.depth + longest;
            let options = Options {
                micro_batch: setting.micro_batch.min(setting.batch),
                keys: setting.keys,
                values: setting.values,
                threads: setting.threads.into(),
                cpu: cpu(args),
                sparse_attention: args.sparse.settings().answers,
                sparse_prompt: args.sparse.settings().prompts,
                ..Options::new(context)
            };
            let asked = Sourced::given(context, format!("a test at depth {}", setting.depth));
            let plan = model.rope_plan(&args.rope.flags(), asked).map_err(Error::usage)?;
            let rope = Rope::new(plan.clone());
            self.progress.warn(&plan);
            let work = all.clone().within(&plan.visibility);
            if !args.no_memory_check {
                check_memory(&model, &options, self.tests)?;
            }
            let subject = Subject {
                path,
                model: describe(&model),
                work: &work,
                setting,
                options: &options,
                rope: &plan,
            };
            match self.tests {
                Tests::Single(tests) => self.single(&subject, &model, rope, tests)?,
                Tests::Batched(tests) => self.batched(&subject, &model, rope, tests)?,
            }
        }
        Ok(())
    }

    fn single(
        &mut self,
        subject: &Subject<'_>,
        model: &Model,
        rope: Rope,
        tests: &[Test],
    ) -> Result<(), Error> {
        let (args, depth) = (self.args, subject.setting.depth);
        let probes = self.probes(subject.setting.threads)?;
        let mut stage = |stage| self.progress.show(stage);
        let mut bench = Bench::new(model, rope, subject.options.clone(), depth, &mut stage)
            .map_err(Error::failed)?;
        for test in tests {
            self.next();
            let mut stage = |stage| self.progress.show(stage);
            let measured = bench
                .measure(*test, args.repetitions, !args.no_warmup, &mut stage)
                .map_err(Error::failed)?;
            self.print(&columns::row(subject, &probes, &measured, &args.optional_columns()))?;
        }
        Ok(())
    }

    fn batched(
        &mut self,
        subject: &Subject<'_>,
        model: &Model,
        rope: Rope,
        tests: &[eval::batched::Test],
    ) -> Result<(), Error> {
        let args = self.args;
        let positions_max = tests.iter().map(batched::positions).max().unwrap_or(0);
        let micro_batch = subject.options.micro_batch.min(positions_max);
        let options = Options { micro_batch, ..subject.options.clone() };
        let mut engine = Engine::new(model, rope, options).map_err(Error::failed)?;
        for test in tests {
            self.next();
            let mut stage = |stage| self.progress.show(stage);
            let warm_up = !args.no_warmup;
            let measured = measure(&mut engine, *test, args.repetitions, warm_up, &mut stage)
                .map_err(Error::failed)?;
            let optional = args.optional_columns();
            let context = args.context.unwrap_or(positions_max);
            self.print(&batched::row(subject, &measured, context, &optional))?;
        }
        Ok(())
    }

    /// Returns the peak rates of the machine with this number of threads, measured once.
    fn probes(&mut self, threads: usize) -> Result<Probes, Error> {
        Ok(match self.probes.entry(threads) {
            Entry::Occupied(probes) => *probes.get(),
            Entry::Vacant(entry) => {
                let team = Threads::new(threads).map_err(Error::failed)?;
                *entry.insert(probe(&team, cpu(self.args)))
            }
        })
    }

    /// Starts the next test.
    fn next(&mut self) {
        self.progress.next();
        std::thread::sleep(Duration::from_secs(self.args.delay));
    }

    fn print(&mut self, row: &Row) -> io::Result<()> {
        let Round { progress, printers, .. } = self;
        progress.hide(|| printers.iter_mut().try_for_each(|printer| printer.row(row)))
    }
}

/// Checks that enough memory is available for the tests, if that is known.
fn check_memory(model: &Model, options: &Options, tests: &Tests) -> Result<(), Error> {
    let Some(available) = platform::memory::available() else { return Ok(()) };
    let mut shape = Shape::of(model, model.resident_bytes(), options.threads.most(), false);
    let mut request = Request::of(options);
    match tests {
        // Sliding windows retain the keys at the depth during a test.
        Tests::Single(_) => shape = shape.retaining(tests.longest()),
        Tests::Batched(tests) => {
            // The largest numbers are combined in one of the tests.
            let most =
                |of: fn(&eval::batched::Test) -> usize| tests.iter().map(of).max().unwrap_or(0);
            request.sequences = most(|test| test.sequences);
            request.shared = most(|test| if test.shared { test.prompt } else { 0 });
        }
    }
    shape.check(&request, available).map_err(Error::failed)?;
    if let Some(warning) = experts_warning(&shape, &request, available) {
        note(format_args!("warning: {warning}"));
    }
    Ok(())
}

/// Describes the model: `llama 135M Q4_1`.
fn describe(model: &Model) -> String {
    let gguf = model.gguf();
    let label = gguf.metadata().string("general.size_label").ok().flatten();
    let label = label.filter(|label| label.len() <= 16 && !label.contains(char::is_control));
    // The format that most weights have.
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
