//! Drafts of the model itself, with sparse attention: all that follows has the bits of steps without
//! drafts.

use rope_cpu::{
    Token,
    generate::speculation::{Count, Drafter, Lookup, Predictor, SelfDraft, Speculation},
    kv_cache::CacheType,
    model::{Engine, Error, Feed, Options, Output, Role, Sequence, Session, SparseAttention},
    rope::{Flags, POLICY, rerope},
    sample::temperature,
};

use crate::model::{
    engine::read,
    scheduled::scheduled,
    session::{How, tokens, with_model},
    sparse::{self, shifting, tiny, with_engine},
    speculation::{Case, file},
};
use rope_cpu_testing::{on_each_case, tiny::Tiny};

/// Drafts from 300 tokens on, with the fewest blocks.
const DRAFTS: SparseAttention = SparseAttention { drafts_only: true, ..sparse::FEW };
/// Drafts with all blocks, which are what the model says.
const ALL_BLOCKS: SparseAttention = SparseAttention { drafts_only: true, ..sparse::ALL };

/// The tokens of a prompt, some pages and a part of one.
const PROMPT: usize = 450;
/// The tokens of an answer, across a page.
const ANSWER: usize = 90;

fn likeliest(logits: &[f32]) -> Token {
    let best = logits.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
    best.unwrap().0 as Token
}

/// An answer of the likeliest tokens.
struct Answer {
    sequence: Sequence,
    /// The next token, which the sequence lacks.
    next: Token,
    logits: Vec<Vec<f32>>,
    drafted: usize,
    accepted: usize,
}

impl Answer {
    fn new(sequence: &Sequence, next: Token) -> Self {
        let sequence = sequence.clone();
        Answer { sequence, next, logits: Vec::new(), drafted: 0, accepted: 0 }
    }

    /// Returns the next token and at most `count` drafts. Sometimes the last draft is made wrong.
    fn draft(&mut self, engine: &mut Engine, count: usize) -> Vec<Token> {
        let before = self.sequence.tokens().to_vec();
        let mut tokens = vec![self.next];
        let room = count.min(engine.room(&self.sequence) - 1);
        let choose = &mut |logits: &[f32]| {
            tokens.push(likeliest(logits));
            tokens.last().copied()
        };
        engine.draft(&mut self.sequence, self.next, room, choose).unwrap();
        assert!(self.sequence.tokens() == before);
        self.drafted += tokens.len() - 1;
        if self.logits.len() % 3 == 1 && tokens.len() > 1 {
            let last = tokens.len() - 1;
            tokens[last] = (tokens[last] + 1) % engine.vocabulary() as Token;
        }
        tokens
    }

    /// Takes the logits of the tokens while drafts are right, and removes the others.
    fn take(&mut self, tokens: &[Token], logits: Vec<Vec<f32>>) {
        let right = tokens[1..].iter().zip(&logits).take_while(|(t, l)| **t == likeliest(l));
        let used = (1 + right.count()).min(ANSWER - self.logits.len());
        self.next = likeliest(&logits[used - 1]);
        self.accepted += used - 1;
        self.logits.extend(logits.into_iter().take(used));
        let wanted = self.sequence.tokens().len() - (tokens.len() - used);
        assert_eq!(self.sequence.truncate(wanted), wanted);
    }

    /// Generates the whole answer.
    fn run(mut self, engine: &mut Engine, count: usize) -> Self {
        while self.logits.len() < ANSWER {
            let tokens = self.draft(engine, count);
            let mut logits = Vec::new();
            read(engine, &mut self.sequence, Role::Answer, &tokens, &mut logits);
            self.take(&tokens, logits);
        }
        self
    }
}

/// Generates an answer with `count` drafts in each step. Returns the logits, the bytes of the keys and
/// values of two pages, and the numbers of drafts and of right ones.
fn answer(
    tiny: &Tiny,
    how: &How,
    sparse: Option<SparseAttention>,
    count: usize,
) -> (Vec<Vec<f32>>, Vec<u8>, [usize; 2]) {
    with_engine(tiny, how, sparse, |engine| {
        let mut sequence = engine.sequence();
        read(engine, &mut sequence, Role::Prompt, &tokens(tiny, PROMPT), &mut Vec::new());
        let found = Answer::new(&sequence, 7).run(engine, count);
        let mut file = Vec::new();
        if found.sequence.rewind_point(512) == 512 {
            assert_eq!(engine.save(&found.sequence, 5, 512, &mut file).unwrap(), 512);
        }
        (found.logits, file, [found.drafted, found.accepted])
    })
}

