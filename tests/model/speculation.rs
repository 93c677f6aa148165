//! Speculative decoding: with any drafts, an answer and all that follows have the bits of one token
//! at a time.

use std::{ops::ControlFlow, sync::Arc};

use rope_cpu::{
    Token,
    batch::{self, Generated, Request, Scheduler, Update, Wanted},
    generate::{
        End, Limits, Stops,
        speculation::{
            Count, DRAFTS_MAX, DraftModel, Drafter, Lookup, Predictor, Speculation, Target,
        },
    },
    kv_cache::CacheType,
    model::{Engine, Error, Model, Options, Session},
    rope::{Flags, POLICY, Rope, lm_infinite},
    sample::{Likelihood, Settings, dry, mirostat, penalties, temperature},
};

use crate::model::{
    assistant::load_assistant,
    engine::Random,
    position::{self, on_every_rule},
    scheduled::scheduled,
    session::{How, load, tokens, with_file, with_model},
};
use rope_cpu_testing::{
    builder::{ARRAY, Builder, I32, STRING, U32, array, string, strings},
    on_each_case,
    tiny::Tiny,
};

/// The token that ends an answer.
pub const END: Token = 49;

/// Returns the file of a model with letters as its tokens.
pub fn file(tiny: &Tiny) -> Builder {
    file_with(tiny, 'W')
}

/// Returns the file of a model with another letter as token 48.
fn file_with(tiny: &Tiny, last: char) -> Builder {
    let letters = ('a'..='z').chain('A'..='V').chain([last]).map(String::from);
    let texts: Vec<_> = letters.chain(["<end>".into()]).collect();
    let kinds = (0..texts.len()).map(|token| if token as Token == END { 3i32 } else { 1 });
    let kinds = array(I32, texts.len() as u64, kinds.map(i32::to_le_bytes));
    tiny.builder()
        .key("tokenizer.ggml.model", STRING, string("gpt2"))
        .key("tokenizer.ggml.pre", STRING, string("gpt-2"))
        .key("tokenizer.ggml.tokens", ARRAY, strings(&texts))
        .key("tokenizer.ggml.token_type", ARRAY, kinds)
        .key("tokenizer.ggml.merges", ARRAY, strings::<&str>(&[]))
        .key("tokenizer.ggml.eos_token_id", U32, END.to_le_bytes())
}

/// Drafts what will follow, except where the drafts must be wrong.
struct Oracle {
    text: Vec<Token>,
    /// The number of drafts in 100 that are wrong.
    wrong: usize,
    random: Random,
}

impl Drafter for Oracle {
    fn follow(&mut self, _: &[Token]) {}

    fn chance(&self, _: usize) -> f64 {
        0.9
    }

    fn draft(
        &mut self,
        text: &[Token],
        count: usize,
        _: Option<&mut Target<'_>>,
        drafts: &mut Vec<Token>,
    ) -> Result<(), Error> {
        for i in text.len()..text.len() + count {
            let right = self.text.get(i).copied().unwrap_or(0);
            let wrong = self.random.below(100) < self.wrong;
            drafts.push(if wrong { (right + 1) % END } else { right });
        }
        Ok(())
    }
}

/// An answer, and the state of everything after it.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    text: String,
    tokens: Vec<Token>,
    end: End,
    sequence: Vec<Token>,
    drawn: u64,
    /// The probabilities of three tokens that follow.
    following: Vec<Vec<Likelihood>>,
    /// These tokens.
    chosen: Vec<Token>,
}

/// The number of tokens that were drafted, and of those that were right.
pub type Counts = (usize, usize);

/// A way to generate that all drafters must agree about.
#[derive(Clone)]
pub struct Case {
    pub name: &'static str,
    pub tiny: Tiny,
    pub how: How,
    pub settings: Settings,
    pub limits: Limits,
    pub prompt: usize,
}

impl Case {
    /// Returns the case of greedy answers of 60 tokens.
    fn new(name: &'static str, tiny: Tiny) -> Self {
        let limits = Limits { tokens_max: Some(60), ignore_end: true, ..Limits::default() };
        let settings = Settings { seed: Some(7), ..Settings::default() };
        let settings = settings.with(&temperature::TEMPERATURE, 0.0);
        let how = How::default();
        Case { name, tiny, how, settings, limits, prompt: 20 }
    }

