//! The choice of ``rope_scaling` auto`, and the reason in the RoPE line.

use rope_cpu::{
    gguf::Value,
    rope::{ATTENTION_SINKS, FREQ_BASE, Factors, Flags, LOG_N, Layers, Plan, SCALE, Table, yarn},
};

use crate::rope::Case;

/// The choice agrees with the measurements in `docs/results`: of the methods that rotate a key once,
/// YaRN has the smallest mean over all tokens.
#[test]
fn the_choice_agrees_with_our_results() {
    let found = std::fs::read_to_string("docs/results/perplexity-32k.jsonl").unwrap();
    let of = |method: &str| {
        let start = format!("\"method\":\"{method}\"");
        let line = found.lines().find(|line| line.contains(&start)).unwrap();
        let line: serde_json::Value = rope_cpu::json::parse(line).unwrap();
        let all = &line["scored"]["all"];
        all["sum"].as_f64().unwrap() / all["count"].as_f64().unwrap()
    };
    let dynamic = "dynamic:rope-policy=run";
    for method in ["none", "linear", "ntk", "ntk-mixed", dynamic, "llama3", "dprope"] {
        assert!(of("yarn") < of(method), "{method}");
    }
    assert_eq!(of("yarn"), of("dynamic-yarn:rope-policy=run"));
}

fn auto(case: Case) -> Plan {
    let flags = Flags::method("auto");
    case.flags(flags).plan().unwrap()
}

fn case(context: usize) -> Case {
    Case { context: Some(context), ..Case::default() }
}

fn frequencies(plan: &Plan) -> Table {
    Table::new(plan, Layers::Global, plan.effective_length(plan.context.value))
}

#[test]
fn within_the_trained_length_nothing_is_scaled() {
    for context in [1, 8191, 8192] {
        let plan = auto(case(context));
        assert_eq!(frequencies(&plan), frequencies(&case(context).plan().unwrap()));
        let why = format!("{context} tokens are within the trained context of 8192");
        let line = plan.to_string();
        assert!(
            line.starts_with(&format!("RoPE: no scaling (`rope_scaling` auto: {why})")),
            "{line}"
        );
    }
}

#[test]
fn beyond_it_yarn_reaches_the_context() {
    let plan = auto(case(20480));
    let yarn = Flags::method("yarn").with(&SCALE, 2.5);
    assert_eq!(frequencies(&plan), frequencies(&case(20480).flags(yarn).plan().unwrap()));
    assert_eq!(plan.warnings, [""; 0]);
    let line = plan.to_string();
    let why = "20480 tokens are 2.5 times the trained 8192; without fine-tuning, YaRN lost least of \
               the measured methods that rotate a key once";
    assert!(
        line.starts_with(&format!(
            "RoPE: yarn (`rope_scaling` auto: {why}), factor 2.5 (context / original context)"
        )),
        "{line}"
    );
    // One token more than the trained length needs scaling.
    assert_eq!(auto(case(8193)).scaling.value.name, "yarn");
}

#[test]
fn settings_of_the_file_stay_if_they_reach_the_context() {
    let file = |context| case(context).scaling("linear").float("scaling.factor", 4.0);
    let plan = auto(file(32768));
    assert_eq!((plan.scaling.value.name, plan.factor.value), ("linear", 4.0));
    assert!(plan.to_string().contains("auto: the file's own settings reach 32768 tokens"));
    let plan = auto(file(40960));
    assert_eq!((plan.scaling.value.name, plan.factor.value), ("yarn", 5.0));

    // For a model that was extended from 4096, YaRN extends that original context.
    let extended = case(16384)
        .scaling("yarn")
        .float("scaling.factor", 2.0)
        .key("scaling.original_context_length", Value::U32(4096));
    let plan = auto(extended);
    assert_eq!((plan.scaling.value.name, plan.factor.value), ("yarn", 4.0));
}

#[test]
fn longrope_is_extended_from_what_it_reaches() {
    let set = |value| Some(vec![value; 32]);
    let factors = Factors { short: set(1.0), long: set(2.0), rope_freqs: None };
    let case = |context| {
        Case { factors: factors.clone(), ..case(context) }
            .scaling("longrope")
            .key("scaling.original_context_length", Value::U32(4096))
    };
    assert_eq!(auto(case(8192)).scaling.value.name, "longrope");
    let plan = auto(case(16384));
    assert_eq!((plan.scaling.value.name, plan.factor.value), ("yarn", 2.0));
    assert_eq!(plan.original_context.value, 8192);
}

#[test]
fn flags_that_act_on_attention_stay_in_effect() {
    for context in [4096, 16384] {
        let flags = Flags::method("auto").with(&LOG_N, true).with(&ATTENTION_SINKS, 4);
        let plan = case(context).flags(flags).plan().unwrap();
        assert!(plan.log_n.is_some() && plan.rolls(), "{plan}");
    }
}

#[test]
fn flags_that_auto_would_set_are_errors() {
    let auto = Flags::method("auto");
    for (flags, name) in [
        (auto.clone().with(&SCALE, 2.0), "`rope_scale`"),
        (auto.clone().with(&FREQ_BASE, 1e6), "`rope_freq_base`"),
        (auto.clone().with(&yarn::BETA_FAST, 16.0), "`yarn_beta_fast`"),
    ] {
        let error = case(16384).flags(flags).error();
        assert_eq!(
            error,
            format!(
                "{name} has no effect with `rope_scaling` auto: replace auto by a method, or remove {name}"
            )
        );
    }
}

/// The trained length of 8192 in the file includes its factor, also if that does not divide 8192.
#[test]
fn gemma_3_includes_its_factor_in_the_trained_length() {
    let file = |context, factor| {
        let gemma = Case { architecture: "gemma3", window_n_rot: Some(64), ..case(context) };
        gemma.scaling("linear").float("scaling.factor", factor)
    };
    for (factor, original) in [(8.0, 1024), (3.0, 2731)] {
        let plan = auto(file(8192, factor));
        assert_eq!((plan.scaling.value.name, plan.factor.value), ("linear", f64::from(factor)));
        assert_eq!(plan.original_context.value, original);
        assert_eq!(plan.warnings, [""; 0]);
    }
    let plan = auto(file(16384, 8.0));
    assert_eq!((plan.scaling.value.name, plan.factor.value), ("yarn", 16.0));
    assert_eq!(plan.warnings, [""; 0]);

    let warnings =
        |context, flags| file(context, 8.0).flags(flags).plan().unwrap().warnings.join("");
    let scaling = |scaling| Flags::method(scaling);
    assert!(warnings(8193, Flags::default()).contains(
        "beyond the 1024 tokens that the model was trained for without the scaling of its file, which the \
         settings extend to 8192"
    ));
    let none = warnings(4096, scaling("none"));
    assert!(none.contains("without the scaling of its file, and no setting extends it"), "{none}");
    let yarn = scaling("yarn").with(&SCALE, 2.0);
    assert!(warnings(4096, yarn).contains("extend to 2048"));
    // Dynamic scaling begins at the trained length without the factor.
    let dynamic = file(8192, 8.0).flags(scaling("dynamic")).plan().unwrap();
    assert!(dynamic.to_string().contains("alpha by length from 1024"), "{dynamic}");
    // A flag may replace an invalid factor of the file.
    assert!(file(8192, -1.0).plan().is_err());
    assert!(file(8192, -1.0).flags(scaling("none")).plan().is_ok());
}
