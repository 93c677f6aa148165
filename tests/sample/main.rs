//! Samplers on distributions that are small enough to compute by hand.

mod chain;
mod draws;
mod dry;
mod kept;
mod mirostat;
mod settings;

use rope_cpu::sample::{Sampler, Settings};

/// Returns settings with which every sampler keeps all tokens.
fn neutral() -> Settings {
    Settings {
        seed: Some(1),
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        typical_p: 1.0,
        ..Settings::default()
    }
}

/// Returns logits whose softmax is `probabilities`.
fn logits(probabilities: &[f32]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln()).collect()
}

/// Returns the tokens that a sampler keeps, sorted, with their probabilities.
fn distribution(sampler: &mut Sampler, logits: &[f32]) -> Vec<(u32, f32)> {
    let kept = sampler.distribution(logits).unwrap();
    let mut kept: Vec<_> = kept.iter().map(|c| (c.token, c.probability)).collect();
    kept.sort_by_key(|(token, _)| *token);
    kept
}
