//! The layer that predicts the token after the next one, compared with its definition, and with itself
//! on other ways to the same sequence.

use std::{collections::HashMap, ops::ControlFlow};

use rope_cpu::{
    Token, json,
    model::{Engine, Feed, Options, Output, Role, Sequence, Session},
    rope::Flags,
};

use crate::model::session::{How, difference, load, logits, tokens, with_model};
use rope_cpu_testing::{
    builder::U32,
    reference::{Frequencies, predicted},
    tiny::Tiny,
};

const NAMES: [&str; 5] = ["qwen35", "qwen35moe", "deepseek2", "glm4moe", "cohere2moe"];

/// Returns the bound of `architectures`: one more layer has as many products. Attention to latents has
/// seven in a row in place of four, and it attends to the outputs of a whole model of such layers.
fn bound(tiny: &Tiny) -> f32 {
    if tiny.latent.is_some() { 4e-4 } else { 1e-4 }
}

/// The number of tokens that the model computes.
const READ: usize = 40;

/// Calls `test` with a session of a model with a predictor that follows it, or not.
pub fn with_predictor<T>(
    tiny: &Tiny,
    how: &How,
    predict: bool,
    test: impl FnOnce(&mut Session) -> T,
) -> T {
    with_model(&tiny.builder(), &[], how, |model, rope, options| {
        test(&mut Session::new(model, rope, Options { predict, ..options }).unwrap())
    })
}

/// Returns the settings of a model, and of how it reads: as an answer if `micro_batch` is 1.
fn hows(micro_batch: usize) -> [How; 2] {
    [micro_batch.max(7), micro_batch].map(|micro_batch| How { micro_batch, ..How::default() })
}

/// Returns the logits of the predictor after each of `tokens`. The sequence goes on with the first.
pub fn predict(engine: &mut Engine, sequence: &mut Sequence, tokens: &[Token]) -> Vec<Vec<f32>> {
    let (mut all, mut rest) = (Vec::new(), tokens[1..].iter());
    let choose = &mut |logits: &[f32]| {
        all.push(logits.to_vec());
        rest.next().copied()
    };
    engine.predict(sequence, tokens[0], tokens.len(), choose).unwrap();
    all
}

/// Returns what [`predict`] does for a session.
pub fn predict_after(session: &mut Session, tokens: &[Token]) -> Vec<Vec<f32>> {
    let (engine, sequence) = session.parts();
    predict(engine, sequence, tokens)
}

/// Computes the tokens of two sequences in steps.
pub fn step(engine: &mut Engine, both: [(&mut Sequence, &[Token]); 2], role: Role) {
    let output = Output::Logits;
    let feed = |(sequence, tokens)| Feed { sequence, tokens, role, wanted: 0..0, output };
    let mut feeds = both.map(feed);
    while feeds.iter().any(|feed| !feed.tokens.is_empty()) {
        engine.step(&mut feeds, &mut |_, _, _| {}).unwrap();
    }
}

fn expected(tiny: &Tiny, drafts: usize) -> Vec<Vec<f32>> {
    let all = tokens(tiny, READ + 1 + drafts);
    let (tokens, drafts) = all.split_at(READ + 1);
    predicted(tiny, &Frequencies::new(tiny, 1.0), tokens, drafts)
}

#[test]
fn a_predictor_computes_what_its_definition_says() {
    for name in NAMES {
        for predicts_alone in [false, true] {
            let tiny = Tiny { predicts_alone, ..Tiny::named(name) };
            let what = format!("{name}, {predicts_alone}");
            computes_its_definition(&tiny, &what);
        }
    }
    // The predictor is the only layer with experts.
    let dense = Tiny { dense: Some(3), ..Tiny::named("deepseek2") };
    computes_its_definition(&dense, "dense layers");
}

#[track_caller]
fn computes_its_definition(tiny: &Tiny, what: &str) {
    let (all, expected) = (tokens(tiny, READ + 4), expected(tiny, 3));
    for micro_batch in [1, 7, 64] {
        let [how, reads] = hows(micro_batch);
        let found = with_predictor(tiny, &how, true, |session| {
            reads.read(session, &all[..READ]);
            predict_after(session, &all[READ..])
        });
        let error = difference(&expected, &found);
        assert!(error < bound(tiny), "{what}, {micro_batch}: {error}");
    }
}

