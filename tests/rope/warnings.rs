//! Warnings about settings that are valid but probably mistakes.

use rope_cpu::{
    gguf::Value,
    rope::{FREQ_BASE, FREQ_SCALE, Factors, Flags, SCALE, SCALING, dprope, dynamic, rerope, yarn},
};

use crate::rope::Case;

/// Returns the warning of a case that must have exactly one.
fn warning(case: Case) -> String {
    let plan = case.plan().unwrap();
    assert_eq!(plan.warnings.len(), 1, "{:?}", plan.warnings);
    plan.warnings[0].clone()
}

fn warnings(case: Case) -> Vec<String> {
    case.plan().unwrap().warnings
}

#[test]
fn inverted_factors_are_warned_about() {
    let case = |flags| Case { context: Some(1024), ..Case::default() }.flags(flags);
    assert_eq!(
        warning(case(Flags::default().with(&FREQ_SCALE, 4.0))),
        "`rope_freq_scale` 4 is probably inverted: it makes the usable context 4 times shorter; \
         `rope_scale` 4 (the same as `rope_freq_scale` 0.25) makes it longer"
    );
    assert_eq!(
        warning(case(Flags::default().with(&SCALE, 0.25))),
        "`rope_scale` 0.25 is probably inverted: it makes the usable context 4 times shorter; \
         `rope_scale` 4 (the same as `rope_freq_scale` 0.25) makes it longer"
    );
}

#[test]
fn settings_of_a_model_without_rotation_are_warned_about() {
    let case = |context, flags| {
        Case { context: Some(context), rotates: false, ..Case::default() }.flags(flags)
    };
    let yarn = Flags::method("yarn").with(&SCALE, 4.0);
    assert_eq!(
        warning(case(1024, yarn)),
        "no layer of the model rotates: RoPE settings change nothing"
    );
    assert_eq!(
        warning(case(16384, Flags::default())),
        "context 16384 is beyond the 8192 tokens that the model was trained for, and no layer \
         rotates, so that no setting extends it: text beyond that length may be poor"
    );
    assert!(warnings(case(8192, Flags::default())).is_empty());
}

#[test]
fn contexts_that_are_not_reached_are_warned_about() {
    let case = |context, flags| Case { context: Some(context), ..Case::default() }.flags(flags);
    assert_eq!(
        warning(case(16384, Flags::default())),
        "context 16384 is beyond the 8192 tokens that the model was trained for, and no setting \
         extends it: text beyond that length will be poor; `rope_scaling` yarn `rope_scale` 2, \
         `rope_freq_scale` 0.5 or `rope_freq_base` 20453 reach this length"
    );
    let half = || Flags::default().with(&FREQ_SCALE, 0.5);
    assert_eq!(warnings(case(16384, half())), [""; 0]);
    assert_eq!(
        warning(case(32768, half())),
        "context 32768 is beyond the 8192 tokens that the model was trained for, which the \
         settings extend to 16384: text beyond that length will be poor; `rope_scaling` yarn \
         `rope_scale` 4, `rope_freq_scale` 0.25 or `rope_freq_base` 41830 reach this length"
    );
    // A single pair has the same frequency with any base.
    assert_eq!(
        warning(Case { n_rot: 2, ..case(16384, Flags::default()) }),
        "context 16384 is beyond the 8192 tokens that the model was trained for, and no setting \
         extends it: text beyond that length will be poor; `rope_scaling` yarn `rope_scale` 2 or \
         `rope_freq_scale` 0.5 reach this length"
    );
    // The proposed settings reach the context.
    let yarn = Flags::method("yarn").with(&SCALE, 2.0);
    assert_eq!(warnings(case(16384, yarn)), [""; 0]);
    let base = Flags::default().with(&FREQ_BASE, 20453.0);
    assert_eq!(warnings(case(16384, base)), [""; 0]);
    // A model needs no other setting if its file reaches its trained length.
    let qwen = Case { context_train: 131_072, ..Case::default() }
        .scaling("yarn")
        .float("scaling.factor", 4.0)
        .key("scaling.original_context_length", Value::U32(32768));
    assert_eq!(warnings(qwen), [""; 0]);
}

