//! Models with recurrent layers: a sequence returns to the lengths with a snapshot of their state, and
//! goes on from there with the same bits.

use std::ops::ControlFlow;

use rope_cpu::{
    kv_cache::CacheType,
    model::{self, Engine, Feed, Output, Role, Sequence, saved::Error},
    rope::Flags,
    tokenizer::common_prefix,
};

use crate::model::session::{How, load, logits, tokens, with_engine, with_model, with_session};
use rope_cpu_testing::{
    builder::{ARRAY, Builder, U32, array},
    on_families,
    tiny::{Tiny, files::add_tensor},
};

const NAMES: [&str; 8] = [
    "lfm2",
    "lfm2moe",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "granitehybrid",
    "falcon-h1",
    "nemotron_h",
];

fn whole(tiny: &Tiny, n: usize) -> Vec<Vec<f32>> {
    with_session(tiny, &How::default(), |session| logits(session, &tokens(tiny, n)))
}

#[test]
fn a_sequence_returns_to_the_nearest_snapshot() {
    for name in NAMES {
        let tiny = Tiny::named(name);
        let (all, whole) = (tokens(&tiny, 1300), whole(&tiny, 1300));
        let how = How { micro_batch: 1024, ..How::default() };
        with_session(&tiny, &how, |session| {
            logits(session, &all[..700]);
            logits(session, &all[700..1300]);
            // Every two pages, at the ends of the prompts, and 16 tokens before.
            for (len, point) in [
                (1300, 1300),
                (1299, 1284),
                (1283, 1024),
                (1024, 1024),
                (1023, 700),
                (699, 684),
                (600, 512),
                (511, 0),
            ] {
                assert_eq!(session.rewind_point(len), point, "{name}");
            }
            for len in [1290, 1100, 699, 511] {
                let kept = session.truncate(len);
                assert_eq!(session.tokens(), &all[..kept]);
                assert!(kept <= len && whole[kept..] == logits(session, &all[kept..]), "{name}");
                // Where a text departed, another may depart.
                assert_eq!(session.rewind_point(len), len, "{name}");
            }
        });
    }
}

/// Answers are computed as often as their drafts are wrong.
#[test]
fn answers_can_be_removed_again_token_by_token() {
    let go_on = &mut |_| ControlFlow::Continue(());
    for name in NAMES {
        let tiny = Tiny::named(name);
        let all = tokens(&tiny, 120);
        let how = How { micro_batch: 64, ..How::default() };
        let alone = with_session(&tiny, &how, |session| {
            logits(session, &all[..100]);
            let one = |token: &u32| session.answer(*token, go_on).unwrap().unwrap().to_vec();
            all[100..].iter().map(one).collect::<Vec<_>>()
        });
        with_session(&tiny, &how, |session| {
            logits(session, &all[..100]);
            assert!(session.room() > 4, "{name}");
            let mut computed = 100;
            for accepted in [1, 4, 2, 3, 1, 4] {
                let drafts = [&all[computed..computed + accepted], &[7, 7, 7, 7]].concat();
                let found = session.answer_all(&drafts[..4], go_on).unwrap().unwrap();
                let found: Vec<_> = found.take(accepted).map(<[f32]>::to_vec).collect();
                assert!(found == alone[computed - 100..][..accepted], "{name}: {computed}");
                computed += accepted;
                assert_eq!(session.truncate(computed), computed, "{name}");
            }
            // A later prompt keeps the end of the answer.
            logits(session, &tokens(&tiny, 30));
            assert_eq!(session.rewind_point(computed + 5), computed, "{name}");
            assert_eq!(session.rewind_point(computed - 1), 100, "{name}");
        });
    }
}

/// Returns a feed for a prompt.
fn prompt<'s, 't>(sequence: &'s mut Sequence, tokens: &'t [u32]) -> Feed<'s, 't> {
    let (role, output) = (Role::Prompt, Output::Logits);
    Feed { sequence, tokens, role, wanted: 0..usize::MAX, output }
}

/// Computes the feeds in steps, and returns the logits of each.
fn read(engine: &mut Engine, feeds: &mut [Feed<'_, '_>]) -> Vec<Vec<Vec<f32>>> {
    let mut all = vec![Vec::new(); feeds.len()];
    while feeds.iter().any(|feed| !feed.tokens.is_empty()) {
        engine.step(feeds, &mut |feed, _, logits| all[feed].push(logits.to_vec())).unwrap();
    }
    all
}