/// The golden logits are from `scripts/make-predictor-golden`.
#[test]
fn a_predictor_computes_what_llama_cpp_does() {
    for name in NAMES {
        let tiny = Tiny::named(name);
        let all = tokens(&tiny, READ + 4);
        let found = with_predictor(&tiny, &How::default(), true, |session| {
            logits(session, &all[..READ]);
            predict_after(session, &all[READ..])
        });
        let error = difference(&golden()[name], &found);
        assert!(error < 2.0 * bound(&tiny), "{name}: {error}");
    }
}

/// Returns the logits of llama.cpp for each model: after the token that follows [`READ`] tokens, and
/// after each of three drafts.
pub fn golden() -> HashMap<String, Vec<Vec<f32>>> {
    json::parse(include_str!("../data/predictors.json")).unwrap()
}

/// A definition without a part exceeds the bound.
#[test]
fn each_part_of_a_predictor_matters() {
    for name in NAMES {
        let tiny = Tiny { predicts_alone: true, ..Tiny::named(name) };
        let whole = expected(&tiny, 1);
        let of_attention = match name {
            "deepseek2" => Some("keys of heads"),
            "glm4moe" | "cohere2moe" => None,
            _ => Some("gates of attention"),
        };
        let parts = [
            "nextn.enorm",
            "nextn.hnorm",
            "nextn.embed_tokens",
            "nextn.shared_head_norm",
            "nextn.shared_head_head",
            "the norm of outputs",
            "the order",
            "earlier tokens",
        ];
        for without in parts.into_iter().chain(of_attention) {
            let apart = difference(&whole, &expected(&Tiny { without, ..tiny.clone() }, 1));
            assert!(apart > 100.0 * bound(&tiny), "{name}, {without}: {apart}");
        }
    }
}

/// Logits are the same with and without a predictor, and so are the tokens to draft from.
#[test]
fn a_predictor_changes_no_logits() {
    for name in NAMES {
        let tiny = Tiny::named(name);
        let all = tokens(&tiny, 90);
        for micro_batch in [1, 64] {
            let [how, reads] = hows(micro_batch);
            let read = |predict| {
                with_predictor(&tiny, &how, predict, |session| {
                    let found = reads.read(session, &all[..50]);
                    let drafted = predict_after(session, &all[50..54]).len();
                    assert_eq!(drafted, if predict { 4 } else { 0 });
                    (found, reads.read(session, &all[50..]))
                })
            };
            assert!(read(true) == read(false), "{name}: {micro_batch}");
        }
    }
}

