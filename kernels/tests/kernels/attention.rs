//! Attention, compared with its definition in double precision.

use std::ops::Range;

use bytemuck::Zeroable;
use rope_cpu_kernels::{
    Cpu, Regime,
    activations::{Span, quantize, spans_for},
    attention::{
        Arcs, CacheRows, PAGE, Queries, Reading, Rotation, Scratch, attend, attend_in_eight_bits,
        clear, finish, merge, partial_len,
    },
    cache::{CacheType, load, store},
    hadamard::mix_rows,
};

use crate::common::{Random, emulated, on_every_isa, scalar};

/// Queries over two pages.
#[derive(Clone)]
struct Case {
    regime: Regime,
    eight_bits: bool,
    dim: usize,
    keys: CacheType,
    values: CacheType,
    soft_cap: Option<f32>,
    /// The number that is added to every value of every key.
    common: f32,
    /// The index of the first query among the random queries.
    first: usize,
    /// The positions of both pages that each query attends to.
    visible: Vec<Range<usize>>,
    /// The rotation of keys as they are read: `n_rot`, `group` and `before`.
    rotation: Option<[usize; 3]>,
    /// Whether keys rotate. Otherwise only their bias does.
    rotates_keys: bool,
    /// Whether keys have a bias.
    biased: bool,
    /// The first element of values that is summed.
    values_from: usize,
    /// The number of first elements of values that are 0.
    zeros: usize,
}

const POSITIONS: usize = 2 * PAGE;
/// The seeds of random keys and values.
const KEYS: u64 = 31;
const VALUES: u64 = 32;

impl Case {
    /// Returns a case of no queries, with keys that do not rotate.
    fn plain() -> Case {
        Case {
            regime: Regime::Many,
            eight_bits: false,
            dim: 32,
            keys: CacheType::F16,
            values: CacheType::F16,
            soft_cap: None,
            common: 0.0,
            first: 0,
            visible: Vec::new(),
            rotation: None,
            rotates_keys: true,
            biased: false,
            values_from: 0,
            zeros: 0,
        }
    }

    fn all() -> Vec<Case> {
        let causal = |n: usize| (0..n).map(|i| 0..300 + i + 1).collect::<Vec<_>>();
        let window = |n: usize| (0..n).map(|i| 230 + 5 * i..270 + 5 * i).collect::<Vec<_>>();
        let mut cases = Vec::new();
        for (i, keys) in CacheType::ALL.into_iter().enumerate() {
            // Emulated, only as many as all kinds of tiles need: the other instruction sets run all.
            let counts = if emulated() { &[2, 3, 13][..] } else { &[1, 2, 3, 7, 8, 13, 37] };
            for &n in counts {
                let (dim, values) =
                    ([32, 160, 96][n % 3], CacheType::ALL[(i + n) % CacheType::ALL.len()]);
                let regime = if n < 8 { Regime::Few } else { Regime::Many };
                let case = Case { regime, dim, keys, values, visible: causal(n), ..Case::plain() };
                cases.push(case.clone());
                cases.push(Case { visible: window(n), soft_cap: Some(2.0), ..case.clone() });
                // `n_rot` is a multiple of a unit's pairs, with and without a rest; part of a
                // vector; and no multiple of a vector. One key, a few keys, or all keys share a
                // row.
                for (k, n_rot) in [dim / 64 * 64, dim, 12, dim - 4].into_iter().enumerate() {
                    let (group, before) = [(1, 0), (5, 3), (PAGE, 0)][(i + n + k) % 3];
                    let rotation = Some([n_rot, group, before]);
                    let (rotates_keys, biased) =
                        [(true, false), (true, true), (false, true)][(i + k + n / 2) % 3];
                    cases.push(Case { rotation, rotates_keys, biased, ..case.clone() });
                }
            }
        }
        // A few queries at the end of a prompt, and many of one token.
        let swapped = cases.iter().filter_map(|case| {
            let regime = match case.visible.len() {
                2 => Regime::Many,
                13 => Regime::Few,
                _ => return None,
            };
            Some(Case { regime, ..case.clone() })
        });
        let swapped: Vec<_> = swapped.collect();
        cases.extend(swapped);
        cases
    }

