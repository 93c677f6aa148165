//! Samplers on distributions that are small enough to compute by hand.

mod chain;
mod draws;
mod dry;
mod kept;
mod mirostat;
mod settings;

use rope_cpu::sample::{Sampler, Settings, min_p, temperature, top_k, top_p, typical_p};

/// Returns settings with which every sampler keeps all tokens.
fn neutral() -> Settings {
    Settings { seed: Some(1), ..Settings::default() }
        .with(&temperature::TEMPERATURE, 1.0)
        .with(&top_k::TOP_K, 0)
        .with(&top_p::TOP_P, 1.0)
        .with(&min_p::MIN_P, 0.0)
        .with(&typical_p::TYPICAL_P, 1.0)
}

/// Returns logits with the softmax `probabilities`.
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