    /// Returns the case of a RoPE method, from before its first change of frequencies, eviction or
    /// dropped page until after some of them.
    pub fn flags(name: &'static str, tiny: Tiny, flags: Flags, tokens: usize) -> Self {
        let mut case = Case::new(name, tiny).sampled();
        case.how.flags = flags;
        case.limits.tokens_max = Some(tokens);
        case
    }

    /// Replaces greedy answers by random ones, which have no repetitions.
    fn sampled(self) -> Self {
        Case { settings: self.settings.with(&temperature::TEMPERATURE, 1.0), ..self }
    }

    /// Generates an answer without drafts, in the engine of a session.
    pub fn plain(&self, session: &mut Session) -> Outcome {
        self.outcomes(session, Speculation::none(), 1).remove(0).0
    }

    /// Generates an answer with drafts so many times, each from the start of the prompt.
    pub fn outcomes(
        &self,
        session: &mut Session,
        speculation: Speculation,
        times: usize,
    ) -> Vec<(Outcome, Counts)> {
        self.in_slots(session, vec![speculation], &vec![0; times])
    }

    /// Generates an answer in each of the slots, which have these drafts.
    fn in_slots(
        &self,
        session: &mut Session,
        speculations: Vec<Speculation>,
        slots: &[usize],
    ) -> Vec<(Outcome, Counts)> {
        let (model, plan) = (session.model().clone(), session.rope().plan().clone());
        let options = session.parts().0.options().clone();
        let engine = Engine::new(&model, Rope::new(plan), options).unwrap();
        let tokenizer = model.tokenizer().unwrap();
        let options = batch::Options { speculations, ..batch::Options::new(1) };
        let mut scheduler = Scheduler::new(engine, tokenizer, options, Arc::default());
        slots.iter().map(|slot| self.outcome(&mut scheduler, *slot)).collect()
    }

    fn request(&self, prompt: Vec<Token>) -> Request {
        Request {
            sampling: self.settings.clone(),
            limits: self.limits.clone(),
            reuse: false,
            ..Request::new(prompt)
        }
    }

    fn outcome(&self, scheduler: &mut Scheduler<'_>, slot: usize) -> (Outcome, Counts) {
        let slot = Some(slot);
        let request = Request { slot, ..self.request(tokens(&self.tiny, self.prompt)) };
        let found = scheduler.answer(request, &mut |_| ControlFlow::Continue(())).unwrap();
        let batch::Outcome { end, timings, drawn, .. } = found.outcome.clone();
        let sequence = scheduler.sequence(found.outcome.slot).unwrap().tokens().to_vec();
        assert_eq!(timings.steps + timings.accepted + 1, {
            // A token that ends the answer also takes a step.
            found.tokens.len() + usize::from(end == End::Model)
        });
        // The probabilities of what follows in this sequence, and further random choices.
        let (mut following, mut chosen) = (Vec::new(), Vec::new());
        let engine = scheduler.engine();
        if sequence.len() + 3 < engine.capacity() || engine.rope().plan().shifts {
            let request = Request {
                sampling: Settings { drawn, ..self.settings.clone() },
                limits: Limits { tokens_max: Some(3), ignore_end: true, ..Limits::default() },
                slot,
                inexact: true,
                drafts_max: Some(0),
                probabilities: Some(Wanted {
                    top: self.tiny.vocabulary,
                    after_sampling: false,
                    of_prompt: false,
                    of_end: false,
                }),
                ..Request::new([&sequence[..], &[3]].concat())
            };
            let after = scheduler.answer(request, &mut |update| {
                if let Update::Generated(Generated { probabilities: Some(one), .. }) = update {
                    following.push(one.top.clone());
                }
                ControlFlow::Continue(())
            });
            let after = after.unwrap();
            chosen = after.tokens;
            // The sequence was continued, not computed again.
            assert!(after.outcome.timings.reused > 0);
            assert_eq!(following.len(), 3);
        }
        let (text, tokens) = (found.text, found.tokens);
        let outcome = Outcome { text, tokens, end, sequence, drawn, following, chosen };
        (outcome, (timings.drafted, timings.accepted))
    }

