//! DPRoPE's histograms, disturbances and choices of pairs, against the reference: counts and choices
//! are equal, disturbances within 1e-12.

use rope_cpu::rope::{
    Direction, Flags, Histogram, Layers, SCALE, SCALING, Table, TrainedAngles,
    dprope::{self, DpRope},
    dynamic, yarn,
};
use serde_json::Value;

use crate::rope::{Case, close, floats, golden};

/// The absolute precision of the reference, as it states.
const PRECISION: f64 = 1e-12;

fn near(what: &str, found: f64, expected: f64) {
    assert!((found - expected).abs() <= PRECISION, "{what}: {found} instead of {expected}");
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap()
}

fn whole(value: &Value, name: &str) -> usize {
    value[name].as_u64().unwrap() as usize
}

fn model(params: &Value) -> Case {
    let (n_rot, context_train) = (whole(params, "n_rot"), whole(params, "L"));
    Case { n_rot, context_train, ..Case::default() }
        .float("freq_base", number(params, "base") as f32)
}

fn direction(params: &Value) -> Direction {
    params["kl"].as_str().unwrap().parse().unwrap()
}

/// Returns the settings of DPRoPE resolved from these flags, and its frequencies.
fn dprope(params: &Value, flags: Flags) -> (DpRope, Vec<f64>) {
    let flags = flags
        .with(&SCALING, "dprope")
        .with(&SCALE, number(params, "s"))
        .with(&dprope::INTERVALS, whole(params, "b"))
        .with(&dprope::DIRECTION, direction(params).name());
    let plan = model(params).flags(flags).plan().unwrap();
    let inv_freq = Table::new(&plan, Layers::Global, plan.effective_length(1)).inv_freq;
    (plan.rule_as::<DpRope>().unwrap().clone(), inv_freq)
}

fn mask(dprope: &DpRope) -> String {
    dprope.pairs.iter().map(|pair| if pair.interpolated { 'I' } else { 'E' }).collect()
}

/// Returns the mean disturbance of the chosen frequencies.
fn chosen(dprope: &DpRope) -> f64 {
    let each = dprope.pairs.iter().map(|pair| match pair.interpolated {
        true => pair.interpolating,
        false => pair.extrapolating,
    });
    each.sum::<f64>() / dprope.pairs.len() as f64
}

#[test]
fn masks_and_disturbances_equal_the_reference() {
    let golden = golden();
    let references = golden["dprope"].as_array().unwrap();
    assert_eq!(references.len(), 12);
    let mut by_number = 0;
    for reference in references {
        let params = &reference["params"];
        let id = params.to_string();
        let (found, inv_freq) = dprope(params, Flags::default());
        assert_eq!(mask(&found), reference["mask"], "{id}");
        assert_eq!(found.dimensions(), whole(reference, "n_dims"));
        near(&id, chosen(&found), number(reference, "D"));
        let mean = |all: Vec<f64>| all.iter().sum::<f64>() / all.len() as f64;
        let alone: Vec<f64> = found.pairs.iter().map(|pair| pair.extrapolating).collect();
        let divided: Vec<f64> = found.pairs.iter().map(|pair| pair.interpolating).collect();
        for (name, found) in [("D_E", &alone), ("D_I", &divided)] {
            for (i, expected) in reference.get(name).map(floats).iter().flatten().enumerate() {
                near(&format!("{id}, {name}, pair {i}"), found[i], *expected);
            }
        }
        let gains = alone.iter().zip(&divided).map(|(alone, divided)| (alone - divided).abs());
        near(&id, gains.fold(f64::INFINITY, f64::min), number(reference, "min_abs_delta"));
        near(&id, mean(alone), number(reference, "D_all_E"));
        near(&id, mean(divided), number(reference, "D_all_I"));
        for (i, expected) in reference.get("inv_freq").map(floats).iter().flatten().enumerate() {
            close(&format!("{id}, pair {i}"), inv_freq[i], *expected, 1e-14);
        }
        for choice in reference.get("n_hat").and_then(Value::as_array).into_iter().flatten() {
            let dims = whole(choice, "n_hat");
            let flags = Flags::default().with(&dprope::DIMS, dims);
            let (found, _) = dprope(params, flags);
            assert_eq!(mask(&found), choice["mask"], "{id}, {dims} dimensions");
            near(&id, chosen(&found), number(choice, "D"));
            by_number += 1;
            // Every threshold between the two gives the same choice; also the lower one, as pairs
            // with a tie are unchanged.
            if let (Some(low), Some(high)) =
                (choice["t_lo_incl"].as_f64(), choice["t_hi_excl"].as_f64())
            {
                let flags = Flags::default().with(&dprope::THRESHOLD, (low + high) / 2.0);
                assert_eq!(mask(&dprope(params, flags).0), choice["mask"], "{id}, threshold");
            }
        }
    }
    assert_eq!(by_number, 22);
}

