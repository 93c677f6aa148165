//! `rope-cpu quantize IN OUT TYPE`: conversion of a model to another format.

use std::{
    fs,
    io::Write,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use rayon::ThreadPoolBuilder;
use rope_cpu_kernels::DType;

use super::{
    Error,
    args::{MachineArgs, named, numbers::between, warn_of_threads},
    bar, check_output, handle_interrupts, note,
};
use rope_cpu::{
    gguf::{File, escaped},
    imatrix::{self, Imatrix},
    platform::interrupt,
    quantize::{self, Options, Planned, Target},
    whole_file::whole_file,
};

/// Quantize a model, as llama-quantize does
///
/// Each matrix gets the type that llama.cpp would choose for it; other tensors and the metadata are
/// not changed. For every tensor, a line shows its types, its size, and the root mean square of the
/// change of its weights.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model file (GGUF), or the first part of a split model
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// Output file; an existing file is replaced
    #[arg(value_name = "OUT")]
    output: PathBuf,

    #[arg(value_name = "TYPE", value_parser = target, help = type_help())]
    target: Target,

    /// Number of threads, as --threads
    #[arg(value_name = "THREADS", value_parser = between::<usize>(1, 1024), conflicts_with = "threads")]
    nthreads: Option<usize>,

    /// Do not warn about weights that are already quantized
    #[arg(long)]
    allow_requantize: bool,

    /// Do not change output.weight
    #[arg(long)]
    leave_output_tensor: bool,

    /// Importance matrix of the weights
    ///
    /// A file of `rope-cpu imatrix` or llama-imatrix, GGUF or .dat. Weights that matter more become
    /// more precise. Types of 1 and 2 bits require it.
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,

    /// Use the same type for all matrices
    #[arg(long)]
    pure: bool,

    /// Show the types and sizes, and exit
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    machine: MachineArgs,
}

fn type_help() -> String {
    format!("One of {}", Target::names().collect::<Vec<_>>().join(" "))
}

