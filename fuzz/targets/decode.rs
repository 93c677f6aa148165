//! Blocks of any bytes are decoded and multiplied, with the same bits on every instruction set.
#![no_main]

use std::sync::LazyLock;

use bytemuck::Zeroable;
use libfuzzer_sys::{arbitrary::Arbitrary, fuzz_target};
use rope_cpu_kernels::{
    Cpu, DType, Input as Activations, Matrix, Output, Regime, Scratch,
    activations::{Span, quantize, spans_for},
    multiply,
};

/// All instruction sets of this CPU, portable code first.
static CPUS: LazyLock<Vec<Cpu>> =
    LazyLock::new(|| Cpu::NAMES.iter().filter_map(|name| Cpu::named(name)).collect());

const COLUMNS: usize = 512;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    format: u8,
    rows: u8,
    tokens: u8,
    many: bool,
    /// Activations, as bytes of the largest 127.
    x: [i8; 32],
    /// The weights, repeated as often as needed.
    bytes: &'a [u8],
}

struct Products {
    rows: usize,
    bits: Vec<u32>,
}

impl Output for Products {
    fn put(&mut self, token: usize, row: usize, values: &[f32]) {
        // Instruction sets differ in which NaN is the result.
        let bits = values.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() });
        let to = &mut self.bits[token * self.rows + row..];
        to.iter_mut().zip(bits).for_each(|(to, bits)| *to = bits);
    }
}

fuzz_target!(|input: Input| {
    let dtype = DType::ALL[usize::from(input.format) % DType::ALL.len()];
    let (rows, tokens) = (1 + usize::from(input.rows % 18), 1 + usize::from(input.tokens % 5));
    if input.bytes.is_empty() {
        return;
    }
    let (block, bytes) = dtype.block();
    let bytes: Vec<u8> =
        input.bytes.iter().copied().cycle().take(rows * COLUMNS / block * bytes).collect();
    let matrix = Matrix::new(dtype, rows, COLUMNS, &bytes).expect("a matrix");
    matrix.decode_row(rows - 1, &mut [0.0; COLUMNS]);
    let x = input.x.iter().cycle().take(tokens * COLUMNS).enumerate();
    let floats: Vec<f32> = x.map(|(at, x)| f32::from(*x) / 16.0 + (at % 7) as f32 / 64.0).collect();
    let mut first = None;
    for cpu in CPUS.iter() {
        let each = spans_for(COLUMNS);
        let mut spans = vec![Span::zeroed(); tokens * each];
        for (x, out) in floats.chunks(COLUMNS).zip(spans.chunks_mut(each)) {
            quantize(*cpu, x, out);
        }
        let regime = if input.many { Regime::Many } else { Regime::Few };
        let activations = Activations { regime, tokens, floats: &floats, spans: &spans };
        let mut out = Products { rows, bits: vec![1; tokens * rows] };
        let mut scratch = Scratch::new(COLUMNS, tokens).expect("memory");
        multiply(*cpu, &matrix, 0..rows, activations, &mut scratch, &mut out);
        let expected = first.get_or_insert_with(|| out.bits.clone());
        assert_eq!(*expected, out.bits, "{} {rows} rows, {tokens} tokens", dtype.name());
    }
});
