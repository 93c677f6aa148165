//! The logits of a model, compared with its definition.

use rope_cpu::rope::{FREQ_SCALE, Flags};

use crate::model::session::{How, difference, logits, tokens, with_session};
use rope_cpu_testing::{
    reference::{Frequencies, forward},
    tiny::Tiny,
};

/// The largest allowed error. Logits are of order 1 and pass through some 10 products of about 100
/// terms in single precision. This is an error of about 10 x sqrt(100) x 6e-8 = 6e-6. Peaked
/// attention multiplies errors of scores (up to 10) by about as much.
const BOUND: f32 = 1e-4;

fn check(tiny: &Tiny, how: &How, rope: &Frequencies, n: usize) {
    let tokens = tokens(tiny, n);
    let expected = forward(tiny, rope, &tokens);
    let found = with_session(tiny, how, |session| logits(session, &tokens));
    let error = difference(&expected, &found);
    assert!(error < BOUND, "{error}");
}

#[test]
fn llama() {
    let tiny = Tiny::llama();
    check(&tiny, &How::default(), &Frequencies::new(&tiny, 1.0), 300);
}

#[test]
fn gemma3() {
    let tiny = Tiny::gemma3();
    check(&tiny, &How::default(), &Frequencies::new(&tiny, 1.0), 300);
}

#[test]
fn soft_caps() {
    let tiny = Tiny::capped();
    check(&tiny, &How::default(), &Frequencies::new(&tiny, 1.0), 300);
}

#[test]
fn scaling_acts_on_global_layers_alone() {
    let flags = Flags::default().with(&FREQ_SCALE, 0.25);
    for tiny in [Tiny::llama(), Tiny::gemma3(), Tiny::capped()] {
        let how = How { flags: flags.clone(), ..How::default() };
        check(&tiny, &how, &Frequencies::new(&tiny, 4.0), 100);
    }
}

#[test]
fn a_context_of_several_parts_read_one_by_one() {
    let tiny = Tiny { layers: 1, ..Tiny::llama() };
    let tokens = tokens(&tiny, 1100);
    let expected = forward(&tiny, &Frequencies::new(&tiny, 1.0), &tokens);
    let how = How { micro_batch: 1060, ..How::default() };
    with_session(&tiny, &how, |session| {
        session.evaluate(&tokens[..1060], 0..0, &mut |_, _| {}).unwrap();
        for i in 1060..1100 {
            let found = logits(session, &tokens[i..i + 1]);
            assert!(difference(&expected[i..i + 1], &found) < BOUND);
        }
    });
}

/// Each property changes the logits by far more than the bound.
#[test]
fn what_these_tests_vary_matters() {
    let far = |tiny: &Tiny, other: &Tiny| {
        let tokens = tokens(tiny, 60);
        let of = |t: &Tiny| with_session(t, &How::default(), |session| logits(session, &tokens));
        let apart = difference(&of(tiny), &of(other));
        assert!(apart > 100.0 * BOUND, "{apart}");
    };
    let (llama, gemma) = (Tiny::llama(), Tiny::gemma3());
    far(&llama, &Tiny { n_rot: 20, ..llama.clone() });
    far(&llama, &Tiny { base: 10000.0, ..llama.clone() });
    far(&gemma, &Tiny { window: None, ..gemma.clone() });
    far(&gemma, &Tiny { window: Some((30, 3)), ..gemma.clone() });
    far(&gemma, &Tiny { window: Some((40, 2)), ..gemma.clone() });
    far(&gemma, &Tiny { soft_caps: Some((0.0, 4.0)), ..gemma.clone() });
    let capped = Tiny::capped();
    far(&capped, &Tiny { soft_caps: Some((1.5, 4.0)), ..capped.clone() });
    far(&capped, &Tiny { soft_caps: Some((2.5, 3.0)), ..capped.clone() });
}
