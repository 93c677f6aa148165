//! The decoding and unpacking of each format.

use rope_cpu_kernels::{
    Cpu, DType, Matrix,
    format::{FloatFormat, Format, Quants as _, SPAN, Scales, Visitor},
    isa::{Isa, Kernel, Scalar},
};
use serde_json::Value;

use crate::common::{Random, fnv1a, on_every_isa, weights};

/// Reads blocks as hexadecimal bytes, and the bits of their weights.
fn golden() -> Value {
    include_str!("../data/formats.json").parse().unwrap()
}

/// Returns the bits of the weights of blocks.
fn decoded(dtype: DType, hex: &str) -> Vec<u32> {
    let bytes: Vec<u8> = (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    let (block, block_bytes) = dtype.block();
    let columns = bytes.len() / block_bytes * block;
    let mut out = vec![f32::NAN; columns];
    Matrix::new(dtype, 1, columns, &bytes).unwrap().decode_row(0, &mut out);
    out.into_iter().map(f32::to_bits).collect()
}

#[test]
fn decode_equals_ggml_bit_for_bit() {
    let golden = golden();
    for dtype in DType::ALL {
        let case = &golden[dtype.name()];
        let expected: Vec<u32> =
            case["values"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect();
        assert_eq!(decoded(dtype, case["blocks"].as_str().unwrap()), expected, "{}", dtype.name());
        let Some(more) = case["more blocks"].as_str() else { continue };
        let bytes = decoded(dtype, more).into_iter().flat_map(u32::to_le_bytes);
        assert_eq!(fnv1a(bytes).to_string(), case["hash of their values"], "{}", dtype.name());
    }
}

struct Quants<'a, F: Format>(&'a F::Span);

impl<F: Format> Kernel for Quants<'_, F> {
    type Output = [[u8; 32]; 8];
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> Self::Output {
        let mut out = [[0; 32]; 8];
        let shared = F::shared(isa, self.0);
        for g in 0..8 {
            out[g] = isa.to_bytes(F::quants(isa, self.0, shared, g));
        }
        out
    }
}

struct Unpack<'a>(Cpu, &'a [u8]);

impl Visitor for Unpack<'_> {
    type Output = ();
    fn quantized<F: Format>(self) {
        for bytes in self.1.chunks_exact(size_of::<F::Span>()) {
            let span: F::Span = bytemuck::pod_read_unaligned(bytes);
            let mut expected = [0.0; SPAN];
            F::decode(&span, &mut expected);
            let quants = self.0.call(Quants::<F>(&span));
            let Scales { scale, offset } = F::scales(Scalar, &span);
            for (i, expected) in expected.into_iter().enumerate() {
                let (group, half) = (i / 32, i / 16 % 2);
                let q = quants[group][i % 32];
                assert!(F::Quants::SIGNED || q >> F::Quants::BITS == 0, "{}", F::NAME);
                let q = if F::Quants::SIGNED { f32::from(q as i8) } else { f32::from(q) };
                let scaled = scale[half][group] * (q - f32::from(F::CENTER));
                let offset = if F::Quants::OFFSET { offset[half][group] } else { 0.0 };
                // Two roundings in each computation, of numbers no larger than these.
                let bound = 4.0 * f32::EPSILON * scaled.abs().max(offset.abs());
                let found = scaled - offset;
                assert!((found - expected).abs() <= bound, "{} {i}: {found} {expected}", F::NAME);
            }
        }
    }
    fn float<F: FloatFormat>(self) {}
}

fn unpacking_means_what_decode_says(cpu: Cpu) {
    let mut random = Random(7);
    for dtype in DType::ALL {
        let bytes = weights(&mut random, dtype, 20, SPAN);
        dtype.visit(Unpack(cpu, &bytes));
    }
}
on_every_isa!(unpacking_means_what_decode_says);

#[test]
fn a_matrix_of_the_wrong_size_is_refused() {
    let error =
        |columns, bytes: usize| Matrix::new(DType::Q4K, 2, columns, &vec![0; bytes]).unwrap_err();
    assert_eq!(error(100, 288), "100 columns of q4_k are not a multiple of its block of 256");
    assert_eq!(error(256, 287), "2 x 256 weights of q4_k do not take 287 bytes");
}

#[test]
fn formats_go_by_the_names_of_gguf_and_the_others_are_unknown() {
    assert_eq!(DType::named("IQ2_XXS"), Some(DType::Iq2Xxs));
    for name in ["q8_1", "q8_k", "i8", "iq4_ks", ""] {
        assert_eq!(DType::named(name), None);
    }
}
