//! `rope-cpu read`: reads documents in advance, for later prompts that start with them.

use std::{ffi::OsString, fmt, io::Write, ops::ControlFlow, path::PathBuf, time::Instant};

use super::{
    args::{AdapterArgs, EngineArgs, MemoryArgs, ModelArgs, OpeningArgs, RopeArgs},
    documents::Documents,
    error::Error,
    extension::Extension,
    handle_interrupts, load, resources,
    run::{Conversation, ReadingBar, joined},
    text, warn,
};
use rope_cpu::{
    Token,
    model::{Progress, Session, memory::Bytes},
    platform::{interrupt, processors::plural},
    tokenizer::{Tokenizer, common_prefix},
};

/// Read documents in advance, for later prompts
///
/// Each file is processed like the prompt of `rope-cpu -f FILE`, and its keys and values are written
/// to a folder. Give the folder to `run` or `serve` as --cache-disk: a prompt that starts with a
/// document then continues from it. The model, the context, the cache types, the RoPE settings, the
/// system message and the template must be the same.
///
/// Without a file, the system message is the document.
#[derive(Clone, Debug, clap::Args)]
#[command(override_usage = "rope-cpu read -m MODEL -o DIR [OPTIONS] [FILE]...")]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub adapters: AdapterArgs,

    /// Files to read; -: stdin
    #[arg(value_name = "FILE", help_heading = "Documents")]
    pub files: Vec<PathBuf>,

    /// Folder for the keys and values
    ///
    /// It is created if it does not exist. Its files contain the text of the documents, and are as
    /// large as the keys and values are in memory.
    #[arg(short, long, value_name = "DIR", help_heading = "Documents")]
    pub output: PathBuf,

    /// Text before each file; may be repeated
    #[arg(
        short,
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        help_heading = "Documents"
    )]
    pub prompt: Vec<OsString>,

    #[command(flatten, next_help_heading = "Prompt")]
    pub opening: OpeningArgs,
    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub rope: RopeArgs,
    #[command(flatten)]
    pub machine: EngineArgs,
}

/// A document.
struct Document {
    name: String,
    /// The tokens of what precedes the document, and of the document.
    tokens: Vec<Token>,
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, if a document does not fit in the context, if the folder
/// cannot be written, and after Ctrl-C.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let system = args.opening.system()?;
    if args.files.is_empty() && system.is_none() {
        return Err(Error::usage(
            "nothing to read: give files, or a system message with -sysf FILE",
        ));
    }
    let texts = texts(args)?;
    let model = load::adapted(&args.model, &args.adapters)?;
    model.config().require_logits().map_err(|e| args.model.named(e))?;
    let tokenizer = model.tokenizer().map_err(Error::usage)?;
    let conversation = match args.opening.is_chat(args.opening.conversation_flag(), &model)? {
        true => Conversation::chat(args.opening.template.of(&args.model, &model)?, system),
        false => Conversation::plain(),
    };
    let settings = resources::settings(&args.memory, &args.machine, args.rope.flags());
    let Some(plan) = resources::plan(&model, &settings, &args.memory)? else { return Ok(()) };
    let context = plan.context.value;
    let extension = Extension::new(&plan, &model, &settings.rope, None);
    let document = |(name, text): (String, Vec<u8>)| {
        let tokens = beginning(&conversation, &text, tokenizer)?;
        match tokens.len() {
            0 => Err(Error::usage(format_args!("{name} is too short: it has no whole token"))),
            count if count < context => Ok(Document { name, tokens }),
            count => Err(Error::usage(format_args!(
                "{name}: its {count} tokens leave no room in the context of {context}: use {}",
                extension.for_prompt(count)
            ))),
        }
    };
    let documents = texts.into_iter().map(document).collect::<Result<Vec<_>, Error>>()?;

    handle_interrupts()?;
    resources::show(&plan);
    warn(&plan.rope);
    let mut session = plan.session(&model).map_err(Error::failed)?;
    let mut folder = Documents::open("--output", &args.output, session.parts().0, true)?;
    let unread = documents.iter().map(|one| one.tokens.len() - folder.stored(&one.tokens));
    let mut reading = Reading { bar: ReadingBar::new(unread.sum()), done: 0 };
    documents.iter().try_for_each(|one| reading.read(one, &mut session, &mut folder, out))
}

/// Returns the name and the text of each document.
fn texts(args: &Args) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let document = |path: &PathBuf| {
        let (name, text) = (text::name(path), text::input(path)?);
        if text.is_empty() {
            return Err(Error::usage(format_args!("{name} is empty: there is nothing to read")));
        }
        Ok((name, joined(&args.prompt, args.opening.no_escape, Some(text)).unwrap_or_default()))
    };
    match args.files.is_empty() {
        true => Ok(vec![("the system message".into(), Vec::new())]),
        false => args.files.iter().map(document).collect(),
    }
}

/// Returns the first tokens of every prompt that starts with a text. Its last characters are left out
/// if they can share a token with what follows.
fn beginning(
    conversation: &Conversation,
    text: &[u8],
    tokenizer: &Tokenizer<'_>,
) -> Result<Vec<Token>, Error> {
    let prompt = |more: &str| conversation.prompt(&[text, more.as_bytes()].concat(), tokenizer);
    let (mut tokens, _) = prompt("")?;
    for more in ["\nx", "\n\nx"] {
        let (other, _) = prompt(more)?;
        tokens.truncate(common_prefix(&tokens, &other));
    }
    Ok(tokens)
}

/// The progress over all documents.
struct Reading {
    bar: Option<ReadingBar>,
    /// The number of tokens read so far.
    done: usize,
}

impl Reading {
    /// Reads a document, unless it is in the folder, and prints a line about it.
    ///
    /// # Errors
    /// If the document cannot be computed or written. After Ctrl-C, once what was read is written.
    fn read(
        &mut self,
        Document { name, tokens }: &Document,
        session: &mut Session,
        folder: &mut Documents,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        let (started, count) = (Instant::now(), plural(tokens.len(), "token"));
        folder.restore(session, tokens);
        if folder.has(tokens) {
            self.print(out, format_args!("{name}: {count}, there already"))?;
            return if interrupt::raised() { Err(Error::Interrupted) } else { Ok(()) };
        }
        let shared = common_prefix(session.tokens(), tokens);
        let reused = session.truncate(shared);
        let before = self.done;
        let progress = &mut |progress| {
            if let Progress::Read(read) = progress {
                self.done = before + read;
                self.bar.iter_mut().for_each(|bar| bar.set_position(self.done));
            }
            match interrupt::raised() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        session.extend(&tokens[reused..], progress).map_err(Error::failed)?;
        let read = session.tokens().len();
        if read > reused || read == tokens.len() {
            let (kept, bytes) = folder.save(session, read)?;
            let of = if kept < tokens.len() { format!("{kept} of ") } else { String::new() };
            let again =
                if reused > 0 { format!(" ({reused} there already)") } else { String::new() };
            let (bytes, seconds) = (Bytes(bytes), started.elapsed().as_secs_f64());
            self.print(out, format_args!("{name}: {of}{count}{again}, {bytes}, {seconds:.2} s"))?;
        }
        match read < tokens.len() {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }

    /// Prints a line in place of the bar.
    fn print(&mut self, out: &mut dyn Write, line: fmt::Arguments<'_>) -> Result<(), Error> {
        self.bar.iter_mut().for_each(ReadingBar::erase);
        Ok(writeln!(out, "{line}")?)
    }
}
