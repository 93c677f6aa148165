//! `rope-cpu imatrix`: computes an importance matrix, as llama-imatrix does.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use super::{
    args::{AdapterArgs, EngineArgs, MemoryArgs, ModelArgs, RopeArgs},
    check_output,
    error::Error,
    load,
    perplexity::{
        args::chunks,
        estimates::Estimates,
        report::{self, OutputType},
    },
    resources, text, warn,
};
use rope_cpu::{
    eval::{
        importance::{Tensors, importance},
        perplexity::{self, Settings, side_by_side, windows::Windows},
    },
    runtime::{self, Sequences},
    tokenizer::{Ends, Special},
    whole_file::whole_file,
};

/// Compute which weights matter, as llama-imatrix does
///
/// The model reads a text, such as a few hundred kilobytes of what it will be used for. The file has
/// the mean square of the inputs of each column of each matrix. With `rope-cpu quantize --imatrix
/// FILE`, weights of columns with large inputs become more precise. llama-quantize reads the file,
/// too. The text's perplexity is printed.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("context", |arg| arg
    .help("Tokens of a chunk of the text [default: 512] [--ctx-size]")
    .long_help("Tokens of a chunk, which are read together [default: 512]")))]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub adapters: AdapterArgs,

    /// Text file; -: stdin
    ///
    /// It needs two chunks or more.
    #[arg(short, long, value_name = "FILE", help_heading = "Text")]
    pub file: Option<PathBuf>,

    /// Maximum number of chunks; -1: all
    #[arg(long, value_name = "N", default_value = "-1", allow_negative_numbers = true)]
    #[arg(value_parser = chunks, help_heading = "Text")]
    pub chunks: i64,

    /// Read the text's special tokens, such as <|im_start|>
    ///
    /// By default they are plain text.
    #[arg(long, help_heading = "Text")]
    pub parse_special: bool,

    /// File to write; an existing file is replaced
    #[arg(short, long, alias = "output-file", value_name = "FILE", default_value = "imatrix.gguf")]
    #[arg(help_heading = "Output")]
    pub output: PathBuf,

    /// Also write the importance of the output's weights
    ///
    /// They are output.weight, or token_embd.weight in a model without it.
    #[arg(long, help_heading = "Output")]
    pub process_output: bool,

    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub rope: RopeArgs,
    #[command(flatten)]
    pub machine: EngineArgs,
}

/// The default number of tokens of a chunk, as in llama-imatrix.
const CHUNK: usize = 512;

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, without enough memory, or if the output cannot be
/// written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let no_text = || Error::usage("no text is given: give one with -f FILE");
    let file = args.file.as_deref().ok_or_else(no_text)?;
    check_output(&args.output)?;
    let model = load::adapted(&args.model, &args.adapters)?;
    let tokenizer = model.tokenizer().map_err(Error::usage)?;
    let window = if args.memory.context == 0 { CHUNK } else { args.memory.context };
    let memory = MemoryArgs { context: window, ..args.memory.clone() };
    let together = side_by_side(window, memory.ubatch_size.min(memory.batch_size));
    let settings = runtime::Settings {
        sequences: Sequences::SideBySide(together),
        ..resources::settings(&memory, &args.machine, args.rope.flags())
    };
    let Some(plan) = resources::plan(&model, &settings, &memory)? else { return Ok(()) };
    let special = if args.parse_special { Special::Parse } else { Special::AsText };
    let tokens = tokenizer.encode(text::input(file)?, special, Ends::Add);
    let windows = Windows::Halves { window };
    windows.split(tokens.len()).map_err(|e| named(file, e))?;
    resources::show(&plan);
    warn(&plan.rope);

    let mut engine = plan.engine(&model).map_err(Error::failed)?;
    let settings = Settings {
        windows,
        windows_max: usize::try_from(args.chunks).ok(),
        bos: tokenizer.bos().filter(|_| tokenizer.adds_bos()),
        bucket: None,
    };
    let tensors = if args.process_output { Tensors::All } else { Tensors::Layers };
    let mut estimates = Estimates::new(out);
    let each = &mut |point: perplexity::Point| {
        let perplexity::Point { number, together, total, .. } = point;
        let print = |out: &mut dyn Write| report::point(OutputType::Line, &point, out);
        estimates.add(number, together, total, print)
    };
    let (mut imatrix, scored) =
        importance(&mut engine, &tokens, settings, tensors, each).map_err(|e| named(file, e))?;
    imatrix.datasets.push(file.to_string_lossy().into_owned());
    let path = args.output.display();
    let written = whole_file(&args.output, |file| imatrix.write(file));
    written.map_err(|e| Error::failed(format_args!("cannot write {path}: {e}")))?;
    report::text(&scored, out)?;
    writeln!(out, "{path}: {} tensors, {} chunks", imatrix.len(), imatrix.chunks)?;
    Ok(())
}

/// Names the option or the file that an error is about.
fn named(path: &Path, error: perplexity::Error) -> Error {
    use perplexity::Error as E;
    match error {
        E::Window { .. } => Error::usage(format_args!("--ctx: {error}")),
        E::ShortText { .. } => Error::usage(format_args!("{}: {error}", text::name(path))),
        E::Show(e) => Error::Output(e),
        other => Error::failed(other),
    }
}
