//! The differences from llama.cpp.

use rope_cpu::{
    gguf::Value,
    rope::{ATTENTION_SINKS, FREQ_BASE, Factors, Flags, SCALE, yarn},
};

use crate::rope::Case;

/// For a scaling that llama.cpp does not have, the reason is the scaling's, also with attention
/// sinks.
#[test]
fn scalings_that_llama_cpp_does_not_have_are_reported_with_a_reason() {
    for (name, reason) in [
        (
            "dprope",
            "for llama and phi3 models, a file made by rope-cpu rope bake gives it the same frequencies",
        ),
        ("dynamic", "it has no scaling that depends on the length of the sequence"),
    ] {
        let flags = Flags::method(name).with(&ATTENTION_SINKS, 4);
        let found = Case::default().flags(flags.clone()).plan().unwrap().unlike_llama_cpp(&flags);
        assert_eq!(found[0], format!("it has no `rope_scaling` {name}: {reason}"));
        assert!(found[1].starts_with("it has no `attention_sinks`: "), "{found:?}");
    }
    let flags = Flags::method("lm-infinite");
    let found = Case::default().flags(flags.clone()).plan().unwrap().unlike_llama_cpp(&flags);
    assert!(
        found[0].ends_with("lm-infinite: it rotates keys only once, when they are stored"),
        "{found:?}"
    );
}

/// The differences from llama.cpp contain the factor computed from the context and the numbers of the
/// model.
#[test]
fn differences_from_llama_cpp_depend_on_the_model() {
    let differences = |context, flags: Flags| {
        let case = Case { context: Some(context), ..Case::default() }.float("freq_base", 100_000.0);
        case.flags(flags.clone()).plan().unwrap().unlike_llama_cpp(&flags).join("\n")
    };
    let factor =
        "it does not compute a factor from the context: without `rope_scale` 2 it does not scale";
    for name in ["linear", "yarn"] {
        assert!(differences(16384, Flags::method(name)).contains(factor));
        let typed = Flags::method(name).with(&SCALE, 2.0);
        assert!(!differences(16384, typed).contains("it does not compute a factor"));
    }
    assert!(
        differences(16384, Flags::method("ntk"))
            .contains("`rope_freq_base` 204522 gives the same frequencies")
    );
    let errors = |context, base| {
        differences(context, Flags::default().with_some(&FREQ_BASE, base))
            .lines()
            .last()
            .unwrap()
            .to_owned()
    };
    let at = |position: usize, error: &str| {
        format!(
            "it computes angles by repeated multiplication in single precision: at position {position}, \
             cosines and sines are off by up to {error}, before the attention scale"
        )
    };
    assert_eq!(errors(1, None), at(0, "0e0"));
    let [near, far] = [1024, 131_072].map(|context| errors(context, None));
    let error = |text: &str, position| -> f64 {
        let (start, rest) = text.split_once(" are off by up to ").unwrap();
        assert!(start.contains(&format!("at position {position}, ")), "{text}");
        rest.strip_suffix(", before the attention scale").unwrap().parse().unwrap()
    };
    let (near, away) = (error(&near, 1023), error(&far, 131_071));
    assert!((1e-6..1e-3).contains(&near) && (1e-3..1e-1).contains(&away), "{near} {away}");
    assert_ne!(far, errors(131_072, Some(10_000.0)));
}

/// The differences of a rule, then the differences of the divisors in the file.
#[test]
fn rules_and_divisors_have_their_own_differences() {
    let differences = |case: Case, flags: Flags| {
        let mut all = case.flags(flags.clone()).plan().unwrap().unlike_llama_cpp(&flags);
        let angles = all.pop().unwrap();
        assert!(angles.starts_with("it computes angles by repeated multiplication"), "{angles}");
        all
    };
    let shift =
        "its context shift multiplies all cached keys by the attention scale again, each time";
    let ramp = |name| Flags::method(name).with(&yarn::RAMP, "exact");

    let gemma = Case { architecture: "gemma3", ..Case::default() }.float("scaling.factor", 8.0);
    assert_eq!(
        differences(gemma, ramp("yarn").with(&yarn::ATTN_FACTOR, 1.5)),
        [
            "it uses 8192 (gemma3.context_length) as YaRN's original context, which includes the factor of \
             the file",
            "it has no `yarn_ramp`",
            "it ignores `yarn_attn_factor` if YaRN's ramp is in effect",
            shift,
        ]
    );
    assert_eq!(
        differences(Case::default(), ramp("dynamic-yarn")),
        [
            "it has no `rope_scaling` dynamic-yarn: it has no scaling that depends on the length of the \
             sequence",
            "it has no `yarn_ramp`",
        ]
    );

    let set = |value| Some(vec![value; 32]);
    let factors = Factors { short: set(1.0), long: set(2.0), rope_freqs: None };
    let longrope = |context| {
        Case { factors: factors.clone(), context: Some(context), ..Case::default() }
            .scaling("longrope")
            .key("scaling.original_context_length", Value::U32(1024))
    };
    let scale = "it computes no attention scale for LongRoPE: without rope.scaling.attn_factor in the \
                 file, its scale is 1";
    assert_eq!(differences(longrope(1024), Flags::default()), [scale, shift]);
    assert_eq!(
        differences(longrope(16384), Flags::method("yarn")),
        [
            "it does not compute a factor from the context: without `rope_scale` 2 `yarn_orig_ctx` 8192 it \
             does not scale",
            "it selects the long divisors by its context of 16384 tokens, also for sequences of up to 1024",
            scale,
            shift,
        ]
    );
}
