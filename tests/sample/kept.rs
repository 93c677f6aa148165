//! The tokens that each sampler keeps, with their probabilities.

use rope_cpu::sample::{Sampler, Settings, min_p, penalties, temperature, top_k, top_p, typical_p};

use crate::sample::{distribution, logits, neutral};

/// The tolerance for a few roundings of f32: a logarithm, an exponential, a sum, a quotient.
const ROUNDING: f32 = 4.0 * f32::EPSILON;

fn check(settings: Settings, logits: &[f32], expected: &[(u32, f32)]) {
    let kept = distribution(&mut Sampler::new(settings.clone()).unwrap(), logits);
    let same = kept.len() == expected.len()
        && kept.iter().zip(expected).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() <= ROUNDING);
    assert!(same, "{settings:?}:\n{kept:?} instead of\n{expected:?}");
}

const FOUR: [f32; 4] = [0.1, 0.4, 0.2, 0.3];

#[test]
fn neutral_settings_keep_everything() {
    check(neutral(), &logits(&FOUR), &[(0, 0.1), (1, 0.4), (2, 0.2), (3, 0.3)]);
}

#[test]
fn top_k_keeps_the_likeliest() {
    let top_k = |top_k| neutral().with(&top_k::TOP_K, top_k);
    let four = logits(&FOUR);
    check(top_k(1), &four, &[(1, 1.0)]);
    check(top_k(3), &four, &[(1, 4.0 / 9.0), (2, 2.0 / 9.0), (3, 3.0 / 9.0)]);
    for all in [4, 5, 1000, 0, -1] {
        check(top_k(all), &four, &[(0, 0.1), (1, 0.4), (2, 0.2), (3, 0.3)]);
    }
}

#[test]
fn top_p_keeps_until_the_sum_is_reached() {
    let top_p = |top_p| neutral().with(&top_p::TOP_P, top_p);
    let four = logits(&FOUR);
    check(top_p(0.0), &four, &[(1, 1.0)]);
    check(top_p(0.39), &four, &[(1, 1.0)]);
    check(top_p(0.41), &four, &[(1, 4.0 / 7.0), (3, 3.0 / 7.0)]);
    check(top_p(0.7), &four, &[(1, 4.0 / 7.0), (3, 3.0 / 7.0)]);
    check(top_p(0.71), &four, &[(1, 4.0 / 9.0), (2, 2.0 / 9.0), (3, 3.0 / 9.0)]);
    check(top_p(1.0), &four, &[(0, 0.1), (1, 0.4), (2, 0.2), (3, 0.3)]);
}

#[test]
fn min_p_keeps_what_is_near_the_likeliest() {
    let min_p = |min_p| neutral().with(&min_p::MIN_P, min_p);
    let four = logits(&FOUR);
    check(min_p(0.24), &four, &[(0, 0.1), (1, 0.4), (2, 0.2), (3, 0.3)]);
    check(min_p(0.26), &four, &[(1, 4.0 / 9.0), (2, 2.0 / 9.0), (3, 3.0 / 9.0)]);
    check(min_p(0.51), &four, &[(1, 4.0 / 7.0), (3, 3.0 / 7.0)]);
    check(min_p(1.0), &four, &[(1, 1.0)]);
}

#[test]
fn typical_p_keeps_what_is_nearest_to_the_entropy() {
    let typical_p = |typical_p| neutral().with(&typical_p::TYPICAL_P, typical_p);
    // Entropy of 0.9, 0.05, 0.05: 0.3944; distances 0.289, 2.601, 2.601.
    check(typical_p(0.5), &logits(&[0.05, 0.9, 0.05]), &[(1, 1.0)]);
    // Entropy 1.0889; surprises 0.5108, 1.6094, 2.3026, 2.3026; distances 0.578, 0.520, 1.214,
    // 1.214: the second likeliest comes first, and 0.2 is not enough.
    let probabilities = logits(&[0.6, 0.2, 0.1, 0.1]);
    check(typical_p(0.19), &probabilities, &[(1, 1.0)]);
    check(typical_p(0.21), &probabilities, &[(0, 0.75), (1, 0.25)]);
    check(typical_p(0.85), &probabilities, &[(0, 6.0 / 9.0), (1, 2.0 / 9.0), (2, 1.0 / 9.0)]);
    // A token with probability 0 must not make the entropy NaN.
    let mut hopeless = probabilities;
    hopeless.push(-200.0);
    check(typical_p(0.19), &hopeless, &[(1, 1.0)]);
}