#[test]
fn factors_beyond_all_measurements_are_warned_about() {
    let case = |context, flags| Case { context: Some(context), ..Case::default() }.flags(flags);
    let yarn = |factor: f64| Flags::method("yarn").with(&SCALE, factor);
    assert_eq!(warnings(case(65536, yarn(8.0))), [""; 0]);
    let beyond = warning(case(131_072, yarn(16.0)));
    for part in
        ["extend the model 16 times", "docs/results.md", "beyond 4 times", "from 13.1 to 14.7"]
    {
        assert!(beyond.contains(part), "{beyond}");
    }
    // The factor counts even if the context is short, and so does a method without one.
    assert!(warning(case(8192, yarn(9.0))).contains("extend the model 9 times"));
    assert!(warning(case(81920, Flags::method("dynamic-yarn"))).contains("the model 10 times"));
    assert!(warning(case(81920, Flags::method("auto"))).contains("the model 10 times"));
    // The authors of a file have trained with its factor.
    let file = |flags| {
        Case { context_train: 131_072, ..case(131_072, flags) }
            .scaling("yarn")
            .float("scaling.factor", 16.0)
            .key("scaling.original_context_length", Value::U32(8192))
    };
    assert_eq!(warnings(file(Flags::default())), [""; 0]);
    assert_eq!(warnings(file(yarn(16.0))), [""; 0]);
}

#[test]
fn advice_reaches_the_context() {
    let case = |context, flags| Case { context: Some(context), ..Case::default() }.flags(flags);
    let inverted = |scaling| Flags::default().with_some(&SCALING, scaling).with(&FREQ_SCALE, 4.0);
    let shorter =
        "`rope_freq_scale` 4 is probably inverted: it makes the usable context 4 times shorter";
    let longer = "; `rope_scale` 4 (the same as `rope_freq_scale` 0.25) makes it longer";
    let ways = "`rope_scaling` yarn `rope_scale` 8, `rope_freq_scale` 0.125 or `rope_freq_base` 85551 \
                reach this length";
    for scaling in [None, Some("yarn"), Some("llama3")] {
        assert_eq!(
            warnings(case(65536, inverted(scaling))),
            [
                shorter.to_string(),
                format!(
                    "context 65536 is beyond the 8192 tokens that the model was trained for, which the \
                     settings shorten to 2048: text beyond that length will be poor; {ways}"
                ),
            ]
        );
        assert_eq!(
            warnings(case(4096, inverted(scaling))),
            [
                format!("{shorter}{longer}"),
                "context 4096 is within the 8192 tokens that the model was trained for, which the \
                 settings shorten to 2048: text beyond that length will be poor; the settings of the \
                 file reach this length without these flags"
                    .to_string(),
            ]
        );
    }
    // With a target below twice the trained length, s is below 1 and alpha too small beyond the target.
    let fu2 = Flags::method("dynamic").with(&dynamic::VARIANT, "fu2");
    let dynamic = fu2.with(&dynamic::TARGET, 12288);
    assert_eq!(warnings(case(8192, dynamic.clone())), [""; 0]);
    assert!(warning(case(16384, dynamic)).contains("and no setting extends it"));
    // The proposed values work as printed: they are not rounded down, and no other flag conflicts.
    for context in [8300, 9999, 24_577, 57_344, 1_000_003] {
        let dims = Flags::method("dprope").with(&dprope::DIMS, 8).with(&SCALE, 1.001);
        let text = warning(case(context, dims));
        let (_, advice) = text.rsplit_once("; ").unwrap();
        let (yarn, rest) = advice.split_once(", ").unwrap();
        let (linear, rest) = rest.split_once(" or ").unwrap();
        let base = rest.strip_suffix(" reach this length").unwrap();
        let value = |text: &str| text.rsplit_once(' ').unwrap().1.parse::<f64>().ok();
        for flags in [
            Flags::method("yarn").with_some(&SCALE, value(yarn)),
            Flags::default().with_some(&FREQ_SCALE, value(linear)),
            Flags::default().with_some(&FREQ_BASE, value(base)),
        ] {
            // The last one is 122 times the trained length, which has not been measured.
            let mut left = warnings(case(context, flags));
            left.retain(|text| context < 65536 || !text.contains("no measurement"));
            assert_eq!(left, [""; 0], "{advice}");
        }
    }
    // A factor of the file is in effect together with a base.
    let file = Case { context: Some(65536), ..Case::default() }.float("scaling.factor", 4.0);
    assert_eq!(
        warning(file),
        "context 65536 is beyond the 8192 tokens that the model was trained for, which the settings \
         extend to 32768: text beyond that length will be poor; `rope_scaling` yarn `rope_scale` 8, \
         `rope_freq_scale` 0.125 or `rope_freq_base` 20453 reach this length"
    );
    // With LongRoPE divisors, YaRN extends the trained context.
    let set = || Some(vec![2.0; 32]);
    let factors = Factors { long: set(), short: set(), rope_freqs: None };
    let longrope = || {
        Case { factors: factors.clone(), context: Some(16384), ..Case::default() }
            .scaling("longrope")
            .key("scaling.original_context_length", Value::U32(1024))
    };
    let text = warning(longrope());
    assert!(text.contains("; `rope_scaling` yarn, `rope_freq_scale` 0.5 or "), "{text}");
    assert_eq!(warnings(longrope().flags(Flags::method("yarn"))), [""; 0]);
    // A factor that extends the context as the divisors do is probably a mistake.
    assert_eq!(
        warnings(longrope().flags(Flags::default().with(&SCALE, 4.0))),
        ["the factor 4 (`rope_scale` 4) applies in addition to LongRoPE's divisors"]
    );
}

