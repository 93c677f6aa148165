//! The same tokens give the same logits with any number of threads, any micro-batch, and any reuse
//! of the cache.

use std::ops::ControlFlow;

use rope_cpu::{
    kv_cache::CacheType,
    model::Progress,
    rope::{Flags, SCALE},
};

use crate::model::{
    cache_types::step,
    session::{How, difference, logits, mean_difference, tokens, with_session},
};
use rope_cpu_testing::{
    on_every_family,
    reference::{Frequencies, forward},
    tiny::Tiny,
};

on_every_family!(micro_batches_of_any_size_give_the_same_bits);

/// Twice the bound of `meaning`: two ways to round are each that far from the exact result.
const BOUND: f32 = 2e-4;

fn run(tiny: &Tiny, how: &How, n: usize) -> Vec<Vec<f32>> {
    with_session(tiny, how, |session| how.read(session, &tokens(tiny, n)))
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let floats = [Tiny::llama(), Tiny::mixed(), Tiny::latent(), Tiny::named("qwen3moe")];
    let floats = floats.map(|tiny| (tiny, CacheType::F32));
    for (tiny, cache) in floats.into_iter().chain([(Tiny::llama().in_blocks(), CacheType::Q8_0)]) {
        for micro_batch in [1, 64] {
            let (keys, values) = (cache, cache);
            let how = |threads| How { threads, micro_batch, keys, values, ..How::default() };
            let one = run(&tiny, &how(1), 300);
            for threads in [2, 3] {
                assert!(one == run(&tiny, &how(threads), 300), "{threads} threads");
            }
        }
    }
}

/// Sizes of batches that end with a whole tile, a part of one, or a single token.
const MICRO_BATCHES: [usize; 6] = [2, 3, 7, 31, 100, 256];

fn micro_batches_of_any_size_give_the_same_bits(name: &str, tiny: Tiny) {
    for tiny in [tiny.clone(), tiny.in_blocks()] {
        let of = |micro_batch| run(&tiny, &How { micro_batch, ..How::default() }, 300);
        let whole = of(512);
        for micro_batch in MICRO_BATCHES {
            assert!(whole == of(micro_batch), "{name}, {micro_batch}");
        }
    }
}

#[test]
fn micro_batches_of_any_size_give_the_same_bits_with_each_cache_type() {
    for tiny in [Tiny::llama(), Tiny::gemma3(), Tiny::mixed(), Tiny::latent()] {
        for cache in CacheType::ALL {
            let (keys, values) = (cache, cache);
            let how = How { keys, values, ..How::default() };
            let of = |micro_batch| run(&tiny, &How { micro_batch, ..how.clone() }, 300);
            let whole = of(512);
            for micro_batch in MICRO_BATCHES {
                assert!(whole == of(micro_batch), "{}, {micro_batch}", cache.name());
            }
        }
    }
}

/// Returns the logits of the last of 2,200 tokens: more than one part of the context, and keys far
/// enough to be multiplied in 8 bits.
fn far_back(tiny: &Tiny, how: &How) -> Vec<Vec<f32>> {
    let all = tokens(tiny, 2200);
    with_session(tiny, how, |session| {
        session.evaluate(&all[..2150], 0..0, &mut |_, _| {}).unwrap();
        logits(session, &all[2150..])
    })
}

/// With few rows each part of the context is a task of attention; with many, one task computes all
/// parts.
#[test]
fn micro_batches_of_any_size_give_the_same_bits_far_back() {
    let llama = Tiny { layers: 1, ..Tiny::llama() };
    let raw = Flags::method("dynamic").with(&SCALE, 2.0);
    let latent = Tiny { layers: 1, ..Tiny::latent() };
    for (tiny, flags) in [
        (llama.clone(), Flags::default()),
        (llama, raw.clone()),
        (latent.clone(), Flags::default()),
        (latent, raw),
        (Tiny::gemma3(), Flags::default()),
    ] {
        for cache in [CacheType::F16, CacheType::Q8_0] {
            let (keys, values) = (cache, cache);
            let how = How { keys, values, flags: flags.clone(), ..How::default() };
            let of = |micro_batch| far_back(&tiny, &How { micro_batch, ..how.clone() });
            let whole = of(512);
            for micro_batch in [2, 7, 300] {
                assert!(whole == of(micro_batch), "{}, {micro_batch}", cache.name());
            }
        }
    }
}