#[test]
fn temperature_divides_logits() {
    let at = |temperature| neutral().with(&temperature::TEMPERATURE, temperature);
    // Squares of 1 and 2, and their square roots.
    check(at(0.5), &logits(&[1.0, 2.0]), &[(0, 0.2), (1, 0.8)]);
    let root = 2f32.sqrt();
    check(at(2.0), &logits(&[1.0, 2.0]), &[(0, 1.0 / (1.0 + root)), (1, root / (1.0 + root))]);
    // A temperature so small that dividing the logit itself would overflow.
    check(at(1e-38), &logits(&[1.0, 2.0]), &[(0, 0.0), (1, 1.0)]);
}

#[test]
fn greedy_takes_the_lowest_of_the_likeliest() {
    let greedy = || neutral().with(&temperature::TEMPERATURE, 0.0);
    check(greedy(), &[1.0, 3.0, 2.0, 3.0, 3.0], &[(1, 1.0)]);
    // The order also decides which of several equal tokens are kept.
    check(greedy().with(&top_k::TOP_K, 2), &[3.0; 5], &[(0, 1.0)]);
    check(greedy().with(&top_p::TOP_P, 0.1), &[3.0; 5], &[(0, 1.0)]);
}

#[test]
fn samplers_act_in_the_order_of_llama_cpp() {
    // Top-k first: of 0.4, 0.3 | 0.2, 0.1 the first two become 4/7 and 3/7, so that 0.5 is
    // reached by one. Top-p first would have kept two.
    let both = neutral().with(&top_k::TOP_K, 2).with(&top_p::TOP_P, 0.5);
    check(both, &logits(&FOUR), &[(1, 1.0)]);
    // Temperature last: at 10, before min-p, all four would stay.
    let flat = neutral().with(&min_p::MIN_P, 0.6).with(&temperature::TEMPERATURE, 10.0);
    let root = |p: f32| p.powf(0.1);
    let sum = root(0.4) + root(0.3);
    check(flat, &logits(&FOUR), &[(1, root(0.4) / sum), (3, root(0.3) / sum)]);
    // Penalties come first.
    let penalized = neutral().with(&penalties::PRESENCE, 100.0).with(&top_k::TOP_K, 1);
    let mut sampler = Sampler::new(penalized).unwrap();
    sampler.accept(1);
    assert_eq!(distribution(&mut sampler, &logits(&FOUR)), [(3, 1.0)]);
}

/// Returns the logits after penalties, by token.
fn penalized(settings: Settings, accepted: &[u32], logits: &[f32]) -> Vec<f32> {
    let mut sampler = Sampler::new(settings).unwrap();
    accepted.iter().for_each(|token| sampler.accept(*token));
    let mut kept = sampler.distribution(logits).unwrap().to_vec();
    kept.sort_by_key(|c| c.token);
    kept.iter().map(|c| c.logit).collect()
}

#[test]
fn penalties_act_on_recent_tokens() {
    let repeat = || neutral().with(&penalties::REPEAT, 2.0);
    let three = [4.0, -4.0, 1.0];
    assert_eq!(penalized(repeat(), &[], &three), three);
    assert_eq!(penalized(repeat(), &[0, 1, 1], &three), [2.0, -8.0, 1.0]);
    let presence = || neutral().with(&penalties::PRESENCE, 0.5);
    assert_eq!(penalized(presence(), &[0, 1, 1], &three), [3.5, -4.5, 1.0]);
    let frequency = || neutral().with(&penalties::FREQUENCY, 0.5);
    assert_eq!(penalized(frequency(), &[0, 1, 1], &three), [3.5, -5.0, 1.0]);
    let all = neutral()
        .with(&penalties::REPEAT, 2.0)
        .with(&penalties::PRESENCE, 0.5)
        .with(&penalties::FREQUENCY, 0.25);
    assert_eq!(penalized(all, &[0, 1, 1], &three), [1.25, -9.0, 1.0]);
}

