//! Samplers that are off by default, biases, and the order of the chain.

use rope_cpu::sample::{
    SAMPLERS, Sampler, Settings, default_order, min_p, parse_letters, parse_names, penalties,
    temperature, top_a, top_k, top_n_sigma, top_p, xtc,
};

use crate::sample::{distribution, logits, neutral};

/// The tolerance for entropies, powers and sums of a few terms in f32.
const ROUNDING: f32 = 16.0 * f32::EPSILON;

fn check(settings: Settings, logits: &[f32], expected: &[(u32, f32)]) {
    let kept = distribution(&mut Sampler::new(settings.clone()).unwrap(), logits);
    let same = kept.len() == expected.len()
        && kept.iter().zip(expected).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() <= ROUNDING);
    assert!(same, "{settings:?}:\n{kept:?} instead of\n{expected:?}");
}

const FOUR: [f32; 4] = [0.1, 0.4, 0.2, 0.3];

#[test]
fn top_n_sigma_keeps_what_is_near_the_largest_logit() {
    let top_n_sigma = |top_n_sigma| neutral().with(&top_n_sigma::TOP_N_SIGMA, top_n_sigma);
    // Mean 1.5, deviation the root of 1.25: 1.118.
    let steps = [0.0, 1.0, 2.0, 3.0];
    let e = 1f32.exp();
    check(top_n_sigma(0.8), &steps, &[(3, 1.0)]);
    check(top_n_sigma(0.9), &steps, &[(2, 1.0 / (1.0 + e)), (3, e / (1.0 + e))]);
    let all = distribution(&mut Sampler::new(top_n_sigma(2.7)).unwrap(), &steps);
    assert_eq!(all.len(), 4);
    for off in [0.0, -1.0] {
        assert_eq!(distribution(&mut Sampler::new(top_n_sigma(off)).unwrap(), &steps), all);
    }
    // Tokens with a logit of -inf do not count for the mean and the deviation.
    let mut hopeless = steps.to_vec();
    hopeless.push(f32::NEG_INFINITY);
    check(top_n_sigma(0.8), &hopeless, &[(3, 1.0)]);
}

#[test]
fn top_a_keeps_what_is_near_the_square_of_the_largest() {
    let top_a = |share| neutral().with(&top_a::TOP_A, share);
    // The square of 0.4 is 0.16: the bounds are 0.099, 0.101, 0.08 and 0.16.
    let four = logits(&FOUR);
    let all = [(0, 0.1), (1, 0.4), (2, 0.2), (3, 0.3)];
    let three = [(1, 4.0 / 9.0), (2, 2.0 / 9.0), (3, 3.0 / 9.0)];
    check(top_a(0.62), &four, &all);
    check(top_a(0.63), &four, &three);
    check(top_a(0.0), &four, &all);
    check(top_a(1.0), &four, &three);
    // Of 0.8, 0.15 and 0.05 with 0.2: the bound is 0.128. With 0.3 it is 0.192.
    let certain = logits(&[0.15, 0.8, 0.05]);
    check(top_a(0.2), &certain, &[(0, 3.0 / 19.0), (1, 16.0 / 19.0)]);
    check(top_a(0.3), &certain, &[(1, 1.0)]);
    // After top-k, the probabilities are those among the tokens that are left: 4/7 and 3/7.
    check(top_a(1.0).with(&top_k::TOP_K, 2), &four, &[(1, 4.0 / 7.0), (3, 3.0 / 7.0)]);
    check(top_a(1.0), &[0.0], &[(0, 1.0)]);
}

#[test]
fn xtc_keeps_the_least_likely_of_the_likely() {
    let xtc =
        |xtc_threshold| neutral().with(&xtc::PROBABILITY, 1.0).with(&xtc::THRESHOLD, xtc_threshold);
    let four = logits(&FOUR);
    let all = [(0, 0.1), (1, 0.4), (2, 0.2), (3, 0.3)];
    check(xtc(0.45), &four, &all);
    check(xtc(0.35), &four, &all);
    check(xtc(0.25), &four, &[(0, 1.0 / 6.0), (2, 2.0 / 6.0), (3, 3.0 / 6.0)]);
    check(xtc(0.15), &four, &[(0, 1.0 / 3.0), (2, 2.0 / 3.0)]);
    check(xtc(0.0), &four, &[(0, 1.0)]);
    check(xtc(0.51), &logits(&[0.5, 0.5]), &[(0, 0.5), (1, 0.5)]);
}

#[test]
fn xtc_acts_as_often_as_it_should() {
    let settings = Settings { seed: Some(1), ..neutral() }
        .with(&xtc::PROBABILITY, 0.3)
        .with(&xtc::THRESHOLD, 0.25);
    let mut sampler = Sampler::new(settings).unwrap();
    let (count, four) = (20_000, logits(&[0.1, 0.2, 0.3, 0.4]));
    let acted = (0..count).filter(|_| sampler.distribution(&four).unwrap().len() == 3).count();
    // Three standard deviations of a binomial distribution: 194.
    assert!((5806..=6194).contains(&acted), "{acted}");
}

