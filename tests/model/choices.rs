//! The likelihood of choices, which are computed side by side behind what they have in common.

use rope_cpu::{
    eval::{
        choices::{Continuation, Error, log_likelihoods},
        likelihood::Softmax,
    },
    rope::Flags,
};

use crate::model::session::{How, logits, tokens, with_engine, with_session};
use rope_cpu_testing::tiny::Tiny;

/// Computes each text alone, in a session of its own.
fn one_by_one(tiny: &Tiny, how: &How, choices: &[Continuation]) -> Vec<f64> {
    let sum = |choice: &Continuation| {
        let logits = with_session(tiny, how, |session| logits(session, &choice.tokens));
        let scored = choice.start..choice.tokens.len();
        let nll = |i: usize| {
            let logits = &logits[i - 1];
            Softmax::of(logits).unwrap().nll(logits[choice.tokens[i] as usize])
        };
        // In the order of the tokens, so that the sums have the same bits.
        scored.fold(0.0, |sum, i| sum - nll(i))
    };
    choices.iter().map(sum).collect()
}

#[test]
fn choices_side_by_side_have_the_bits_of_each_alone() {
    for (tiny, flags) in [
        (Tiny::llama(), Flags::default()),
        (Tiny::gemma3(), Flags::default()),
        (Tiny::llama(), Flags::method("rerope")),
        (Tiny::llama(), Flags::method("dca")),
    ] {
        let how = How { micro_batch: 7, context: 200, flags, ..How::default() };
        let all = tokens(&tiny, 120);
        let choice = |start: usize, from: usize, count: usize| Continuation {
            tokens: [&all[..start], &all[from..from + count]].concat(),
            start,
        };
        // The same start, another text, and another start, as in Winogrande.
        let questions = [
            vec![choice(60, 70, 3), choice(60, 70, 9), choice(60, 90, 1)],
            vec![choice(50, 70, 5), choice(50, 80, 5)],
            vec![choice(40, 100, 4), choice(45, 100, 4)],
            vec![choice(1, 30, 2), choice(1, 31, 2)],
        ];
        with_engine(&tiny, &how, |engine| {
            let mut base = engine.sequence();
            for choices in &questions {
                let found = log_likelihoods(engine, &mut base, choices).unwrap();
                assert_eq!(found, one_by_one(&tiny, &how, choices));
            }
        });
    }
}

/// Such a choice would have a likelihood of 1.
#[test]
fn a_choice_without_a_token_or_a_token_before_it_is_an_error() {
    let tiny = Tiny::llama();
    let choice = |start: usize| Continuation { tokens: tokens(&tiny, 5), start };
    with_engine(&tiny, &How::default(), |engine| {
        let mut base = engine.sequence();
        for start in [0, 5, 6] {
            let choices = [choice(4), choice(start)];
            match log_likelihoods(engine, &mut base, &choices).unwrap_err() {
                Error::Start { choice: 1, start: found, tokens: 5 } => assert_eq!(found, start),
                error => panic!("{error}"),
            }
        }
        assert!(log_likelihoods(engine, &mut base, &[choice(4)]).unwrap()[0] < 0.0);
    });
}
