//! Measures upper limits for the kernels, by loops that each fully use one resource of a core.
//!
//! Two are the inner loops of products, on data in the L1 cache: int8 dot products, and
//! multiply-adds of floats. The third reads memory.

use std::{array::from_fn, hint::black_box};

use crate::isa::{CacheLine, Cpu, Isa, Kernel, LANES};

/// The number of steps of a round: enough for little overhead, and few enough for the L1 cache.
const STEPS: usize = 64;

/// The number of parts of a buffer that are read in parallel. A single stream does not use all line
/// fill buffers of a core.
const STREAMS: usize = 4;

/// Computes `rounds` rounds of independent int8 dot products. Returns the number of operations: a
/// multiplication and an addition for each pair of bytes.
///
/// The factors are full bytes. With weights of few bits, AVX2 without VNNI can be faster than this:
/// it can add several products in 16 bits.
pub fn int8_dot(cpu: Cpu, rounds: usize) -> u64 {
    cpu.call(Int8Dot { rounds })
}

/// Computes `rounds` rounds of independent `f32` multiply-adds. Returns the number of operations:
/// two for each multiply-add.
///
/// ```
/// use std::time::Instant;
/// use rope_cpu_kernels::{Cpu, probe};
///
/// let start = Instant::now();
/// let operations = probe::f32_fma(Cpu::best(), 1000);
/// println!("{:.1} GFLOP/s", operations as f64 / start.elapsed().as_secs_f64() / 1e9);
/// ```
pub fn f32_fma(cpu: Cpu, rounds: usize) -> u64 {
    cpu.call(F32Fma { rounds })
}

/// Reads all bytes once, as four streams. Returns their exclusive or.
pub fn read(cpu: Cpu, bytes: &[u8]) -> u8 {
    cpu.call(Read { bytes })
}

struct Int8Dot {
    rounds: usize,
}

impl Kernel for Int8Dot {
    const PANELS: bool = true;
    type Output = u64;
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> u64 {
        // Use as many accumulators as registers hold, to hide the latency of an operation.
        match I::TILE_PANELS {
            2 => int8_rounds::<I, 2, 6>(isa, self.rounds),
            _ => int8_rounds::<I, 1, 4>(isa, self.rounds),
        }
    }
}

#[inline(always)]
fn int8_rounds<I: Isa, const ROWS: usize, const TOKENS: usize>(isa: I, rounds: usize) -> u64 {
    // The products cancel in any order of quants, so no accumulator overflows.
    let weights = [[CacheLine([1; 4 * LANES]); STEPS]; ROWS];
    let tokens = [[[1i8, -1, 1, -1].map(|a| a as u8); STEPS]; TOKENS];
    for _ in 0..rounds {
        // Hide the values from the optimizer. It would compute the products once for all rounds.
        let (weights, tokens) = (black_box(&weights), black_box(&tokens));
        let weights = weights.each_ref().map(|row| &row[..]);
        let tokens = tokens.each_ref().map(|token| &token[..]);
        for lanes in isa.panel_dots(false, 7, weights, tokens, [0; TOKENS]).into_iter().flatten() {
            black_box(isa.wide_to_f32s(isa.wide_to_floats(lanes)));
        }
    }
    (rounds * STEPS * ROWS * TOKENS * LANES * 4 * 2) as u64
}

struct F32Fma {
    rounds: usize,
}

impl Kernel for F32Fma {
    const FLOATS: bool = true;
    type Output = u64;
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> u64 {
        match I::TILE_PANELS {
            2 => f32_rounds::<I, 2, 6>(isa, self.rounds),
            _ => f32_rounds::<I, 1, 6>(isa, self.rounds),
        }
    }
}

#[inline(always)]
fn f32_rounds<I: Isa, const ROWS: usize, const TOKENS: usize>(isa: I, rounds: usize) -> u64 {
    let weights = [[[0.5f32; LANES]; ROWS]; STEPS];
    let tokens: [[f32; TOKENS]; STEPS] = from_fn(
        #[inline(always)]
        |step| [if step % 2 == 0 { 1.0 } else { -1.0 }; TOKENS],
    );
    let mut acc = [[isa.wide_splat(0.0); TOKENS]; ROWS];
    for _ in 0..rounds {
        let (weights, tokens) = (black_box(&weights), black_box(&tokens));
        for step in 0..STEPS {
            for r in 0..ROWS {
                let w = isa.wide_load_f32(&weights[step][r]);
                for t in 0..TOKENS {
                    let x = isa.wide_splat(tokens[step][t]);
                    acc[r][t] = isa.wide_mul_add(w, x, acc[r][t]);
                }
            }
        }
    }
    for lanes in acc.into_iter().flatten() {
        black_box(isa.wide_to_f32s(lanes));
    }
    (rounds * STEPS * ROWS * TOKENS * LANES * 2) as u64
}

struct Read<'a> {
    bytes: &'a [u8],
}

impl Kernel for Read<'_> {
    const FLOATS: bool = true;
    type Output = u8;
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> u8 {
        // A cache line at a time, as two vectors.
        let (lines, rest) = self.bytes.as_chunks::<64>();
        let (streamed, more) = lines.split_at(lines.len() / STREAMS * STREAMS);
        let length = streamed.len() / STREAMS;
        let streams: [&[[u8; 64]]; STREAMS] = from_fn(
            #[inline(always)]
            |s| &streamed[s * length..][..length],
        );
        let mut acc = [[isa.splat(0); 2]; STREAMS];
        for i in 0..length {
            for s in 0..STREAMS {
                let halves = streams[s][i].as_chunks::<32>().0;
                for h in 0..2 {
                    acc[s][h] = isa.xor(acc[s][h], isa.load(&halves[h]));
                }
            }
        }
        let mut sum = 0;
        for vector in acc.into_iter().flatten() {
            sum = isa.to_bytes(vector).into_iter().fold(sum, |a, b| a ^ b);
        }
        more.as_flattened().iter().chain(rest).fold(sum, |a, b| a ^ b)
    }
}
