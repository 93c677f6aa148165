//! Benchmarks of kernels on one core, named `kernel/format/isa`, such as `gemm/q4_k/avx512`.
//!
//! What they read stays in the L2 cache: they measure arithmetic, not memory. Throughput is in
//! multiply-accumulates.

mod cases;

use cases::{ATTENTIONS, COLUMNS, DIM, PRODUCTS, ROWS};
use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use rope_cpu_kernels::{Cpu, DType, attention::PAGE, cache::CacheType};

/// Measures `case` with each instruction set but the scalar one.
fn measure(group: &mut BenchmarkGroup<'_, WallTime>, format: &str, mut case: impl FnMut(Cpu)) {
    for cpu in Cpu::available().into_iter().filter(|cpu| cpu.name() != "scalar") {
        group.bench_function(format!("{format}/{}", cpu.name()), |b| b.iter(|| case(cpu)));
    }
}

fn products(c: &mut Criterion) {
    for (name, regime, tokens) in PRODUCTS {
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Elements((ROWS * COLUMNS * tokens) as u64));
        for dtype in DType::ALL {
            measure(&mut group, dtype.name(), cases::product(dtype, regime, tokens));
        }
        group.finish();
    }
}

fn attentions(c: &mut Criterion) {
    for (name, attention) in ATTENTIONS {
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Elements((2 * attention.queries * PAGE * DIM) as u64));
        for dtype in CacheType::ALL {
            measure(&mut group, dtype.name(), cases::attention(dtype, attention));
        }
        group.finish();
    }
}

criterion_group!(benches, products, attentions);
criterion_main!(benches);
