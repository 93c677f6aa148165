//! `rope-cpu run`: generates text, or holds a conversation.

mod args;
mod bar;
mod command;
mod constraint;
mod conversation;
mod converse;
mod files;
mod line;
mod prompt;
mod prompt_cache;
mod saved;
mod screen;
mod settings;
mod stand_ins;
mod stats;
mod summary;
mod wrap;
mod writer;

use std::{
    io::{self, IsTerminal},
    time::Instant,
};

pub use args::Args;
pub use bar::ReadingBar;
pub use command::list as command_list;
pub use conversation::Conversation;
pub use prompt::joined;

use super::{
    args::{MemoryArgs, RopeArgs, numbers},
    documents::Documents,
    error::Error,
    extension::{Extension, with_answer},
    handle_interrupts, load, note, resources, sampling, warn,
};
use args::PromptArgs;
use conversation::Question;
use converse::{Dialogue, answer_once};
use files::Files;
use line::LineEditor;
use prompt::Parts;
use prompt_cache::PromptCache;
use rope_cpu::{
    Token,
    generate::{self, End, Timings},
    model::{self, Model},
    platform::interrupt,
    rope::{Flags, Sourced},
    runtime::{self, Drafts, Scheduling},
    sample::{Sampler, Settings},
    tokenizer::{Ends, Special, Tokenizer},
};
use screen::Screen;
use writer::Writer;