/// A sequence has the same predictions on any way to it: with other steps, threads and sequences,
/// from a file, a clone or a longer sequence, and after wrong drafts.
#[test]
fn predictions_depend_on_the_sequence_only() {
    let go_on = &mut |_| ControlFlow::Continue(());
    for name in NAMES {
        let tiny = Tiny::named(name);
        let all = tokens(&tiny, 700);
        let (prompt, answer, next) = (&all[..600], &all[600..610], &all[610..613]);
        let mut alone = |micro_batch, threads| {
            let how = How { micro_batch, threads, ..How::default() };
            with_predictor(&tiny, &how, true, |session| {
                logits(session, prompt);
                for token in answer {
                    session.answer(*token, go_on).unwrap();
                }
                predict_after(session, next)
            })
        };
        let expected = alone(64, 1);
        assert_eq!(expected.len(), 3);
        assert!(alone(7, 2) == expected && alone(1024, 3) == expected, "{name}");

        let mut file = Vec::new();
        with_predictor(&tiny, &How::default(), true, |session| {
            logits(session, prompt);
            session.save(1, usize::MAX, &mut file).unwrap();
            // Drafts after the second token are wrong.
            for pair in answer.chunks(2) {
                predict_after(session, &[pair[0], 5, 5]);
                let drafts = [pair[0], pair[1], 5, 5];
                assert!(session.answer_all(&drafts, go_on).unwrap().is_some());
                let right = session.tokens().len() - 2;
                session.truncate(right);
            }
            assert!(predict_after(session, next) == expected, "{name}");

            // Another answer, and this one again. Layers with a window drop earlier pages.
            assert_eq!(session.truncate(600), 600);
            logits(session, &vec![3; if tiny.window.is_some() { 100 } else { 300 }]);
            assert_eq!(session.truncate(600), 600);
            for token in answer {
                session.answer(*token, go_on).unwrap();
            }
            assert!(predict_after(session, next) == expected, "{name}");

            let size = file.len() as u64;
            session.restore(1, &file[..], size).unwrap();
            for token in answer {
                session.answer(*token, go_on).unwrap();
            }
            assert!(predict_after(session, next) == expected, "{name}");
        });
        // Without a predictor, there is no state of one.
        with_predictor(&tiny, &How::default(), false, |session| {
            assert!(session.restore(1, &file[..], file.len() as u64).is_err());
        });

        with_model(&tiny.builder(), &[], &How::default(), |model, rope, options| {
            let mut engine =
                Engine::new(model, rope, Options { predict: true, ..options }).unwrap();
            let (mut one, mut other) = (engine.sequence(), engine.sequence());
            let others = &all[100..650];
            step(&mut engine, [(&mut one, prompt), (&mut other, others)], Role::Prompt);
            let mut clone = one.clone();
            for i in 0..answer.len() {
                let own = &answer[i..i + 1];
                step(&mut engine, [(&mut other, &[7]), (&mut one, own)], Role::Answer);
                step(&mut engine, [(&mut clone, own), (&mut other, &[8])], Role::Answer);
                predict(&mut engine, &mut other, &[9, 9, 9]);
            }
            for sequence in [&mut one, &mut clone] {
                assert!(predict(&mut engine, sequence, next) == expected, "{name}");
            }
        });
    }
}

#[test]
fn a_context_shifts_the_keys_of_a_predictor() {
    let flags = Flags { context_shift: true, ..Flags::default() };
    let tiny = Tiny::named("qwen35");
    let all = tokens(&tiny, 1502);
    let run = |micro_batch| {
        let how = How { flags: flags.clone(), context: 600, micro_batch, ..How::default() };
        with_predictor(&tiny, &how, true, |session| {
            logits(session, &all[..1500]);
            assert!(session.take_evicted().is_some());
            predict_after(session, &all[1500..])
        })
    };
    let found = run(512);
    assert!(found.len() == 2 && found == run(100));
}

#[test]
fn predictions_end_where_the_context_does() {
    let tiny = Tiny::named("qwen35");
    let how = How { context: 43, ..How::default() };
    with_predictor(&tiny, &how, true, |session| {
        logits(session, &tokens(&tiny, 41));
        assert_eq!(predict_after(session, &[1, 2, 3, 4]).len(), 2);
        let (engine, sequence) = session.parts();
        let error = engine.predict(sequence, 50, 1, &mut |_| None).unwrap_err().to_string();
        assert!(error.contains("50"), "{error}");
        logits(session, &[1, 2]);
        assert_eq!(predict_after(session, &[1, 2]).len(), 0);
    });
}

#[test]
fn a_file_has_one_whole_predictor_or_none() {
    let tiny = Tiny::named("qwen35");
    assert!(load(&tiny.builder(), &[]).unwrap().config().predictor.is_some());
    let without = |tensor: &str| {
        let mut b = tiny.builder();
        b.tensors.retain(|one| !one.windows(tensor.len()).any(|part| part == tensor.as_bytes()));
        b
    };
    // Files may name the layer and not have it.
    assert!(load(&without("blk.3."), &[]).unwrap().config().predictor.is_none());
    for tensor in ["nextn.enorm", "nextn.hnorm", "attn_q", "ffn_down"] {
        let tensor = format!("blk.3.{tensor}.weight");
        let error = load(&without(&tensor), &[]).unwrap_err().to_string();
        assert!(error.contains(&tensor), "{error}");
    }
    let key = "nextn_predict_layers";
    let mut two = tiny.builder();
    two.keys.retain(|one| !one.windows(key.len()).any(|part| part == key.as_bytes()));
    let two = two.key(format!("qwen35.{key}"), U32, 2u32.to_le_bytes());
    // The second of them has no tensors, and the first has a recurrence in place of attention.
    assert!(load(&two, &[]).unwrap().config().predictor.is_none());
}