#[test]
fn extreme_changes_leave_finite_logits() {
    let repeat = neutral().with(&penalties::REPEAT, 1e-38);
    assert_eq!(penalized(repeat, &[0], &[4.0, 1.0]), [f32::MAX, 1.0]);
    let (presence, frequency) = (-f32::MAX, -f32::MAX);
    let both =
        neutral().with(&penalties::PRESENCE, presence).with(&penalties::FREQUENCY, frequency);
    assert_eq!(penalized(both, &[0, 0], &[4.0, 1.0]), [f32::MAX, 1.0]);
    let bias = Settings { logit_bias: vec![(0, f32::MAX), (0, f32::MAX)], ..neutral() };
    assert_eq!(penalized(bias, &[], &[4.0, 1.0]), [f32::MAX, 1.0]);
    // Logits of the model that are not finite are reported as such.
    let bias = Settings { logit_bias: vec![(0, 1.0)], ..neutral() };
    let mut sampler = Sampler::new(bias).unwrap();
    assert!(sampler.distribution(&[f32::INFINITY, 1.0]).is_err());
    assert!(sampler.distribution(&[f32::NAN, 1.0]).is_err());
}

#[test]
fn penalties_forget_what_is_long_ago() {
    let last = |repeat_last_n| {
        neutral().with(&penalties::LAST_N, repeat_last_n).with(&penalties::FREQUENCY, 1.0)
    };
    let accepted = [0, 0, 1, 2, 0, 1];
    assert_eq!(penalized(last(0), &accepted, &[0.0; 3]), [0.0, 0.0, 0.0]);
    assert_eq!(penalized(last(1), &accepted, &[0.0; 3]), [0.0, -1.0, 0.0]);
    assert_eq!(penalized(last(3), &accepted, &[0.0; 3]), [-1.0, -1.0, -1.0]);
    assert_eq!(penalized(last(4), &accepted, &[0.0; 3]), [-1.0, -2.0, -1.0]);
    assert_eq!(penalized(last(5), &accepted, &[0.0; 3]), [-2.0, -2.0, -1.0]);
    for all in [64, -1] {
        assert_eq!(penalized(last(all), &accepted, &[0.0; 3]), [-3.0, -2.0, -1.0]);
    }
}

/// A vocabulary of the size of Gemma's, with many equal logits.
fn large() -> Vec<f32> {
    (0..262_144u64).map(|i| (i.wrapping_mul(2_654_435_761) >> 7 & 0xfff) as f32 / 256.0).collect()
}

#[test]
fn large_vocabularies_keep_what_a_full_sort_would() {
    let logits = large();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a])); // stable: lower tokens first
    for k in [1, 40, 511, 512, 513, 1024, 100_000] {
        let mut sampler = Sampler::new(neutral().with(&top_k::TOP_K, k)).unwrap();
        let kept = sampler.distribution(&logits).unwrap();
        let tokens = kept.iter().map(|c| c.token as usize);
        assert!(tokens.eq(order[..k as usize].iter().copied()), "top-k {k}");
    }
    let weight = |i: &usize| f64::from(logits[*i]).exp();
    let total: f64 = order.iter().map(weight).sum();
    for top_p in [1e-4f32, 0.01, 0.5] {
        let mut sampler = Sampler::new(neutral().with(&top_p::TOP_P, top_p)).unwrap();
        let kept = sampler.distribution(&logits).unwrap();
        let tokens = kept.iter().map(|c| c.token as usize);
        assert!(tokens.eq(order[..kept.len()].iter().copied()), "top-p {top_p}");
        // A sum of n terms in f32 has a relative error of at most n roundings.
        let slack = kept.len() as f64 * f64::from(f32::EPSILON);
        let sum = order[..kept.len()].iter().map(weight).sum::<f64>() / total;
        let before = order[..kept.len() - 1].iter().map(weight).sum::<f64>() / total;
        assert!(sum >= f64::from(top_p) * (1.0 - slack), "top-p {top_p}: {sum}");
        assert!(before < f64::from(top_p) * (1.0 + slack), "top-p {top_p}: {before}");
    }
}