/// The use of the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A text that is continued once.
    Complete,
    /// Messages of a conversation in a chat template.
    Chat,
    /// A text that user and model continue in turn.
    Continue,
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, a failure while running, Ctrl-C during a single answer,
/// or SIGTERM.
pub fn run(args: &Args) -> Result<(), Error> {
    let started = Instant::now();
    let typed = &args.prompt;
    args.sampling.applied_to(Settings::default()).check().map_err(Error::usage)?;
    let drafts = args.speculation.settings(typed.cache_disk.is_some())?;
    let mut limits = writer::limits(&args.answer, typed.opening.no_escape)?;
    let system = typed.opening.system()?;

    let model = load::adapted(&args.model, &args.adapters)?;
    model.config().require_logits().map_err(|e| args.model.named(e))?;
    let tokenizer = model.tokenizer().map_err(Error::usage)?;
    let no_escape = typed.opening.no_escape;
    let sampling =
        sampling::settings(&args.sampling, &args.model, no_escape, model.metadata(), tokenizer)?;
    limits.constraint = constraint::constraint(args, tokenizer)?;

    // A context that fits the prompt needs it first. Otherwise options are checked before it is read.
    let fits_prompt = args.memory.context == numbers::AUTO;
    let early = fits_prompt.then(|| prompt::parts(typed)).transpose()?;
    let memory = match fits_prompt {
        true => MemoryArgs { context: 0, ..args.memory.clone() },
        false => args.memory.clone(),
    };
    let answer = &args.answer;
    let context_shift = answer.context_shift && answer.predict != -2;
    let rope = match fits_prompt && args.rope.is_default() {
        true => RopeArgs::auto(),
        false => args.rope.clone(),
    };
    let mut settings = runtime::Settings {
        sparse: args.sparse.settings(),
        drafts,
        ..resources::settings(&memory, &args.machine, Flags { context_shift, ..rope.flags() })
    };
    let conversation = |mode| {
        Ok::<_, Error>(match mode {
            Mode::Complete => None,
            Mode::Chat => {
                let template = typed.opening.template.of(&args.model, &model)?;
                Some(Conversation::chat(template, system.clone()))
            }
            Mode::Continue => Some(Conversation::plain()),
        })
    };
    if let Some(prompt) = early.as_ref().and_then(Parts::prompt)
        && !args.rope.rolls()
    {
        let conversation = conversation(mode(args, &model, true)?)?;
        let tokens = first_tokens(conversation.as_ref(), &prompt, tokenizer)?.len();
        settings.context = fitting(&model, &settings, tokens, limits.tokens_max)?;
    }
    let Some(plan) = resources::plan(&model, &settings, &memory)? else { return Ok(()) };

    let parts = early.map_or_else(|| prompt::parts(typed), Ok)?;
    let mut prompt = parts.prompt();
    let mode = mode(args, &model, prompt.is_some())?;
    if mode == Mode::Chat && prompt.as_ref().is_some_and(Vec::is_empty) {
        return Err(Error::usage(generate::Error::PromptEmpty));
    }
    let mut conversation = conversation(mode)?;

    handle_interrupts()?;
    let mut header = plan.to_string();
    if let Some(draft) = &plan.draft {
        header += &format!("\n{}", draft.plan.line("Draft model"));
    }
    let converses = mode != Mode::Complete && types(args, prompt.is_some());
    if !answer.quiet {
        if converses {
            let brief = plan.brief();
            note(wrap::filled(&format!("{brief}; /help: commands, /stats: details")));
        } else {
            resources::show(&plan);
        }
        if mode == Mode::Chat && prompt.is_some() && conversation_flag(args).is_none() {
            note(
                "Chat: the prompt is a message in the model's template; -no-cnv continues it instead",
            );
        }
    }
    let input_left = prompt::notes_input_left(typed);
    sampling::print_notes(&args.sampling, model.metadata(), &sampling, answer.quiet);
    warn(&plan.rope);
    if answer.keep != 0 && !context_shift {
        note(format_args!("warning: --keep {} has no effect without --context-shift", answer.keep));
    }
    let scheduler = plan.scheduler(&model, tokenizer, Scheduling::default());
    let mut scheduler = scheduler.map_err(|e| match e {
        runtime::Error::Model(e @ model::Error::Keep { .. }) => {
            Error::usage(format_args!("--context-shift: {e}"))
        }
        e => e.into(),
    })?;
    let prompt_cache = PromptCache::new(typed, || model.fingerprint());
    let (engine, sequence) = scheduler.slot(writer::SLOT, writer::OWNER).map_err(Error::failed)?;
    if let Some(cache) = &prompt_cache {
        cache.load(engine, sequence)?;
    }
    let documents = typed.cache_disk.as_ref();
    let documents = documents.map(|path| Documents::open("--cache-disk", path, engine, false));
    let documents = documents.transpose()?;
    if let (Some(documents), Some(typed), Some(other)) = (&documents, &prompt, parts.file_first()) {
        let tokens = |prompt: &[u8]| first_tokens(conversation.as_ref(), prompt, tokenizer);
        if documents.prefers(&tokens(&other)?, &tokens(typed)?) {
            let folder = documents.name();
            note(format_args!("note: the file goes before the text of -p, since {folder} has it"));
            prompt = Some(other);
        }
    }
    let seed = Sampler::new(sampling.clone()).map_err(Error::failed)?.seed();
    let bar_from = if answer.quiet { usize::MAX } else { plan.options().micro_batch };
    let screen = Screen::new(answer.color, bar_from);
    let load = started.elapsed();
    let extension = Extension::new(&plan, &model, &settings.rope, limits.tokens_max);
    let mut writer = Writer {
        scheduler,
        tokenizer,
        settings: sampling,
        seed,
        drawn: 0,
        limits,
        screen,
        verbose_prompt: typed.verbose_prompt,
        keep: context_shift.then_some(answer.keep),
        kept: None,
        prompt_cache,
        documents,
        header,
        extension,
        total: Timings::default(),
    };

    let result = match &mut conversation {
        None => complete(&prompt.unwrap_or_default(), args, &mut writer),
        Some(conversation) => {
            let lines = converses
                .then(|| LineEditor::new(writer.screen.color(), io::stdout().is_terminal()));
            let lines = lines.transpose()?;
            converse(conversation, prompt, &mut writer, lines, args)
        }
    };
    if let Some(cache) = writer.prompt_cache.take().filter(|cache| cache.all) {
        let sequence = writer.sequence();
        cache.save(writer.scheduler.engine(), sequence, sequence.tokens().len())?;
    }
    let shown = matches!(result, Ok(()) | Err(Error::Interrupted));
    if !input_left {
        // Input may have arrived in the meantime.
        prompt::notes_input_left(typed);
    }
    if shown && answer.timings() {
        note(summary::summary(load, &writer.total, writer.seed));
    }
    match result {
        Ok(()) if interrupt::terminated() => Err(Error::Interrupted),
        result => result,
    }
}

