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

fn encode(encoder: Encoder, cpu: Cpu, weights: &[f32]) -> Vec<u8> {
    let (block, bytes) = encoder.dtype().block();
    let mut out = vec![0; weights.len() / block * bytes];
    encoder.encode(cpu, weights, &mut out);
    out
}

fn decoded(encoder: Encoder, weights: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; weights.len()];
    encoder.decode(&encode(encoder, Cpu::best(), weights), &mut out);
    out
}

fn golden() -> Value {
    include_str!("../data/quantize.json").parse().unwrap()
}

#[test]
fn errors_are_no_larger_than_those_of_ggml() {
    let golden = &golden()["errors"];
    let golden = golden.as_object().unwrap();
    for (name, errors) in golden {
        let encoder = Encoder::new(DType::named(name).unwrap()).unwrap();
        for (distribution, expected) in errors.as_object().unwrap() {
            let weights = weights(distribution);
            let errors = decoded(encoder, &weights);
            let errors = errors.iter().zip(&weights).map(|(a, b)| f64::from(*a) - f64::from(*b));
            let squares: f64 = errors.map(|error| error * error).sum();
            let found = (squares / COUNT as f64).sqrt();
            // If both choose the same quants, sums of 2^14 squares may differ by 2^14 * 2^-53.
            let expected = expected.as_f64().unwrap();
            assert!(found <= expected * (1.0 + 2e-12), "{name} {distribution}: {found} {expected}");
            println!("{name} {distribution}: {:.4} of ggml's", found / expected);
        }
    }
    assert_eq!(golden.len() + 1, encoders().count(), "all but f32, which is exact");
}

#[test]
fn blocks_without_a_search_for_scales_are_those_of_ggml() {
    for (name, hashes) in golden()["hashes"].as_object().unwrap() {
        let encoder = Encoder::new(DType::named(name).unwrap()).unwrap();
        for (distribution, expected) in hashes.as_object().unwrap() {
            let blocks = encode(encoder, Cpu::best(), &weights(distribution));
            assert_eq!(fnv1a(blocks).to_string(), *expected, "{name} {distribution}");
        }
    }
}

fn bytes_are_those_of_the_scalar_machine(cpu: Cpu) {
    for encoder in encoders() {
        for distribution in ["bell", "outliers"] {
            let weights = &weights(distribution)[..2048];
            let expected = encode(encoder, scalar(), weights);
            assert!(encode(encoder, cpu, weights) == expected, "{encoder:?} {distribution}");
        }
    }
}
on_every_isa!(bytes_are_those_of_the_scalar_machine);

#[test]
fn zeros_stay_and_what_no_block_holds_is_seen() {
    for encoder in encoders() {
        let name = encoder.dtype().name();
        assert!(decoded(encoder, &[0.0; 256]).iter().all(|weight| *weight == 0.0), "{name}");
        for (place, wrong) in [(0, f32::NAN), (3, f32::INFINITY), (255, f32::NEG_INFINITY)] {
            let mut weights = weights("bell")[..256].to_vec();
            weights[place] = wrong;
            let change = decoded(encoder, &weights)[place] - wrong;
            assert!(!change.is_finite(), "{name} {wrong}");
        }
        // Beyond 65504 times any quant; bf16 and f32 reach further.
        let large = decoded(encoder, &[1e12; 256]);
        assert_eq!(large[0].is_finite(), matches!(name, "f32" | "bf16"), "{name}");
        // If f16 scales round to zero, so do the weights, and no quant is out of range.
        assert!(decoded(encoder, &[1e-30; 256]).iter().all(|weight| *weight <= 1e-29), "{name}");
    }
}