    /// Returns the cases of many queries, in 8 bits. One has more queries than are computed
    /// together, some without the first page, and keys that differ little from each other.
    fn in_eight_bits() -> Vec<Case> {
        let many = |case: &Case| case.regime == Regime::Many;
        let mut cases: Vec<_> = Case::all().into_iter().filter(many).collect();
        if !emulated() {
            let visible =
                (0..150).map(|i| if i < 70 { 300..301 + i } else { i..310 + i }).collect();
            let (keys, dim) = (CacheType::F16, 64);
            cases.push(Case { keys, dim, visible, common: 50.0, ..cases[0].clone() });
        }
        cases.iter_mut().for_each(|case| case.eight_bits = true);
        cases
    }

    /// Returns whether keys are stored after multiplication by a Hadamard matrix.
    fn keys_are_mixed(&self) -> bool {
        self.keys.is_mixed() && !(self.rotation.is_some() && self.rotates_keys)
    }

    /// Returns random rows, which may be multiplied by a Hadamard matrix: (positions, row bytes).
    fn rows(&self, dtype: CacheType, seed: u64, mixed: bool) -> Vec<u8> {
        let mut random = Random(seed);
        let mut bytes = vec![0; POSITIONS * dtype.row_bytes(self.dim)];
        for row in bytes.chunks_exact_mut(dtype.row_bytes(self.dim)) {
            let common = if seed == KEYS { self.common } else { 0.0 };
            let mut values = random.floats(self.dim);
            values.iter_mut().for_each(|x| *x += common);
            if seed == VALUES {
                values[..self.zeros].fill(0.0);
            }
            if mixed {
                mix_rows(scalar(), &mut values, self.dim);
            }
            store(scalar(), dtype, &values, row);
        }
        bytes
    }

    /// Returns random queries from `first` on: (queries, dim).
    fn queries(&self) -> Vec<f32> {
        let all = Random(21).floats((self.first + self.visible.len()) * self.dim);
        all[self.first * self.dim..].to_vec()
    }

    /// Returns cosines and sines of arbitrary angles: (PAGE, `n_rot`).
    fn angles(&self) -> Vec<f32> {
        let Some([n_rot, ..]) = self.rotation else { return Vec::new() };
        let row = |position: usize| {
            let angle = move |theta: f64| position as f64 * theta;
            let angles = || frequencies(n_rot).into_iter().map(angle);
            angles().map(f64::cos).chain(angles().map(f64::sin)).map(|x| x as f32)
        };
        (0..PAGE).flat_map(row).collect()
    }

    /// Returns the cosines and sines of the same angles for a bias that rotates alone.
    fn arcs(&self) -> Option<Arcs> {
        let [n_rot, ..] = self.rotation.filter(|_| !self.rotates_keys)?;
        Some(Arcs::new(&frequencies(n_rot), 1.0))
    }

    /// Returns what is added to keys: (dim), or nothing.
    fn bias(&self) -> Vec<f32> {
        if self.biased { Random(33).floats(self.dim) } else { Vec::new() }
    }

    /// Computes both pages one after the other, or separately and then merged.
    fn run(&self, cpu: Cpu, merged: bool) -> Vec<f32> {
        let (n, dim) = (self.visible.len(), self.dim);
        let keys = self.rows(self.keys, KEYS, self.keys_are_mixed());
        let values = self.rows(self.values, VALUES, self.values.is_mixed());
        let queries = &mut self.queries();
        let mut scratch = Scratch::new(n, dim).unwrap();
        let Case { regime, soft_cap, values_from, .. } = *self;
        // Queries that are also stored in 8 bits attend in single precision as before.
        let eight_bits = regime == Regime::Many;
        let q = Queries { queries, regime, eight_bits, heads: 1, dim, values_from, soft_cap };
        let (rows, arcs, bias) = (&self.angles(), &self.arcs(), &self.bias());
        let rotation = self.rotation.map(|[n_rot, group, before]| Rotation {
            rows,
            n_rot,
            group,
            before,
            arcs: arcs.as_ref(),
            bias,
        });
        scratch.prepare(cpu, q, self.keys, Reading::of(rotation));
        let mut partials =
            [vec![f32::NAN; n * partial_len(dim)], vec![f32::NAN; n * partial_len(dim)]];
        partials.iter_mut().for_each(|p| clear(p, dim));
        for page in 0..2 {
            let start = page * PAGE;
            let within = |p: usize| p.clamp(start, start + PAGE) - start;
            let visible: Vec<_> =
                self.visible.iter().map(|v| within(v.start)..within(v.end)).collect();
            let part = |bytes: &[u8], dtype: CacheType| {
                let len = PAGE * dtype.row_bytes(dim);
                bytes[page * len..][..len].to_vec()
            };
            let keys = &part(&keys, self.keys);
            let keys = CacheRows { dtype: self.keys, bytes: keys };
            let values = &part(&values, self.values);
            let values = CacheRows { dtype: self.values, bytes: values };
            let (scratch, partials) = (&mut scratch, &mut partials[if merged { page } else { 0 }]);
            if self.eight_bits {
                attend_in_eight_bits(cpu, &visible, keys, rotation, 0, values, scratch, partials);
            } else {
                attend(cpu, &visible, keys, rotation, values, &[], scratch, partials);
            }
        }
        let [mut first, second] = partials;
        let mut out = vec![f32::NAN; n * dim];
        let len = partial_len(dim);
        for i in 0..n {
            let partial = &mut first[i * len..][..len];
            merge(cpu, partial, &second[i * len..][..len]);
            let mixed = self.values.is_mixed();
            finish(cpu, mixed, 0, partial, &mut out[i * dim..][..dim]);
        }
        out
    }