on_each_case!(drafts_leave_nothing_behind {
    llama(tiny(), Flags::default()),
    llama_shifting(tiny(), shifting()),
    llama_in_blocks(tiny().in_blocks(), Flags::default()),
    gemma3(Tiny { layers: 6, ..Tiny::gemma3() }, Flags::default()),
    qwen3moe(Tiny { layers: 4, ..Tiny::named("qwen3moe") }, Flags::default()),
    qwen35(Tiny { layers: 4, ..Tiny::named("qwen35") }, Flags::default()),
    qwen35_shifting(Tiny { layers: 4, ..Tiny::named("qwen35") }, shifting()),
});

fn drafts_leave_nothing_behind(name: &str, tiny: Tiny, flags: Flags) {
    for cache in [CacheType::F32, CacheType::F16, CacheType::Q8_0] {
        let how = How { keys: cache, values: cache, flags: flags.clone(), ..How::default() };
        let (logits, file, none) = answer(&tiny, &how, None, 5);
        assert_eq!(none, [0; 2]);
        for count in [1, 3, 9] {
            let (found, bytes, [drafted, accepted]) = answer(&tiny, &how, Some(DRAFTS), count);
            let name = format!("{name}, {cache:?}, {count} drafts");
            assert!(found == logits, "{name}");
            assert!(!file.is_empty() && bytes == file, "{name}");
            assert!(0 < accepted && accepted < drafted, "{name}: {accepted} of {drafted}");
        }
    }
}

/// Sequences that share a prompt, in steps together; then the prompt goes on by itself.
#[test]
fn drafts_do_not_write_to_shared_pages() {
    for (tiny, flags, keys) in [
        (tiny(), Flags::default(), CacheType::F16),
        (tiny(), shifting(), CacheType::Q8_0),
        (Tiny { layers: 4, ..Tiny::named("qwen35") }, Flags::default(), CacheType::F32),
    ] {
        let how = How { keys, flags, threads: 3, ..How::default() };
        let nexts = [7, 8, 9];
        let mut expected = Vec::new();
        let run = |sparse, count, test: &mut dyn FnMut(Vec<Vec<Vec<f32>>>)| {
            with_engine(&tiny, &how, sparse, |engine| {
                let mut prompt = engine.sequence();
                read(engine, &mut prompt, Role::Prompt, &tokens(&tiny, PROMPT), &mut Vec::new());
                let mut answers = nexts.map(|next| Answer::new(&prompt, next));
                while answers.iter().any(|answer| answer.logits.len() < ANSWER) {
                    let going = answers.iter_mut().filter(|answer| answer.logits.len() < ANSWER);
                    let mut going: Vec<_> =
                        going.map(|answer| (answer.draft(engine, count), answer)).collect();
                    let mut found = vec![Vec::new(); going.len()];
                    let feeds = going.iter_mut().map(|(tokens, answer)| Feed {
                        sequence: &mut answer.sequence,
                        tokens,
                        role: Role::Answer,
                        wanted: 0..usize::MAX,
                        output: Output::Logits,
                    });
                    let mut feeds: Vec<_> = feeds.collect();
                    engine.step(&mut feeds, &mut |i, _, row| found[i].push(row.to_vec())).unwrap();
                    assert!(feeds.iter().all(|feed| feed.tokens.is_empty()));
                    for ((tokens, answer), logits) in going.iter_mut().zip(found) {
                        answer.take(tokens, logits);
                    }
                }
                assert!(answers.iter().all(|answer| (answer.drafted > 0) == sparse.is_some()));
                let own = Answer::new(&prompt, 3).run(engine, 0);
                test(answers.into_iter().chain([own]).map(|answer| answer.logits).collect());
            });
        };
        run(None, 0, &mut |logits| expected = logits);
        for count in [2, 4] {
            run(Some(DRAFTS), count, &mut |logits| assert!(logits == expected, "{count}"));
        }
    }
}