    /// Checks that all drafters give what none gives. Returns the outcome.
    fn check(&self) -> Outcome {
        let file = file(&self.tiny);
        let run = |speculation: Speculation| {
            let outcomes = |session: &mut Session| self.outcomes(session, speculation, 1);
            with_file(&file, &[], &self.how, outcomes).remove(0)
        };
        let (expected, _) = run(Speculation::none());
        let text = [tokens(&self.tiny, self.prompt), expected.tokens.clone()].concat();
        let oracle = |wrong| -> Box<dyn Drafter> {
            Box::new(Oracle { text: text.clone(), wrong, random: Random(wrong as u64) })
        };
        for (kind, drafter, count) in [
            ("right", oracle(0), Count::Always(DRAFTS_MAX)),
            ("wrong", oracle(100), Count::Always(DRAFTS_MAX)),
            ("mixed", oracle(20), Count::Always(DRAFTS_MAX)),
            ("single", oracle(50), Count::Always(1)),
            ("adaptive", oracle(30), Count::UpTo(DRAFTS_MAX)),
            ("lookup", Box::new(Lookup::default()), Count::Always(7)),
        ] {
            let name = format!("{}, {kind}", self.name);
            let (found, (drafted, accepted)) = run(Speculation::new(vec![drafter], count));
            assert!(found == expected, "{name}:\n{found:?}\n{expected:?}");
            match kind {
                "right" => assert!(accepted > 0, "{name}: {drafted}"),
                "wrong" => assert!(drafted > 0 && accepted == 0, "{name}: {accepted}"),
                _ => {}
            }
        }
        expected
    }
}

fn models() -> Vec<(&'static str, Tiny)> {
    let quantized = Tiny::llama().in_blocks();
    vec![
        ("llama", Tiny::llama()),
        ("quantized", quantized),
        ("gemma3", Tiny::gemma3()),
        ("qwen3moe", Tiny::named("qwen3moe")),
    ]
}

#[test]
fn answers_are_the_same_with_any_sampler() {
    for (name, tiny) in models() {
        let greedy = Case::new(name, tiny);
        let with = |settings: Settings| Case { settings, ..greedy.clone() };
        let random = greedy.settings.clone().with(&temperature::TEMPERATURE, 1.5);
        greedy.check();
        with(random.clone()).check();
        with(random.clone().with(&mirostat::VERSION, 2)).check();
        with(random.clone().with(&mirostat::VERSION, 1)).check();
        with(greedy.settings.clone().with(&penalties::REPEAT, 1.5)).check();
        with(random.with(&dry::MULTIPLIER, 2.0).with(&penalties::PRESENCE, 0.5)).check();
    }
}

#[test]
fn answers_end_at_the_same_token() {
    let open = Case::new("open", Tiny::llama()).sampled();
    let text = open.check().text;
    for at in [5, 17, 40] {
        let mut case = open.clone();
        case.limits.stops = Stops::new([&text[at..at + 3]]);
        assert!(matches!(case.check().end, End::Stop(_)), "{at}");
        case = open.clone();
        case.limits.tokens_max = Some(at);
        assert_eq!(case.check().end, End::TokensMax);
        case = open.clone();
        case.how.context = open.prompt + at;
        assert_eq!(case.check().end, End::ContextFull);
    }
    // Some seed ends the answer early.
    let ends = (0..200).filter(|&seed| {
        let mut case = open.clone();
        (case.limits.ignore_end, case.settings.seed) = (false, Some(seed));
        let file = file(&case.tiny);
        let plain = || with_file(&file, &[], &case.how, |session| case.plain(session));
        if seed > 0 && plain().end != End::Model {
            return false;
        }
        case.check().end == End::Model
    });
    assert!(ends.take(2).count() == 2);
}

