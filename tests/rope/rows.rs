//! The cos/sin rows that a forward pass rotates with: exact at any position, in any order of
//! computation.

use rope_cpu::rope::{Factors, Flags, Layers, Plan, Rope, SCALE, Table};

use crate::rope::{Case, floats, golden};

const LAYERS: Layers = Layers::Global;

/// The rounding error of a stored value: half a unit in the last place of an f32 below 1.
const ROUNDING: f64 = 1.0 / (1 << 25) as f64;

/// Returns the plan of a model with every fourth frequency of SmolLM2 (64 dimensions, base 100000).
fn smollm2(flags: Flags) -> Plan {
    Case { n_rot: 16, context: Some(1 << 20), ..Case::default() }
        .float("freq_base", 100_000.0)
        .flags(flags)
        .plan()
        .unwrap()
}

fn prepared(plan: Plan, positions_end: usize) -> (Rope, usize) {
    let mut rope = Rope::new(plan);
    let length = rope.effective_length(positions_end);
    rope.prepare(LAYERS, length, 0..positions_end).unwrap();
    (rope, length)
}

/// Computes cosine and sine of `position * angle` by repeated squaring of the rotation by `angle`,
/// so that no large angle is formed. Each of about 40 products adds an error of 2^-52, and squaring
/// doubles the error. So the error of the result is position * 2^-50, below 1e-9 for a million.
fn power(angle: f64, position: usize) -> (f64, f64) {
    let product = |a: (f64, f64), b: (f64, f64)| (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0);
    let mut square = (angle.cos(), angle.sin());
    let mut result = (1.0, 0.0);
    for bit in 0..usize::BITS - position.leading_zeros() {
        if position >> bit & 1 == 1 {
            result = product(result, square);
        }
        square = product(square, square);
    }
    result
}

#[test]
fn rows_are_exact_up_to_a_million() {
    let (rope, length) = prepared(smollm2(Flags::default()), 1_000_001);
    let mut naive_error = 0f64;
    for position in [0, 1, 255, 256, 8191, 131_071, 999_999, 1_000_000] {
        let row = rope.row(LAYERS, length, position);
        assert_eq!(row.len(), 16);
        for pair in 0..8 {
            let inv_freq = 100_000f64.powf(-2.0 * pair as f64 / 16.0);
            let (cos, sin) = power(inv_freq, position);
            for (found, exact) in [(row[pair], cos), (row[8 + pair], sin)] {
                let error = (f64::from(found) - exact).abs();
                assert!(error <= ROUNDING + 1e-9, "{position}, pair {pair}: {error:e}");
            }
            let naive = (position as f32 * inv_freq as f32).cos();
            naive_error = naive_error.max((f64::from(naive) - cos).abs());
        }
    }
    // Rows computed from f32 angles would fail this test.
    assert!(naive_error > 1e-3, "{naive_error:e}");
}

/// Every position of a long context, against a rotation that is multiplied on in double precision: its
/// 131,072 products, each off by 2^-52 at most, and the rounding of its angle add up to 1e-10.
#[test]
fn rows_do_not_drift() {
    let (rope, length) = prepared(smollm2(Flags::default()), 131_072);
    let angles = (0..8).map(|pair| 100_000f64.powf(-2.0 * pair as f64 / 16.0));
    let steps: Vec<_> = angles.map(f64::sin_cos).collect();
    let mut exact = [(0.0, 1.0); 8];
    for position in 0..131_072 {
        let row = rope.row(LAYERS, length, position);
        for (pair, (sin, cos)) in exact.iter_mut().enumerate() {
            for (found, exact) in [(row[pair], *cos), (row[8 + pair], *sin)] {
                let error = (f64::from(found) - exact).abs();
                assert!(error <= ROUNDING + 1e-9, "{position}, pair {pair}: {error:e}");
            }
            let (s, c) = steps[pair];
            (*sin, *cos) = (*sin * c + *cos * s, *cos * c - *sin * s);
        }
    }
}

#[test]
fn attention_scale_is_in_the_rows() {
    let yarn = Flags::method("yarn").with(&SCALE, 4.0);
    let scale = 1.0 + 0.1 * 4f64.ln();
    let (rope, length) = prepared(smollm2(yarn), 70_000);
    for position in [0, 1, 69_999] {
        let (cos, sin) = rope.row(LAYERS, length, position).split_at(8);
        for (c, s) in cos.iter().zip(sin) {
            let norm = f64::from(*c).hypot(f64::from(*s));
            // Both may be off by half a unit in the last place, which doubles above 1.
            assert!((norm - scale).abs() <= 4.0 * ROUNDING, "{position}: {norm}");
        }
    }
}

#[test]
fn logits_depend_on_the_distance_alone_at_any_position() {
    let (rope, length) = prepared(smollm2(Flags::default()), 1_000_001);
    let logit = |query: usize, key: usize| -> f64 {
        let [q, k] = [query, key].map(|position| rope.row(LAYERS, length, position));
        q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum()
    };
    for distance in [0, 1, 100, 9000] {
        let near = logit(distance, 0);
        let far = logit(1_000_000, 1_000_000 - distance);
        // 16 products of two values below 1, each with an error of at most ROUNDING.
        assert!((near - far).abs() <= 2.0 * 32.0 * ROUNDING, "{distance}: {near} and {far}");
    }
}