/// Far keys and values are rounded to 8 bits, except in an f32 cache.
#[test]
fn far_back_a_prompt_is_as_near_as_steps_of_eight_bits() {
    let tiny = Tiny { layers: 1, ..Tiny::llama() };
    let of = |keys, values| far_back(&tiny, &How { keys, values, ..How::default() });
    let exact = of(CacheType::F32, CacheType::F32);
    for (keys, values) in [(CacheType::F16, CacheType::F32), (CacheType::F32, CacheType::F16)] {
        let found = of(keys, values);
        let error = mean_difference(&exact, &found);
        // An f16 cache that is computed in single precision is sixteen times as near.
        assert!((1.0 / 2048.0..=8.0 / 127.0).contains(&error), "{}: {error}", keys.name());
    }
}

#[test]
fn an_answer_agrees_with_a_prompt() {
    for tiny in [Tiny::llama(), Tiny::gemma3(), Tiny::latent(), Tiny::named("llama-experts")] {
        let of = |micro_batch| run(&tiny, &How { micro_batch, ..How::default() }, 300);
        let apart = difference(&of(512), &of(1));
        assert!(apart < BOUND, "{apart}");
    }
}

/// The scalings that rotate keys once. Scalings that depend on the length are tested in `position`,
/// and those that change attention in `distances`.
#[test]
fn micro_batches_of_any_size_give_the_same_bits_by_each_scaling() {
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        let plain = run(&tiny, &How::default(), 300);
        for scaling in ["linear", "ntk", "ntk-mixed", "yarn", "llama3", "dprope", "cope"] {
            let flags = Flags::method(scaling).with(&SCALE, 4.0);
            let how = How { flags, ..How::default() };
            assert!(with_session(&tiny, &how, |session| !session.rope().plan().raw_keys()));
            let of = |micro_batch| run(&tiny, &How { micro_batch, ..how.clone() }, 300);
            let whole = of(512);
            assert!(difference(&plain, &whole) > 100.0 * BOUND, "{scaling} has no effect");
            for micro_batch in [7, 64, 256] {
                assert!(whole == of(micro_batch), "{scaling}, {micro_batch}");
            }
            let apart = difference(&whole, &of(1));
            assert!(apart < BOUND, "{scaling}: {apart}");
        }
    }
}

/// Prompts may have more workers than answers, or fewer.
#[test]
fn any_numbers_of_workers_give_the_same_bits() {
    for tiny in [Tiny::llama(), Tiny::named("lfm2moe")] {
        let with = |threads, prompts| {
            let how = How { threads, prompt_threads: Some(prompts), ..How::default() };
            with_session(&tiny, &how, |session| {
                let all = tokens(&tiny, 200);
                let mut found = logits(session, &all[..180]);
                let go_on = &mut |_| ControlFlow::Continue(());
                let one = |token: &u32| session.answer(*token, go_on).unwrap().unwrap().to_vec();
                found.extend(all[180..].iter().map(one));
                found
            })
        };
        let one = with(1, 1);
        for (answers, prompts) in [(1, 3), (3, 1), (2, 4)] {
            assert!(with(answers, prompts) == one, "{answers} {prompts}");
        }
    }
}

#[test]
fn turns_that_reuse_the_cache_equal_one_long_prompt() {
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        let tokens = tokens(&tiny, 400);
        let whole = run(&tiny, &How::default(), 400);
        with_session(&tiny, &How::default(), |session| {
            for turn in [0..90, 90..300, 300..309, 309..310, 310..400] {
                assert!(whole[turn.clone()] == logits(session, &tokens[turn]));
            }
        });
    }
}

