//! Parts of prompts that earlier sequences have at other positions.

use rope_cpu::{
    Token,
    batch::{Disk, MOVED_LEAST, Request, Scheduler},
    model::{Engine, Feed, Model, Output, Role, Sequence},
    rope::Flags,
    sample::temperature,
};

use crate::batch::harness::{Setup, engine, finish, request, scheduler, submit, with_model};

/// The first tokens of a part that are computed.
const COMPUTED: usize = 32;

fn setup(moves: bool) -> Setup {
    let flags = Flags { context_shift: true, ..Flags::default() };
    let mut setup = Setup { flags, ..Setup::new(2) };
    setup.options.moved_min = moves.then_some(MOVED_LEAST);
    setup
}

/// Returns random tokens.
fn text(seed: u32, count: usize) -> Vec<Token> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        1 + (state >> 16) % 37
    };
    (0..count).map(next).collect()
}

/// Returns a request for the likeliest five tokens.
fn greedy(prompt: &[Token]) -> Request {
    let request = request(prompt.to_vec(), 5);
    let sampling = request.sampling.clone().with(&temperature::TEMPERATURE, 0.0);
    Request { sampling, ..request }
}

/// Returns the answer's tokens, and how many of the prompt were reused.
fn answer(scheduler: &mut Scheduler<'_>, prompt: &[Token]) -> (Vec<Token>, usize) {
    let inbox = submit(scheduler, greedy(prompt));
    finish(scheduler);
    let timings = inbox.outcome().unwrap().timings;
    assert_eq!(timings.reused + timings.read, prompt.len());
    (inbox.tokens(), timings.reused)
}

/// Reads tokens, and returns the likeliest next one.
fn read(engine: &mut Engine, sequence: &mut Sequence, role: Role, tokens: &[Token]) -> Token {
    let (mut tokens, mut best) = (tokens, 0);
    while !tokens.is_empty() {
        let (wanted, output) = (0..usize::MAX, Output::Logits);
        let mut feeds = [Feed { sequence: &mut *sequence, tokens, role, wanted, output }];
        let likeliest = |logits: &[f32]| {
            let all = logits.iter().enumerate().rev();
            all.max_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(0, |(i, _)| i as Token)
        };
        engine.step(&mut feeds, &mut |_, _, logits| best = likeliest(logits)).unwrap();
        [Feed { tokens, .. }] = feeds;
    }
    best
}

/// Returns a prompt with two parts of a document, in another order. Neither starts at a page.
fn moved(document: &[Token]) -> Vec<Token> {
    let parts = [&text(2, 50)[..], &document[200..300], &document[40..740], &text(3, 20)];
    parts.concat()
}

/// Returns the answer to [`moved`] by steps of the engine.
fn expected(model: &Model, document: &[Token]) -> Vec<Token> {
    let mut engine = engine(model, &setup(false));
    let (mut kept, mut sequence) = (engine.sequence(), engine.sequence());
    read(&mut engine, &mut kept, Role::Prompt, document);
    let prompt = moved(document);
    for (start, part) in [(50, 200..300), (150, 40..740)] {
        let computed = sequence.tokens().len()..start + COMPUTED;
        read(&mut engine, &mut sequence, Role::Prompt, &prompt[computed]);
        let part = part.start + COMPUTED..part.end;
        assert!(engine.place(&mut sequence, &kept, part).unwrap());
    }
    let rest = sequence.tokens().len();
    let mut found = vec![read(&mut engine, &mut sequence, Role::Prompt, &prompt[rest..])];
    while found.len() < 5 {
        let last = found[found.len() - 1];
        found.push(read(&mut engine, &mut sequence, Role::Answer, &[last]));
    }
    found
}

#[test]
fn parts_of_a_prompt_move_from_earlier_sequences() {
    let document = text(1, 760);
    let prompt = moved(&document);
    with_model(|model| {
        for moves in [true, false] {
            let (mut scheduler, status) = crate::batch::harness::scheduler(model, setup(moves));
            assert_eq!(answer(&mut scheduler, &document).1, 0);
            let (tokens, reused) = answer(&mut scheduler, &prompt);
            if moves {
                assert_eq!(reused, 100 + 700 - 2 * COMPUTED);
                assert_eq!(tokens, expected(model, &document));
                assert!(status.state().slots.iter().all(|slot| !slot.busy));
                // What was moved is reused like all tokens.
                assert_eq!(answer(&mut scheduler, &prompt), (tokens, prompt.len() - 1));
            } else {
                assert_eq!(reused, 0);
            }
            let fresh = Request { reuse: false, ..greedy(&prompt) };
            let inbox = submit(&mut scheduler, fresh);
            finish(&mut scheduler);
            assert_eq!(inbox.outcome().unwrap().timings.reused, 0);
        }
    });
}

#[test]
fn parts_move_from_documents_on_disk_and_are_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let document = text(1, 760);
    let prompt = moved(&document);
    with_model(|model| {
        let with_disk = |moves| {
            let mut setup = setup(moves);
            let engine = engine(model, &setup);
            let archive = engine.archive(model.fingerprint());
            let disk = Disk::open(folder.path().into(), u64::MAX, archive).unwrap();
            setup.options.disk = Some(disk);
            Scheduler::new(engine, model.tokenizer().unwrap(), setup.options, Default::default())
        };
        let files = || folder.path().read_dir().unwrap().count();
        let mut first = with_disk(false);
        answer(&mut first, &document);
        first.close();
        assert_eq!(files(), 1);
        let mut second = with_disk(true);
        let found = answer(&mut second, &prompt);
        assert_eq!(found, (expected(model, &document), 100 + 700 - 2 * COMPUTED));
        second.close();
        assert_eq!(files(), 1);
    });
}

#[test]
fn parts_of_another_owner_are_not_moved() {
    with_model(|model| {
        let document = text(1, 800);
        for (owner, reuses) in [(1, false), (0, true)] {
            let (mut scheduler, _) = scheduler(model, setup(true));
            answer(&mut scheduler, &document);
            let inbox = submit(&mut scheduler, Request { owner, ..greedy(&moved(&document)) });
            finish(&mut scheduler);
            assert_eq!(inbox.outcome().unwrap().timings.reused > 0, reuses, "{owner}");
        }
    });
}
