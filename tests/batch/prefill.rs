//! Speculative prefill: a draft model chooses which tokens of a long prompt are computed.

use std::sync::Arc;

use rope_cpu::{
    Token,
    batch::{Disk, Options, Request, Scheduler, Status, Wanted},
    generate::speculation::{Count, DraftModel, Drafter, Speculation, SpeculativePrefill, prefill},
    model::{self, Model, Session},
    rope::{Flags, Rope},
};

use crate::batch::harness::{
    CONTEXT, Setup, alone, engine, finish, request, step_while, submit, tokens, with_model,
};
use rope_cpu_testing::reader::tiny_reader;

/// The tokens of a prompt: those after the first 128 and before the last 512 can be left out.
const LENGTH: usize = 960;
/// Of the 320 tokens between them, 80 are computed, and the rest of the last part.
const SHARE: f64 = 0.75;

/// Runs `test` with a scheduler that computes a share of prompts from 600 tokens on, chosen by another
/// model.
fn with_prefill(
    share: f64,
    slots: usize,
    change: impl Fn(&Model, Setup) -> Setup,
    test: impl FnOnce(&mut Scheduler<'_>, &Status),
) {
    let draft = Model::open(tiny_reader(8, true).path()).unwrap();
    with_model(|model| {
        let rope = Rope::new(draft.rope_plan(&Flags::default(), CONTEXT).unwrap());
        let options = model::Options { micro_batch: 64, ..model::Options::new(CONTEXT) };
        let session = Session::new(&draft, rope, options).unwrap();
        let drafter = DraftModel::new(model, session).unwrap();
        let speculations = (0..slots).map(|_| {
            let drafter: Box<dyn Drafter> = Box::new(drafter.beside());
            Speculation::new(vec![drafter], Count::UpTo(4))
        });
        let prefill = Some(SpeculativePrefill { share, length_min: 600 });
        let speculations = speculations.collect();
        let options = Options { speculations, prefill, ..Options::new(slots) };
        let setup = change(model, Setup { options, ..Setup::new(slots) });
        let (status, engine) = (Arc::<Status>::default(), engine(model, &setup));
        let tokenizer = model.tokenizer().unwrap();
        let mut scheduler = Scheduler::new(engine, tokenizer, setup.options, status.clone());
        test(&mut scheduler, &status);
    });
}

fn same(_: &Model, setup: Setup) -> Setup {
    setup
}

/// Computes an answer. Returns its tokens, and the numbers of tokens that were left out and reused.
fn run(scheduler: &mut Scheduler<'_>, request: Request) -> (Vec<Token>, usize, usize) {
    let inbox = submit(scheduler, request);
    finish(scheduler);
    let outcome = inbox.outcome().unwrap();
    let (timings, length) = (outcome.timings, outcome.sequence_tokens);
    assert_eq!(inbox.read(), LENGTH.min(length));
    (inbox.tokens(), timings.omitted, timings.reused)
}

#[test]
fn a_share_of_a_long_prompt_is_computed() {
    with_prefill(SHARE, 1, same, |scheduler, status| {
        let long = request(tokens(1, LENGTH), 8);
        let (answer, omitted, reused) = run(scheduler, long.clone());
        assert!((160..=240).contains(&omitted), "{omitted}");
        assert_eq!((answer.len(), reused), (8, 0));
        assert_ne!(answer, alone(long.clone()));
        let timings = status.state().timings;
        assert_eq!((timings.read, timings.omitted), (LENGTH - omitted, omitted));
        // Nothing after the first gap is reused; the same tokens are chosen again.
        let first = scheduler.sequence(0).unwrap().tokens().len();
        assert!((128..448).contains(&first), "{first}");
        assert_eq!(scheduler.sequence(0).unwrap().first_omitted(), None);
        let fresh = Request { reuse: false, ..long.clone() };
        assert_eq!(run(scheduler, fresh), (answer, omitted, 0));
        let (_, _, reused) = run(scheduler, long);
        assert_eq!(reused, first);
    });
}

#[test]
fn all_of_a_prompt_has_the_bits_of_a_dense_one() {
    with_prefill(1.0, 1, same, |scheduler, _| {
        let long = request(tokens(1, LENGTH), 12);
        assert_eq!(run(scheduler, long.clone()), (alone(long), 0, 0));
    });
}

#[test]
fn short_prompts_and_those_with_all_outputs_are_computed_whole() {
    with_prefill(SHARE, 1, same, |scheduler, _| {
        let short = request(tokens(2, 599), 5);
        let inbox = submit(scheduler, short.clone());
        finish(scheduler);
        assert_eq!(inbox.tokens(), alone(short));
        // Most of it is in the cache.
        let longer = request([tokens(2, 599), tokens(3, LENGTH - 599)].concat(), 5);
        assert_eq!(run(scheduler, longer.clone()), (alone(longer), 0, 599));
        let wanted = Wanted { top: 1, after_sampling: false, of_prompt: true, of_end: false };
        let all = Request { probabilities: Some(wanted), ..request(tokens(4, LENGTH), 5) };
        assert_eq!(run(scheduler, all.clone()), (alone(all), 0, 0));
    });
}

/// Without a draft model that could choose, nothing is lost.
#[test]
fn a_prompt_is_computed_whole_without_a_draft_model() {
    let none = |_: &Model, mut setup: Setup| {
        setup.options.speculations = vec![Speculation::none()];
        setup
    };
    with_prefill(SHARE, 1, none, |scheduler, _| {
        let long = request(tokens(1, LENGTH), 5);
        assert_eq!(run(scheduler, long.clone()), (alone(long), 0, 0));
    });
}

#[test]
fn answers_go_on_while_a_draft_model_reads() {
    with_prefill(SHARE, 2, same, |scheduler, _| {
        let short = request(tokens(2, 50), 60);
        let first = submit(scheduler, short.clone());
        step_while(scheduler, || first.tokens().is_empty());
        let long = submit(scheduler, request(tokens(1, LENGTH), 5));
        step_while(scheduler, || long.read() == 0);
        assert!(first.tokens().len() > 4 && first.outcome().is_none(), "{:?}", first.tokens());
        finish(scheduler);
        assert_eq!(first.tokens(), alone(short));
        assert!(long.outcome().unwrap().timings.omitted > 0);
    });
}

/// Other prompts reuse nothing after a gap: from a busy slot, from memory, or from the disk.
#[test]
fn no_cache_takes_a_prompt_with_gaps_for_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let on_disk = |model: &Model, mut setup: Setup| {
        let archive = engine(model, &setup).archive(model.fingerprint());
        setup.options.disk = Some(Disk::open(folder.path().into(), u64::MAX, archive).unwrap());
        setup
    };
    let text = tokens(1, LENGTH);
    let mut first = 0;
    with_prefill(SHARE, 2, on_disk, |scheduler, _| {
        let long = submit(scheduler, request(text.clone(), 40));
        step_while(scheduler, || long.tokens().len() < 5);
        first = scheduler.sequence(0).unwrap().first_omitted().unwrap();
        // Short enough to be computed whole.
        let whole = request([&text[..first + 100], &tokens(7, 20)].concat(), 6);
        let other = submit(scheduler, whole.clone());
        finish(scheduler);
        assert_eq!(other.tokens(), alone(whole));
        assert_eq!(other.outcome().unwrap().timings.reused, first);
        assert!(long.outcome().unwrap().timings.omitted > 0);
    });
    with_prefill(SHARE, 2, on_disk, |scheduler, _| {
        let whole = request([&text[..first + 100], &tokens(9, 20)].concat(), 6);
        let other = submit(scheduler, whole.clone());
        finish(scheduler);
        assert_eq!(other.tokens(), alone(whole));
    });
}