    /// Returns whether scores are computed with queries that are rounded for quantized keys.
    fn are_integers(&self) -> bool {
        let apart = |[n_rot, group, _]: [usize; 3]| {
            self.regime == Regime::Few && !self.rotates_keys && n_rot % 32 == 0 && group == 1
        };
        self.keys.format().is_quantized() && !self.eight_bits && self.rotation.is_none_or(apart)
    }

    fn expected(&self) -> Vec<f64> {
        let decoded = |dtype: CacheType, seed, mixed| -> Vec<f32> {
            let bytes = self.rows(dtype, seed, mixed);
            let mut out = vec![0.0; POSITIONS * self.dim];
            for (row, out) in
                bytes.chunks_exact(dtype.row_bytes(self.dim)).zip(out.chunks_exact_mut(self.dim))
            {
                load(scalar(), dtype, row, out);
                if mixed {
                    mix_rows(scalar(), out, self.dim);
                }
            }
            out
        };
        let keys = decoded(self.keys, KEYS, self.keys_are_mixed());
        let values = decoded(self.values, VALUES, self.values.is_mixed());
        let mut keys: Vec<f64> = keys.into_iter().map(f64::from).collect();
        let mut biases = vec![0.0; keys.len()];
        if let Some([n_rot, group, before]) = self.rotation {
            let (angles, bias) = (self.angles(), self.bias());
            let each = keys.chunks_exact_mut(self.dim).zip(biases.chunks_exact_mut(self.dim));
            for (position, (key, biases)) in each.enumerate() {
                let row = &angles[(position % PAGE + before) / group * n_rot..][..n_rot];
                biases.iter_mut().zip(&bias).for_each(|(to, bias)| *to = f64::from(*bias));
                rotated(biases, row);
                if self.rotates_keys {
                    rotated(key, row);
                }
            }
        }
        // Queries are multiplied as integers with keys, and as floats with their bias.
        let queries = self.queries();
        let mut integers = queries.clone();
        if self.are_integers() {
            for query in integers.chunks_exact_mut(self.dim) {
                let mix = |query: &mut [f32]| {
                    if self.keys.is_mixed() {
                        mix_rows(scalar(), query, self.dim);
                    }
                };
                mix(query);
                rounded(query);
                mix(query);
            }
        }
        let mut out = Vec::new();
        let all = integers.chunks_exact(self.dim).zip(queries.chunks_exact(self.dim));
        for ((integers, query), visible) in all.zip(&self.visible) {
            let score = |p: usize| {
                let dot = |query: &[f32], row: &[f64]| -> f64 {
                    query.iter().zip(row).map(|(&q, &k)| f64::from(q) * k).sum()
                };
                let at = p * self.dim..(p + 1) * self.dim;
                let dot = dot(integers, &keys[at.clone()]) + dot(query, &biases[at]);
                self.soft_cap.map_or(dot, |cap| f64::from(cap) * (dot / f64::from(cap)).tanh())
            };
            let weights: Vec<f64> = visible.clone().map(|p| score(p).exp()).collect();
            let sum: f64 = weights.iter().sum();
            out.extend((0..self.dim).map(|d| {
                let value = |p: usize| f64::from(values[p * self.dim + d]);
                visible.clone().zip(&weights).map(|(p, w)| w * value(p)).sum::<f64>() / sum
            }));
        }
        out
    }
}