#[test]
fn settings_that_do_nothing_are_warned_about() {
    for name in ["linear", "ntk", "ntk-mixed", "yarn", "llama3", "dprope"] {
        let flags = || Flags::method(name);
        assert_eq!(
            warning(Case::default().flags(flags())),
            format!(
                "{name} changes nothing, as 8192 tokens need no factor: set a larger `context`, or a factor \
                 with `rope_scale`"
            )
        );
        assert_eq!(
            warning(Case::default().flags(flags().with(&SCALE, 1.0))),
            format!("{name} with a factor of 1 changes nothing: set another with `rope_scale`")
        );
    }
    assert_eq!(
        warning(Case::default().scaling("yarn")),
        "yarn with a factor of 1 changes nothing: set another with `rope_scale`"
    );
    assert_eq!(warnings(Case::default().scaling("linear")), [""; 0]);
    let swapped = Flags::method("yarn")
        .with(&SCALE, 2.0)
        .with(&yarn::BETA_FAST, 1.0)
        .with(&yarn::BETA_SLOW, 32.0);
    assert_eq!(
        warning(Case::default().flags(swapped)),
        "`yarn_beta_fast` 1 is below `yarn_beta_slow` 32: they are probably swapped"
    );
}

#[test]
fn keys_and_tensors_that_are_not_read_are_warned_about() {
    let silent = Case::default()
        .float("scaling.alpha", 0.0)
        .float("scaling.yarn_ext_factor", 1.0)
        .float("scaling.yarn_beta_fast", 32.0)
        .float("scaling.yarn_beta_slow", 1.0)
        .float("scaling.yarn_attn_factor", 1.0)
        .float("scaling.yarn_log_multiplier", 0.0);
    assert_eq!(warnings(silent), [""; 0]);
    assert_eq!(
        warning(Case::default().float("scaling.yarn_beta_fast", 16.0)),
        "llama.rope.scaling.yarn_beta_fast = 16 is ignored, as in llama.cpp for llama models"
    );
    let all = Case::default()
        .float("scaling.alpha", 2.0)
        .float("scaling.yarn_ext_factor", 0.5)
        .float("scaling.yarn_attn_factor", 0.5)
        .float("scaling.yarn_beta_slow", 2.0)
        .float("scaling.yarn_log_multiplier", 1.0);
    assert_eq!(warnings(all).len(), 5);
    let factors = || Factors { rope_freqs: Some(vec![2.0; 32]), ..Factors::default() };
    assert_eq!(
        warning(Case { architecture: "gemma3", factors: factors(), ..Case::default() }),
        "tensor rope_freqs.weight is ignored: gemma3 models do not use it"
    );
}

#[test]
fn methods_that_change_nothing_are_warned_about() {
    let window = Flags::method("rerope").with(&rerope::WINDOW, 8192);
    assert_eq!(
        warning(Case::default().flags(window)),
        "rerope in a context of 8192, which is within its window, changes nothing"
    );
    assert_eq!(
        warning(Case::default().flags(Flags::method("self-extend"))),
        "self-extend with groups of 1 (reaches the context) changes nothing"
    );
}

#[test]
fn a_factor_of_dynamic_ntk_beyond_the_context_is_warned_about() {
    let case = |s: f64| {
        let flags = Flags::method("dynamic").with(&SCALE, s).with(&dynamic::STEP, 1);
        Case { context: Some(16384), ..Case::default() }.flags(flags)
    };
    assert!(warnings(case(2.0)).is_empty());
    assert_eq!(
        warning(case(4.0)),
        "`rope_scale` 4 is more than the 2 times by which the context exceeds the trained one: as in \
         Hugging Face, alpha grows to 5, where 2 is enough"
    );
}

#[test]
fn a_name_that_says_drope_is_warned_about() {
    let case = |rotates| {
        let mut case = Case { rotates, ..Case::default() };
        case.metadata.insert("general.name", Value::String(b"Llama 2 7b Hf DroPE"));
        case
    };
    assert_eq!(
        warning(case(true)),
        "the file is named \"Llama 2 7b Hf DroPE\" (general.name), and DroPE models are trained to attend \
         without rotation, but its layers rotate: text will be poor unless the name is wrong"
    );
    assert_eq!(warnings(case(false)), [""; 0]);
}