/// An answer that had to make room computes its prompt again, without the same tokens.
#[test]
fn a_suspended_answer_goes_on_with_its_bits() {
    let mut expected = Vec::new();
    with_prefill(SHARE, 1, same, |scheduler, _| {
        expected = run(scheduler, request(tokens(1, LENGTH), 40)).0;
    });
    let crowded = |model: &Model, setup: Setup| {
        let page = engine(model, &setup).pool().page_bytes();
        Setup { cache_bytes: 12 * page, ..setup }
    };
    with_prefill(SHARE, 2, crowded, |scheduler, _| {
        // It is the older one, and grows to a whole context.
        let older = submit(scheduler, request(tokens(2, 400), 400));
        step_while(scheduler, || older.tokens().is_empty());
        let long = submit(scheduler, request(tokens(1, LENGTH), 40));
        finish(scheduler);
        assert_eq!(long.tokens(), expected);
        assert_eq!(older.tokens(), alone(request(tokens(2, 400), 400)));
    });
}

/// An idle scheduler computes the tokens that were left out of a prompt.
#[test]
fn a_prompt_is_computed_whole_later() {
    let later = |_: &Model, mut setup: Setup| {
        setup.options.prefill_later = true;
        setup
    };
    with_prefill(SHARE, 1, later, |scheduler, _| {
        let (answer, omitted, _) = run(scheduler, request(tokens(1, LENGTH), 8));
        assert!(omitted > 0);
        let text = [tokens(1, LENGTH), answer].concat();
        assert!(scheduler.sequence(0).unwrap().tokens().len() < LENGTH / 2);
        // Another request comes first, and goes on with what it finds.
        assert!(scheduler.read_later());
        scheduler.step();
        let short = request(tokens(2, 50), 5);
        let other = submit(scheduler, short.clone());
        assert!(!scheduler.read_later());
        finish(scheduler);
        assert_eq!(other.tokens(), alone(short));
        assert!(scheduler.read_later());
        finish(scheduler);
        // The last token of the answer has not been computed.
        assert_eq!(scheduler.sequence(0).unwrap().tokens(), &text[..text.len() - 1]);
        assert!(!scheduler.read_later());
        let next = request([&text[..], &tokens(3, 20)].concat(), 8);
        let inbox = submit(scheduler, next.clone());
        finish(scheduler);
        let timings = inbox.outcome().unwrap().timings;
        assert_eq!((timings.reused, timings.omitted), (text.len() - 1, 0));
        assert_eq!(inbox.tokens(), alone(next));
    });
}

#[test]
fn the_line_says_what_was_left_out() {
    let line = prefill::line(16_384, 0, 13_056);
    assert_eq!(line, "Speculative prefill: 3328 of 16384 prompt tokens computed, 13056 left out");
    let line = prefill::line(16_384, 84, 13_000);
    assert_eq!(
        line,
        "Speculative prefill: 3300 of 16384 prompt tokens computed, 13000 left out, 84 reused"
    );
}
