//! Compares Mirostat with its equations.

use rope_cpu::sample::{Sampler, mirostat, top_k};

use crate::sample::neutral;

fn mirostat(version: i32, tau: f32, eta: f32) -> Sampler {
    let settings = neutral()
        .with(&mirostat::VERSION, version)
        .with(&mirostat::TARGET, tau)
        .with(&mirostat::RATE, eta);
    Sampler::new(settings.with(&top_k::TOP_K, 1)).unwrap()
}

#[test]
fn version_2_moves_its_bound_by_the_error() {
    // Eight tokens of 3 bits. The bound starts at 2 and keeps one token, with a surprise of 0. It
    // becomes 2 + 0.5, then 3, which keeps all tokens, and their surprise lowers it by 1.
    let mut sampler = mirostat(2, 1.0, 0.5);
    let flat = [0.0; 8];
    for expected in [1, 1, 8, 1, 1, 8, 1] {
        assert_eq!(sampler.distribution(&flat).unwrap().len(), expected);
        sampler.choose(&flat).unwrap();
    }
}

#[test]
fn version_1_keeps_as_many_as_the_distribution_of_zipf() {
    // Exponent 2 of 1000 tokens, bound 6: the root of 64 / (1 - 1/1000) is 8.004.
    let zipf: Vec<f32> = (1..=1000).map(|rank| -2.0 * (rank as f32).ln()).collect();
    assert_eq!(mirostat(1, 3.0, 0.1).distribution(&zipf).unwrap().len(), 8);
    // Bound 8: of 256.26, 16.008.
    assert_eq!(mirostat(1, 4.0, 0.1).distribution(&zipf).unwrap().len(), 16);
    assert_eq!(mirostat(1, 3.0, 0.1).distribution(&[1.0]).unwrap().len(), 1);
}

#[test]
fn the_surprise_keeps_near_its_target() {
    let logits: Vec<f32> = (1..=2000).map(|rank| -1.1 * (rank as f32).ln()).collect();
    for version in [1, 2] {
        let (tau, eta, count) = (3.0f64, 0.1f64, 3000);
        let mut sampler = mirostat(version, tau as f32, eta as f32);
        let mut sum = 0.0;
        for _ in 0..count {
            let candidates = sampler.distribution(&logits).unwrap().to_vec();
            let token = sampler.choose(&logits).unwrap();
            let drawn = candidates.iter().find(|c| c.token == token).unwrap();
            sum -= f64::from(drawn.probability.log2());
        }
        // The errors sum to the bound's change divided by eta. It stays between 0 and 4 tau.
        let error = sum / f64::from(count) - tau;
        assert!(error.abs() < 4.0 * tau / (eta * f64::from(count)), "{version}: {error}");
    }
}
