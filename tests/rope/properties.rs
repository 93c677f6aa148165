//! What every method promises, at random positions: rotation keeps lengths, and scores depend on
//! relative positions only.

use std::sync::LazyLock;

use proptest::prelude::*;
use rope_cpu::rope::{
    Factors, Flags, Layers, METHODS, Plan, Table, dca, lm_infinite, rerope, self_extend,
};

use crate::rope::Case;

const POSITION_MAX: usize = 1 << 20;

/// A plan of each method that changes frequencies, for twice and for eight times the trained length.
/// CLEX, which needs a file with its network, has tests of its own.
static PLANS: LazyLock<Vec<(String, Plan)>> = LazyLock::new(|| {
    let methods = METHODS.iter().filter(|method| method.acts_on_frequencies());
    let mut plans = Vec::new();
    for method in methods.filter(|method| method.name != "clex") {
        for factor in [2, 8] {
            let long = method.name == "longrope";
            let factors = |divisor: f32| long.then(|| vec![divisor; 32]);
            let factors = Factors { short: factors(1.5), long: factors(7.0), ..Factors::default() };
            let case = Case { context: Some(factor * 8192), factors, ..Case::default() };
            let plan = case.flags(Flags::method(method.name)).plan().unwrap();
            plans.push((format!("{}, factor {factor}", method.name), plan));
        }
    }
    plans
});

fn row(table: &Table, position: usize) -> Vec<f64> {
    let mut row = vec![0f32; 2 * table.inv_freq.len()];
    table.fill(position, &mut row);
    row.into_iter().map(f64::from).collect()
}

/// The largest error of a value in a row. It is rounded to f32, by half a unit in the last place (2^-24
/// of it). Its angle, below 2^20 radians, is rounded by 2^-53 of it, which is 2^-33.
fn error(table: &Table) -> f64 {
    table.scale * (1.0 / (1 << 24) as f64 + 1.0 / (1u64 << 33) as f64)
}

/// Returns the score of a query and a key, whose pairs are on the unit circle at these angles.
fn score(table: &Table, [query, key]: [usize; 2], angles: &[f64]) -> f64 {
    let (pairs, rows) = (table.inv_freq.len(), [query, key].map(|position| row(table, position)));
    let rotated = |row: &[f64], pair: usize, (x, y): (f64, f64)| {
        let (cos, sin) = (row[pair], row[pairs + pair]);
        (x * cos - y * sin, x * sin + y * cos)
    };
    let pair = |pair: usize| {
        let (sin, cos) = angles[pair % angles.len()].sin_cos();
        let (a, b) = (rotated(&rows[0], pair, (cos, sin)), rotated(&rows[1], pair, (1.0, 0.0)));
        a.0 * b.0 + a.1 * b.1
    };
    (0..pairs).map(pair).sum()
}

proptest! {
    #[test]
    fn rotation_keeps_lengths(position in 0..POSITION_MAX) {
        for (name, plan) in PLANS.iter() {
            let table = Table::new(plan, Layers::Global, plan.effective_length(position + 1));
            let (row, pairs) = (row(&table, position), table.inv_freq.len());
            // Both coordinates have the error.
            let bound = 2f64.sqrt() * error(&table);
            for pair in 0..pairs {
                let apart = (row[pair].hypot(row[pairs + pair]) - table.scale).abs();
                prop_assert!(apart <= bound, "{name}: pair {pair} at {position}: {apart:e}");
            }
        }
    }

    #[test]
    fn only_relative_positions_matter(
        key in 0..POSITION_MAX / 4,
        distance in 0..POSITION_MAX / 4,
        shift in 1..POSITION_MAX / 2,
        angles in prop::collection::vec(0.0..std::f64::consts::TAU, 32),
    ) {
        for (name, plan) in PLANS.iter() {
            // Frequencies that depend on the length are those of the same length.
            let length = plan.effective_length(POSITION_MAX);
            let table = Table::new(plan, Layers::Global, length);
            let near = score(&table, [key + distance, key], &angles);
            let far = score(&table, [key + distance + shift, key + shift], &angles);
            // A rotated unit vector is off by √2 times the error, so the product of two of length
            // `scale` is off by 2√2 times, and a small square. There are two scores of all pairs.
            let error = error(&table);
            let pair = 2.0 * 2f64.sqrt() * error * table.scale + 2.0 * error * error;
            let bound = 2.0 * table.inv_freq.len() as f64 * pair;
            let apart = (near - far).abs();
            prop_assert!(apart <= bound, "{name}: {near} and {far}, {apart:e} > {bound:e}");
        }
    }

    /// The methods that change distances. Groups of Self-Extend and chunks of DCA start at multiples of
    /// their size, and LM-Infinite has first keys that are always visible.
    #[test]
    fn distances_do_not_depend_on_the_position(
        key in 10..20_000usize, distance in 0..20_000usize, shift in 1..5_000usize,
    ) {
        let named = Flags::method;
        let methods = [
            (named("rerope").with(&rerope::WINDOW, 300), 1),
            (named("leaky-rerope").with(&rerope::WINDOW, 300).with(&rerope::K, 5), 1),
            (named("lm-infinite").with(&lm_infinite::GLOBAL, 10).with(&lm_infinite::LOCAL, 300), 1),
            (named("self-extend").with(&self_extend::GROUP, 6).with(&self_extend::WINDOW, 600), 6),
            (named("dca").with(&dca::CHUNK_SIZE, 300).with(&dca::LOCAL_SIZE, 50), 250),
        ];
        for (flags, unit) in methods {
            let name = format!("{flags:?}");
            let plan = Case { context: Some(16384), ..Case::default() }.flags(flags).plan().unwrap();
            let of = |shift| plan.visibility.distance(key + distance + shift, key + shift);
            prop_assert_eq!(of(0), of(shift * unit), "{}", name);
        }
    }
}
