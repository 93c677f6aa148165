//! `rope-cpu perplexity`: the perplexity of a text, as in llama-perplexity.

pub mod args;
mod decoded;
mod divergence;
mod equal;
pub mod estimates;
pub mod report;
mod several;

use std::{
    fs::File as Saved,
    io::{self, BufReader, BufWriter, Write},
    num::NonZeroUsize,
    path::Path,
};

pub use args::Args;
use estimates::Estimates;
use indexmap::IndexSet;
use report::OutputType;

use super::{args::up_to_limit, error::Error, flags, load, note, resources, text, warn};
use rope_cpu::{
    Token,
    eval::{
        kl,
        logits_file::Reader,
        perplexity::{self, Settings, side_by_side, windows::Windows},
    },
    model::Model,
    rope::{Origin, Sourced},
    runtime::{Sequences, Settings as RunSettings, Sparse},
    tokenizer::{Ends, Special, Tokenizer},
};

/// The default window, as in llama-perplexity.
const WINDOW: usize = 512;
/// The default stride of a sliding window, as in the literature.
const STRIDE: usize = 256;

/// The task that the arguments select, before the model is opened.
enum Task<'a> {
    /// Score a text.
    Score { text: &'a Path, windows: Windows, save: Option<&'a Path> },
    /// Score a text with several methods, or in windows of several lengths.
    Several { text: &'a Path, windows: Vec<Windows> },
    /// Generate the end of each window twice: with the run's settings, and with the defaults.
    Decode { text: &'a Path, window: usize, steps: usize },
    /// Compare with the probabilities in a file.
    Compare { base: &'a Path, reader: Box<Reader<BufReader<Saved>>> },
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, without enough memory, or if the output cannot be
/// written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let task = task(args)?;
    if let Task::Decode { window, steps, .. } = task
        && steps.saturating_add(2) > window
    {
        return Err(Error::usage(format_args!(
            "--decode {steps}: must be at most {} in windows of {window} tokens: choose fewer, or a \
             larger -c",
            window.saturating_sub(2)
        )));
    }
    check_sparse(args, task.window())?;
    let model = load::adapted(&args.model, &args.adapters)?;
    let tokenizer = model.tokenizer().map_err(Error::usage)?;

    if let Task::Several { text, windows } = &task {
        return several::run(args, text, windows, &model, out);
    }
    if let Task::Decode { text, window, steps } = task {
        return decoded::run(args, text, window, steps, &model, out);
    }
    let window = task.window();
    let context = context(args, window, args.rope.rolls().then_some(&model))?;
    let mut settings = RunSettings {
        sequences: Sequences::SideBySide(windows_together(args, window)),
        sparse: args.sparse.settings(),
        ..resources::settings(&args.memory, &args.machine, args.rope.flags())
    };
    if context != args.memory.context {
        let origin = Origin::Computed(if context < window { "rolling" } else { "a window" });
        settings.context = Some(Sourced { value: context, origin });
    }
    let Some(plan) = resources::plan(&model, &settings, &args.memory)? else { return Ok(()) };
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let windows_max = usize::try_from(args.chunks).ok();

    resources::show(&plan);
    warn(&plan.rope);
    let rope_line = flags::line(&plan.rope);
    let mut engine = plan.engine(&model).map_err(Error::failed)?;
    let mut estimates = Estimates::new(out);
    match task {
        Task::Score { text: path, windows, save } => {
            let tokens = tokens(path, tokenizer)?;
            let bucket = args.buckets.and_then(NonZeroUsize::new);
            let settings = Settings { windows, windows_max, bos, bucket };
            // Checked before the output file is created.
            windows.split(tokens.len()).map_err(|e| named(args, path, e))?;
            let mut saved = save.map(create).transpose()?;
            let saving = saved.as_mut().map(|file| file as &mut dyn Write);
            let scored =
                perplexity::perplexity(&mut engine, &tokens, settings, saving, &mut |point| {
                    let perplexity::Point { number, together, total, .. } = point;
                    estimates.add(number, together, total, |out| match args.json {
                        true => Ok(()),
                        false => report::point(args.ppl_output_type, &point, out),
                    })
                })
                .map_err(|e| named(args, path, e))?;
            if let (Some(mut file), Some(path)) = (saved, save) {
                file.flush().map_err(|e| unsaved(path, e))?;
            }
            match args.json {
                true => report::json(&scored, windows, tokens.len(), &rope_line, out)?,
                false => report::text(&scored, out)?,
            }
        }
        Task::Several { .. } | Task::Decode { .. } => {} // done above
        Task::Compare { base, mut reader } => {
            if args.file.is_some() {
                note(format_args!(
                    "note: --file is ignored: the text comes from {}",
                    base.display()
                ));
            }
            let mut rows = divergence::WindowTable::default();
            let found = kl::divergence(&mut engine, &mut reader, bos, windows_max, &mut |point| {
                let kl::Point { number, together, total, .. } = point;
                estimates.add(number, together, total, |out| match args.json {
                    true => Ok(()),
                    false => rows.row(&point, out),
                })
            })
            .map_err(|e| named(args, base, e))?;
            match args.json {
                true => divergence::json(&found, window, &rope_line, out)?,
                false => divergence::text(&found, out)?,
            }
        }
    }
    Ok(())
}

/// Selects the task.
fn task(args: &Args) -> Result<Task<'_>, Error> {
    let base = args.kl_divergence_base.as_deref();
    if let (true, Some(base)) = (args.kl_divergence, base) {
        let reader = open(base)?;
        return Ok(Task::Compare { base, reader: Box::new(reader) });
    }
    let text = args
        .file
        .as_deref()
        .ok_or_else(|| Error::usage("no text is given: give one with -f FILE"))?;
    let context = args.memory.context;
    let or = |context, other| if context == 0 { other } else { context };
    if let Some(steps) = args.decode {
        let window = or(context, WINDOW);
        decoded::check(args)?;
        return Ok(Task::Decode { text, window, steps });
    }
    let sliding = |window: usize| {
        let stride = args.stride.unwrap_or(STRIDE.min(window));
        Windows::Sliding { window, stride }
    };
    let windows: Vec<_> = match (args.ppl_stride, &args.window[..], args.stride) {
        (0, [], None) => vec![Windows::Halves { window: or(context, WINDOW) }],
        (0, [], _) => vec![sliding(or(context, WINDOW))],
        (0, windows, _) => {
            windows.iter().copied().collect::<IndexSet<_>>().into_iter().map(sliding).collect()
        }
        (stride, ..) => vec![Windows::Strided { window: or(context, WINDOW) + stride / 2, stride }],
    };
    match windows[..] {
        [windows] if args.methods.is_empty() && args.plot.is_none() && args.output.is_none() => {
            Ok(Task::Score { text, windows, save: base })
        }
        [_, _, ..] if args.ppl_output_type == OutputType::Lines => {
            Err(Error::usage("--ppl-output-type has no effect with several windows"))
        }
        _ => Ok(Task::Several { text, windows }),
    }
}

impl Task<'_> {
    /// Returns the tokens of the largest window.
    fn window(&self) -> usize {
        match self {
            Task::Score { windows, .. } => windows.window(),
            Task::Several { windows, .. } => {
                windows.iter().map(|windows| windows.window()).max().unwrap_or_default()
            }
            Task::Decode { window, .. } => *window,
            Task::Compare { reader, .. } => reader.window(),
        }
    }
}