#[test]
fn a_clone_goes_its_own_way() {
    for name in NAMES {
        let tiny = Tiny::named(name);
        let (all, whole) = (tokens(&tiny, 700), whole(&tiny, 700));
        with_engine(&tiny, &How::default(), |engine| {
            let mut first = engine.sequence();
            read(engine, &mut [prompt(&mut first, &all[..600])]);
            let (mut second, mut third) = (first.clone(), first.clone());
            assert_eq!(third.truncate(520), 512);
            let found = read(
                engine,
                &mut [
                    prompt(&mut first, &all[600..]),
                    prompt(&mut second, &[3; 40]),
                    prompt(&mut third, &all[512..]),
                ],
            );
            assert!(found[0] == whole[600..] && found[2] == whole[512..], "{name}");
            drop((first, second, third));
            assert_eq!(engine.pool().used_bytes(), 0, "{name}");
        });
    }
}

/// A step that fails because of one sequence changes no state.
#[test]
fn a_step_that_fails_leaves_the_states_as_they_are() {
    let tiny = Tiny::named("qwen35");
    let damaged = 49;
    // One step has all tokens of both sequences.
    let how = How { micro_batch: 1024, ..How::default() };
    let all: Vec<_> = tokens(&tiny, 200).into_iter().map(|token| token % damaged).collect();
    let mut file = tiny.builder();
    // The first tensor has the embeddings.
    let row = 4 * tiny.embedding * damaged as usize;
    file.data[row..row + 4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let whole = with_session(&tiny, &how, |session| logits(session, &all));
    with_model(&file, &[], &how, |model, rope, options| {
        let engine = &mut Engine::new(model, rope, options).unwrap();
        let (mut one, mut two) = (engine.sequence(), engine.sequence());
        read(engine, &mut [prompt(&mut one, &all[..100])]);
        let used = engine.pool().used_bytes();
        for _ in 0..2 {
            let damaged = [damaged];
            let mut feeds = [prompt(&mut one, &all[100..]), prompt(&mut two, &damaged)];
            let error = engine.step(&mut feeds, &mut |_, _, _| {}).unwrap_err();
            assert!(matches!(error, model::Error::NotFinite { .. }), "{error}");
        }
        two.truncate(0);
        assert_eq!(engine.pool().used_bytes(), used);
        let found = read(engine, &mut [prompt(&mut one, &all[100..])]);
        assert!(found[0] == whole[100..]);
    });
}

#[test]
fn a_file_holds_snapshots() {
    for name in NAMES {
        let tiny = Tiny::named(name);
        let how = How { keys: CacheType::Q8_0, ..How::default() };
        let all = tokens(&tiny, 1400);
        let mut file = Vec::new();
        let (size, expected) = with_session(&tiny, &how, |session| {
            logits(session, &all[..1300]);
            // No state is at this length.
            assert_eq!(session.save(17, 1290, Vec::new()).unwrap(), 1284);
            assert_eq!(session.save(17, usize::MAX, &mut file).unwrap(), 1300);
            (file.len(), logits(session, &all[1300..]))
        });
        with_session(&tiny, &how, |session| {
            session.restore(17, &file[..], size as u64).unwrap();
            assert_eq!(session.tokens(), &all[..1300]);
            assert!(logits(session, &all[1300..]) == expected, "{name}");
            session.restore(17, &file[..], size as u64).unwrap();
            let kept = session.truncate(1299);
            assert_eq!(kept, 1284);
            assert!(logits(session, &all[kept..])[16..] == expected, "{name}");
        });
        let outline = with_engine(&tiny, &how, |engine| {
            let archive = engine.archive(17);
            let outline = archive.outline(&file[..], size as u64).unwrap();
            [1300, 1299, 1024, 1023, 511].map(|len| archive.reusable(&outline, len, 1300))
        });
        assert_eq!(outline, [1300, 1284, 1024, 512, 0], "{name}");
    }
}

/// The next prompt lacks the thought of the last answer.
#[test]
fn a_restored_conversation_reads_no_more_than_one_in_memory() {
    for name in ["lfm2", "qwen35", "falcon-h1"] {
        let tiny = Tiny::named(name);
        let all = tokens(&tiny, 1900);
        let next = [&all[..1290], &[5; 60]].concat();
        with_engine(&tiny, &How { micro_batch: 256, ..How::default() }, |engine| {
            let mut sequence = engine.sequence();
            read(engine, &mut [prompt(&mut sequence, &all[..1300])]);
            for token in &all[1300..] {
                let tokens = std::slice::from_ref(token);
                let role = Role::Answer;
                read(engine, &mut [Feed { role, tokens, ..prompt(&mut sequence, &[]) }]);
            }
            let mut file = Vec::new();
            assert_eq!(engine.save(&sequence, 17, usize::MAX, &mut file).unwrap(), 1900);
            let mut restored = engine.sequence();
            engine.restore(&mut restored, 17, &file[..], file.len() as u64).unwrap();
            assert_eq!(engine.reusable(&restored, 1900, 1960), 1900, "{name}");
            let found = [sequence, restored].map(|mut sequence| {
                let reused = engine.reuse(&mut sequence, 1290, next.len());
                assert_eq!(reused, 1284, "{name}");
                read(engine, &mut [prompt(&mut sequence, &next[reused..])])
            });
            assert!(found[0] == found[1], "{name}");
        });
    }
}

/// The lengths of states are from outside.
#[test]
fn a_file_without_the_state_of_its_end_is_damaged() {
    let tiny = Tiny::named("lfm2");
    let how = How { micro_batch: 1024, ..How::default() };
    let mut file = Vec::new();
    with_session(&tiny, &how, |session| {
        logits(session, &tokens(&tiny, 100));
        session.save(17, usize::MAX, &mut file).unwrap();
        let end = 16 + u64::from_le_bytes(file[8..16].try_into().unwrap()) as usize;
        let header = std::str::from_utf8(&file[16..end]).unwrap();
        assert!(header.contains("\"states\":[84,100]"), "{header}");
        for states in ["[]", "[84,99]", "[100,84]", "[100,100]", "[0,100]", "[84,200]"] {
            let states = format!("\"states\":{states}");
            let header = header.replace("\"states\":[84,100]", &states);
            let mut crafted = file[..8].to_vec();
            crafted.extend((header.len() as u64).to_le_bytes());
            crafted.extend(header.into_bytes());
            crafted.extend(crc32fast::hash(&crafted).to_le_bytes());
            crafted.extend(&file[end + 4..]);
            let size = crafted.len() as u64;
            let error = session.restore(17, &crafted[..], size).unwrap_err();
            assert!(matches!(error, Error::Damaged(_)), "{states}: {error}");
        }
    });
}

on_families!(an_agent_reads_less_than_a_twentieth_again: lfm2 qwen35 falcon_h1);

/// Twenty turns of an agent behind 8,000 tokens of instructions and tools. Each prompt repeats the
/// conversation without the thought of the last answer; some change an earlier message.
fn an_agent_reads_less_than_a_twentieth_again(name: &str, tiny: Tiny) {
    let text = |seed: usize, n: usize| -> Vec<u32> {
        let all = (0..n).map(|i| (i * i + 13 * i * seed + seed * seed) % 251);
        all.map(|token| token as u32 % tiny.vocabulary as u32).collect()
    };
    let how = How { micro_batch: 256, context: 1 << 14, ..How::default() };
    with_engine(&tiny, &how, |engine| {
        let mut messages = vec![text(1, 8000)];
        let (mut sequence, mut read_tokens, mut again) = (engine.sequence(), 0, 0);
        for turn in 2..22 {
            messages.push(text(turn, 60 + 7 * turn));
            if turn % 6 == 0 {
                let edited = messages.len() - 4;
                messages[edited].truncate(30);
            }
            // The start of an answer, which opens a thought.
            let all = [messages.concat(), vec![1, 2, 3, 4, 5]].concat();
            let shared = common_prefix(sequence.tokens(), &all).min(all.len() - 1);
            let reused = engine.reuse(&mut sequence, shared, all.len());
            read_tokens += all.len();
            again += shared - reused;
            let found = read(engine, &mut [prompt(&mut sequence, &all[reused..])]);
            if turn == 21 {
                let mut fresh = engine.sequence();
                let whole = read(engine, &mut [prompt(&mut fresh, &all)]);
                assert!(found[0].last() == whole[0].last(), "{name}");
            }
            // The thought and the answer.
            let (thought, answer) = (text(50 + turn, 40), text(80 + turn, 50));
            for token in [&thought[..], &answer].concat() {
                let role = Role::Answer;
                let tokens = &[token][..];
                let mut feeds = [Feed { role, tokens, ..prompt(&mut sequence, &[]) }];
                engine.step(&mut feeds, &mut |_, _, _| {}).unwrap();
            }
            messages.push(answer);
        }
        assert!(20 * again < read_tokens, "{name}: {again} of {read_tokens}");
        assert!(again > 0, "{name}: nothing departed");
    });
}

/// Shifts evict keys and values. The state goes on, and so does a sequence that was truncated.
#[test]
fn a_context_shifts_and_keeps_its_state() {
    let flags = Flags { context_shift: true, ..Flags::default() };
    for name in ["lfm2", "qwen35"] {
        let tiny = Tiny::named(name);
        let all = tokens(&tiny, 1500);
        let run = |micro_batch| {
            let how = How { flags: flags.clone(), context: 600, micro_batch, ..How::default() };
            with_session(&tiny, &how, |session| {
                session.keep(40).unwrap();
                let found = logits(session, &all);
                assert!(session.take_evicted().is_some());
                let kept = session.truncate(1400);
                assert!((1280..=1400).contains(&kept) && session.tokens() == &all[..kept]);
                assert!(logits(session, &all[kept..]).len() == 1500 - kept, "{name}");
                // Before the evicted tokens.
                assert_eq!(session.truncate(60), 0, "{name}");
                assert!(logits(session, &all[..600]) == found[..600], "{name}");
                found
            })
        };
        assert!(run(512) == run(100), "{name}");
    }
}

/// Returns the file of a model without the keys that contain `name` in their names.
fn without(tiny: &str, name: &str) -> Builder {
    let mut b = Tiny::named(tiny).builder();
    b.keys.retain(|key| !key.windows(name.len()).any(|part| part == name.as_bytes()));
    b
}

#[test]
fn each_fault_of_a_recurrence_names_its_key() {
    let number = |tiny: &str, key: &str, value: u32| {
        without(tiny, key).key(format!("{tiny}.{key}"), U32, value.to_le_bytes())
    };
    let kv_heads = |heads: [u32; 4]| {
        let heads = array(U32, 4, heads.map(u32::to_le_bytes));
        let key = "attention.head_count_kv";
        without("lfm2", key).key(format!("lfm2.{key}"), ARRAY, heads)
    };
    for (file, expected) in [
        (
            number("lfm2", "shortconv.l_cache", 1),
            "lfm2.shortconv.l_cache is 1: must be from 2 to 8",
        ),
        (
            number("lfm2", "shortconv.l_cache", 9),
            "lfm2.shortconv.l_cache is 9: must be from 1 to 8",
        ),
        (
            kv_heads([0; 4]),
            "lfm2.attention.head_count_kv is 0 in all: at least one layer must have",
        ),
        (
            number("lfm2moe", "expert_gating_func", 3),
            "lfm2moe.expert_gating_func is 3: must be 1 (",
        ),
        (number("qwen35", "ssm.state_size", 24), "qwen35.ssm.state_size is 24: must be a multiple"),
        (number("qwen35", "ssm.inner_size", 48), "qwen35.ssm.inner_size is 48: must be ssm.time_"),
        (
            number("qwen35", "ssm.group_count", 3),
            "qwen35.ssm.group_count is 3: must divide ssm.time",
        ),
        (
            number("qwen35", "nextn_predict_layers", 4),
            "qwen35.nextn_predict_layers is 4: must be less",
        ),
        (without("qwen35", "ssm.conv_kernel"), "qwen35.ssm.conv_kernel is missing"),
    ] {
        let error = load(&file, &[]).unwrap_err().to_string();
        assert!(error.contains(&format!("metadata key {expected}")), "{error}");
    }
    // A model of only the layers that are used has no more of them.
    let mut predicts = Tiny { predicts: false, ..Tiny::named("qwen35") }.builder();
    predicts = add_tensor(predicts, "blk.3.nextn.enorm.weight", &[72], &[1.0; 72]);
    let error = load(&predicts, &[]).unwrap_err().to_string();
    assert!(error.contains("tensor blk.3.nextn.enorm.weight is not supported"), "{error}");
}