#[test]
fn a_callback_stops_at_the_same_token() {
    let case = Case::new("stopped", Tiny::llama());
    let file = file(&case.tiny);
    let expected = case.check().tokens;
    let text = [tokens(&case.tiny, case.prompt), expected].concat();
    for stop in 1..20 {
        let drafter = Oracle { text: text.clone(), wrong: 10, random: Random(5) };
        let speculation = Speculation::new(vec![Box::new(drafter)], Count::Always(DRAFTS_MAX));
        with_model(&file, &[], &case.how, |model, rope, options| {
            let engine = Engine::new(model, rope, options).unwrap();
            let options =
                batch::Options { speculations: vec![speculation], ..batch::Options::new(1) };
            let tokenizer = model.tokenizer().unwrap();
            let mut scheduler = Scheduler::new(engine, tokenizer, options, Arc::default());
            let mut events = 0;
            let request = case.request(text[..case.prompt].to_vec());
            let found = scheduler.answer(request, &mut |update| {
                events += usize::from(matches!(update, Update::Generated(_)));
                if events == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let found = found.unwrap();
            assert_eq!(found.outcome.end, End::Caller);
            assert_eq!(found.tokens, &text[case.prompt..][..stop]);
            // It may have further tokens of the last step.
            let sequence = scheduler.sequence(0).unwrap().tokens();
            assert!(
                sequence.starts_with(&text[..case.prompt + stop - 1]) && text.starts_with(sequence)
            );
        });
    }
}

#[test]
fn any_cache_type_and_micro_batch_gives_the_same_answer() {
    for cache in CacheType::ALL {
        for tiny in [Tiny::llama(), Tiny::gemma3()] {
            let mut case = Case::new(cache.name(), tiny).sampled();
            (case.how.keys, case.how.values) = (cache, cache);
            case.prompt = 245; // the answer begins a page
            case.check();
        }
    }
    for micro_batch in [2, 5] {
        let mut case = Case::new("small micro-batch", Tiny::llama()).sampled();
        case.how.micro_batch = micro_batch;
        case.check();
    }
    let mut single = Case::new("micro-batch of 1", Tiny::llama());
    single.how.micro_batch = 1;
    let file = file(&single.tiny);
    let drafter = Oracle { text: Vec::new(), wrong: 0, random: Random(0) };
    let speculation = Speculation::new(vec![Box::new(drafter)], Count::Always(4));
    let outcomes = |session: &mut Session| single.outcomes(session, speculation, 1);
    assert_eq!(with_file(&file, &[], &single.how, outcomes)[0].1, (0, 0));
}

#[test]
fn windows_keep_what_wrong_drafts_need() {
    // Pages of 256 positions leave the window of 40, and the rolling one of 50.
    Case::flags("gemma3", Tiny::gemma3(), Flags::default(), 600).check();
    let rolling =
        Flags::method("lm-infinite").with(&lm_infinite::GLOBAL, 5).with(&lm_infinite::LOCAL, 50);
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        let mut case = Case::flags("lm-infinite", tiny, rolling.clone(), 600);
        case.how.context = 300;
        case.check();
    }
}

#[test]
fn a_context_shifts_at_the_same_token() {
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        let flags = Flags { context_shift: true, ..Flags::default() };
        let mut case = Case::flags("shift", tiny, flags, 900);
        case.how.context = 300;
        case.check();
    }
}

on_every_rule!(frequencies_that_follow_the_length_change_at_the_same_token);

fn frequencies_that_follow_the_length_change_at_the_same_token(name: &'static str) {
    let case = position::Case::named(name);
    for policy in ["position", "run"] {
        let flags = case.flags.clone().with(&POLICY, policy);
        let mut case = Case::flags(name, case.tiny.clone(), flags, 150);
        case.prompt = 60;
        case.check();
    }
}

/// Returns a session of a draft model.
fn draft_session(file: &Builder, how: &How) -> Session {
    with_model(file, &[], how, |model, rope, options| Session::new(model, rope, options).unwrap())
}

#[test]
fn a_draft_model_changes_nothing() {
    let target = Tiny { layers: 3, ..Tiny::gemma3() };
    let rolling =
        Flags::method("lm-infinite").with(&lm_infinite::GLOBAL, 5).with(&lm_infinite::LOCAL, 50);
    let shifting = Flags { context_shift: true, ..Flags::default() };
    for (flags, draft) in [
        (Flags::default(), target.clone()),
        (Flags::default(), Tiny::gemma3()),
        (shifting.clone(), Tiny::llama()),
        (shifting, target.clone()),
        (rolling, target.clone()),
    ] {
        let mut case = Case::flags("draft model", target.clone(), flags, 600);
        case.how.context = if case.how.flags.context_shift { 300 } else { 1000 };
        let same = draft.architecture == target.architecture;
        if same {
            case.settings = case.settings.with(&temperature::TEMPERATURE, 0.0);
        }
        let (file, draft_file) = (file(&case.tiny), file(&draft));
        let expected = with_file(&file, &[], &case.how, |session| case.plain(session));
        for count in [Count::Always(6), Count::UpTo(DRAFTS_MAX)] {
            with_file(&file, &[], &case.how, |session| {
                let drafts = draft_session(&draft_file, &case.how);
                let drafter = DraftModel::new(session.model(), drafts).unwrap();
                let drafters: Vec<Box<dyn Drafter>> =
                    vec![Box::new(Lookup::default()), Box::new(drafter)];
                let drafters = if same { drafters.into_iter().skip(1).collect() } else { drafters };
                let speculation = Speculation::new(drafters, count);
                for (found, (drafted, accepted)) in case.outcomes(session, speculation, 2) {
                    assert!(found == expected, "{:?}\n{found:?}\n{expected:?}", case.how.flags);
                    if same && count == Count::Always(6) {
                        // Equal models differ by rounding only.
                        assert!(accepted > drafted / 2, "{accepted} of {drafted}");
                    }
                }
            });
        }
    }
}

