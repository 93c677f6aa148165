//! Frequencies that depend on the length: for all tokens on the length of the whole sequence.

use rope_cpu::rope::POLICY;

use crate::model::{
    position::{Case, on_every_rule},
    session::{How, difference, logits, tokens, with_session},
};

/// The bound of `consistency`.
const BOUND: f32 = 2e-4;

/// Policy run is the default of LongRoPE.
fn how(case: &Case, micro_batch: usize) -> How {
    let policy = case.flags.scaling().map(|_| "run");
    let flags = case.flags.clone().without(&POLICY).with_some(&POLICY, policy);
    How { micro_batch, flags, ..How::default() }
}

on_every_rule!(one_shot_has_the_frequencies_of_its_length);

fn one_shot_has_the_frequencies_of_its_length(name: &str) {
    let case = Case::named(name);
    for n in [100, 101, 160, 161, 230] {
        let length = case.effective(n - 1);
        let expected = case.by(&|_| length, n);
        for micro_batch in [64, 7] {
            with_session(&case.tiny, &how(&case, micro_batch), |session| {
                let apart = difference(&expected, &logits(session, &tokens(&case.tiny, n)));
                assert!(apart < BOUND, "{:?}, {n}: {apart}", case.flags.scaling());
                assert_eq!(session.take_recomputed(), None);
            });
        }
    }
}

on_every_rule!(token_by_token_all_is_computed_again_at_each_grid_line);

fn token_by_token_all_is_computed_again_at_each_grid_line(name: &str) {
    let case = Case::named(name);
    let tokens = tokens(&case.tiny, 210);
    let frequencies = |i: usize| (case.frequencies)(case.effective(i));
    let mut expected = Vec::new();
    with_session(&case.tiny, &how(&case, 64), |session| {
        logits(session, &tokens[..90]);
        for (i, token) in tokens.iter().enumerate().skip(90) {
            let crosses = i == 90 || frequencies(i) != frequencies(i - 1);
            if crosses {
                let length = case.effective(i);
                expected = case.by(&|_| length, 210);
            }
            let apart = difference(&expected[i..=i], &logits(session, &[*token]));
            assert!(apart < BOUND, "{:?}, token {i}: {apart}", case.flags.scaling());
            let again = (crosses && i > 90).then_some(i);
            assert_eq!(session.take_recomputed(), again, "{:?}, token {i}", case.flags.scaling());
        }
    });
}