#[test]
fn rows_do_not_depend_on_how_they_were_computed() {
    let plan = smollm2(Flags::default());
    let (at_once, length) = prepared(plan.clone(), 2000);
    let mut in_steps = Rope::new(plan);
    for end in [1, 7, 256, 257, 300, 100, 2000] {
        in_steps.prepare(LAYERS, length, 0..end).unwrap();
    }
    for position in 0..2000 {
        assert_eq!(
            at_once.row(LAYERS, length, position),
            in_steps.row(LAYERS, length, position),
            "{position}"
        );
    }
}

#[test]
fn rows_are_kept_by_layers_and_by_effective_length() {
    let factors =
        Factors { short: Some(vec![1.0; 32]), long: Some(vec![8.0; 32]), rope_freqs: None };
    let case = Case { factors, window_n_rot: Some(48), context: Some(16384), ..Case::default() };
    let plan = case.scaling("longrope").float("freq_base_swa", 500.0).plan().unwrap();
    let mut rope = Rope::new(plan);
    let lengths = [100, 10_000].map(|tokens| rope.effective_length(tokens));
    for layers in [Layers::Global, Layers::Window] {
        lengths.iter().for_each(|length| rope.prepare(layers, *length, 0..20).unwrap());
    }
    // The sine of the first pair.
    let first = |layers, length| {
        let row = rope.row(layers, length, 8);
        row[row.len() / 2]
    };
    assert_eq!(rope.row(Layers::Global, lengths[0], 8).len(), 64);
    assert_eq!(rope.row(Layers::Window, lengths[0], 8).len(), 48);
    assert_eq!(first(Layers::Global, lengths[0]), 8f64.sin() as f32);
    assert_eq!(first(Layers::Global, lengths[1]), 1f64.sin() as f32);
    assert_eq!(first(Layers::Window, lengths[0]), 8f64.sin() as f32);
    assert_eq!(first(Layers::Window, lengths[1]), 8f64.sin() as f32);
}

#[test]
#[should_panic(expected = "RoPE row 256 was not prepared")]
fn rows_that_were_not_prepared_panic() {
    let (rope, length) = prepared(smollm2(Flags::default()), 256);
    rope.row(LAYERS, length, 256);
}

/// Rotates the first dimensions of `x` by a row, with the pairing of `style`.
fn rotate(x: &[f64], row: &[f64], style: &str) -> Vec<f64> {
    let pairs = row.len() / 2;
    let mut y = x.to_vec();
    for pair in 0..pairs {
        let (first, second) = match style {
            "norm" => (2 * pair, 2 * pair + 1),
            "neox" => (pair, pair + pairs),
            other => panic!("style {other}"),
        };
        let (cos, sin) = (row[pair], row[pairs + pair]);
        y[first] = x[first] * cos - x[second] * sin;
        y[second] = x[first] * sin + x[second] * cos;
    }
    y
}

#[test]
fn rotations_equal_the_reference() {
    let flags = Flags::method("yarn").with(&SCALE, 4.0);
    let case = Case { n_rot: 8, context_train: 64, context: Some(256), ..Case::default() };
    let plan = case.flags(flags).plan().unwrap();
    let table = Table::new(&plan, LAYERS, 256);
    let (rope, length) = prepared(plan, 131_072);
    let golden = golden();
    let references = golden["rotate"].as_array().unwrap();
    assert_eq!(references.len(), 6);
    for reference in references {
        assert_eq!(reference["rope"], "yarn_hf n_rot=8 base=1e4 n_ctx_orig=64 factor=4");
        let style = reference["style"].as_str().unwrap();
        let position = reference["pos"].as_u64().unwrap() as usize;
        let (x, expected) = (floats(&reference["x"]), floats(&reference["y"]));

        let angles = || table.inv_freq.iter().map(|inv_freq| position as f64 * inv_freq);
        let exact: Vec<f64> = angles().map(f64::cos).chain(angles().map(f64::sin)).collect();
        let exact: Vec<f64> = exact.iter().map(|v| v * table.scale).collect();
        let stored: Vec<f64> =
            rope.row(LAYERS, length, position).iter().map(|v| f64::from(*v)).collect();

        // The tolerances of the reference. Values of f32 rows have an error of ROUNDING (twice that
        // above 1), in each of two products with values below 1.
        let precision = if position < 200 { 1e-14 } else { 1e-9 };
        for (row, tolerance) in [(exact, precision), (stored, precision + 4.0 * ROUNDING)] {
            for (found, expected) in rotate(&x, &row, style).iter().zip(&expected) {
                let error = (found - expected).abs();
                assert!(error <= tolerance, "{style} at {position}: {error:e} > {tolerance:e}");
            }
        }
    }
}
