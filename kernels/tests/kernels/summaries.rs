//! Summaries of blocks of keys, and estimates from them, compared with their definitions.

use rope_cpu_kernels::{
    Cpu,
    attention::{
        Arcs, BLOCK, CacheRows, PAGE, Rotation, Scratch, estimate, summarize, summary_bytes,
    },
    cache::{CacheType, load, store},
    hadamard::mix_rows,
    vector::{add, rotate},
};

use crate::common::{Random, on_every_isa, scalar};

on_every_isa!(summaries_have_the_moments_of_keys, estimates_follow_their_formula);

/// The ways in which keys are stored: rotated, without their bias, or raw with it.
#[derive(Clone, Copy, PartialEq)]
enum Stored {
    Rotated,
    Unbiased,
    Raw,
}

fn floats(summary: &[u8]) -> Vec<f32> {
    let halves = summary.as_chunks().0.iter();
    halves.map(|half| half::f16::from_le_bytes(*half).to_f32()).collect()
}

/// Returns a row of cosines and sines for a position.
fn row(n_rot: usize, position: usize) -> Vec<f32> {
    let angles = (0..n_rot / 2).map(|i| position as f32 * 0.3 / (1.0 + i as f32));
    angles.clone().map(f32::cos).chain(angles.map(f32::sin)).collect()
}

fn summaries_have_the_moments_of_keys(cpu: Cpu) {
    for (i, dtype) in CacheType::ALL.into_iter().enumerate() {
        for stored in [Stored::Rotated, Stored::Unbiased, Stored::Raw] {
            let (dim, n_rot, first) = ([32, 96, 160][i % 3], 32, [0, 96, 224][i % 3]);
            let mut random = Random(7 + i as u64);
            let row_bytes = dtype.row_bytes(dim);
            let mut bytes = vec![0; PAGE * row_bytes];
            let bias = random.floats(dim);
            let rows: Vec<f32> = (0..PAGE).flat_map(|p| row(n_rot, p)).collect();
            let inv_freq: Vec<_> = (0..n_rot / 2).map(|i| 0.3 / (1.0 + i as f64)).collect();
            let arcs = Arcs::new(&inv_freq, 1.0);
            let arcs = (stored == Stored::Unbiased).then_some(&arcs);
            let rotation = Rotation { rows: &rows, n_rot, group: 1, before: 0, arcs, bias: &bias };
            let mixed = dtype.is_mixed() && stored != Stored::Raw;
            let mut keys = Vec::new();
            for (p, out) in bytes.chunks_exact_mut(row_bytes).enumerate() {
                let mut key = random.floats(dim);
                if mixed {
                    mix_rows(scalar(), &mut key, dim);
                }
                store(scalar(), dtype, &key, out);
                load(scalar(), dtype, out, &mut key);
                if mixed {
                    mix_rows(scalar(), &mut key, dim);
                }
                if stored == Stored::Raw {
                    rotate(scalar(), &mut key, &row(n_rot, p));
                }
                if stored != Stored::Rotated {
                    let mut bias = bias.clone();
                    rotate(scalar(), &mut bias, &row(n_rot, p));
                    add(scalar(), &mut key, &bias);
                }
                keys.push(key);
            }
            let rotation = (stored != Stored::Rotated).then_some(rotation);
            let mut found = vec![0xff; summary_bytes(dim)];
            let (keys_of, scratch) =
                (CacheRows { dtype, bytes: &bytes }, &mut Scratch::new(1, dim).unwrap());
            summarize(cpu, keys_of, rotation, dim, first, scratch, &mut found);
            let mut same = vec![0; summary_bytes(dim)];
            summarize(scalar(), keys_of, rotation, dim, first, scratch, &mut same);
            assert_eq!(found, same, "{dtype:?}");
            let found = floats(&found);
            for (d, (mean, spread)) in found[..dim].iter().zip(&found[dim..]).enumerate() {
                let column = || keys[first..first + BLOCK].iter().map(|key| f64::from(key[d]));
                let exact = column().sum::<f64>() / 32.0;
                let variance = column().map(|x| (x - exact).powi(2)).sum::<f64>() / 32.0;
                // f16 rounds to 11 bits; sums of numbers up to 4 in single precision add far less.
                let near = |found: f32, exact: f64| {
                    (f64::from(found) - exact).abs() <= exact.abs() / 2048.0 + 1e-5
                };
                assert!(near(*mean, exact) && near(*spread, variance.sqrt()), "{dtype:?} {d}");
            }
        }
    }
}

fn estimates_follow_their_formula(cpu: Cpu) {
    let (dim, blocks) = (96, 5);
    let mut random = Random(3);
    let mut summaries = vec![0; blocks * summary_bytes(dim)];
    for summary in summaries.chunks_exact_mut(dim * 2) {
        let values: Vec<_> = random.floats(dim).iter().map(|x| x.abs()).collect();
        store(scalar(), CacheType::F16, &values, summary);
    }
    for count in [1, 2, 3, 6, 8, 13] {
        let mut queries = random.floats(count * dim);
        // Some have a variance beyond 2 ln 32, others have not.
        queries.iter_mut().skip(dim).for_each(|x| *x *= 2.0);
        let mut found = vec![f32::NAN; blocks * count];
        estimate(cpu, &queries, dim, &summaries, &mut found);
        let mut same = vec![f32::NAN; blocks * count];
        estimate(scalar(), &queries, dim, &summaries, &mut same);
        assert_eq!(found, same);
        for (i, found) in found.iter().enumerate() {
            let summary = &floats(&summaries[i / count * summary_bytes(dim)..])[..2 * dim];
            let query = &queries[i % count * dim..][..dim];
            let (mut m, mut v) = (0.0, 0.0);
            for ((q, mean), spread) in query.iter().zip(&summary[..dim]).zip(&summary[dim..]) {
                m += f64::from(*q) * f64::from(*mean);
                v += (f64::from(*q) * f64::from(*spread)).powi(2);
            }
            let ln = 32f64.ln();
            let exact = if v < 2.0 * ln { m + ln + v / 2.0 } else { m + (2.0 * v * ln).sqrt() };
            // 96 products of at most 4, and as many roundings of 2^-24 in each sum.
            let bound = 96.0 * 96.0 * 4.0 / f64::from(1 << 24);
            assert!((f64::from(*found) - exact).abs() <= bound, "{count} {i}: {found} {exact}");
        }
    }
}
