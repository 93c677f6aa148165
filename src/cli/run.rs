//! `rope-cpu run`: generates text, or holds a conversation.

mod args;
mod bar;
mod change;
mod command;
mod constraint;
mod conversation;
mod converse;
mod files;
mod line;
mod prompt;
mod prompt_cache;
mod ready;
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
    documents::Documents,
    error::Error,
    extension::{Extension, with_answer},
    handle_interrupts, load, note, resources, sampling, typed_entry, warn,
};
use args::PromptArgs;
use change::{Changed, Current, Desk};
use conversation::Question;
use converse::{Dialogue, Next, answer_once};
use line::LineEditor;
use prompt::Parts;
use prompt_cache::PromptCache;
use ready::{Checked, Ready, fits_prompt, shifts};
use rope_cpu::{
    Token,
    generate::{self, End, Timings},
    model::{self, Model},
    platform::interrupt,
    rope::Sourced,
    runtime::{self, Drafts, Scheduling},
    sample::Sampler,
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
    let mut changed = with_model(args, None)?;
    while let Some(next) = changed {
        let args = next.args.clone();
        changed = with_model(&args, Some(next))?;
    }
    Ok(())
}

/// Runs the command with one model: the one of the options, or another one that the user has chosen
/// for a conversation. Returns when the conversation ends, or with the next model for it.
fn with_model(args: &Args, changed: Option<Changed>) -> Result<Option<Changed>, Error> {
    let started = Instant::now();
    let (typed, answer) = (&args.prompt, &args.answer);
    let is_first = changed.is_none();
    let checked = Checked::of(args)?;
    let (model, name, desk, before) = match changed {
        Some(Changed { model, name, desk, before, conversation, .. }) => {
            (model, Some(name), Some(desk), Some((before, conversation)))
        }
        None => {
            let name = typed_entry().map(|entry| entry.name);
            (load::adapted(&args.model, &args.adapters)?, name, None, None)
        }
    };
    let ready = Ready::of(args, &model, checked)?;
    let tokenizer = ready.tokenizer;
    let continued = before.map(|(before, conversation)| ready.continued(conversation, &before));
    let (continued, lost) = continued.transpose()?.unzip();

    // A context that fits the prompt needs it first. Otherwise options are checked before it is read.
    let early = (fits_prompt(args) && is_first).then(|| prompt::parts(typed)).transpose()?;
    let tokens = match (&continued, early.as_ref().and_then(Parts::prompt)) {
        _ if !fits_prompt(args) || args.rope.rolls() => None,
        (Some(conversation), _) => {
            first_tokens(Some(conversation), b"", tokenizer).ok().map(|tokens| tokens.len())
        }
        (None, Some(prompt)) => {
            let conversation = ready.conversation(mode(args, &model, true)?)?;
            Some(first_tokens(conversation.as_ref(), &prompt, tokenizer)?.len())
        }
        (None, None) => None,
    };
    let mut settings = ready.settings.clone();
    if let Some(tokens) = tokens {
        settings.context = fitting(&model, &settings, tokens, ready.limits.tokens_max)?;
    }
    let Some(plan) = resources::plan(&model, &settings, &args.memory)? else { return Ok(None) };

    let parts = match is_first {
        true => early.map_or_else(|| prompt::parts(typed), Ok)?,
        false => Parts::default(),
    };
    let mut prompt = parts.prompt();
    let mode = mode(args, &model, prompt.is_some())?;
    if mode == Mode::Chat && prompt.as_ref().is_some_and(Vec::is_empty) {
        return Err(Error::usage(generate::Error::PromptEmpty));
    }
    let mut conversation = match continued {
        None => ready.conversation(mode)?,
        continued => continued,
    };

    if is_first {
        handle_interrupts()?;
    }
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
    if let Some(lost) = lost {
        note(lost);
    }
    let input_left = !is_first || prompt::notes_input_left(typed);
    let Ready { sampling, limits, .. } = ready;
    sampling::print_notes(&args.sampling, model.metadata(), &sampling, answer.quiet);
    warn(&plan.rope);
    let context_shift = shifts(args);
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
    // The file is for the first model.
    let prompt_cache =
        if is_first { PromptCache::new(typed, || model.fingerprint()) } else { None };
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
        None => complete(&prompt.unwrap_or_default(), args, &mut writer).map(|()| None),
        Some(conversation) => {
            let desk = match desk {
                None if converses => Some(Desk::new(LineEditor::new(
                    writer.screen.color(),
                    io::stdout().is_terminal(),
                    args.model.hub.shelf.shelf(),
                )?)),
                desk => desk,
            };
            let current = Current { name: name.as_deref(), path: model.path() };
            converse(conversation, prompt, &mut writer, desk, args, current)
        }
    };
    if let Some(cache) = writer.prompt_cache.take().filter(|cache| cache.all) {
        let sequence = writer.sequence();
        cache.save(writer.scheduler.engine(), sequence, sequence.tokens().len())?;
    }
    let ended = match result {
        Ok(Some(Next { opened: (model, args, name), desk, before })) => {
            let changed = |conversation| Changed { model, args, name, before, conversation, desk };
            return Ok(conversation.map(changed));
        }
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    let shown = matches!(ended, Ok(()) | Err(Error::Interrupted));
    if !input_left {
        // Input may have arrived in the meantime.
        prompt::notes_input_left(typed);
    }
    if shown && answer.timings() {
        note(summary::summary(load, &writer.total, writer.seed));
    }
    match ended {
        Ok(()) if interrupt::terminated() => Err(Error::Interrupted),
        ended => ended.map(|()| None),
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

/// Answers the optional `first` message, then what the user enters. Stops after one answer without a
/// desk or with `-st`, and when the user chooses another model.
fn converse(
    conversation: &mut Conversation,
    first: Option<Vec<u8>>,
    writer: &mut Writer,
    desk: Option<Desk>,
    args: &Args,
    current: Current<'_>,
) -> Result<Option<Next>, Error> {
    if let Some(first) = first.as_ref().filter(|_| !args.prompt.no_display_prompt) {
        writer.screen.question(&String::from_utf8_lossy(first));
    }
    match (first, desk) {
        (first, Some(desk)) => {
            desk.repeat_settings(writer, args);
            Dialogue { conversation, writer, desk, args, current }.hold(first)
        }
        (Some(first), None) => {
            answer_once(conversation, &Question::new(first), writer).map(|()| None)
        }
        (None, None) => Ok(None),
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