/// Returns arbitrary inverse frequencies of the pairs of `n_rot` values.
fn frequencies(n_rot: usize) -> Vec<f64> {
    (0..n_rot / 2).map(|pair| (pair + 3) as f64 * 0.1).collect()
}

/// Rotates the first values of a row by a row of cosines and sines.
fn rotated(x: &mut [f64], row: &[f32]) {
    let half = row.len() / 2;
    for pair in 0..half {
        let [a, b] = [pair, pair + half];
        let [cos, sin] = [a, b].map(|i| f64::from(row[i]));
        (x[a], x[b]) = (x[a] * cos - x[b] * sin, x[a] * sin + x[b] * cos);
    }
}

/// Rounds a query to 8 bits as for quantized keys.
fn rounded(query: &mut [f32]) {
    let mut spans = vec![Span::zeroed(); spans_for(query.len())];
    quantize(scalar(), query, &mut spans);
    for (i, x) in query.iter_mut().enumerate() {
        let (span, group) = (&spans[i / 256], i % 256 / 32);
        *x = span.scale[group] * f32::from(span.quants[group][i % 32] as i8);
    }
}

/// The largest error of a result. Scores are sums of at most 160 products below 1 (2 if keys are
/// rotated). So their error is below 160 x 160 / 2 units of single precision in the worst case, and
/// near sqrt(160) x 10 in practice. Relative errors of probabilities equal the errors of scores,
/// and the error of a mean of values below 1 is not larger.
const BOUND: f64 = 1e3 * f32::EPSILON as f64;

/// Tested with scalar code only, as all instruction sets return the same bits.
#[test]
fn attention_is_what_its_definition_says() {
    for case in Case::all() {
        let expected = case.expected();
        for merged in [false, true] {
            for (found, expected) in case.run(scalar(), merged).into_iter().zip(&expected) {
                let error = (f64::from(found) - expected).abs();
                assert!(
                    error <= BOUND,
                    "{} {}: {found} {expected}",
                    case.keys.name(),
                    case.values.name()
                );
            }
        }
    }
}

/// The root mean square of the errors of results in 8 bits. The largest of the values of a row is
/// near three times their root mean square. Rounding them to 127 steps of that causes errors of 3 /
/// 127 / sqrt(12), 0.7 % of it. So scores of queries and keys have errors of 1 % of their standard
/// deviation, at most sqrt(160) / 3, and 6 if keys are rotated: 0.06. The relative errors of
/// probabilities are as large, and two or more keys have most of the probability. The errors of
/// their values, below 1 and of root mean square 0.58, add up to 0.06 * 0.58 / sqrt(2).
const EIGHT_BIT_BOUND: f64 = 0.025;

/// Tested with scalar code only, as all instruction sets return the same bits.
#[test]
fn attention_in_eight_bits_is_close_to_its_definition() {
    for case in Case::in_eight_bits() {
        let (expected, found) = (case.expected(), case.run(scalar(), false));
        let errors = found.iter().zip(&expected).map(|(&found, e)| f64::from(found) - e);
        let (mut largest, mut squares) = (0.0f64, 0.0);
        for error in errors {
            largest = largest.max(error.abs());
            squares += error * error;
        }
        let error = (squares / expected.len() as f64).sqrt();
        let name = format!("{} {}", case.keys.name(), case.values.name());
        assert!(error <= EIGHT_BIT_BOUND, "{name}: {error}");
        assert!(largest <= 5.0 * EIGHT_BIT_BOUND, "{name}: {largest}");
    }
}

#[test]
fn a_cache_in_single_precision_is_not_computed_in_eight_bits() {
    for case in Case::in_eight_bits() {
        let case = Case { keys: CacheType::F32, values: CacheType::F32, ..case };
        let other = Case { eight_bits: false, ..case.clone() };
        assert_eq!(case.run(scalar(), false), other.run(scalar(), false));
    }
}

fn attention_equals_the_scalar_one_bit_for_bit(cpu: Cpu) {
    for (i, case) in Case::all().into_iter().chain(Case::in_eight_bits()).enumerate() {
        // Each of the six kinds of case, both ways in turn.
        let merged = (i + i / 6) % 2 == 1;
        assert_eq!(case.run(scalar(), merged), case.run(cpu, merged));
    }
}