/// Returns the context for a prompt of `tokens`, if it is longer than the default one.
fn fitting(
    model: &Model,
    settings: &runtime::Settings,
    tokens: usize,
    answer: Option<usize>,
) -> Result<Option<Sourced<usize>>, Error> {
    let needed = with_answer(tokens, answer);
    // The default context does not depend on drafts, which are opened later.
    let settings = runtime::Settings { drafts: Drafts::default(), ..settings.clone() };
    let default = runtime::Plan::new(model, &settings)?.context.value;
    let origin = format!("--ctx auto: the prompt has {tokens}");
    Ok((needed > default).then(|| Sourced::given(needed.next_multiple_of(1024), origin)))
}

/// Returns the tokens of the first prompt.
fn first_tokens(
    conversation: Option<&Conversation>,
    prompt: &[u8],
    tokenizer: &Tokenizer,
) -> Result<Vec<Token>, Error> {
    match conversation {
        Some(conversation) => Ok(conversation.prompt(prompt, tokenizer)?.0),
        None => Ok(tokenizer.encode(prompt, Special::Parse, Ends::Add)),
    }
}

/// Returns the mode that the flags select, else the one that suits the prompt and the model.
fn mode(args: &Args, model: &Model, prompt: bool) -> Result<Mode, Error> {
    Ok(match args.prompt.opening.is_chat(conversation_flag(args), model)? {
        true => Mode::Chat,
        false if prompt => Mode::Complete,
        false => Mode::Continue,
    })
}

/// Returns a given flag that starts a conversation, whether or not the model has a template.
fn conversation_flag(args: &Args) -> Option<&'static str> {
    let PromptArgs { opening, single_turn, .. } = &args.prompt;
    opening.conversation_flag().or(single_turn.then_some("-st"))
}

/// Returns whether the user types messages: standard input is a terminal and further input is
/// expected. After a prompt without -cnv, standard output must be one too: `-p TEXT > FILE` is one
/// answer.
fn types(args: &Args, prompt: bool) -> bool {
    let redirected = !args.prompt.opening.conversation && !io::stdout().is_terminal();
    let once = prompt && (args.prompt.single_turn || redirected);
    io::stdin().is_terminal() && !once
}

/// Answers the optional `first` message, then what the user enters. Stops after one answer without
/// `lines`, or with `-st`.
fn converse(
    conversation: &mut Conversation,
    first: Option<Vec<u8>>,
    writer: &mut Writer,
    lines: Option<LineEditor>,
    args: &Args,
) -> Result<(), Error> {
    if let Some(first) = first.as_ref().filter(|_| !args.prompt.no_display_prompt) {
        writer.screen.question(&String::from_utf8_lossy(first));
    }
    match (first, lines) {
        (first, Some(lines)) => {
            let files = Files::default();
            Dialogue { conversation, writer, lines, args, files, unanswered: None }.hold(first)
        }
        (Some(first), None) => answer_once(conversation, &Question::new(first), writer),
        (None, None) => Ok(()),
    }
}

/// Prints the prompt and its continuation.
fn complete(prompt: &[u8], args: &Args, writer: &mut Writer) -> Result<(), Error> {
    let tokens = writer.tokenizer.encode(prompt, Special::Parse, Ends::Add);
    writer.keep(&tokens)?;
    let capacity = writer.capacity();
    if !args.prompt.no_display_prompt && !tokens.is_empty() && tokens.len() <= capacity {
        writer.screen.user_text(&String::from_utf8_lossy(prompt));
    }
    match writer.write(&tokens)?.outcome.end {
        End::Caller => Err(Error::Interrupted),
        _ => Ok(()),
    }
}