#[test]
fn pairs_with_a_tie_are_unchanged() {
    // With a factor of 1, both disturbances of a pair are equal.
    let params = serde_json::json!({
        "n_rot": 8, "base": 10000.0, "L": 64, "s": 1.0, "b": 36, "kl": "code"
    });
    assert_eq!(mask(&dprope(&params, Flags::default()).0), "EEEE");
    // With a number of dimensions, the lowest frequencies of equal pairs are interpolated.
    let flags = Flags::default().with(&dprope::DIMS, 2);
    assert_eq!(mask(&dprope(&params, flags).0), "EEEI");
}

#[test]
fn disturbances_of_other_methods_equal_the_reference() {
    let golden = golden();
    let references = golden["disturbance"].as_array().unwrap();
    assert_eq!(references.len(), 7);
    for reference in references {
        let params = &reference["params"];
        let (trained, extended) = (whole(params, "L"), whole(params, "L_new"));
        let inv_freq = |flags: Flags| {
            let plan = model(params).flags(flags).plan().unwrap();
            Table::new(&plan, Layers::Global, plan.effective_length(extended)).inv_freq
        };
        let flags = |name| Flags::method(name).with(&SCALE, extended as f64 / trained as f64);
        let unscaled = inv_freq(Flags::default());
        let measure = TrainedAngles::new(&unscaled, trained, whole(params, "b"));
        let dynamic = flags("dynamic").with(&SCALE, 2.0).with(&dynamic::STEP, 1);
        let methods = [
            ("none", Flags::default()),
            ("linear", flags("linear")),
            ("ntk_static", flags("ntk")),
            ("yarn_hf", flags("yarn")),
            ("yarn_hf_notrunc", flags("yarn").with(&yarn::RAMP, "exact")),
            ("ntk_dynamic_hf_f2", dynamic),
            ("yarn_paper", flags("yarn").with(&yarn::RAMP, "turns")),
        ];
        for (method, flags) in methods {
            let inv_freq = inv_freq(flags);
            for (direction, name) in
                [(Direction::Code, "code"), (Direction::Paper, "paper_eps1e_6")]
            {
                let each = measure.disturbances(&inv_freq, extended, direction);
                let mean = each.iter().sum::<f64>() / each.len() as f64;
                near(
                    &format!("{params}, {method}, {name}"),
                    mean,
                    number(&reference[name], method),
                );
            }
        }
    }
}

#[test]
fn histograms_equal_the_reference() {
    let golden = golden();
    for reference in golden["hist_tiny"].as_array().unwrap() {
        let name = reference["name"].as_str().unwrap();
        let divisor = if name == "pi" { 4.0 } else { 1.0 };
        for pair in 0..whole(reference, "n_rot") / 2 {
            let exponent = -2.0 * pair as f64 / number(reference, "n_rot");
            let theta = number(reference, "base").powf(exponent) / divisor;
            let found = Histogram::new(theta, whole(reference, "n"), whole(reference, "b"));
            let counts: Vec<f64> = found.counts.iter().map(|count| f64::from(*count)).collect();
            assert_eq!(
                counts,
                floats(&reference["counts"][format!("pair{pair}")]),
                "{name}, {pair}"
            );
        }
    }
}
