//! All that it takes to write an answer, and what was written so far.

use super::{args::AnswerArgs, prompt, prompt_cache::PromptCache, screen::Screen, summary};
use crate::cli::{error::Error, note};
use rope_cpu::{
    Token,
    generate::{self, Answer, End, Limits, Timings, generate},
    model::Session,
    sample::Sampler,
    tokenizer::Tokenizer,
};

/// A model that has a session, and where its text goes.
pub struct Writer<'s, 'm> {
    /// The tokens read so far.
    pub session: Session<'m>,
    /// Text to tokens and back.
    pub tokenizer: &'s Tokenizer<'m>,
    /// How tokens are chosen.
    pub sampler: Sampler,
    /// What ends an answer.
    pub limits: Limits,
    /// Where it is shown.
    pub screen: Screen,
    /// Show the tokens of each prompt.
    pub verbose_prompt: bool,
    /// Where the context shifts, `--keep`, until the first prompt is known.
    pub keep: Option<i64>,
    /// Where the first prompt is kept, until it is, or all that is read and written.
    pub prompt_cache: Option<PromptCache>,
    /// What all answers took.
    pub total: Timings,
}

impl Writer<'_, '_> {
    /// Reads `prompt` and writes what follows. An answer that Ctrl-C stopped is an answer, which
    /// ended with [`End::Caller`].
    ///
    /// # Errors
    /// [`Error::Usage`] if the prompt is empty or too long, after which one may go on.
    pub fn write(&mut self, prompt: &[Token]) -> Result<Answer, Error> {
        if self.verbose_prompt {
            self.show_tokens(prompt);
        }
        self.keep(prompt)?;
        let keep = self.prompt_cache.take_if(|cache| !cache.all);
        let Writer { session, tokenizer, sampler, limits, screen, prompt_cache, .. } = self;
        if keep.is_some() {
            session.retain_from(prompt.len());
        }
        let answer =
            generate(session, tokenizer, sampler, prompt, limits, &mut |event| screen.show(event));
        if let Some(cache) = keep {
            match answer {
                // Nothing was read: the cache waits for the next prompt.
                Err(generate::Error::PromptEmpty | generate::Error::PromptTooLong { .. }) => {
                    *prompt_cache = Some(cache);
                }
                _ => cache.save(session, prompt.len())?,
            }
            session.retain_from(usize::MAX);
        }
        self.screen.finish()?;
        let answer = answer.map_err(|e| match e {
            generate::Error::PromptEmpty | generate::Error::PromptTooLong { .. } => Error::usage(e),
            generate::Error::Model(_) | generate::Error::Sample(_) => Error::failed(e),
        })?;
        self.total = summary::sum(&self.total, &answer.timings);
        if let Some(tokens) = self.session.take_recomputed() {
            note(format_args!(
                "note: {tokens} tokens were computed again, with the RoPE frequencies of a longer \
                 sequence"
            ));
        }
        if let Some(tokens) = self.session.take_evicted() {
            note(format_args!(
                "note: the context was full: it has lost its oldest {tokens} tokens"
            ));
        }
        if answer.end == End::ContextFull {
            note(format_args!(
                "note: the context of {} tokens is full, so the answer ends here: choose a larger \
                 one with -c, or let it go on with --context-shift",
                self.session.context()
            ));
        }
        Ok(answer)
    }

    /// Settles, once the first prompt is known, what of it stays where the context shifts.
    ///
    /// # Errors
    /// If that leaves no room to shift in.
    pub fn keep(&mut self, prompt: &[Token]) -> Result<(), Error> {
        let Some(typed) = self.keep.take() else { return Ok(()) };
        let bos = prompt.first().is_some_and(|first| self.tokenizer.bos() == Some(*first));
        let tokens = usize::try_from(typed).map_or(usize::MAX, |n| n.saturating_add(bos.into()));
        let named = |e| Error::usage(format_args!("--keep {typed}: {e}"));
        self.session.keep(tokens.min(prompt.len())).map_err(named)
    }

    fn show_tokens(&self, prompt: &[Token]) {
        note(format_args!("prompt of {} tokens:", prompt.len()));
        for &token in prompt {
            let piece = self.tokenizer.piece(token, true);
            note(format_args!("{token:6} -> '{}'", String::from_utf8_lossy(&piece)));
        }
    }
}

/// What ends an answer, as the command line says.
pub fn limits(args: &AnswerArgs, escapes: &super::args::PromptArgs) -> Result<Limits, Error> {
    let stops: Result<Vec<_>, Error> = args
        .reverse_prompt
        .iter()
        .map(|text| match text.is_empty() {
            true => Err(Error::usage("--reverse-prompt is empty: nothing would be written")),
            false => prompt::unescaped("--reverse-prompt", text, escapes),
        })
        .collect();
    Ok(Limits {
        tokens_max: usize::try_from(args.predict).ok(),
        stops: stops?,
        ignore_end: args.ignore_eos,
        show_special: args.special,
    })
}
