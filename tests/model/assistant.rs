//! The assistant of a Gemma 4 model, compared with its definition, and with itself on other ways to
//! the same sequence.

use std::ops::ControlFlow;

use rope_cpu::{
    gguf::File,
    model::{Assistant, Engine, Error, Model, Options, Role, Session},
    rope::Flags,
};

use crate::model::{
    architectures::GELU_BOUND,
    predictor::{golden, predict, predict_after, step},
    session::{How, difference, load, logits, tokens, with_model},
};
use rope_cpu_testing::{
    builder::Builder,
    reference::{Frequencies, assisted},
    tiny::Tiny,
};

const NAMES: [&str; 2] = ["gemma4", "gemma4-experts"];

/// The bound of `architectures`: an assistant has a few more layers.
const BOUND: f32 = 1e-4;

/// The number of tokens that the model computes, more than its windows.
const READ: usize = 40;

/// Loads the assistant in a file.
pub fn load_assistant(file: &Builder, model: &Model) -> Result<Option<Assistant>, Error> {
    Assistant::load(File::in_memory("assistant.gguf", &file.bytes())?, model)
}

/// Calls `test` with a session of a model with its assistant.
fn with_assistant<T>(tiny: &Tiny, how: &How, test: impl FnOnce(&mut Session) -> T) -> T {
    with_model(&tiny.builder(), &[], how, |model, rope, options| {
        let assistant = load_assistant(&tiny.assistant().builder(), model).unwrap();
        assert!(assistant.is_some());
        test(&mut Session::new(model, rope, Options { assistant, ..options }).unwrap())
    })
}

fn expected(model: &Tiny, assistant: &Tiny, drafts: usize) -> Vec<Vec<f32>> {
    let all = tokens(model, READ + 1 + drafts);
    let (tokens, drafts) = all.split_at(READ + 1);
    assisted(model, assistant, &Frequencies::new(model, 1.0), tokens, drafts)
}

#[test]
fn an_assistant_computes_what_its_definition_says() {
    for name in NAMES {
        let tiny = Tiny::named(name);
        let (all, expected) = (tokens(&tiny, READ + 4), expected(&tiny, &tiny.assistant(), 3));
        for micro_batch in [1, 7, 64] {
            let reads = How { micro_batch, ..How::default() };
            let how = How { micro_batch: micro_batch.max(7), ..How::default() };
            let found = with_assistant(&tiny, &how, |session| {
                reads.read(session, &all[..READ]);
                predict_after(session, &all[READ..])
            });
            let error = difference(&expected, &found);
            assert!(error < BOUND, "{name}, {micro_batch}: {error}");
        }
    }
}

/// The golden logits are from `scripts/make-predictor-golden`. llama.cpp has a table of GELU in F16.
#[test]
fn an_assistant_computes_what_llama_cpp_does() {
    for name in NAMES {
        let tiny = Tiny::named(name);
        let all = tokens(&tiny, READ + 4);
        let found = with_assistant(&tiny, &How::default(), |session| {
            logits(session, &all[..READ]);
            predict_after(session, &all[READ..])
        });
        let error = difference(&golden()[name], &found);
        assert!(error < 4.0 * GELU_BOUND, "{name}: {error}");
    }
}

/// A definition without a part exceeds the bound.
#[test]
fn each_part_of_an_assistant_matters() {
    let tiny = Tiny::named("gemma4");
    let whole = expected(&tiny, &tiny.assistant(), 1);
    for without in [
        "the norm of outputs",
        "the scale of embeddings",
        "the same position",
        "the order",
        "the last layer",
        "its own output",
        "the window",
        "norms of queries",
        "the rotation of queries",
        "post_attention_norm",
        "post_ffw_norm",
        "the scales of layers",
    ] {
        let assistant = Tiny { without, ..tiny.assistant() };
        let apart = difference(&whole, &expected(&tiny, &assistant, 1));
        assert!(apart > 100.0 * BOUND, "{without}: {apart}");
    }
}

/// A sequence has the same predictions on any way to it: with other steps, threads and sequences,
/// from a clone or a longer sequence, and after wrong drafts. Logits are the same as without.
#[test]
fn predictions_depend_on_the_sequence_only() {
    let go_on = &mut |_| ControlFlow::Continue(());
    for name in NAMES {
        let tiny = Tiny::named(name);
        let all = tokens(&tiny, 700);
        let (prompt, answer, next) = (&all[..600], &all[600..610], &all[610..613]);
        let mut alone = |micro_batch, threads| {
            let how = How { micro_batch, threads, ..How::default() };
            with_assistant(&tiny, &how, |session| {
                logits(session, prompt);
                for token in answer {
                    session.answer(*token, go_on).unwrap();
                }
                (predict_after(session, next), logits(session, next))
            })
        };
        let expected = alone(64, 1);
        assert_eq!(expected.0.len(), 3);
        assert!(alone(7, 2) == expected && alone(1024, 3) == expected, "{name}");
        let (expected, logits_after) = expected;

        with_model(&tiny.builder(), &[], &How::default(), |model, rope, options| {
            let mut plain = Session::new(model, rope, options).unwrap();
            logits(&mut plain, prompt);
            for token in answer {
                plain.answer(*token, go_on).unwrap();
            }
            assert_eq!(predict_after(&mut plain, next).len(), 0);
            assert!(logits(&mut plain, next) == logits_after, "{name}");
        });

        with_assistant(&tiny, &How::default(), |session| {
            assert_eq!(predict_after(session, next).len(), 0);
            logits(session, prompt);
            let mut file = Vec::new();
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

            // A saved sequence has no outputs until it goes on.
            session.restore(1, &file[..], file.len() as u64).unwrap();
            assert_eq!(predict_after(session, next).len(), 0);
            for token in answer {
                session.answer(*token, go_on).unwrap();
            }
            assert!(predict_after(session, next) == expected, "{name}");
        });

        with_model(&tiny.builder(), &[], &How::default(), |model, rope, options| {
            let assistant = load_assistant(&tiny.assistant().builder(), model).unwrap();
            let mut engine = Engine::new(model, rope, Options { assistant, ..options }).unwrap();
            let (mut one, mut other) = (engine.sequence(), engine.sequence());
            let others = &all[100..650];
            step(&mut engine, [(&mut one, prompt), (&mut other, others)], Role::Prompt);
            let mut clone = one.clone();
            for i in 0..answer.len() {
                let own = &answer[i..i + 1];
                step(&mut engine, [(&mut other, &[7]), (&mut one, own)], Role::Answer);
                step(&mut engine, [(&mut clone, own), (&mut other, &[8])], Role::Answer);
                assert_eq!(predict(&mut engine, &mut other, &[9, 9, 9]).len(), 3);
            }
            for sequence in [&mut one, &mut clone] {
                assert!(predict(&mut engine, sequence, next) == expected, "{name}");
            }
        });
    }
}

