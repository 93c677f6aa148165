//! The plan of a run: what fits in memory, and what is refused; and a runtime that answers.

use std::ops::ControlFlow;

use rope_cpu::{
    batch::{Outcome, Request, Update},
    generate::{End, Limits},
    model::Model,
    rope::{Flags, Origin, Sourced},
    runtime::{Drafts, Error, Plan, Runtime, Sequences, Settings, Sources},
};
use rope_cpu_testing::reader::tiny_reader;
use serde_json::json;

/// Leaves no memory.
fn without_memory(settings: Settings) -> Settings {
    Settings { taken: u64::MAX, ..settings }
}

fn open() -> Model {
    Model::open(tiny_reader(1, true).path()).unwrap()
}

#[test]
fn the_default_context_is_the_trained_one() {
    let model = open();
    let plan = Plan::new(&model, &Settings::default()).unwrap();
    assert_eq!(plan.context.value, model.config().context_train);
    assert_eq!(plan.context.origin, Origin::Key("llama.context_length".into()));
    plan.check().unwrap();
    assert_eq!(plan.session(&model).unwrap().context(), plan.context.value);
}

#[test]
fn a_run_that_does_not_fit_is_planned_but_refused() {
    let model = open();
    let settings = without_memory(Settings { context: Some(256.into()), ..Settings::default() });
    let plan = Plan::new(&model, &settings).unwrap();
    assert!(matches!(plan.check(), Err(Error::TooLarge(_))));
    Plan::new(&model, &Settings { must_fit: false, ..settings }).unwrap().check().unwrap();
}

#[test]
fn sequences_beyond_the_memory_are_left_out_if_that_is_allowed() {
    let model = open();
    let sequences = |sequences| {
        let settings = without_memory(Settings { sequences, ..Settings::default() });
        Plan::new(&model, &settings).unwrap().sequences()
    };
    assert_eq!(sequences(Sequences::UpTo(4)), 1);
    assert_eq!(sequences(Sequences::All(4)), 4);
    assert_eq!(sequences(Sequences::SideBySide(4)), 4);
}

#[test]
fn a_longer_context_has_its_memory_and_what_it_lacks() {
    let plan = Plan::new(&open(), &Settings::default()).unwrap();
    let (one, two) = (plan.with_context(256), plan.with_context(512));
    assert_eq!(one.bytes, plan.need_of_one().total());
    assert!(two.bytes > one.bytes && two.lacking.is_none());
    let lacking = Plan::new(&open(), &without_memory(Settings::default())).unwrap();
    assert_eq!(lacking.with_context(512).lacking, Some(0));
}

#[test]
fn drafts_need_what_their_sources_name() {
    let model = open();
    let refused = |sources, file: Option<&str>| {
        let drafts = Drafts { sources, model: file.map(Into::into), ..Drafts::default() };
        let plan = Plan::new(&model, &Settings { drafts, ..Settings::default() });
        plan.unwrap_err().to_string()
    };
    let predictor = Sources { predictor: true, ..Sources::default() };
    assert!(refused(predictor, None).contains("draft-mtp needs a layer"));
    // The file is a whole model, and only an assistant would be of use.
    let file = tiny_reader(1, true);
    let path = file.path().to_str();
    assert!(refused(predictor, path).contains("draft-mtp needs a layer"));
    let text = Sources { text: true, ..Sources::default() };
    assert!(refused(text, path).contains("has no effect"), "{}", refused(text, path));
}

#[test]
fn a_draft_model_has_the_context_of_the_model() {
    let (model, file) = (open(), tiny_reader(1, true));
    let sources = Sources { model: true, ..Sources::default() };
    let drafts = Drafts { sources, model: Some(file.path().into()), ..Drafts::default() };
    let rope = Flags::method("linear");
    let settings = Settings { drafts, rope, context: Some(512.into()), ..Settings::default() };
    let plan = Plan::new(&model, &settings).unwrap();
    let draft = &plan.draft.as_ref().unwrap().plan;
    assert_eq!((draft.context.value, draft.rope.factor.value), (512, 2.0));
    assert_eq!(plan.speculations(&model, 3).unwrap().len(), 3);
}

#[test]
fn a_runtime_answers_requests_and_stops_when_it_is_dropped() {
    let file = tiny_reader(7, true);
    let settings = Settings { context: Some(256.into()), ..Settings::default() };
    let runtime = Runtime::new(Model::open(file.path()).unwrap(), &settings).unwrap();
    let limits = Limits { tokens_max: Some(5), ignore_end: true, ..Limits::default() };
    let request = Request { limits, ..Request::new(vec![1, 2, 3]) };
    let mut pieces = String::new();
    let answered = runtime.answer(request.clone(), &mut |update| {
        if let Update::Generated(piece) = update {
            pieces += &piece.text;
        }
        ControlFlow::Continue(())
    });
    let answered = answered.unwrap();
    assert_eq!((answered.tokens.len(), &answered.text), (5, &pieces));
    assert_eq!(answered.outcome.end, End::TokensMax);

    // The first update ends it.
    let ended = runtime.answer(request.clone(), &mut |_| ControlFlow::Break(())).unwrap();
    assert_eq!((ended.tokens.len(), ended.outcome.end), (0, End::Caller));

    let handle = runtime.handle().clone();
    let open = runtime.ask(Request { limits: Limits::default(), ..request }).unwrap();
    drop(runtime);
    while let Some(update) = open.next() {
        assert!(!matches!(update, Update::Ended(Outcome { end: End::Caller, .. })), "{update:?}");
    }
    assert!(handle.act(|_| ()).is_err());
}

#[test]
fn a_plan_as_json_has_its_values_with_their_origins() {
    let settings = Settings {
        context: Some(Sourced::given(512, "--ctx 512")),
        rope: Flags::method("yarn"),
        ..Settings::default()
    };
    let plan = Plan::new(&open(), &settings).unwrap();
    let json = plan.json();
    assert_eq!(json["context"], json!({"value": 512, "origin": "--ctx 512"}));
    assert_eq!(json["rope"]["method"], "yarn");
    assert_eq!(json["rope"]["values"]["factor"]["value"], 2.0);
    assert_eq!(json["memory"]["total"], plan.need().total());
    assert_eq!((&json["memory"]["fits"], &json["sequences"]), (&true.into(), &1.into()));
    let refused = Plan::new(&open(), &without_memory(settings)).unwrap().json();
    assert_eq!(
        (&refused["memory"]["fits"], &refused["memory"]["available"]),
        (&false.into(), &0.into())
    );
}
