//! Quantized weights, compared with ggml's quantizer (scripts/make-quantize-golden).

use rope_cpu_kernels::{Cpu, DType, Encoder};
use serde_json::Value;

use crate::common::{fnv1a, on_every_isa, scalar};

const COUNT: usize = 1 << 14;

/// Returns noise of 16 bits that depends only on seed and place, as in the script.
fn noise(seed: u32, place: usize) -> f32 {
    let mut x = (place as u32).wrapping_add(seed.wrapping_mul(0x9E3779B9));
    for (shift, factor) in [(16, 0x85EBCA6B), (13, 0xC2B2AE35)] {
        x ^= x >> shift;
        x = x.wrapping_mul(factor);
    }
    ((x ^ x >> 16) >> 16) as f32
}

fn weights(distribution: &str) -> Vec<f32> {
    let positive = |i| (0..4).map(|seed| noise(seed, i)).sum::<f32>();
    let bell = |i| positive(i) - 131070.0;
    let weight = |i: usize| match distribution {
        "bell" => bell(i),
        "outliers" if i.is_multiple_of(37) => 16.0 * bell(i),
        "outliers" => bell(i),
        "positive" => positive(i),
        "uniform" => noise(9, i),
        other => panic!("{other}"),
    };
    (0..COUNT).map(|i| weight(i) / (1 << 20) as f32).collect()
}

fn encoders() -> impl Iterator<Item = Encoder> {
    DType::ALL.into_iter().filter_map(Encoder::new)
}

/// Returns the mean squares of a row's inputs: most are small, and a few are large.
fn importance() -> Vec<f32> {
    let one = |i| noise(11, i) / 65536.0;
    (0..COUNT).map(|i| (one(i) * one(i)) * (one(i) * one(i))).collect()
}

fn encode(encoder: Encoder, cpu: Cpu, weights: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    let (block, bytes) = encoder.dtype().block();
    let mut out = vec![0; weights.len() / block * bytes];
    encoder.encode(cpu, weights, importance, &mut out);
    out
}

fn decoded(encoder: Encoder, weights: &[f32], importance: Option<&[f32]>) -> Vec<f32> {
    let mut out = vec![f32::NAN; weights.len()];
    encoder.decode(&encode(encoder, Cpu::best(), weights, importance), &mut out);
    out
}

/// Returns the root mean square error of the decoded weights, where `factors` are the importance of
/// each.
fn error(encoder: Encoder, weights: &[f32], importance: Option<&[f32]>, factors: &[f64]) -> f64 {
    let decoded = decoded(encoder, weights, importance);
    let errors = decoded.iter().zip(weights).map(|(a, b)| f64::from(*a) - f64::from(*b));
    let squares: f64 = errors.zip(factors).map(|(error, factor)| factor * error * error).sum();
    (squares / factors.iter().sum::<f64>()).sqrt()
}

/// Returns the importance of errors: that of the inputs, and more for large weights.
fn emphasis(weights: &[f32], importance: &[f32], block: usize) -> Vec<f64> {
    let blocks = weights.chunks(block).zip(importance.chunks(block));
    let factors = blocks.flat_map(|(weights, importance)| {
        let square = |weight: &f32| f64::from(*weight).powi(2);
        let mean = weights.iter().map(square).sum::<f64>() / weights.len() as f64;
        let factor =
            move |(weight, own): (&f32, &f32)| f64::from(*own) * (mean + square(weight)).sqrt();
        weights.iter().zip(importance).map(factor)
    });
    factors.collect()
}

fn golden() -> Value {
    include_str!("../data/quantize.json").parse().unwrap()
}

/// Compares errors with those of ggml's quantizer under a key of the golden file.
fn are_no_larger(key: &str, error: impl Fn(Encoder, &[f32]) -> f64) {
    let golden = &golden()[key];
    let golden = golden.as_object().unwrap();
    let mut larger = Vec::new();
    for (name, errors) in golden {
        let encoder = Encoder::new(DType::named(name).unwrap()).unwrap();
        for (distribution, expected) in errors.as_object().unwrap() {
            let found = error(encoder, &weights(distribution));
            // Some formats have no errors, since ggml refuses to work without an importance matrix.
            let Some(expected) = expected.as_f64() else { continue };
            println!("{name} {distribution}: {:.4} of ggml's", found / expected);
            // If both choose the same quants, sums of 2^14 squares may differ by 2^14 * 2^-53.
            if found > expected * (1.0 + 2e-12) {
                larger.push(format!("{name} {distribution}: {found} {expected}"));
            }
        }
    }
    assert!(larger.is_empty(), "{larger:#?}");
    assert_eq!(golden.len() + 1, encoders().count(), "all but f32, which is exact");
}

#[test]
fn errors_are_no_larger_than_those_of_ggml() {
    are_no_larger("errors", |encoder, weights| error(encoder, weights, None, &[1.0; COUNT]));
}

#[test]
fn important_errors_are_no_larger_than_those_of_ggml() {
    let importance = importance();
    are_no_larger("important", |encoder, weights| {
        let factors = emphasis(weights, &importance, encoder.dtype().block().0.max(32));
        error(encoder, weights, Some(&importance), &factors)
    });
}

#[test]
fn blocks_without_a_search_for_scales_are_those_of_ggml() {
    for (name, hashes) in golden()["hashes"].as_object().unwrap() {
        let encoder = Encoder::new(DType::named(name).unwrap()).unwrap();
        for (distribution, expected) in hashes.as_object().unwrap() {
            let blocks = encode(encoder, Cpu::best(), &weights(distribution), None);
            assert_eq!(fnv1a(blocks).to_string(), *expected, "{name} {distribution}");
        }
    }
}

fn bytes_are_those_of_the_scalar_machine(cpu: Cpu) {
    for encoder in encoders() {
        for distribution in ["bell", "outliers"] {
            let weights = &weights(distribution)[..2048];
            for importance in [None, Some(&importance()[..2048])] {
                let expected = encode(encoder, scalar(), weights, importance);
                let found = encode(encoder, cpu, weights, importance);
                assert!(found == expected, "{encoder:?} {distribution}");
            }
        }
    }
}
on_every_isa!(bytes_are_those_of_the_scalar_machine);

#[test]
fn zeros_stay_and_what_no_block_holds_is_seen() {
    for encoder in encoders() {
        let name = encoder.dtype().name();
        assert!(decoded(encoder, &[0.0; 256], None).iter().all(|weight| *weight == 0.0), "{name}");
        for (place, wrong) in [(0, f32::NAN), (3, f32::INFINITY), (255, f32::NEG_INFINITY)] {
            let mut weights = weights("bell")[..256].to_vec();
            weights[place] = wrong;
            let change = decoded(encoder, &weights, None)[place] - wrong;
            assert!(!change.is_finite(), "{name} {wrong}");
        }
        // Beyond 65504 times any quant; these three reach further.
        let large = decoded(encoder, &[1e12; 256], None);
        assert_eq!(large[0].is_finite(), matches!(name, "f32" | "bf16" | "mxfp4"), "{name}");
        // If f16 scales round to zero, so do the weights, and no quant is out of range.
        assert!(
            decoded(encoder, &[1e-30; 256], None).iter().all(|weight| *weight <= 1e-29),
            "{name}"
        );
    }
}