#[test]
fn only_drafts_of_long_sequences_are_sparse() {
    let all = tokens(&tiny(), 400);
    let drafts = |sparse, length: usize| {
        with_engine(&tiny(), &How::default(), sparse, |engine| {
            let mut sequence = engine.sequence();
            read(engine, &mut sequence, Role::Prompt, &all[..length - 1], &mut Vec::new());
            read(engine, &mut sequence, Role::Answer, &all[length - 1..length], &mut Vec::new());
            engine.set_dense(false);
            read(engine, &mut sequence, Role::Answer, &all[length..][..1], &mut Vec::new());
            assert_eq!(engine.take_blocks_read()[1] > 0, sparse == Some(sparse::FEW));
            sequence.truncate(length);
            let mut drafts = 0;
            let choose = &mut |_: &[f32]| {
                drafts += 1;
                Some(3)
            };
            engine.draft(&mut sequence, 3, 4, choose).unwrap();
            let [chosen, of] = engine.take_blocks_read();
            assert!(drafts == 0 || 0 < chosen && chosen < of, "{chosen} of {of}");
            drafts
        })
    };
    assert_eq!([299, 300].map(|length| drafts(Some(DRAFTS), length)), [0, 4]);
    assert_eq!(drafts(None, 350), 0);
    // Drafts are also made where answers are sparse.
    assert_eq!(drafts(Some(sparse::FEW), 350), 4);
}

#[test]
fn a_full_pool_has_no_drafts() {
    let hybrid = Tiny { layers: 4, ..Tiny::named("qwen35") };
    for (tiny, length) in [(tiny(), 512), (hybrid, 500)] {
        let with_limit = |cache_bytes: usize, test: &mut dyn FnMut(&mut Engine, &mut Sequence)| {
            with_model(&tiny.builder(), &[], &How::default(), |model, rope, options| {
                let sparse_attention = Some(DRAFTS);
                let options = Options { sparse_attention, cache_bytes, ..options };
                let mut engine = Engine::new(model, rope, options).unwrap();
                let mut sequence = engine.sequence();
                let prompt = tokens(&tiny, length);
                read(&mut engine, &mut sequence, Role::Prompt, &prompt, &mut Vec::new());
                test(&mut engine, &mut sequence);
            });
        };
        let mut used = 0;
        with_limit(usize::MAX, &mut |engine, _| used = engine.pool().used_bytes());
        // A hybrid then has fewer snapshots, and room for one state, which the first draft takes.
        let expected = usize::from(tiny.architecture.name == "qwen35");
        with_limit(used, &mut |engine, sequence| {
            let before = engine.pool().used_bytes();
            let mut drafts = 0;
            let choose = &mut |_: &[f32]| {
                drafts += 1;
                Some(3)
            };
            engine.draft(sequence, 3, 4, choose).unwrap();
            assert_eq!((drafts, sequence.tokens().len()), (expected, length));
            assert_eq!(engine.pool().used_bytes(), before);
        });
    }
}

/// Returns a case with a prompt and an answer long enough for drafts.
fn case(name: &'static str, tiny: Tiny, flags: Flags) -> Case {
    let mut case = Case::flags(name, tiny, flags, 150);
    (case.prompt, case.how.context) = (310, 1000);
    case
}

#[test]
fn greedy_generation_is_the_same() {
    let mut greedy = case("greedy", tiny(), Flags::default());
    greedy.settings = greedy.settings.with(&temperature::TEMPERATURE, 0.0);
    generation_is_the_same(greedy);
}

#[test]
fn sampled_generation_is_the_same() {
    generation_is_the_same(case("sampled", tiny(), Flags::default()));
}

#[test]
fn generation_by_yarn_is_the_same() {
    generation_is_the_same(case("yarn", tiny(), Flags::method("yarn")));
}

#[test]
fn generation_that_is_computed_again_is_the_same() {
    let run = Flags::method("dynamic").with(&POLICY, "run");
    generation_is_the_same(case("by run", tiny(), run));
}

