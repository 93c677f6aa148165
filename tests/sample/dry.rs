//! Compares DRY with its definition.

use proptest::prelude::*;
use rope_cpu::sample::{Breaker, Sampler, Settings, dry};

use crate::sample::neutral;

fn dry() -> Settings {
    neutral().with(&dry::MULTIPLIER, 1.0).with(&dry::BASE, 2.0)
}

/// Returns the penalty of each of `vocabulary` tokens after a text.
fn penalties(settings: Settings, text: &[u32], vocabulary: usize) -> Vec<f32> {
    let mut sampler = Sampler::new(settings).unwrap();
    text.iter().for_each(|token| sampler.accept(*token));
    let mut left = sampler.distribution(&vec![0.0; vocabulary]).unwrap().to_vec();
    left.sort_by_key(|candidate| candidate.token);
    left.iter().map(|candidate| -candidate.logit).collect()
}

#[test]
fn what_goes_on_repeating_is_penalized_by_its_length() {
    // After `1 2`, a 3 followed `1 2` before.
    assert_eq!(penalties(dry(), &[1, 2, 3, 1, 2], 5), [0.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(penalties(dry(), &[0, 1, 2, 3, 0, 1, 2], 5), [0.0, 0.0, 0.0, 2.0, 0.0]);
    assert_eq!(penalties(dry(), &[4, 0, 1, 2, 3, 4, 0, 1, 2], 5), [0.0, 0.0, 0.0, 4.0, 0.0]);
    assert_eq!(penalties(dry(), &[1, 2, 3, 4, 2], 5), [0.0; 5]);
    let longer = dry().with(&dry::ALLOWED_LENGTH, 3);
    assert_eq!(penalties(longer, &[0, 1, 2, 3, 0, 1, 2], 5), [0.0, 0.0, 0.0, 1.0, 0.0]);
    let short = dry().with(&dry::LAST_N, 4);
    assert_eq!(penalties(short, &[1, 2, 3, 1, 2], 5), [0.0; 5]);
    let off = dry().with(&dry::MULTIPLIER, 0.0);
    assert_eq!(penalties(off, &[1, 2, 3, 1, 2], 5), [0.0; 5]);
}

#[test]
fn the_penalty_stays_finite() {
    let text = [1; 200];
    let settings = dry().with(&dry::LAST_N, 200);
    assert_eq!(penalties(settings, &text, 2), [0.0, f32::MAX]);
}

#[test]
fn breakers_end_repetitions() {
    let with = |breakers: &[Breaker]| Settings { dry_breakers: breakers.into(), ..dry() };
    let text = [0, 1, 2, 3, 0, 1, 2];
    let penalty = |breakers: &[Breaker]| penalties(with(breakers), &text, 5)[3];
    assert_eq!(penalty(&[]), 2.0);
    // The repetition ends at the 0, so its length is 2.
    assert_eq!(penalty(&[(0, vec![])]), 1.0);
    assert_eq!(penalty(&[(1, vec![])]), 0.0);
    // All tokens of a breaker must occur.
    assert_eq!(penalty(&[(0, vec![1])]), 0.0);
    assert_eq!(penalty(&[(0, vec![4])]), 2.0);
    // A breaker itself is never penalized.
    assert_eq!(penalty(&[(3, vec![])]), 0.0);
}

/// Computes the penalties by definition: for each token, the longest suffix of the text, up to
/// `limit` tokens, that occurred before this token.
fn by_definition(text: &[u32], limit: usize, token: u32) -> f32 {
    let longest = (1..text.len())
        .filter(|&i| text[i] == token)
        .map(|i| {
            let before = text[..i].iter().rev();
            before.zip(text.iter().rev()).take_while(|(a, b)| a == b).count().min(limit)
        })
        .max();
    longest.filter(|len| *len >= 2).map_or(0.0, |len| 2f32.powi(len as i32 - 2))
}

proptest! {
    #[test]
    fn any_text_is_penalized_by_the_definition(
        text in prop::collection::vec(0u32..3, 3..40),
        breaker in 0u32..6,
    ) {
        let settings = Settings { dry_breakers: vec![(breaker, vec![])].into(), ..dry() };
        let limit = text.iter().rev().position(|t| *t == breaker).unwrap_or(text.len());
        let found = penalties(settings, &text, 3);
        for token in 0..3 {
            let spared = token == breaker || limit < 2;
            let expected = if spared { 0.0 } else { by_definition(&text, limit, token) };
            prop_assert_eq!(found[token as usize], expected, "{:?}", text);
        }
    }
}
