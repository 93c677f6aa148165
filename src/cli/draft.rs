//! The drafts that the options of a command line select.

use super::{
    args::{EngineArgs, MemoryArgs, SpeculationArgs, named},
    error::Error,
    load,
    resources::{self, Resources},
};
use rope_cpu::{
    generate::speculation::{DraftModel, Drafter, Lookup, Predictor, SelfDraft, Speculation},
    model::{Model, Session},
    rope::{Flags, Rope},
};

/// A draft model, with its resources.
pub struct Draft {
    model: Model,
    resources: Resources,
}

impl Draft {
    /// Opens the optional draft model in the memory that `target` leaves.
    ///
    /// # Errors
    /// If options contradict each other, or the file is not a supported model.
    pub fn open(
        args: &SpeculationArgs,
        memory: &MemoryArgs,
        machine: &EngineArgs,
        target: &Resources,
    ) -> Result<Option<Self>, Error> {
        if target.assistant().is_some() && !args.names_draft_model() {
            return Ok(None);
        }
        let Some(path) = args.whole_draft_model()? else { return Ok(None) };
        let model = Model::open(path).map_err(Error::usage)?;
        load::note_media(&model);
        let (cache_type_k, cache_type_v) = args.cache_types();
        let context = target.context.value;
        let memory = MemoryArgs { context, cache_type_k, cache_type_v, ..memory.clone() };
        let resources = resources::plan(&memory, machine, &model, target.rolls()).beside(target);
        Ok(Some(Draft { model, resources }))
    }

    /// Returns the draft model for up to `sequences` sequences, like [`Resources::for_server`].
    pub fn for_server(self, sequences: usize, all: bool) -> Self {
        Draft { resources: self.resources.for_server(sequences, all), ..self }
    }

    /// Returns the resources.
    pub fn resources(&self) -> &Resources {
        &self.resources
    }

    /// Resolves RoPE and checks the memory, like [`Resources::rope`].
    ///
    /// # Errors
    /// As for [`Resources::rope`].
    pub fn rope(&self, flags: &Flags) -> Result<Option<Rope>, Error> {
        let named = |e| match e {
            Error::Usage(message) => named(self.model.path(), message),
            e => e,
        };
        self.resources.rope(&self.model, flags).map_err(named)
    }

    /// Returns the line that describes the model and its memory.
    pub fn line(&self) -> String {
        self.resources.line("Draft model")
    }

    /// Creates the drafter for `target`.
    fn drafter(&self, target: &Model, rope: Rope) -> Result<DraftModel, Error> {
        // The context is the one that was checked; once it is full, there are no drafts.
        let session = Session::new(&self.model, rope, self.resources.server_options(0));
        let drafter = DraftModel::new(target, session.map_err(Error::failed)?);
        drafter.map_err(|e| named(self.model.path(), e))
    }
}

/// Returns the speculation for answers of `target`, with its resources, and an optional draft model
/// with its RoPE.
///
/// # Errors
/// If the draft model has another vocabulary, or its threads cannot be started.
pub fn speculation(
    args: &SpeculationArgs,
    (target, resources): (&Model, &Resources),
    draft: Option<(&Draft, Rope)>,
) -> Result<Speculation, Error> {
    let mut one = speculations(args, (target, resources), draft, 1)?;
    Ok(one.pop().unwrap_or_else(Speculation::none))
}

/// Returns the speculations of `count` sequences, like [`speculation`].
///
/// # Errors
/// As for [`speculation`].
pub fn speculations(
    args: &SpeculationArgs,
    (target, resources): (&Model, &Resources),
    draft: Option<(&Draft, Rope)>,
    count: usize,
) -> Result<Vec<Speculation>, Error> {
    let model = draft.map(|(draft, rope)| draft.drafter(target, rope)).transpose()?;
    let speculation = |_| {
        let lookup = args.lookup().then(|| Box::new(Lookup::default()) as Box<dyn Drafter>);
        let predictor =
            resources.predicts().then(|| Box::new(Predictor::default()) as Box<dyn Drafter>);
        let model = model.as_ref().map(|model| Box::new(model.beside()) as Box<dyn Drafter>);
        let own = args.sparse().then(|| Box::new(SelfDraft::default()) as Box<dyn Drafter>);
        let drafters = lookup.into_iter().chain(predictor).chain(model).chain(own);
        Speculation::new(drafters.collect(), args.count())
    };
    Ok((0..count).map(speculation).collect())
}
