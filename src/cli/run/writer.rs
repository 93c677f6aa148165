//! Generating and showing answers.

use super::{args::AnswerArgs, prompt_cache::PromptCache, screen::Screen};
use crate::cli::{
    documents::{Documents, Found},
    error::Error,
    escapes::stops,
    extension::Extension,
    note,
};
use rope_cpu::{
    Token,
    batch::{self, Answered, Outcome, Request, Scheduler},
    generate::{self, End, Limits, Stops, Timings, speculation::prefill},
    model::{Sequence, memory::Bytes},
    platform::processors::plural,
    sample::{self, Sampler, Settings},
    tokenizer::Tokenizer,
};

/// The only slot.
pub const SLOT: usize = 0;

/// The owner of its tokens.
pub const OWNER: u64 = 0;

/// A scheduler with one slot, and the sampling, limits and output of its answers.
pub struct Writer<'m> {
    /// Computes the answers, in its only slot.
    pub scheduler: Scheduler<'m>,
    /// The tokenizer of the model.
    pub tokenizer: &'m Tokenizer<'m>,
    /// The settings of the sampler.
    pub settings: Settings,
    /// The seed in use.
    pub seed: u32,
    /// The random numbers drawn from it so far.
    pub drawn: u64,
    /// The limits of an answer.
    pub limits: Limits,
    /// The output.
    pub screen: Screen,
    /// Whether the tokens of each prompt are printed.
    pub verbose_prompt: bool,
    /// `--keep`, if the context shifts; taken with the first prompt.
    pub keep: Option<i64>,
    /// The number of tokens that this keeps.
    pub kept: Option<usize>,
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
    pub fn write(&mut self, prompt: &[Token]) -> Result<Answered, Error> {
        if self.verbose_prompt {
            self.show_tokens(prompt);
        }
        self.continue_document(prompt)?;
        self.keep(prompt)?;
        let cache = self.prompt_cache.take_if(|cache| !cache.all);
        let sampling =
            Settings { seed: Some(self.seed), drawn: self.drawn, ..self.settings.clone() };
        let request = Request {
            sampling,
            limits: self.limits.clone(),
            inexact: true,
            keep: self.kept,
            retain_from: Some(cache.as_ref().map_or(usize::MAX, |_| prompt.len())),
            ..Request::new(prompt.to_vec())
        };
        let Writer { scheduler, screen, .. } = self;
        let answer = scheduler.answer(request, &mut |update| screen.show(update));
        let mut saved = Ok(());
        if let Some(cache) = cache {
            match answer {
                // Nothing was read: the cache is for the next prompt.
                Err(batch::Error::Generate(
                    generate::Error::PromptEmpty | generate::Error::PromptTooLong { .. },
                )) => self.prompt_cache = Some(cache),
                _ => saved = cache.save(self.scheduler.engine(), self.sequence(), prompt.len()),
            }
        }
        // Before any error, so that it begins a line.
        self.screen.finish()?;
        saved?;
        let answer = answer.map_err(|e| match e {
            batch::Error::Generate(e @ generate::Error::PromptEmpty) => Error::usage(e),
            batch::Error::Generate(generate::Error::PromptTooLong { tokens, context }) => {
                Error::TooLong(self.too_long(tokens, context))
            }
            e => Error::failed(e),
        })?;
        let Outcome { end, timings, evicted, recomputed, drawn, .. } = &answer.outcome;
        self.total += *timings;
        self.drawn = *drawn;
        if timings.omitted > 0 {
            note(prefill::line(prompt.len(), timings.reused, timings.omitted));
        }
        if *recomputed > 0 {
            note(format_args!(
                "note: {recomputed} tokens were computed again, with the RoPE frequencies of a longer \
                 sequence"
            ));
        }
        if *evicted > 0 {
            note(format_args!(
                "note: the context was full: its oldest {evicted} tokens were evicted"
            ));
        }
        if *end == End::ContextFull {
            note(format_args!(
                "note: the context of {} tokens is full, so the answer ends here: choose a larger \
                 one with -c, or continue with --context-shift",
                self.scheduler.engine().options().context
            ));
        }
        Ok(answer)
    }

    /// Sets how answers are sampled. Random numbers start anew.
    ///
    /// # Errors
    /// If a setting is invalid, or the system provides no seed.
    pub fn sample(&mut self, settings: Settings) -> Result<(), sample::Error> {
        (self.seed, self.drawn) = (Sampler::new(settings.clone())?.seed(), 0);
        self.settings = settings;
        Ok(())
    }

    /// Returns the tokens so far, with their keys and values.
    pub fn sequence(&self) -> &Sequence {
        self.scheduler.sequence(SLOT).expect("the scheduler has a slot")
    }

    /// Returns the maximum tokens of a prompt: a context that shifts has no limit.
    pub fn capacity(&self) -> usize {
        let engine = self.scheduler.engine();
        match engine.rope().plan().shifts {
            true => usize::MAX,
            false => engine.capacity(),
        }
    }

    /// Returns the error for a prompt that does not fit, with options with which it does.
    fn too_long(&self, tokens: usize, context: usize) -> String {
        let auto = match self.sequence().tokens() {
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
        let tokens = tokens.min(prompt.len());
        self.kept = Some(tokens);
        let (_, sequence) = self.scheduler.slot(SLOT, OWNER).map_err(Error::failed)?;
        let named = |e| Error::usage(format_args!("--keep {typed}: {e}"));
        sequence.keep(tokens).map_err(named)
    }

    /// Continues from a document that the prompt starts with, and prints a note about it.
    fn continue_document(&mut self, prompt: &[Token]) -> Result<(), Error> {
        let Writer { scheduler, documents: Some(documents), .. } = self else { return Ok(()) };
        let (_, sequence) = scheduler.slot(SLOT, OWNER).map_err(Error::failed)?;
        match documents.restore(sequence, prompt) {
            Some(Found { name, reused, bytes, time }) => note(format_args!(
                "note: {reused} of {} come from {name} ({} in {:.2} s)",
                plural(prompt.len(), "prompt token"),
                Bytes(bytes),
                time.as_secs_f64()
            )),
            None if sequence.tokens().is_empty() => documents.explain(),
            None => {}
        }
        Ok(())
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
    Ok(Limits {
        tokens_max: usize::try_from(args.predict).ok(),
        stops: Stops::new(stops(&args.reverse_prompt, no_escape)?),
        ignore_end: args.ignore_eos,
        show_special: args.special,
        ..Limits::default()
    })
}
