//! The computations that are measured, by time (`kernels`) or by instructions (`instructions`).

use bytemuck::Zeroable;
use rope_cpu_kernels::{
    Cpu, DType, Input, Matrix, Output, Regime, Scratch,
    activations::{Span, quantize, spans_for},
    attention::{
        self, Arcs, CacheRows, PAGE, Queries, Reading, Rotation, attend, attend_in_eight_bits,
        clear, partial_len,
    },
    cache::{CacheType, store},
    multiply,
};

/// The shape of the weights, which stay in the L2 cache.
pub const ROWS: usize = 64;
pub const COLUMNS: usize = 4096;
/// The values of a head.
pub const DIM: usize = 128;

/// Products with weights: name, order of the sums, number of tokens.
pub const PRODUCTS: [(&str, Regime, usize); 3] =
    [("dot", Regime::Few, 1), ("dot-together", Regime::Few, 4), ("gemm", Regime::Many, 64)];

/// Attention to one page.
#[derive(Clone, Copy)]
pub struct Attention {
    regime: Regime,
    pub queries: usize,
    reading: Reading,
    eight_bits: bool,
}

const ATTENTION: Attention =
    Attention { regime: Regime::Few, queries: 1, reading: Reading::Stored, eight_bits: false };

/// Attention to one page, and its name.
pub const ATTENTIONS: [(&str, Attention); 8] = [
    ("attend-few", ATTENTION),
    ("attend-few-group", Attention { queries: 6, ..ATTENTION }),
    ("attend-few-rotating", Attention { reading: Reading::Rotated, ..ATTENTION }),
    ("attend-few-biased", Attention { reading: Reading::Biased, ..ATTENTION }),
    ("attend-many", MANY),
    ("attend-many-rotating", Attention { reading: Reading::Rotated, ..MANY }),
    ("attend-eight-bits", EIGHT_BITS),
    ("attend-eight-bits-rotating", Attention { reading: Reading::Rotated, ..EIGHT_BITS }),
];
const MANY: Attention = Attention { regime: Regime::Many, queries: 64, ..ATTENTION };
const EIGHT_BITS: Attention = Attention { queries: 256, eight_bits: true, ..MANY };

struct Table(Vec<f32>);

impl Output for Table {
    fn put(&mut self, token: usize, row: usize, values: &[f32]) {
        self.0[token * ROWS + row..][..values.len()].copy_from_slice(values);
    }
}

/// Returns a product, which each call computes.
pub fn product(dtype: DType, regime: Regime, tokens: usize) -> impl FnMut(Cpu) {
    let floats: Vec<f32> = (0..tokens * COLUMNS).map(|i| (i as f32).sin()).collect();
    let mut spans = vec![Span::zeroed(); tokens * spans_for(COLUMNS)];
    for (x, out) in floats.chunks(COLUMNS).zip(spans.chunks_mut(spans_for(COLUMNS))) {
        quantize(Cpu::best(), x, out);
    }
    let (block, block_bytes) = dtype.block();
    // Scales in half precision and exponents are of order 1, and never subnormal.
    let bytes = ROWS * COLUMNS / block * block_bytes;
    let bytes: Vec<u8> = (0..bytes).map(|i| (i * i % 251) as u8 & 0x3b | 0x30).collect();
    let mut out = Table(vec![0.0; tokens * ROWS]);
    let mut scratch = Scratch::new(COLUMNS, tokens).expect("memory");
    move |cpu| {
        let weights = Matrix::new(dtype, ROWS, COLUMNS, &bytes).expect("whole blocks");
        let input = Input { regime, tokens, floats: &floats, spans: &spans };
        multiply(cpu, &weights, 0..ROWS, input, &mut scratch, &mut out);
    }
}

/// Returns attention to a page, which each call computes.
pub fn attention(dtype: CacheType, case: Attention) -> impl FnMut(Cpu) {
    let Attention { regime, queries, reading, eight_bits } = case;
    let bias = vec![0.5; DIM];
    let mut q: Vec<f32> = (0..queries * DIM).map(|i| (i as f32).sin() / 8.0).collect();
    let visible = vec![0..PAGE; queries];
    let angles: Vec<f32> = (0..PAGE * DIM).map(|i| (i as f32).cos()).collect();
    let arcs = Arcs::new(&[0.1; DIM / 2], 1.0);
    let mut bytes = vec![0; PAGE * dtype.row_bytes(DIM)];
    for (i, row) in bytes.chunks_exact_mut(dtype.row_bytes(DIM)).enumerate() {
        let values: Vec<f32> = (0..DIM).map(|j| ((i * DIM + j) as f32).cos()).collect();
        store(Cpu::best(), dtype, &values, row);
    }
    let mut scratch = attention::Scratch::new(queries, DIM).expect("memory");
    let mut partials = vec![0.0; queries * partial_len(DIM)];
    clear(&mut partials, DIM);
    move |cpu| {
        let rows = CacheRows { dtype, bytes: &bytes };
        let rotation = Rotation {
            rows: &angles,
            n_rot: DIM,
            group: 1,
            before: 0,
            arcs: (reading == Reading::Biased).then_some(&arcs),
            bias: if reading == Reading::Biased { &bias } else { &[] },
        };
        let rotation = (reading != Reading::Stored).then_some(rotation);
        let queries = Queries {
            queries: &mut q,
            regime,
            eight_bits,
            heads: 1,
            dim: DIM,
            values_from: 0,
            soft_cap: None,
        };
        scratch.prepare(cpu, queries, dtype, reading);
        let (visible, scratch, partials) = (&visible[..], &mut scratch, &mut partials[..]);
        if eight_bits {
            attend_in_eight_bits(cpu, visible, rows, rotation, 0, rows, scratch, partials);
        } else {
            attend(cpu, visible, rows, rotation, rows, &[], scratch, partials);
        }
    }
}