fn target(name: &str) -> Result<Target, String> {
    let names = || Target::names().collect::<Vec<_>>().join(", ");
    Target::named(name).ok_or_else(|| format!("choose one of {}", names()))
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, or if the output cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let (input, output) = (&args.input, &args.output);
    let file = File::open(input).map_err(Error::usage)?;
    let gguf = file.parse(&[]).map_err(Error::usage)?;
    if file.parts().any(|part| same(part.path(), output)) {
        let output = output.display();
        return Err(Error::usage(format_args!(
            "{output} is also the input file: choose another name for the output"
        )));
    }
    check_output(output)?;
    let imatrix = args.imatrix.as_deref();
    let imatrix =
        imatrix.map(|path| Imatrix::open(path).map_err(|e| unread(path, e))).transpose()?;
    let options = Options {
        pure: args.pure,
        leave_output_tensor: args.leave_output_tensor,
        imatrix: imatrix.as_ref(),
    };
    let planned =
        quantize::plan(&gguf, args.target, &options).map_err(|e| match &args.imatrix {
            Some(path) if is_about_importance(&e) => named(path, e),
            _ => named(input, e),
        })?;
    warn(&planned, args.allow_requantize, imatrix.is_some());
    if let Some(tensor) = planned.iter().find(|tensor| tensor.lacks_importance()) {
        let lacking = format!(
            "type {} needs an importance matrix with {}: compute one with \
             `rope-cpu imatrix -m MODEL -f TEXT -o imatrix.gguf`, and give it with \
             --imatrix imatrix.gguf",
            tensor.ggml_type.name,
            escaped(tensor.source.name, 80)
        );
        match args.dry_run {
            true => note(format_args!("warning: {lacking}")),
            false => return Err(Error::usage(lacking)),
        }
    }

    if args.dry_run {
        for (number, tensor) in planned.iter().enumerate() {
            line(out, &planned, number, tensor, None)?;
        }
        return summary(out, "would become", &planned);
    }
    let count = args.nthreads.unwrap_or_else(|| args.machine.threads().workers.most());
    warn_of_threads(count);
    let pool = ThreadPoolBuilder::new().num_threads(count).build();
    let pool = pool.map_err(|e| Error::failed(format_args!("cannot start threads: {e}")))?;
    let cpu = args.machine.cpu();
    handle_interrupts()?;

    let bar = bar(planned.iter().map(|tensor| tensor.source.elements()).sum());
    let mut printed = Ok(());
    let mut before = 0;
    let mut progress = |report: quantize::Report| {
        let tensor = &planned[report.tensor];
        bar.set_position(before + report.rows * tensor.source.row_len());
        if report.rows == tensor.source.rows() {
            before += tensor.source.elements();
            let error = tensor.encoder.map(|_| report.rms_error);
            printed = bar.suspend(|| line(out, &planned, report.tensor, tensor, error));
        }
        match printed.is_err() || interrupt::raised() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let result = whole_file(output, |file| {
        let path = args.imatrix.as_ref().map(|path| path.to_string_lossy());
        let imatrix = path.as_deref().zip(imatrix.as_ref());
        quantize::write(&gguf, args.target, &planned, imatrix, (&pool, cpu), file, &mut progress)
    });
    bar.finish_and_clear();
    printed?;
    result.map_err(|error| match error {
        quantize::Error::Interrupted => Error::Interrupted,
        quantize::Error::Write(e) => {
            Error::failed(format_args!("cannot write {}: {e}", output.display()))
        }
        other => named(input, other),
    })?;
    summary(out, "became", &planned)
}

/// Returns whether both paths name one file.
fn same(a: &Path, b: &Path) -> bool {
    let [a, b] = [a, b].map(fs::canonicalize);
    matches!((a, b), (Ok(a), Ok(b)) if a == b)
}

/// Returns whether an error of a plan is about the importance matrix, not the model.
fn is_about_importance(error: &quantize::Error) -> bool {
    matches!(error, quantize::Error::Imatrix(_) | quantize::Error::OtherModel { .. })
}

/// Names the file of an importance matrix that cannot be read.
fn unread(path: &Path, error: imatrix::Error) -> Error {
    match error {
        // It has the path.
        imatrix::Error::Gguf(error) => Error::usage(error),
        other => named(path, other),
    }
}

fn warn(planned: &[Planned<'_, '_>], allow_requantize: bool, has_imatrix: bool) {
    let unknown = |t: &&Planned| {
        t.encoder.is_some() && t.importance.is_none() && t.source.name.starts_with("blk.")
    };
    if let Some(tensor) = planned.iter().find(unknown).filter(|_| has_imatrix) {
        note(format_args!(
            "warning: the importance matrix has no entry for {} of {} tensors, such as {}",
            planned.iter().filter(unknown).count(),
            planned.len(),
            escaped(tensor.source.name, 80)
        ));
    }
    let source = |tensor: &Planned| DType::named(tensor.source.ggml_type.name);
    let quantized =
        |t: &&Planned| t.encoder.is_some() && source(t).is_some_and(DType::is_quantized);
    if let Some(tensor) = planned.iter().find(quantized).filter(|_| !allow_requantize) {
        note(format_args!(
            "warning: weights are already quantized ({}), and errors add up: use a file with f32, f16 or \
             bf16 weights for a better result",
            tensor.source.ggml_type.name
        ));
    }
    let fallbacks = planned.iter().filter(|tensor| tensor.instead_of.is_some()).count();
    if let Some((tensor, meant)) = planned.iter().find_map(|t| Some((t, t.instead_of?))) {
        note(format_args!(
            "note: {fallbacks} of {} tensors get a type with smaller blocks: a row of {} weights cannot be \
             divided into blocks of {}",
            planned.len(),
            tensor.source.row_len(),
            meant.name()
        ));
    }
}

/// Prints the line of a tensor; `rms_error` is `None` if its weights do not change.
fn line(
    out: &mut dyn Write,
    planned: &[Planned<'_, '_>],
    index: usize,
    tensor: &Planned<'_, '_>,
    rms_error: Option<f64>,
) -> Result<(), Error> {
    let width = planned.iter().map(|tensor| tensor.source.name.chars().count()).max();
    write!(
        out,
        "[{:>4}/{:>4}] {:width$} {:>7} -> {:<7} {:>10.3} MiB",
        index + 1,
        planned.len(),
        escaped(tensor.source.name, 80),
        tensor.source.ggml_type.name,
        tensor.ggml_type.name,
        mebibytes(tensor.bytes()),
        width = width.unwrap_or(0).min(80)
    )?;
    match rms_error {
        Some(error) => writeln!(out, "  rms error {error:.4e}")?,
        None => writeln!(out)?,
    }
    Ok(())
}

fn summary(out: &mut dyn Write, verb: &str, planned: &[Planned<'_, '_>]) -> Result<(), Error> {
    let before: u64 = planned.iter().map(|tensor| tensor.source.bytes.len() as u64).sum();
    let after: u64 = planned.iter().map(Planned::bytes).sum();
    let weights: u64 = planned.iter().map(|tensor| tensor.source.elements()).sum();
    writeln!(
        out,
        "{:.2} MiB {verb} {:.2} MiB, {:.2} bits per weight",
        mebibytes(before),
        mebibytes(after),
        after as f64 * 8.0 / weights as f64
    )?;
    Ok(())
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}
