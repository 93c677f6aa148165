//! Convolutions and scans: equal bits on every instruction set and however the tokens are
//! cut, close to their formulas.

use rope_cpu_kernels::{
    Cpu,
    isa::LANES,
    recurrence::{Rule, ScanTokens, convolve, scan},
};

use crate::common::{Random, on_every_isa, scalar};

type Row = [f32; LANES];

/// The first tokens of the second call.
const CUTS: [usize; 4] = [0, 1, 2, 7];
const TOKENS: usize = 9;

fn rows(random: &mut Random, n: usize) -> Vec<Row> {
    (0..n).map(|_| std::array::from_fn(|_| random.float())).collect()
}

fn bits(rows: &[Row]) -> Vec<u32> {
    rows.iter().flatten().map(|x| x.to_bits()).collect()
}

fn convolutions(cpu: Cpu) {
    for (taps, channels) in [(1, LANES), (2, 5), (3, LANES), (4, LANES), (8, 1)] {
        let mut random = Random(taps as u64 + 1);
        let weights = random.floats(channels * taps);
        let before = rows(&mut random, taps - 1);
        let tokens = rows(&mut random, TOKENS);
        let run = |cpu: Cpu, cut: usize| {
            let (mut window, mut out) = (before.clone(), tokens.clone());
            let (first, second) = out.split_at_mut(cut);
            convolve(cpu, &weights, &mut window, first);
            convolve(cpu, &weights, &mut window, second);
            (out, window)
        };
        let (out, window) = run(scalar(), 0);
        for cut in CUTS {
            let (found, after) = run(cpu, cut);
            assert_eq!((bits(&found), bits(&after)), (bits(&out), bits(&window)), "{taps} {cut}");
        }
        let all = [&before[..], &tokens].concat();
        assert_eq!(window, all[TOKENS..]);
        for (t, out) in out.iter().enumerate() {
            for (c, out) in out.iter().enumerate() {
                let product = |j: usize| match c < channels {
                    true => f64::from(weights[c * taps + j]) * f64::from(all[t + j][c]),
                    false => 0.0,
                };
                let expected: f64 = (0..taps).map(product).sum();
                // A rounding for each of at most eight terms of at most 1.
                let bound = (taps * taps) as f64 * f64::from(f32::EPSILON);
                assert!((f64::from(*out) - expected).abs() <= bound, "{out} {expected}");
            }
        }
    }
}

fn scans(cpu: Cpu) {
    for (rule, dim) in [Rule::Delta, Rule::Mamba2]
        .into_iter()
        .flat_map(|rule| [1, 8, 19, 64].map(|dim| (rule, dim)))
    {
        let mut random = Random(dim as u64);
        // Keys and queries of length 1, decays from 0 to 1, rates from 0 to 2.
        let width = 2 * dim + LANES + 2;
        let mut tokens = random.floats(TOKENS * width);
        for row in tokens.chunks_exact_mut(width) {
            for x in row[..2 * dim].chunks_exact_mut(dim) {
                let length = x.iter().map(|x| x * x).sum::<f32>().sqrt();
                x.iter_mut().for_each(|x| *x /= length);
            }
            let gates = &mut row[2 * dim + LANES..];
            (gates[0], gates[1]) = (gates[0].abs(), gates[1] + 1.0);
        }
        let of = |from: usize, to: usize| ScanTokens {
            rows: &tokens[from * width..to * width],
            width,
            query: 0,
            key: dim,
            value: 2 * dim,
            decay: 2 * dim + LANES,
            rate: 2 * dim + LANES + 1,
        };
        let before = rows(&mut random, dim);
        let run = |cpu: Cpu, cut: usize| {
            let (mut state, mut out) = (before.clone(), vec![[f32::NAN; LANES]; TOKENS]);
            scan(cpu, rule, &mut state, of(0, cut), &mut out[..cut]);
            scan(cpu, rule, &mut state, of(cut, TOKENS), &mut out[cut..]);
            (out, state)
        };
        let (out, state) = run(scalar(), 0);
        for cut in CUTS {
            let (found, after) = run(cpu, cut);
            assert_eq!(
                (bits(&found), bits(&after)),
                (bits(&out), bits(&state)),
                "{rule:?} {dim} {cut}"
            );
        }
        for lane in 0..LANES {
            let mut s: Vec<f64> = before.iter().map(|row| f64::from(row[lane])).collect();
            for (row, out) in tokens.chunks_exact(width).zip(&out) {
                let row: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
                let (q, k) = (&row[..dim], &row[dim..2 * dim]);
                let dot = |s: &[f64], x: &[f64]| s.iter().zip(x).map(|(s, x)| s * x).sum::<f64>();
                s.iter_mut().for_each(|s| *s *= row[2 * dim + LANES]);
                let known = if rule == Rule::Delta { dot(&s, k) } else { 0.0 };
                let new = row[2 * dim + LANES + 1] * (row[2 * dim + lane] - known);
                s.iter_mut().zip(k).for_each(|(s, k)| *s += new * k);
                // Sums of `dim` terms, no larger than a state of some 10, in nine tokens.
                let bound = 10.0 * (TOKENS * (dim + 4)) as f64 * f64::from(f32::EPSILON);
                assert!((f64::from(out[lane]) - dot(&s, q)).abs() <= bound, "{rule:?} {dim}");
            }
        }
    }
}

on_every_isa!(convolutions, scans);