#[test]
fn dynamic_temperature_follows_the_entropy() {
    let dynamic = |dynatemp_range, dynatemp_exponent| {
        neutral()
            .with(&temperature::TEMPERATURE, 1.5)
            .with(&temperature::DYNAMIC_RANGE, dynatemp_range)
            .with(&temperature::DYNAMIC_EXPONENT, dynatemp_exponent)
    };
    // Of 0.8 and 0.2: 0.7219 bits of at most 1.
    let entropy = -(0.8f64 * 0.8f64.log2() + 0.2 * 0.2f64.log2());
    for (range, exponent) in [(1.0, 1.0), (1.0, 2.0), (0.5, 0.5), (4.0, 1.0)] {
        let least = f64::max(1.5 - range, 0.0);
        let temperature = least + (1.5 + range - least) * entropy.powf(exponent);
        let odds = 4f64.powf(1.0 / temperature);
        let expected = [(0, (odds / (1.0 + odds)) as f32), (1, (1.0 / (1.0 + odds)) as f32)];
        check(dynamic(range as f32, exponent as f32), &logits(&[0.8, 0.2]), &expected);
    }
    // With an entropy of 0, the temperature is 0 if the range includes it.
    check(dynamic(1.5, 1.0), &[0.0, -200.0], &[(0, 1.0)]);
    check(dynamic(1.0, 1.0), &[3.0], &[(0, 1.0)]);
}

#[test]
fn biases_are_added_first() {
    let bias = |logit_bias: &[(u32, f32)]| Settings { logit_bias: logit_bias.into(), ..neutral() };
    let four = logits(&FOUR);
    check(
        bias(&[(0, 2f32.ln())]),
        &four,
        &[(0, 0.2 / 1.1), (1, 0.4 / 1.1), (2, 0.2 / 1.1), (3, 0.3 / 1.1)],
    );
    check(
        bias(&[(1, f32::NEG_INFINITY), (3, -1e9)]),
        &four,
        &[(0, 1.0 / 3.0), (2, 2.0 / 3.0), (3, 0.0)],
    );
    check(bias(&[(0, 9.0)]).with(&top_k::TOP_K, 1), &four, &[(0, 1.0)]);
}

#[test]
fn samplers_act_in_the_order_that_is_given() {
    let order = |names: &str, settings: Settings| Settings {
        samplers: parse_names(names).unwrap(),
        ..settings
    };
    let four = logits(&FOUR);
    let both = || neutral().with(&top_k::TOP_K, 2).with(&top_p::TOP_P, 0.5);
    check(order("top_k;top_p", both()), &four, &[(1, 1.0)]);
    check(order("top_p;top_k", both()), &four, &[(1, 4.0 / 7.0), (3, 3.0 / 7.0)]);
    // At 10, before min-p, all four stay.
    let flat = || neutral().with(&min_p::MIN_P, 0.6).with(&temperature::TEMPERATURE, 10.0);
    let kept = |names| distribution(&mut Sampler::new(order(names, flat())).unwrap(), &four).len();
    assert_eq!((kept("min_p;temperature"), kept("temperature;min_p")), (2, 4));
    // A sampler that is not in the chain has no effect.
    check(
        order("", neutral().with(&top_k::TOP_K, 1).with(&temperature::TEMPERATURE, 0.0)),
        &four,
        &[(0, 0.1), (1, 0.4), (2, 0.2), (3, 0.3)],
    );
    // Penalties at the end of the chain apply to the remaining candidates.
    let late = neutral().with(&penalties::PRESENCE, 100.0).with(&top_k::TOP_K, 1);
    let mut sampler = Sampler::new(order("top_k;penalties", late)).unwrap();
    sampler.accept(1);
    assert_eq!(distribution(&mut sampler, &four), [(1, 1.0)]);
}

#[test]
fn names_and_letters_are_those_of_llama_cpp() {
    let all = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature";
    let mut order = default_order();
    assert_eq!(order, SAMPLERS);
    order.retain(|kind| kind.name != "top_a"); // llama.cpp lacks it
    assert_eq!(parse_names(all).unwrap(), order);
    assert_eq!(parse_letters("edskypmxt").unwrap(), order);
    assert_eq!(order.iter().map(|kind| kind.name).collect::<Vec<_>>().join(";"), all);
    let others = "Penalties;DRY;top-n-sigma;topk;typ;nucleus;min-p;XTC;temp";
    assert_eq!(parse_names(others).unwrap(), order);
    assert!(parse_names("").unwrap().is_empty());
    let error = parse_names("top_k;").unwrap_err().to_string();
    assert!(error.starts_with("no sampler has the name \"\": choose from penalties"), "{error}");
    let error = parse_letters("kz").unwrap_err().to_string();
    assert!(error.starts_with("no sampler has the letter 'z': choose from e (pen"), "{error}");
}