/// With scalar code only, as all instruction sets give the same bits.
#[test]
fn queries_together_give_the_bits_that_each_gives_alone() {
    let cases = Case::all().into_iter().chain(Case::in_eight_bits());
    for case in cases.filter(|case| case.visible.len() <= 8 || case.eight_bits) {
        let alone = (0..case.visible.len()).flat_map(|first| {
            let visible = vec![case.visible[first].clone()];
            Case { first, visible, ..case.clone() }.run(scalar(), true)
        });
        assert_eq!(case.run(scalar(), true), alone.collect::<Vec<_>>());
    }
}

on_every_isa!(attention_equals_the_scalar_one_bit_for_bit);

#[test]
fn a_query_that_sees_nothing_adds_nothing() {
    let case = Case { visible: vec![0..256; 9], ..Case::plain() };
    let all = case.run(scalar(), false);
    let mut visible = vec![0..256; 9];
    visible[4] = 0..0;
    let one_blind = Case { visible, ..case }.run(scalar(), false);
    assert_eq!(all[..4 * 32], one_blind[..4 * 32]);
    assert_eq!(all[5 * 32..], one_blind[5 * 32..]);
}

fn heads_together_give_what_each_gives_alone(cpu: Cpu) {
    let (dim, heads, n) = (64, 3, 2);
    let visible = [9..201, 40..202];
    let queries = Random(41).floats(heads * n * dim);
    let angles: Vec<f32> = (0..PAGE * dim).map(|i| (i as f32).sin()).collect();
    let biases = Random(44).floats(heads * dim);
    let (arcs, n_rot) = (Arcs::new(&frequencies(dim), 1.0), dim);
    let rotation = Rotation { rows: &angles, n_rot, group: 1, before: 0, arcs: None, bias: &[] };
    let biased = Rotation { bias: &biases, ..rotation };
    let only_biased = Rotation { arcs: Some(&arcs), ..biased };
    let rotations = [None, Some(rotation), Some(biased), Some(only_biased)];
    for (dtype, rotation) in
        CacheType::ALL.into_iter().flat_map(|dtype| rotations.map(|rotation| (dtype, rotation)))
    {
        let rows = |seed| {
            let values = Random(seed).floats(heads * PAGE * dim);
            let mut bytes = vec![0; heads * PAGE * dtype.row_bytes(dim)];
            let rows = bytes.chunks_exact_mut(dtype.row_bytes(dim));
            rows.zip(values.chunks_exact(dim)).for_each(|(to, x)| store(cpu, dtype, x, to));
            bytes
        };
        let (keys, values) = (rows(42), rows(43));
        let run = |all: Range<usize>| {
            let heads = all.len();
            let part = |bytes: &[u8]| {
                let len = PAGE * dtype.row_bytes(dim);
                bytes[all.start * len..all.end * len].to_vec()
            };
            let (keys, values) = (part(&keys), part(&values));
            let queries = &mut queries[all.start * n * dim..all.end * n * dim].to_vec();
            let rotation = rotation.map(|rotation| {
                let bias = rotation.bias.get(all.start * dim..all.end * dim).unwrap_or_default();
                Rotation { bias, ..rotation }
            });
            let mut scratch = Scratch::new(heads * n, dim).unwrap();
            let regime = Regime::Few;
            let queries = Queries {
                queries,
                regime,
                eight_bits: false,
                heads,
                dim,
                values_from: 0,
                soft_cap: None,
            };
            scratch.prepare(cpu, queries, dtype, Reading::of(rotation));
            let mut partials = vec![0.0; heads * n * partial_len(dim)];
            clear(&mut partials, dim);
            let [keys, values] = [&keys, &values].map(|bytes| CacheRows { dtype, bytes });
            attend(cpu, &visible, keys, rotation, values, &[], &mut scratch, &mut partials);
            partials
        };
        let alone: Vec<f32> = (0..heads).flat_map(|head| run(head..head + 1)).collect();
        assert_eq!(run(0..heads), alone, "{}", dtype.name());
    }
}

on_every_isa!(heads_together_give_what_each_gives_alone);

/// Elements of values before the first that is summed have no effect.
fn the_first_elements_of_values_may_be_left_out(cpu: Cpu) {
    let cases = Case::all().into_iter().chain(Case::in_eight_bits());
    for case in cases.filter(|case| case.dim == 160 && !case.values.is_mixed()) {
        let out = |values_from, zeros| {
            let case = Case { values_from, zeros, ..case.clone() };
            case.run(cpu, true).into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(out(64, 0), out(0, 64), "{} and {}", case.keys.name(), case.values.name());
    }
}

on_every_isa!(the_first_elements_of_values_may_be_left_out);
