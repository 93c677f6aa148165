//! Generating and showing answers.

use super::{args::AnswerArgs, prompt_cache::PromptCache, screen::Screen};
use crate::cli::{
    documents::{Documents, Found},
    error::Error,
    escapes::unescaped,
    extension::Extension,
    note,
};
use rope_cpu::{
    Token,
    generate::{
        self, End, Event, Generated, Limits, Stops, Timings, speculate, speculation::Speculation,
    },
    model::{Session, memory::Bytes},
    platform::processors::plural,
    sample::{Sampler, Settings},
    tokenizer::Tokenizer,
};

/// A session with the sampler, limits and output of its answers.
pub struct Writer<'m> {
    /// The session, with the tokens so far.
    pub session: Session,
    /// The tokenizer of the model.
    pub tokenizer: &'m Tokenizer<'m>,
    /// The sampler that chooses tokens.
    pub sampler: Sampler,
    /// The settings of the sampler.
    pub settings: Settings,
    /// The drafts of tokens.
    pub speculation: Speculation,
    /// The limits of an answer.
    pub limits: Limits,
    /// The output.
    pub screen: Screen,
    /// Whether the tokens of each prompt are printed.
    pub verbose_prompt: bool,
    /// `--keep`, if the context shifts; taken with the first prompt.
    pub keep: Option<i64>,
    /// The prompt cache: taken when the first prompt has been saved, unless it saves all tokens.
    pub prompt_cache: Option<PromptCache>,
    /// Documents that prompts can start with.
    pub documents: Option<Documents>,
    /// The model, the memory and the threads, for `/stats`.
    pub header: String,
    /// Proposes options for longer prompts.
    pub extension: Extension,
    /// The timings of all answers.
    pub total: Timings,
}

impl Writer<'_> {
    /// Processes `prompt`, then generates and shows the answer. After Ctrl-C, the end is
    /// [`End::Caller`].
    ///
    /// # Errors
    /// [`Error::Usage`] if the prompt is empty and [`Error::TooLong`] if it does not fit. You can
    /// write another one after either.
    pub fn write(&mut self, prompt: &[Token]) -> Result<Generated, Error> {
        if self.verbose_prompt {
            self.show_tokens(prompt);
        }
        self.continue_document(prompt);
        self.keep(prompt)?;
        let keep = self.prompt_cache.take_if(|cache| !cache.all);
        let Writer { session, sampler, speculation, limits, screen, prompt_cache, .. } = self;
        if keep.is_some() {
            session.retain_from(prompt.len());
        }
        let on_event = &mut |event: Event<'_>| screen.show(event);
        let answer = speculate(session, sampler, speculation, prompt, limits, on_event);
        let mut saved = Ok(());
        if let Some(cache) = keep {
            match answer {
                // Nothing was read: the cache is for the next prompt.
                Err(generate::Error::PromptEmpty | generate::Error::PromptTooLong { .. }) => {
                    *prompt_cache = Some(cache);
                }
                _ => saved = cache.save(session, prompt.len()),
            }
            session.retain_from(usize::MAX);
        }
        // Before any error, so that it begins a line.
        self.screen.finish()?;
        saved?;
        let answer = answer.map_err(|e| match e {
            generate::Error::PromptEmpty => Error::usage(e),
            generate::Error::PromptTooLong { tokens, context } => {
                Error::TooLong(self.too_long(tokens, context))
            }
            generate::Error::Model(_)
            | generate::Error::Sample(_)
            | generate::Error::Constraint(_) => Error::failed(e),
        })?;
        self.total += answer.timings;
        if let Some(tokens) = self.session.take_recomputed() {
            note(format_args!(
                "note: {tokens} tokens were computed again, with the RoPE frequencies of a longer \
                 sequence"
            ));
        }
        if let Some(tokens) = self.session.take_evicted() {
            note(format_args!(
                "note: the context was full: its oldest {tokens} tokens were evicted"
            ));
        }
        if answer.end == End::ContextFull {
            note(format_args!(
                "note: the context of {} tokens is full, so the answer ends here: choose a larger \
                 one with -c, or continue with --context-shift",
                self.session.context()
            ));
        }
        Ok(answer)
    }

    /// Returns the maximum tokens of a prompt: a context that shifts has no limit.
    pub fn capacity(&self) -> usize {
        match self.session.rope().plan().shifts {
            true => usize::MAX,
            false => self.session.capacity(),
        }
    }

    /// Returns the error for a prompt that does not fit, with options with which it does.
    fn too_long(&self, tokens: usize, context: usize) -> String {
        let auto = match self.session.tokens() {
            [] => "; -c auto fits the context to the prompt",
            _ => "",
        };
        format!(
            "the prompt of {tokens} tokens does not fit in the context of {context}: start with {}{auto}",
            self.extension.for_prompt(tokens)
        )
    }

    /// Sets the number of tokens of the first prompt that a context shift keeps.
    ///
    /// # Errors
    /// If that leaves too few tokens to evict.
    pub fn keep(&mut self, prompt: &[Token]) -> Result<(), Error> {
        let Some(typed) = self.keep.take() else { return Ok(()) };
        let bos = prompt.first().is_some_and(|first| self.tokenizer.bos() == Some(*first));
        let tokens = usize::try_from(typed).map_or(usize::MAX, |n| n.saturating_add(bos.into()));
        let named = |e| Error::usage(format_args!("--keep {typed}: {e}"));
        self.session.keep(tokens.min(prompt.len())).map_err(named)
    }

    /// Continues from a document that the prompt starts with, and prints a note about it.
    fn continue_document(&mut self, prompt: &[Token]) {
        let Writer { session, documents: Some(documents), .. } = self else { return };
        match documents.restore(session, prompt) {
            Some(Found { name, reused, bytes, time }) => note(format_args!(
                "note: {reused} of {} come from {name} ({} in {:.2} s)",
                plural(prompt.len(), "prompt token"),
                Bytes(bytes),
                time.as_secs_f64()
            )),
            None if session.tokens().is_empty() => documents.explain(),
            None => {}
        }
    }

    fn show_tokens(&self, prompt: &[Token]) {
        note(format_args!("prompt of {} tokens:", prompt.len()));
        for &token in prompt {
            let piece = self.tokenizer.piece(token, true);
            note(format_args!("{token:6} -> '{}'", String::from_utf8_lossy(&piece)));
        }
    }
}

/// Returns the limits of an answer that the command line gives.
pub fn limits(args: &AnswerArgs, no_escape: bool) -> Result<Limits, Error> {
    let stops: Result<Vec<_>, Error> = args
        .reverse_prompt
        .iter()
        .map(|text| match text.is_empty() {
            true => Err(Error::usage("--reverse-prompt is empty: give a text")),
            false => unescaped("--reverse-prompt", text, no_escape),
        })
        .collect();
    Ok(Limits {
        tokens_max: usize::try_from(args.predict).ok(),
        stops: Stops::new(stops?),
        ignore_end: args.ignore_eos,
        show_special: args.special,
        ..Limits::default()
    })
}