/// Returns the file of a model that predicts the next token from the last one alone, and its predictor
/// does the same.
fn predictable(tiny: &Tiny) -> Builder {
    let mut file = file(tiny);
    let silent = ["attn_output.weight", "ssm_out.weight", "ffn_down.weight", ".proj.weight"];
    let inputs = ["nextn.eh_proj.weight", "nextn.pre_projection.weight"];
    for (name, shape) in tiny.tensors() {
        let count = shape.iter().product();
        if silent.iter().any(|end| name.ends_with(end)) {
            overwrite(&mut file, &name, &vec![0.0; count]);
        } else if name.ends_with("nextn.enorm.weight") {
            overwrite(&mut file, &name, &vec![1.0; count]);
        } else if inputs.iter().any(|end| name.ends_with(end)) {
            // The embedding, and nothing of the output.
            let (rows, columns) = (shape[0], shape[1]);
            let one = |i: usize| f32::from(u8::from(i / columns == i % columns));
            overwrite(&mut file, &name, &(0..rows * columns).map(one).collect::<Vec<_>>());
        }
    }
    file
}

/// Replaces the elements of a tensor in F32.
fn overwrite(file: &mut Builder, name: &str, values: &[f32]) {
    let has_name = |one: &&Vec<u8>| one[8..].starts_with(name.as_bytes());
    let tensor = file.tensors.iter().find(has_name).unwrap();
    let offset = u64::from_le_bytes(*tensor.last_chunk().unwrap()) as usize;
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    file.data[offset..][..bytes.len()].copy_from_slice(&bytes);
}

on_each_case!(a_predictor_changes_nothing {
    random(Tiny::named("qwen35"), Flags::default()),
    moe(Tiny::named("qwen35moe"), Flags::default()),
    shifting(Tiny::named("qwen35"), Flags { context_shift: true, ..Flags::default() }),
    yarn(Tiny::named("qwen35"), Flags::method("yarn")),
    by_position(Tiny::named("qwen35"), Flags::method("dynamic").with(&POLICY, "position")),
    by_run(Tiny::named("qwen35"), Flags::method("dynamic").with(&POLICY, "run")),
    right(Tiny::named("qwen35"), Flags::default()),
});

fn a_predictor_changes_nothing(name: &'static str, tiny: Tiny, flags: Flags) {
    let file = if name == "right" { predictable(&tiny) } else { file(&tiny) };
    let drafting = |_: &Model, options| Options { predict: true, ..options };
    own_drafts_change_nothing(Case::flags(name, tiny, flags, 400), &file, &drafting);
}

on_each_case!(an_assistant_changes_nothing {
    random(Flags::default()),
    shifting(Flags { context_shift: true, ..Flags::default() }),
    yarn(Flags::method("yarn")),
    by_position(Flags::method("dynamic").with(&POLICY, "position")),
    by_run(Flags::method("dynamic").with(&POLICY, "run")),
    right(Flags::default()),
});

fn an_assistant_changes_nothing(name: &'static str, flags: Flags) {
    let target = Tiny::named("gemma4");
    let own = target.assistant();
    let (file, assistant) = match name {
        // Its embeddings and its output norm are the model's.
        "right" => {
            let like = Tiny { embedding: target.embedding, ..own };
            (predictable(&target), predictable(&like))
        }
        _ => (file(&target), own.builder()),
    };
    let drafting = |model: &Model, options| {
        let assistant = load_assistant(&assistant, model).unwrap();
        assert!(assistant.is_some());
        Options { assistant, ..options }
    };
    own_drafts_change_nothing(Case::flags(name, target, flags, 400), &file, &drafting);
}

