//! A model that suits the options of a run, before its plan.

use super::{Args, Mode, constraint, conversation::Conversation, mode, writer};
use crate::cli::{
    args::{MemoryArgs, RopeArgs, numbers},
    error::Error,
    load, resources, sampling,
};
use rope_cpu::{
    generate::Limits,
    model::Model,
    platform::processors::plural,
    rope::Flags,
    runtime::{self, Drafts, Plan, Scheduling},
    sample::Settings,
    tokenizer::Tokenizer,
};

/// The options that need no model to be checked.
pub struct Checked {
    drafts: Drafts,
    limits: Limits,
    system: Option<String>,
}

impl Checked {
    /// Checks the options of a run.
    ///
    /// # Errors
    /// If one is invalid, or the file of the system message cannot be read.
    pub fn of(args: &Args) -> Result<Self, Error> {
        let typed = &args.prompt;
        args.sampling.applied_to(Settings::default()).check().map_err(Error::usage)?;
        Ok(Checked {
            drafts: args.speculation.settings(typed.cache_disk.is_some())?,
            limits: writer::limits(&args.answer, typed.opening.no_escape)?,
            system: typed.opening.system()?,
        })
    }
}

/// A model with the settings of a run.
pub struct Ready<'m> {
    args: &'m Args,
    model: &'m Model,
    system: Option<String>,
    /// The tokenizer of the model.
    pub tokenizer: &'m Tokenizer<'m>,
    /// How answers are sampled.
    pub sampling: Settings,
    /// The limits of an answer.
    pub limits: Limits,
    /// The settings of the plan.
    pub settings: runtime::Settings,
}

impl<'m> Ready<'m> {
    /// Checks that the options suit the model.
    ///
    /// # Errors
    /// If they do not.
    pub fn of(args: &'m Args, model: &'m Model, checked: Checked) -> Result<Self, Error> {
        let Checked { drafts, mut limits, system } = checked;
        model.config().require_logits().map_err(|e| args.model.named(e))?;
        let tokenizer = model.tokenizer().map_err(Error::usage)?;
        let no_escape = args.prompt.opening.no_escape;
        let metadata = model.metadata();
        let sampling =
            sampling::settings(&args.sampling, &args.model, no_escape, metadata, tokenizer)?;
        limits.constraint = constraint::constraint(args, tokenizer)?;
        let memory = match fits_prompt(args) {
            true => MemoryArgs { context: 0, ..args.memory.clone() },
            false => args.memory.clone(),
        };
        let rope = match fits_prompt(args) && args.rope.is_default() {
            true => RopeArgs::auto(),
            false => args.rope.clone(),
        };
        let flags = Flags { context_shift: shifts(args), ..rope.flags() };
        let settings = runtime::Settings {
            sparse: args.sparse.settings(),
            drafts,
            ..resources::settings(&memory, &args.machine, flags)
        };
        Ok(Ready { args, model, system, tokenizer, sampling, limits, settings })
    }

    /// Returns an empty conversation, or `None` for a text that is continued once.
    ///
    /// # Errors
    /// If the model has no chat template, or it is invalid.
    pub fn conversation(&self, mode: Mode) -> Result<Option<Conversation>, Error> {
        Ok(match mode {
            Mode::Complete => None,
            Mode::Chat => {
                let template =
                    self.args.prompt.opening.template.of(&self.args.model, self.model)?;
                Some(Conversation::chat(template, self.system.clone()))
            }
            Mode::Continue => Some(Conversation::plain()),
        })
    }
}

impl Ready<'_> {
    /// Continues the conversation that the model `before` had. Returns it with a note for the user.
    ///
    /// # Errors
    /// As for [`Ready::conversation`].
    pub fn continued(
        &self,
        other: Conversation,
        before: &str,
    ) -> Result<(Conversation, String), Error> {
        let new = self.conversation(mode(self.args, self.model, false)?)?;
        let mut new = new.unwrap_or_else(Conversation::plain);
        let mut note = match other.turns() {
            0 => "(this model answers from now on".to_string(),
            turns => format!(
                "(this model goes on: it processes the {} again with your next question, since the \
                 KV cache was for {before}",
                plural(turns, "turn")
            ),
        };
        if other.system().is_some() && !new.has_messages() {
            note += "; it has no chat template, so the system message is not used";
        }
        if self.args.prompt.prompt_cache.is_some() {
            note += "; --prompt-cache is not used";
        }
        new.continue_from(other, self.tokenizer);
        Ok((new, note + ")"))
    }
}

/// Opens a model and checks that a conversation can go on with it: its file, its template, the
/// memory and the draft model.
///
/// # Errors
/// If it cannot.
pub fn open(args: &Args) -> Result<Model, Error> {
    let checked = Checked::of(args)?;
    let model = load::adapted(&args.model, &args.adapters)?;
    let ready = Ready::of(args, &model, checked)?;
    ready.conversation(mode(args, &model, false)?)?;
    let plan = Plan::new(&model, &ready.settings)?;
    plan.check()?;
    plan.scheduler(&model, ready.tokenizer, Scheduling::default())?;
    Ok(model)
}

/// Returns whether the context is to fit the prompt.
pub fn fits_prompt(args: &Args) -> bool {
    args.memory.context == numbers::AUTO
}

/// Returns whether a full context evicts its oldest tokens.
pub fn shifts(args: &Args) -> bool {
    args.answer.context_shift && args.answer.predict != -2
}