#[test]
fn what_was_truncated_leaves_no_trace() {
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        let tokens = tokens(&tiny, 300);
        let whole = run(&tiny, &How::default(), 300);
        with_session(&tiny, &How::default(), |session| {
            logits(session, &tokens[..200]);
            logits(session, &[7; 300]);
            let kept = session.truncate(200);
            // Window layers have dropped keys; the model without them retains all.
            assert_eq!(kept, if tiny.window.is_some() { 0 } else { 200 });
            assert_eq!(session.tokens(), &tokens[..kept]);
            assert!(whole[kept..] == logits(session, &tokens[kept..]));
        });
    }
}

#[test]
fn a_session_can_be_truncated_repeatedly_to_what_is_retained() {
    let tiny = Tiny::gemma3();
    let tokens = tokens(&tiny, 400);
    let whole = run(&tiny, &How::default(), 400);
    with_session(&tiny, &How::default(), |session| {
        session.retain_from(300);
        logits(session, &tokens[..300]);
        for _ in 0..2 {
            logits(session, &[7; 600]);
            assert_eq!(session.truncate(300), 300);
        }
        assert!(whole[300..] == logits(session, &tokens[300..]));
    });
}

#[test]
fn reading_can_be_stopped_and_taken_up_again() {
    let tiny = Tiny::llama();
    let tokens = tokens(&tiny, 200);
    let whole = run(&tiny, &How::default(), 200);
    with_session(&tiny, &How::default(), |session| {
        let stop = &mut |progress| match progress {
            Progress::Read(100..) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        assert!(session.extend(&tokens, stop).unwrap().is_none());
        assert_eq!(session.tokens(), &tokens[..128]);
        let go_on = &mut |_| ControlFlow::Continue(());
        let last = session.extend(&tokens[128..], go_on).unwrap().unwrap().to_vec();
        assert!(whole[199] == last);
    });
}

/// Keys are of order 3 and 20 elements make a score. So an error of a step of the cache type
/// changes probabilities by several times as much.
#[test]
fn every_cache_type_is_as_near_as_its_steps() {
    let tiny = Tiny::llama();
    let exact = run(&tiny, &How::default(), 200);
    let mean = |keys, values| {
        mean_difference(&exact, &run(&tiny, &How { keys, values, ..How::default() }, 200))
    };
    for dtype in CacheType::ALL {
        let step = step(dtype);
        for (keys, values) in [(dtype, CacheType::F32), (CacheType::F32, dtype)] {
            let error = mean(keys, values);
            assert!(error <= 8.0 * step, "{} {}: {error}", keys.name(), values.name());
            assert!(step == 0.0 || error > 0.0, "{} has no effect", dtype.name());
        }
    }
}

#[test]
fn a_longer_sequence_is_computed_again_with_long_factors() {
    let original = 100;
    let tiny = Tiny { long_rope: Some(original), ..Tiny::llama() };
    let [short, long] = tiny.divisors().map(|divisors| {
        let mut f = Frequencies::new(&tiny, 1.0);
        f.global.iter_mut().zip(divisors).for_each(|(f, d)| *f /= f64::from(d));
        f
    });
    let tokens = tokens(&tiny, 150);
    let short = forward(&tiny, &short, &tokens[..original]);
    let long = forward(&tiny, &long, &tokens);
    with_session(&tiny, &How::default(), |session| {
        assert!(difference(&short, &logits(session, &tokens[..original])) < BOUND);
        assert_eq!(session.take_recomputed(), None);
        assert!(difference(&long[original..], &logits(session, &tokens[original..])) < BOUND);
        assert_eq!(session.take_recomputed(), Some(original));
        assert_eq!(session.tokens(), tokens);
        // And back: the remaining tokens of a longer sequence were computed with the long factors.
        assert_eq!(session.truncate(50), 50);
        assert!(difference(&short[50..], &logits(session, &tokens[50..original])) < BOUND);
        assert_eq!(session.take_recomputed(), Some(50));
    });
    assert!(difference(&short, &long[..original]) > 100.0 * BOUND);
}
