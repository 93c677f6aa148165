//! Measures the peak speeds of the machine with fixed programs.
//!
//! A model's speed is limited by how fast its weights can be read (for one token at a time) or
//! multiplied (for many tokens together). Each program of [`rope_cpu_kernels::probe`] does only one
//! of these, on all threads of a team at once.

use std::time::{Duration, Instant};

use rope_cpu_kernels::{Cpu, probe};

use crate::{
    platform::{memory, pages},
    threads::Threads,
};

/// The minimum time of a pass, so that the time for starting it is negligible.
const PASS: Duration = Duration::from_millis(20);

/// The number of passes. The fastest counts: other programs can only make a pass slower.
const PASSES: usize = 6;

/// The number of pieces of a pass per thread. Threads claim pieces dynamically, so slow cores do
/// fewer.
const PIECES: usize = 64;

/// The maximum number of bytes that are read in one pass.
const BUFFER: u64 = 512 << 20;

/// The peak speeds of a team of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probes {
    /// The bytes read from memory per second by all threads together.
    pub read_bandwidth: f64,
    /// The operations of int8 dot products per second, two for each multiply-accumulate.
    pub int8_dot: f64,
    /// The operations of `f32` multiply-adds per second, two for each.
    pub f32_fma: f64,
}

/// Measures all peak speeds, in about a second.
///
/// The bandwidth is measured with a buffer of 512 MiB in large pages, more than the last-level
/// cache of nearly any machine. It is a quarter of the available memory if that is less. If a cache
/// is larger than the buffer, the result is higher than the bandwidth of the memory.
pub fn probe(team: &Threads, cpu: Cpu) -> Probes {
    Probes {
        read_bandwidth: read_bandwidth(team, cpu),
        int8_dot: int8_dot(team, cpu),
        f32_fma: best_rate(team, |rounds| probe::f32_fma(cpu, rounds)),
    }
}

/// Measures only [`Probes::int8_dot`].
pub fn int8_dot(team: &Threads, cpu: Cpu) -> f64 {
    best_rate(team, |rounds| probe::int8_dot(cpu, rounds))
}

/// Measures the operations per second of `program`, which takes a number of rounds and returns the
/// number of its operations.
fn best_rate(team: &Threads, program: impl Fn(usize) -> u64 + Sync) -> f64 {
    let pieces = PIECES * team.count();
    let pass = |rounds| {
        timed(team, pieces, |_| {
            program(rounds);
        })
    };
    let mut rounds = 1;
    while pass(rounds) < PASS && rounds < 1 << 24 {
        rounds *= 2;
    }
    let operations = program(rounds) as f64 * pieces as f64;
    operations / best(|| pass(rounds)).as_secs_f64()
}

fn read_bandwidth(team: &Threads, cpu: Cpu) -> f64 {
    let bytes = memory::available().map_or(BUFFER, |available| (available.bytes / 4).min(BUFFER));
    let bytes = bytes as usize;
    let mut buffer = pages::zeros(bytes);
    // Pages that were never written all map to the same page of zeros.
    buffer.fill(1);
    let pieces = PIECES * team.count();
    let size = bytes.div_ceil(pieces).max(1);
    let pass = || {
        timed(team, pieces, |piece| {
            let end = ((piece + 1) * size).min(bytes);
            std::hint::black_box(probe::read(cpu, &buffer[(piece * size).min(end)..end]));
        })
    };
    bytes as f64 / best(pass).as_secs_f64()
}

/// Measures the time that the team takes for `pieces` pieces of work.
fn timed(team: &Threads, pieces: usize, work: impl Fn(usize) + Sync) -> Duration {
    let began = Instant::now();
    team.step(|worker| {
        if let Some(phase) = worker.phase(pieces) {
            phase.for_each(|claim| work(claim.task()));
        }
    });
    began.elapsed()
}

/// Returns the shortest time of the passes, at least a nanosecond, since it is used as a divisor.
fn best(mut pass: impl FnMut() -> Duration) -> Duration {
    let shortest = (0..PASSES).map(|_| pass()).min().unwrap_or_default();
    shortest.max(Duration::from_nanos(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_rate_is_operations_by_time() {
        // Each operation takes a microsecond, so the rate is at most a million per second and
        // thread.
        let team = Threads::new(2).unwrap();
        let rate = best_rate(&team, |rounds| {
            let began = Instant::now();
            while began.elapsed() < Duration::from_micros(rounds as u64) {
                std::hint::spin_loop();
            }
            rounds as u64
        });
        assert!(rate > 1e4 && rate <= 2.02e6, "{rate}");
    }

    #[test]
    fn every_piece_is_done_once() {
        let team = Threads::new(3).unwrap();
        let sum = AtomicU64::new(0);
        timed(&team, 100, |piece| {
            sum.fetch_add(1 << (piece % 50), Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 2 * ((1 << 50) - 1));
    }

    #[test]
    fn every_instruction_set_has_its_peaks() {
        let team = Threads::new(1).unwrap();
        for cpu in Cpu::available() {
            let rate = int8_dot(&team, cpu);
            assert!(rate > 1e6 && rate < 1e14, "{cpu:?}: {rate}");
        }
        let probes = probe(&team, Cpu::best());
        assert!(probes.read_bandwidth > 1e7 && probes.f32_fma > 1e6, "{probes:?}");
    }
}
