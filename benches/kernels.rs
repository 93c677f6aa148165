//! Benchmarks of kernels on one core, named `kernel/format/isa`, such as `gemm/q4_k/avx512`.
//!
//! Products are of 64 rows of 4096 columns, which stay in the L2 cache: they measure arithmetic,
//! not memory. Throughput is in multiply-accumulates.

use bytemuck::Zeroable;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rope_cpu_kernels::{
    Cpu, DType, Input, Matrix, Output, Regime, Scratch,
    activations::{Span, quantize, spans_for},
    attention::{self, CacheRows, PAGE, Queries, Rotation, attend, clear, partial_len},
    cache::{CacheType, store},
    multiply,
};

const ROWS: usize = 64;
const COLUMNS: usize = 4096;

struct Table(Vec<f32>);

impl Output for Table {
    fn put(&mut self, token: usize, row: usize, values: &[f32]) {
        self.0[token * ROWS + row..][..values.len()].copy_from_slice(values);
    }
}

fn products(c: &mut Criterion) {
    for (name, regime, tokens) in [("dot", Regime::Few, 1), ("gemm", Regime::Many, 64)] {
        let floats: Vec<f32> = (0..tokens * COLUMNS).map(|i| (i as f32).sin()).collect();
        let mut spans = vec![Span::zeroed(); tokens * spans_for(COLUMNS)];
        for (x, out) in floats.chunks(COLUMNS).zip(spans.chunks_mut(spans_for(COLUMNS))) {
            quantize(Cpu::best(), x, out);
        }
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Elements((ROWS * COLUMNS * tokens) as u64));
        for dtype in DType::ALL {
            let (block, block_bytes) = dtype.block();
            // Scales in half precision and exponents are of order 1, and never subnormal.
            let bytes = ROWS * COLUMNS / block * block_bytes;
            let bytes: Vec<u8> = (0..bytes).map(|i| (i * i % 251) as u8 & 0x3b | 0x30).collect();
            let Ok(weights) = Matrix::new(dtype, ROWS, COLUMNS, &bytes) else { continue };
            let input = Input { regime, tokens, floats: &floats, spans: &spans };
            let mut out = Table(vec![0.0; tokens * ROWS]);
            let mut scratch = Scratch::new(COLUMNS, tokens);
            for cpu in Cpu::available().into_iter().filter(|cpu| cpu.name() != "scalar") {
                group.bench_function(format!("{}/{}", dtype.name(), cpu.name()), |b| {
                    b.iter(|| multiply(cpu, &weights, 0..ROWS, input, &mut scratch, &mut out));
                });
            }
        }
        group.finish();
    }
}

fn attentions(c: &mut Criterion) {
    let dim = 128;
    let kernels = [
        ("attend-few", Regime::Few, 1, false),
        ("attend-few-rotating", Regime::Few, 1, true),
        ("attend-many", Regime::Many, 64, false),
        ("attend-many-rotating", Regime::Many, 64, true),
    ];
    for (name, regime, queries, rotating) in kernels {
        let q: Vec<f32> = (0..queries * dim).map(|i| (i as f32).sin() / 8.0).collect();
        let visible = vec![0..PAGE; queries];
        let angles: Vec<f32> = (0..PAGE * dim).map(|i| (i as f32).cos()).collect();
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Elements((2 * queries * PAGE * dim) as u64));
        for dtype in CacheType::ALL {
            let mut bytes = vec![0; PAGE * dtype.row_bytes(dim)];
            for (i, row) in bytes.chunks_exact_mut(dtype.row_bytes(dim)).enumerate() {
                let values: Vec<f32> = (0..dim).map(|j| ((i * dim + j) as f32).cos()).collect();
                store(Cpu::best(), dtype, &values, row);
            }
            let rows = CacheRows { dtype, bytes: &bytes };
            let mut scratch = attention::Scratch::new(queries, dim);
            let mut partials = vec![0.0; queries * partial_len(dim)];
            clear(&mut partials, dim);
            for cpu in Cpu::available().into_iter().filter(|cpu| cpu.name() != "scalar") {
                let rotation = Rotation { rows: &angles, n_rot: dim, group: 1, before: 0 };
                let rotation = rotating.then_some(rotation);
                let queries = Queries { queries: &q, regime, heads: 1, dim, soft_cap: None };
                scratch.prepare(cpu, queries, dtype, rotating);
                group.bench_function(format!("{}/{}", dtype.name(), cpu.name()), |b| {
                    b.iter(|| {
                        attend(
                            cpu,
                            &visible,
                            rows,
                            rotation,
                            rows,
                            &[],
                            &mut scratch,
                            &mut partials,
                        );
                    });
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, products, attentions);
criterion_main!(benches);
