//! Proportional RoPE: divisors that hold the last pairs of a head still.

use rope_cpu::rope::{
    Direction, FREQ_BASE, Factors, Flags, Layers, METHODS, Plan, Rope, SCALE, Table, TrainedAngles,
};

use crate::rope::{Case, close};

const BASE: f32 = 1e6;

/// Returns a model with 16 of 64 pairs that turn.
fn proportional() -> Case {
    let divisors = [vec![1.0; 16], vec![1e30; 48]].concat();
    let factors = Factors { rope_freqs: Some(divisors), ..Factors::default() };
    let case = Case { n_rot: 128, factors, context_train: 2048, ..Case::default() };
    Case { context: Some(8192), ..case }.float("freq_base", BASE)
}

/// Returns the model with the same frequencies and without still pairs: base^(-2i/128) is
/// (base^(1/4))^(-2i/32).
fn plain() -> Case {
    let case = Case { n_rot: 32, context_train: 2048, ..Case::default() };
    Case { context: Some(8192), ..case }.float("freq_base", BASE.powf(0.25))
}

fn table(plan: &Plan) -> Table {
    Table::new(plan, Layers::Global, plan.effective_length(8192))
}

/// The base of the model without still pairs is rounded to f32, and its logarithm is multiplied by up to 2.
const THROUGH_F32: f64 = 4.0 / (1 << 24) as f64;

#[test]
fn every_method_counts_only_the_pairs_that_turn() {
    for method in METHODS.iter().filter(|method| !["clex", "longrope"].contains(&method.name)) {
        let flags = Flags::method(method.name);
        let found = proportional().flags(flags.clone()).plan().unwrap();
        let expected = plain().flags(flags).plan().unwrap();
        let [found, expected] = [&found, &expected].map(table);
        assert_eq!(found.inv_freq.len(), 16, "{method}");
        for (found, expected) in found.inv_freq.iter().zip(&expected.inv_freq) {
            close(method.name, *found, *expected, THROUGH_F32);
        }
        close(method.name, found.scale, expected.scale, 1e-12);
    }
}

#[test]
fn a_base_divides_the_lowest_frequency_that_turns() {
    let lowest =
        |flags| *table(&proportional().flags(flags).plan().unwrap()).inv_freq.last().unwrap();
    let own = lowest(Flags::default());
    close("ntk", lowest(Flags::method("ntk").with(&SCALE, 4.0)), own / 4.0, 1e-12);
    let base = f64::from(BASE) * 4f64.powf(128.0 / 30.0);
    let raised = proportional().flags(Flags::default().with(&FREQ_BASE, base)).plan().unwrap();
    close("base", *table(&raised).inv_freq.last().unwrap(), own / 4.0, 1e-12);
    assert!(raised.to_string().contains("alpha 4"), "{raised}");
    let auto = proportional().flags(Flags::method("auto")).plan().unwrap();
    assert_eq!((auto.factor.value, &auto.warnings[..]), (4.0, &[][..]), "{auto}");
}

#[test]
fn still_pairs_are_only_scaled() {
    let plan = proportional().flags(Flags::method("yarn").with(&SCALE, 4.0)).plan().unwrap();
    assert!(plan.to_string().contains("32 of 128 dimensions turn (rope_freqs.weight)"), "{plan}");
    assert!(plan.divisors.is_none());
    let scale = (1.0 + 0.1 * 4f64.ln()) as f32;
    let mut rope = Rope::new(plan);
    let length = rope.effective_length(8192);
    rope.prepare(Layers::Global, length, 0..300).unwrap();
    let (cos, sin) = rope.row(Layers::Global, length, 299).split_at(64);
    assert!(cos[16..].iter().all(|cos| *cos == scale), "{cos:?}");
    assert!(sin[16..].iter().all(|sin| *sin == 0.0), "{sin:?}");
    assert!(sin[..16].iter().all(|sin| *sin != 0.0), "{sin:?}");
}

#[test]
fn disturbances_are_of_pairs_that_turn() {
    let plan = proportional().plan().unwrap();
    let (inv_freq, trained) = (table(&plan).inv_freq, plan.trained_inv_freq());
    let angles = TrainedAngles::new(&trained, plan.original_context.value, 360);
    let found = angles.disturbances(&inv_freq, 8192, Direction::Code);
    assert_eq!([inv_freq.len(), found.len(), trained.len()], [16; 3]);
}

#[test]
fn baked_plans_hold_the_same_pairs_still() {
    let plan = proportional().flags(Flags::method("yarn").with(&SCALE, 4.0)).plan().unwrap();
    let factors =
        Factors { rope_freqs: Some(plan.baked().unwrap().divisors), ..Factors::default() };
    let read = Case { factors, ..proportional() }.scaling("none").plan().unwrap();
    assert_eq!((read.turning, plan.turning), (32, 32));
    for (found, expected) in table(&read).inv_freq.iter().zip(table(&plan).inv_freq) {
        close("baked", *found, expected, THROUGH_F32);
    }
}