#[test]
fn generation_with_a_predictor_is_the_same() {
    let predicting = Tiny { layers: 4, ..Tiny::named("qwen35") };
    generation_is_the_same(case("predicting", predicting, Flags::default()));
}

#[test]
fn generation_across_shifts_is_the_same() {
    let mut shifts = case("shifting", tiny(), shifting());
    (shifts.how.context, shifts.limits.tokens_max) = (600, Some(500));
    generation_is_the_same(shifts);
}

#[test]
fn generation_in_a_small_micro_batch_is_the_same() {
    let mut single = case("micro-batch of 5", tiny(), Flags::default());
    single.how.micro_batch = 5;
    generation_is_the_same(single);
}

fn generation_is_the_same(case: Case) {
    let file = file(&case.tiny);
    let run = |drafts: bool, test: &mut dyn FnMut(&mut Session)| {
        with_model(&file, &[], &case.how, |model, rope, options| {
            let settings = if case.name == "greedy" { ALL_BLOCKS } else { DRAFTS };
            let sparse_attention = drafts.then_some(settings);
            let options = Options { sparse_attention, predict: drafts, ..options };
            test(&mut Session::new(model, rope, options).unwrap());
        });
    };
    let mut expected = None;
    run(false, &mut |session| {
        expected = Some(case.plain(session));
    });
    let expected = expected.unwrap();
    for (others, count) in [
        (false, Count::Always(1)),
        (false, Count::Always(5)),
        (true, Count::Always(4)),
        (true, Count::UpTo(8)),
    ] {
        run(true, &mut |session| {
            let own: Box<dyn Drafter> = Box::new(SelfDraft::default());
            let first: [Box<dyn Drafter>; 2] =
                [Box::new(Lookup::default()), Box::new(Predictor::default())];
            let drafters = first.into_iter().filter(|_| others).chain([own]).collect();
            let speculation = Speculation::new(drafters, count);
            for (found, (drafted, accepted)) in case.outcomes(session, speculation, 2) {
                assert!(found == expected, "{}:\n{found:?}\n{expected:?}", case.name);
                assert!(drafted > 0 || count == Count::UpTo(8), "{}", case.name);
                let all = case.name == "greedy" && !others && count != Count::UpTo(8);
                // The end may be the likeliest token, but the answer ignores it.
                assert!(!all || 10 * accepted > 9 * drafted, "{accepted} of {drafted}");
            }
        });
    }
}

/// Three slots share the start of their prompts.
#[test]
fn a_scheduler_drafts_for_each_slot() {
    let tiny = tiny();
    let file = file(&tiny);
    let answers = |drafts: bool| {
        let how = How { threads: 2, ..How::default() };
        with_model(&file, &[], &how, |model, rope, options| {
            let sparse_attention = drafts.then_some(DRAFTS);
            let engine = Engine::new(model, rope, Options { sparse_attention, ..options }).unwrap();
            let drafter = drafts.then_some(|| Box::new(SelfDraft::default()) as Box<dyn Drafter>);
            let prompts = (0..5).map(|i| tokens(&tiny, 320 + 40 * i)).collect();
            scheduled(engine, prompts, drafter, |timings| {
                assert_eq!(timings.drafted > 0, drafts);
            })
        })
    };
    assert!(answers(true) == answers(false));
}

#[test]
fn drafts_that_cannot_be_sparse_are_refused() {
    let refused = |tiny: &Tiny, flags| {
        let how = How { flags, context: 320, ..How::default() };
        with_model(&tiny.builder(), &[], &how, |model, rope, options| {
            let options = Options { sparse_attention: Some(DRAFTS), ..options };
            Engine::new(model, rope, options).err().unwrap()
        })
    };
    let moving = Flags::method("rerope").with(&rerope::WINDOW, 40);
    assert!(matches!(refused(&tiny(), moving), Error::SparseMethod { .. }));
    for tiny in [Tiny::llama(), Tiny { layers: 4, ..Tiny::latent() }] {
        assert!(matches!(refused(&tiny, Flags::default()), Error::SparseLayers { .. }));
    }
}
