//! Baked plans: a file with the baked values resolves to the same frequencies.

use rope_cpu::{
    gguf::Value,
    rope::{ATTENTION_SINKS, FREQ_BASE, Factors, Flags, LOG_N, Layers, METHODS, SCALE, Table},
};

use crate::rope::{Case, close, family};

/// The relative error of divisors stored as f32: half a unit in the last place, and the error of
/// f64.
const THROUGH_F32: f64 = 1.0 / (1 << 24) as f64 + 1e-14;

fn case() -> Case {
    Case { context: Some(32768), ..Case::default() }.float("freq_base", 100_000.0)
}

#[test]
fn baked_plans_read_back() {
    let named = |scaling, scale| Flags::method(scaling).with_some(&SCALE, scale);
    let own: Vec<f32> = (0..32).map(|i| 1.0 + i as f32 / 8.0).collect();
    let with_divisors =
        Case { factors: Factors { rope_freqs: Some(own), ..Factors::default() }, ..case() };
    let cases = [
        case(),
        case().flags(named("linear", Some(4.0))),
        case().flags(named("ntk", None)),
        case().flags(named("ntk-mixed", None)),
        case().flags(named("yarn", Some(4.0))),
        case().flags(named("llama3", None)),
        case().flags(named("dprope", None)),
        case().flags(named("cope", Some(2.0))),
        case().flags(Flags::default().with(&FREQ_BASE, 800_000.0)),
        case().flags(Flags::method("auto")),
        with_divisors.flags(named("yarn", Some(2.0))),
    ];
    for case in cases {
        let plan = case.plan().unwrap();
        let baked = plan.baked().unwrap();
        let factors = Factors { rope_freqs: Some(baked.divisors), ..Factors::default() };
        let read = Case { factors, context_train: 32768, context: Some(32768), ..Case::default() }
            .float("freq_base", 100_000.0)
            .scaling("none")
            .float("scaling.attn_factor", baked.attention_scale as f32);
        let read = Table::new(&read.plan().unwrap(), Layers::Global, 32768);
        let expected = Table::new(&plan, Layers::Global, 32768);
        for (found, expected) in read.inv_freq.iter().zip(&expected.inv_freq) {
            close(&plan.to_string(), *found, *expected, THROUGH_F32);
        }
        close("attention scale", read.scale, expected.scale, THROUGH_F32);
    }
}

/// Phi 3 has two sets of divisors, and may not name its scaling.
#[test]
fn plans_baked_into_both_sets_read_back() {
    let yarn = Flags::method("yarn").with(&SCALE, 4.0);
    let phi3 = |context_train| Case { architecture: "phi3", context_train, ..case() };
    let plan = phi3(8192).flags(yarn).plan().unwrap();
    let divisors = Some(plan.baked().unwrap().divisors);
    let factors = Factors { short: divisors.clone(), long: divisors, rope_freqs: None };
    for named in [true, false] {
        let read = Case { factors: factors.clone(), ..phi3(32768) };
        let read = if named { read.scaling("longrope") } else { read }.plan().unwrap();
        for length in [1, 32768] {
            let found = Table::new(&read, Layers::Global, read.effective_length(length));
            let expected = Table::new(&plan, Layers::Global, length);
            for (found, expected) in found.inv_freq.iter().zip(&expected.inv_freq) {
                close("phi3", *found, *expected, THROUGH_F32);
            }
        }
    }
    assert_eq!(family("phi3").divisors.len(), 2);
}

#[test]
fn plans_that_depend_on_the_length_are_errors() {
    for scaling in ["dynamic", "dynamic-linear", "dynamic-yarn"] {
        let flags = Flags::method(scaling);
        let error = case().flags(flags).plan().unwrap().baked().unwrap_err().to_string();
        assert!(
            error.contains(&format!("RoPE scaling {scaling} depends on the length")),
            "{error}"
        );
    }
    let set = || Some(vec![2.0; 32]);
    let factors = Factors { short: set(), long: set(), rope_freqs: None };
    let linear = Flags::method("linear");
    for flags in [Flags::default(), linear] {
        let longrope = Case { factors: factors.clone(), ..case() }
            .scaling("longrope")
            .key("scaling.original_context_length", Value::U32(4096));
        let error = longrope.flags(flags).plan().unwrap().baked().unwrap_err().to_string();
        assert!(
            error.starts_with("the LongRoPE divisors in the file depend on the length"),
            "{error}"
        );
    }
}

#[test]
fn plans_that_act_on_attention_are_errors() {
    let error = |flags| case().flags(flags).plan().unwrap().baked().unwrap_err().to_string();
    for scaling in METHODS.iter().filter(|scaling| !scaling.acts_on_frequencies()) {
        let error = error(Flags::method(scaling.name));
        assert!(error.contains(&format!("RoPE scaling {scaling} acts on attention")), "{error}");
    }
    let sinks = error(Flags::default().with(&ATTENTION_SINKS, 4));
    assert!(sinks.contains("`attention_sinks` acts on attention"), "{sinks}");
    let log_n = error(Flags::default().with(&LOG_N, true));
    assert!(log_n.contains("`rope_log_n` on acts on attention"), "{log_n}");
}