/// Checks that attention is sparse somewhere in windows of `window` tokens, if the options ask for that.
fn check_sparse(args: &Args, window: usize) -> Result<(), Error> {
    let Sparse { answers, prompts } = args.sparse.settings();
    let sparse = answers.into_iter().chain(prompts);
    let Some(dense) = sparse.map(|sparse| sparse.length_min).max() else { return Ok(()) };
    let needed = dense.saturating_add(args.decode.unwrap_or(0)).saturating_add(1);
    if window < needed {
        return Err(Error::usage(format_args!(
            "windows of {window} tokens are too short: attention is dense in the first {dense}; they \
             need {needed} or more"
        )));
    }
    Ok(())
}

/// Returns the context for windows of `window` tokens. A rolling context may be smaller, and by
/// default is at most the trained length.
fn context(args: &Args, window: usize, rolling: Option<&Model>) -> Result<usize, Error> {
    let (typed, stride) = (args.memory.context, args.ppl_stride);
    if let Some(model) = rolling {
        return Ok(if typed == 0 { window.min(model.config().context_train) } else { typed });
    }
    if typed == 0 || stride > 0 {
        // The window may come from a file, so it is checked.
        return up_to_limit(&window.to_string())
            .map_err(|e| Error::usage(format_args!("windows of {window} tokens: {e}")));
    }
    if window > typed {
        let whose = match (&args.kl_divergence_base, args.kl_divergence) {
            (Some(path), true) => format!("{} has windows of {window}", path.display()),
            _ => format!("--window {window} makes windows of {window}"),
        };
        return Err(Error::usage(format_args!(
            "{whose} tokens, more than the context of {typed}: choose at least -c {window}"
        )));
    }
    Ok(typed)
}

/// Returns the number of windows of `window` tokens that are processed side by side.
fn windows_together(args: &Args, window: usize) -> usize {
    side_by_side(window, args.memory.ubatch_size.min(args.memory.batch_size))
}

/// Reads and tokenizes a text. As in llama-perplexity, control tokens in it are plain text.
fn tokens(path: &Path, tokenizer: &Tokenizer) -> Result<Vec<Token>, Error> {
    Ok(tokenizer.encode(text::input(path)?, Special::AsText, Ends::Add))
}

fn open(path: &Path) -> Result<Reader<BufReader<Saved>>, Error> {
    let named = |e: &dyn std::fmt::Display| Error::usage(format_args!("{}: {e}", path.display()));
    let file = Saved::open(path).map_err(|e| named(&e))?;
    let length = file.metadata().map_err(|e| named(&e))?.len();
    Reader::new(BufReader::with_capacity(1 << 20, file), length).map_err(|e| named(&e))
}

fn create(path: &Path) -> Result<BufWriter<Saved>, Error> {
    let file = Saved::create(path);
    let file = file.map_err(|e| Error::usage(format_args!("{}: {e}", path.display())))?;
    Ok(BufWriter::with_capacity(1 << 20, file))
}

fn unsaved(path: &Path, error: io::Error) -> Error {
    Error::failed(format_args!("cannot write {}: {error}", path.display()))
}

/// Adds the flag or the file that an error is about.
fn named(args: &Args, path: &Path, error: perplexity::Error) -> Error {
    use perplexity::Error as E;
    let flag = |flag: &str| Error::usage(format_args!("{flag}: {error}"));
    match error {
        E::Stride { .. } if args.ppl_stride > 0 => flag("--ppl-stride"),
        E::Stride { .. } => flag("--stride"),
        E::Window { .. } if !args.window.is_empty() => flag("--window"),
        E::Window { .. } => flag("--ctx"),
        E::ShortText { .. } | E::LogitsFile(_) | E::Vocabulary { .. } => flag(&text::name(path)),
        E::Save(e) => unsaved(args.kl_divergence_base.as_deref().unwrap_or(path), e),
        E::Show(e) => Error::Output(e),
        other => Error::failed(other),
    }
}
