//! The drafts of a run: their sources, and a second model.

use std::path::PathBuf;

use super::{Error, Plan, Sequences, Settings, Sparse};
use crate::{
    generate::speculation::{
        Count, DRAFTS_MAX, DraftModel, Drafter, Lookup, Predictor, SelfDraft, Speculation,
        SpeculativePrefill,
    },
    kv_cache::CacheType,
    model::{Assistant, Model, Session},
    rope::Rope,
};

/// Maximum tokens of a draft model in a step that it shares with answers.
const MICRO_BATCH: usize = 64;

/// The drafts of a run.
#[derive(Clone, Debug)]
pub struct Drafts {
    /// The sources.
    pub sources: Sources,
    /// The draft model: a smaller model with the same vocabulary, or an assistant.
    pub model: Option<PathBuf>,
    /// The number of drafts in a pass.
    pub count: Count,
    /// Speculative prefill of long prompts, for which the draft model chooses the tokens.
    pub prefill: Option<SpeculativePrefill>,
    /// The type that keys of the draft model are stored in.
    pub keys: CacheType,
    /// The type that values of the draft model are stored in.
    pub values: CacheType,
}

/// The sources of drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The text itself: tokens that followed an earlier occurrence of its end.
    pub text: bool,
    /// The model's own predictor, or an assistant.
    pub predictor: bool,
    /// The model's own predictor, if it has one that fits in memory.
    pub predictor_if_fitting: bool,
    /// A smaller model.
    pub model: bool,
    /// A smaller model or an assistant, whichever the draft model is.
    pub either: bool,
    /// The model itself, with sparse attention.
    pub own: bool,
}

impl Sources {
    /// The names of the sources. The last four are llama.cpp's names for `ngram-simple`.
    pub const NAMES: [&str; 10] = [
        "auto",
        "none",
        "ngram-simple",
        "draft-mtp",
        "draft-simple",
        "draft-sparse",
        "ngram-cache",
        "ngram-map-k",
        "ngram-map-k4v",
        "ngram-mod",
    ];

    /// Returns the sources with these [names](Self::NAMES); `auto` if there are none.
    ///
    /// # Errors
    /// If `none` is not the only one.
    pub fn named(names: &[&str]) -> Result<Self, Error> {
        let has = |name| names.contains(&name);
        if has("none") && names.len() > 1 {
            return Err(Error::NoneWithOthers);
        }
        Ok(Sources {
            text: names.iter().any(|name| name.starts_with("ngram-")),
            predictor: has("draft-mtp"),
            predictor_if_fitting: false,
            model: has("draft-simple"),
            either: names.is_empty() || has("auto"),
            own: has("draft-sparse"),
        })
    }
}

/// Has no drafts.
impl Default for Drafts {
    fn default() -> Self {
        Drafts {
            sources: Sources::default(),
            model: None,
            count: Count::UpTo(DRAFTS_MAX),
            prefill: None,
            keys: CacheType::F16,
            values: CacheType::F16,
        }
    }
}

impl Drafts {
    /// Checks that the sources and the draft model belong together, as far as this is known before the
    /// model is opened.
    ///
    /// # Errors
    /// If a source lacks the draft model, or no source uses it.
    pub fn check(&self) -> Result<(), Error> {
        let Sources { predictor, model, either, .. } = self.sources;
        match &self.model {
            None if model => Err(Error::NoDraftModel),
            None if self.prefill.is_some() => Err(Error::PrefillDraftModel),
            Some(_) if !predictor && !model && !either => Err(Error::UnusedDraftModel),
            _ => Ok(()),
        }
    }

    /// Opens the draft model as an assistant; `None` if it is not one.
    pub(super) fn assistant(&self, model: &Model) -> Result<Option<Assistant>, Error> {
        let Sources { either, predictor, .. } = self.sources;
        match self.model.as_ref().filter(|_| either || predictor) {
            Some(path) => Ok(Assistant::open(path, model)?),
            None => Ok(None),
        }
    }

    /// Creates the sources of drafts for each of `count` sequences of `target`.
    pub(super) fn speculations(
        &self,
        target: &Model,
        predicts: bool,
        draft: Option<&Draft>,
        count: usize,
    ) -> Result<Vec<Speculation>, Error> {
        let model = draft.map(|draft| draft.drafter(target)).transpose()?;
        let speculation = |_| {
            let lookup = self.sources.text.then(|| Box::new(Lookup::default()) as Box<dyn Drafter>);
            let predictor = predicts.then(|| Box::new(Predictor::default()) as Box<dyn Drafter>);
            let model = model.as_ref().map(|model| Box::new(model.beside()) as Box<dyn Drafter>);
            let own = self.sources.own.then(|| Box::new(SelfDraft::default()) as Box<dyn Drafter>);
            let drafters = lookup.into_iter().chain(predictor).chain(model).chain(own);
            Speculation::new(drafters.collect(), self.count)
        };
        Ok((0..count).map(speculation).collect())
    }
}

/// A draft model, with its plan.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The model.
    pub model: Model,
    /// The plan, in the memory that the first model leaves.
    pub plan: Plan,
}

impl Draft {
    /// Opens the draft model of the settings, in the memory that `target` leaves; `None` if there is
    /// none, or it is an assistant.
    pub(super) fn open(target: &Plan, settings: &Settings) -> Result<Option<Self>, Error> {
        let drafts = &settings.drafts;
        let whole = target.assistant.is_none() || drafts.sources.model;
        let Some(path) = drafts.model.as_ref().filter(|_| whole) else { return Ok(None) };
        if !drafts.sources.either && !drafts.sources.model {
            return Err(Error::UnusedDraftModel);
        }
        let named = |error: Error| Error::Draft { path: path.clone(), error: Box::new(error) };
        let model = Model::open(path)?;
        let micro_batch = match settings.sequences {
            Sequences::SideBySide(_) => settings.micro_batch,
            // Answers go on meanwhile.
            Sequences::UpTo(_) | Sequences::All(_) => settings.micro_batch.min(MICRO_BATCH),
        };
        let settings = Settings {
            context: Some(target.context.clone()),
            keys: drafts.keys,
            values: drafts.values,
            micro_batch,
            sparse: Sparse::default(),
            drafts: Drafts::default(),
            retains_all: false,
            taken: settings.taken.saturating_add(target.need().total()),
            ..settings.clone()
        };
        if drafts.prefill.is_some() && model.config().attention().next().is_none() {
            return Err(Error::PrefillAttention { path: path.clone() });
        }
        let plan = Plan::new(&model, &settings).map_err(named)?;
        Ok(Some(Draft { model, plan }))
    }

    /// Checks that enough memory is available. The error has the path of the model.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.plan.check().map_err(|error| self.named(error))
    }

    /// Creates the drafter for `target`.
    fn drafter(&self, target: &Model) -> Result<DraftModel, Error> {
        let rope = Rope::new(self.plan.rope.clone());
        // The context is the one that was checked; once it is full, there are no drafts.
        let session = Session::new(&self.model, rope, self.plan.shared_options(0));
        let session = session.map_err(|error| self.named(error.into()))?;
        DraftModel::new(target, session).map_err(|error| self.named(error.into()))
    }

    fn named(&self, error: Error) -> Error {
        Error::Draft { path: self.model.path().into(), error: Box::new(error) }
    }
}