/// Checks that drafts of the model itself give what none give. `drafting` returns the options with
/// which it drafts. In the case `right`, its drafts are right.
fn own_drafts_change_nothing(
    mut case: Case,
    file: &Builder,
    drafting: &dyn Fn(&Model, Options) -> Options,
) {
    let name = case.name;
    case.how.context = if case.how.flags.context_shift { 300 } else { 1000 };
    if name == "right" {
        case.settings = case.settings.with(&temperature::TEMPERATURE, 0.0);
    }
    let run = |drafts: bool, test: &mut dyn FnMut(&mut Session)| {
        with_model(file, &[], &case.how, |model, rope, options| {
            let options = if drafts { drafting(model, options) } else { options };
            test(&mut Session::new(model, rope, options).unwrap());
        });
    };
    let mut expected = None;
    run(false, &mut |session| {
        expected = Some(case.plain(session));
    });
    let expected = expected.unwrap();
    for (has_lookup, count) in [
        (false, Count::Always(1)),
        (false, Count::Always(4)),
        (true, Count::Always(4)),
        (false, Count::UpTo(DRAFTS_MAX)),
    ] {
        run(true, &mut |session| {
            let lookup = has_lookup.then(|| Box::new(Lookup::default()) as Box<dyn Drafter>);
            let own: Box<dyn Drafter> = Box::new(Predictor::default());
            let speculation = Speculation::new(lookup.into_iter().chain([own]).collect(), count);
            for (found, (drafted, accepted)) in case.outcomes(session, speculation, 2) {
                assert!(found == expected, "{name}:\n{found:?}\n{expected:?}");
                if let Count::Always(_) = count {
                    assert!(drafted > 0, "{name}");
                    let all = name == "right" && !has_lookup;
                    assert!(!all || accepted + 4 >= drafted, "{accepted} of {drafted}");
                }
            }
        });
    }
}

#[test]
fn a_scheduler_drafts_with_the_predictor() {
    let target = Tiny::named("qwen35");
    let file = predictable(&target);
    let answers = |predict| {
        let how = How { threads: 1, micro_batch: 32, ..How::default() };
        with_model(&file, &[], &how, |model, rope, options| {
            let engine = Engine::new(model, rope, Options { predict, ..options }).unwrap();
            let drafter = predict.then_some(|| Box::new(Predictor::default()) as Box<dyn Drafter>);
            let prompts = (0..5).map(|i| tokens(&target, 30 + 11 * i)).collect();
            scheduled(engine, prompts, drafter, |timings| {
                assert_eq!(timings.drafted > 0, predict);
                assert_eq!(timings.accepted > 0, predict);
            })
        })
    };
    assert!(answers(true) == answers(false));
}

/// Where the memory of a draft model is full, its text has no drafts, and the answer is the same.
#[test]
fn a_draft_model_has_no_more_memory_than_it_may() {
    let target = Tiny::llama();
    let mut case = Case::flags("crowded", target.clone(), Flags::default(), 600);
    case.settings = case.settings.with(&temperature::TEMPERATURE, 0.0);
    case.how.context = 1000;
    let file = file(&target);
    let page_bytes = with_file(&file, &[], &case.how, |session| {
        case.how.read(session, &[1; 20]);
        session.cache_bytes()
    });
    with_file(&file, &[], &case.how, |session| {
        let expected = case.plain(session);
        let mut drafted = |cache_bytes| {
            let limited = |model: &Model, rope: Rope, options: Options| {
                Session::new(model, rope, Options { cache_bytes, ..options }).unwrap()
            };
            let first = with_model(&file, &[], &case.how, limited);
            let first = DraftModel::new(session.model(), first).unwrap();
            let second = first.beside();
            // The memory of the first is held while the second drafts.
            let speculation = |drafter| Speculation::new(vec![Box::new(drafter)], Count::Always(6));
            let speculations = [first, second].map(speculation).into();
            let outcomes = case.in_slots(session, speculations, &[0, 1]);
            assert!(outcomes.iter().all(|(found, _)| *found == expected), "{cache_bytes}");
            [outcomes[0].1.0, outcomes[1].1.0]
        };
        assert_eq!(drafted(1), [0, 0]);
        let [[all, others], [some, after]] = [drafted(usize::MAX), drafted(page_bytes)];
        assert!(all == others && 0 < some && some < all && after == some, "{all} {some} {after}");
    });
}

#[test]
fn a_draft_model_of_another_vocabulary_is_refused() {
    let tiny = Tiny::llama();
    let target = load(&file(&tiny), &[]).unwrap();
    let how = How::default();
    let refused = |file: &Builder| match DraftModel::new(&target, draft_session(file, &how)) {
        Ok(_) => panic!("not refused"),
        Err(error) => error.to_string(),
    };
    let without = refused(&tiny.builder());
    assert!(without.contains("tokenizer.ggml.model"), "{without}");
    let message = refused(&file_with(&tiny, '!'));
    assert!(message.contains("token 48 is \"!\" in this one, and \"W\""), "{message}");
}