#[test]
fn predictions_go_on_after_a_shift_and_end_where_the_context_does() {
    let tiny = Tiny::named("gemma4");
    let all = tokens(&tiny, 1502);
    let run = |micro_batch| {
        let flags = Flags { context_shift: true, ..Flags::default() };
        let how = How { flags, context: 600, micro_batch, ..How::default() };
        with_assistant(&tiny, &how, |session| {
            logits(session, &all[..1500]);
            assert!(session.take_evicted().is_some());
            predict_after(session, &all[1500..])
        })
    };
    let found = run(512);
    assert!(found.len() == 2 && found == run(100));
    let how = How { context: 43, ..How::default() };
    with_assistant(&tiny, &how, |session| {
        logits(session, &all[..41]);
        assert_eq!(predict_after(session, &[1, 2, 3, 4]).len(), 2);
        let (engine, sequence) = session.parts();
        let error = engine.predict(sequence, 50, 1, &mut |_| None).unwrap_err().to_string();
        assert!(error.contains("50"), "{error}");
    });
}

#[test]
fn an_assistant_of_another_model_is_refused() {
    let tiny = Tiny::named("gemma4");
    let model = load(&tiny.builder(), &[]).unwrap();
    let right = tiny.assistant();
    let error_of = |file: Builder, model: &Model| {
        let error = load_assistant(&file, model).unwrap_err().to_string();
        assert!(error.starts_with("assistant.gguf"), "{error}");
        error
    };
    let refused = |assistant: Tiny, parts: &[&str]| {
        let error = error_of(assistant.builder(), &model);
        assert!(error.contains("model.gguf"), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    refused(Tiny { assists: 64, ..right.clone() }, &["length of activations is 64", "72"]);
    refused(Tiny { vocabulary: 40, ..right.clone() }, &["number of tokens is 40", "50"]);
    refused(
        Tiny { kv_heads: 4, ..right.clone() },
        &["KV heads is 4 in layer 0 of the assistant", "2 in layer 4 of the model"],
    );
    refused(
        Tiny { head_dim: 24, ..right.clone() },
        &["length of a head is 24 in layer 2 of the assistant", "20 in layer 5 of the model"],
    );
    refused(
        Tiny { window_head: Some([12, 6]), ..right.clone() },
        &["dimensions that rotate is 6 in layer 0", "8 in layer 4"],
    );
    refused(Tiny { base: 600.0, ..right.clone() }, &["rope.freq_base is 600", "is 500"]);

    let llama = load(&Tiny::llama().builder(), &[]).unwrap();
    let error = error_of(right.builder(), &llama);
    assert!(error.contains("made for gemma4 models") && error.contains("a llama model"), "{error}");
    for tensor in ["nextn.pre_projection", "nextn.post_projection", "blk.1.attn_q", "output_norm"] {
        let mut file = right.builder();
        let has = |one: &[u8]| one.windows(tensor.len()).any(|part| part == tensor.as_bytes());
        file.tensors.retain(|one| !has(one));
        assert!(error_of(file, &model).contains(tensor), "{tensor}");
    }
    let error = load(&right.builder(), &[]).unwrap_err().to_string();
    assert!(error.contains("draft tokens for a gemma4 model"), "{error}");
    assert!(load_assistant(&tiny.builder(), &model).unwrap().is_none());
    // The tables of a smaller vocabulary, which are not used.
    let more = right.builder();
    let more = more.append("masked_embd_ordering", &[1], 0, 1f32.to_le_bytes());
    let more = more.append("masked_embd_centroids.weight", &[1], 0, 1f32.to_le_bytes());
    let assistant = load_assistant(&more, &model).unwrap();

    // An engine of a model with other layers.
    let other = Tiny { layers: 9, ..tiny };
    with_model(&other.builder(), &[], &How::default(), |model, rope, options| {
        let made = Engine::new(model, rope, Options { assistant, ..options });
        let error = made.err().unwrap().to_string();
        assert!(error.contains("assistant.gguf cannot draft for model.gguf"), "{error}");
    });
}
