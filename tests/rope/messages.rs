//! The RoPE line, the warnings and the errors.

use rope_cpu::{
    gguf::Value,
    rope::{
        ATTENTION_SINKS, FREQ_BASE, FREQ_SCALE, Factors, Flags, LOG_N, POLICY, SCALE, SCALING,
        Scaling, dprope, dynamic, llama3, lm_infinite, ntk_mixed, rerope, self_extend, yarn,
    },
};

use crate::Case;

fn scaling(scaling: &'static str) -> Flags {
    Flags::method(scaling)
}

fn line(case: Case) -> String {
    case.plan().unwrap().to_string()
}

#[test]
fn the_line_has_all_values_with_their_origins() {
    let case = || Case { context: Some(16384), ..Case::default() }.float("freq_base", 10000.0);
    assert_eq!(
        line(case().flags(Flags::default().with(&FREQ_SCALE, 0.5))),
        "RoPE: linear, factor 2 (`rope_freq_scale` 0.5), base 10000 (llama.rope.freq_base), \
         trained context 8192 (llama.context_length), context 16384 (--ctx)"
    );
    assert_eq!(
        line(Case::default()),
        "RoPE: no scaling, base 10000 (default), trained context 8192 (llama.context_length), \
         context 8192 (default)"
    );
    assert_eq!(
        line(case().flags(Flags::default().with(&FREQ_BASE, 80000.0))),
        "RoPE: NTK by base, base 80000 (`rope_freq_base` 80000) for 10000 \
         (llama.rope.freq_base): alpha 7.49667, trained context 8192 (llama.context_length), \
         context 16384 (--ctx)"
    );
    let yarn = scaling("yarn").with(&SCALE, 4.0).with(&yarn::ATTN_FACTOR, 0.5);
    assert_eq!(
        line(case().flags(yarn)),
        "RoPE: yarn (`rope_scaling` yarn), factor 4 (`rope_scale` 4), original context 8192 \
         (llama.context_length), ext factor 1 (default), beta fast 32 (default), beta slow 1 \
         (default), attention scale 0.569315 (`yarn_attn_factor` 0.5 x (1 + 0.1 ln factor)), \
         base 10000 (llama.rope.freq_base), trained context 8192 (llama.context_length), \
         context 16384 (--ctx)"
    );
    let gemma = Case { architecture: "gemma3", window_rope: true, ..Case::default() };
    assert_eq!(
        line(gemma.float("freq_base", 1e6).scaling("linear").float("scaling.factor", 8.0)),
        "RoPE: linear (gemma3.rope.scaling.type), factor 8 (gemma3.rope.scaling.factor), \
         base 1000000 (gemma3.rope.freq_base), window layers base 10000 (default), trained \
         context 8192 (gemma3.context_length), context 8192 (default)"
    );
}

#[test]
fn log_n_begins_at_the_length_of_the_flag() {
    let flags = Flags::default().with(&LOG_N, true).with(&yarn::ORIG_CTX, 4096);
    let plan = Case::default().flags(flags.clone()).plan().unwrap();
    assert!(plan.to_string().contains("queries scaled by log n from 4096"), "{plan}");
    assert_eq!(plan.warnings, [""; 0]);
    let auto = Case::default().flags(flags.with(&SCALING, "auto")).plan();
    assert!(auto.unwrap_err().to_string().contains("`yarn_orig_ctx`"));
}

#[test]
fn parameters_are_in_the_line() {
    let starts = |flags: Flags, start: &str| {
        let case = Case { context: Some(32768), ..Case::default() };
        let line = line(case.flags(flags.with(&SCALE, 4.0)));
        assert!(line.starts_with(start), "{line}");
    };
    starts(
        scaling("ntk").with(&yarn::ORIG_CTX, 4096),
        "RoPE: ntk (`rope_scaling` ntk), factor 4 (`rope_scale` 4), base 10000 (default), trained",
    );
    starts(
        scaling("ntk-mixed").with(&ntk_mixed::EXPONENT, 0.5),
        "RoPE: ntk-mixed (`rope_scaling` ntk-mixed), factor 4 (`rope_scale` 4), exponent 0.5 \
         (`ntk_mixed_exponent` 0.5), base",
    );
    starts(
        scaling("llama3").with(&llama3::HIGH_FREQ_FACTOR, 5.0),
        "RoPE: llama3 (`rope_scaling` llama3), factor 4 (`rope_scale` 4), original context 8192 \
         (llama.context_length), low freq factor 1 (default), high freq factor 5 \
         (`llama3_high_freq_factor` 5), base",
    );
    starts(
        scaling("dprope").with(&dprope::DIMS, 40),
        "RoPE: dprope (`rope_scaling` dprope), factor 4 (`rope_scale` 4), 40 of 64 dimensions \
         interpolated, original context 8192 (llama.context_length), dimensions 40 (`dprope_dims` \
         40), intervals 360 (default), direction code (default), base",
    );
    starts(
        scaling("dynamic").with(&dynamic::VARIANT, "fu2").with(&dynamic::STEP, 512),
        "RoPE: dynamic (`rope_scaling` dynamic), factor 4 (`rope_scale` 4), alpha by length from \
         8192 (llama.context_length), variant fu2 (`dynamic_variant` fu2), target 32768 (--ctx), \
         step 512 (`rope_step` 512), policy position (default), base",
    );
    let case = Case::default().flags(scaling("dynamic-yarn"));
    let found = line(case);
    let start = "RoPE: dynamic-yarn (`rope_scaling` dynamic-yarn), factor by length, step 256 \
                 (default), original context 8192 (llama.context_length), ext factor 1 (default), \
                 beta fast 32 (default), beta slow 1 (default), attention scale by factor (1 + 0.1 \
                 ln factor), policy position (default), base";
    assert!(found.starts_with(start), "{found}");
    let yarn = scaling("yarn")
        .with(&yarn::RAMP, "exact")
        .with(&yarn::MSCALE, 1.0)
        .with(&yarn::MSCALE_ALL_DIM, 0.5);
    starts(
        yarn,
        "RoPE: yarn (`rope_scaling` yarn), factor 4 (`rope_scale` 4), original context 8192 \
         (llama.context_length), ext factor 1 (default), beta fast 32 (default), beta slow 1 \
         (default), ramp exact (`yarn_ramp` exact), attention scale 1.06482 (`yarn_mscale` 1, \
         `yarn_mscale_all_dim` 0.5), base",
    );
}

#[test]
fn divisors_are_in_the_line() {
    let factors = Factors { rope_freqs: Some(vec![2.0; 32]), ..Factors::default() };
    let llama3 = line(Case { factors, ..Case::default() });
    assert!(llama3.starts_with("RoPE: no scaling, frequencies divided (rope_freqs.weight), base"));
    let set = || Some(vec![2.0; 32]);
    let factors = Factors { long: set(), short: set(), rope_freqs: None };
    let longrope = Case { factors, context_train: 131_072, ..Case::default() }
        .scaling("longrope")
        .key("scaling.original_context_length", Value::U32(4096));
    assert!(line(longrope).starts_with(
        "RoPE: longrope (llama.rope.scaling.type), frequencies divided \
             (rope_factors_short.weight up to 4096 tokens, rope_factors_long.weight beyond), \
             policy run (default), attention scale 1.19024 (by LongRoPE from trained and original context), base"
    ),);
}

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
    let yarn = scaling("yarn").with(&SCALE, 2.0);
    assert_eq!(warnings(case(16384, yarn)), [""; 0]);
    let base = Flags::default().with(&FREQ_BASE, 20453.0);
    assert_eq!(warnings(case(16384, base)), [""; 0]);
    // A model whose file reaches its trained length needs no other setting.
    let qwen = Case { context_train: 131_072, ..Case::default() }
        .scaling("yarn")
        .float("scaling.factor", 4.0)
        .key("scaling.original_context_length", Value::U32(32768));
    assert_eq!(warnings(qwen), [""; 0]);
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
    // The factor of dynamic NTK does not extend the context, but with one below 1 alpha is too small.
    let dynamic = scaling("dynamic").with(&SCALE, 0.5);
    assert_eq!(warnings(case(8192, dynamic.clone())), [""; 0]);
    assert!(warning(case(16384, dynamic)).contains("and no setting extends it"));
    // The proposed values work as printed: they are not rounded down, and no other flag conflicts.
    for context in [8300, 9999, 24_577, 57_344, 1_000_003] {
        let dims = scaling("dprope").with(&dprope::DIMS, 8).with(&SCALE, 1.001);
        let text = warning(case(context, dims));
        let (_, advice) = text.rsplit_once("; ").unwrap();
        let (yarn, rest) = advice.split_once(", ").unwrap();
        let (linear, rest) = rest.split_once(" or ").unwrap();
        let base = rest.strip_suffix(" reach this length").unwrap();
        let value = |text: &str| text.rsplit_once(' ').unwrap().1.parse::<f64>().ok();
        for flags in [
            scaling("yarn").with_some(&SCALE, value(yarn)),
            Flags::default().with_some(&FREQ_SCALE, value(linear)),
            Flags::default().with_some(&FREQ_BASE, value(base)),
        ] {
            assert_eq!(warnings(case(context, flags)), [""; 0], "{advice}");
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
    assert_eq!(warnings(longrope().flags(scaling("yarn"))), [""; 0]);
}

#[test]
fn settings_that_do_nothing_are_warned_about() {
    for name in ["linear", "ntk", "ntk-mixed", "yarn", "llama3", "dprope"] {
        let flags = || scaling(name);
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
    let swapped =
        scaling("yarn").with(&SCALE, 2.0).with(&yarn::BETA_FAST, 1.0).with(&yarn::BETA_SLOW, 32.0);
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
        "tensor rope_freqs.weight is ignored, as in llama.cpp: gemma3 models do not use it"
    );
}

#[test]
fn contradictions_are_errors() {
    let error = |flags: Flags| Case::default().flags(flags).error();
    assert_eq!(
        error(scaling("none").with(&SCALE, 4.0)),
        "`rope_scale` 4 contradicts `rope_scaling` none: remove one of them"
    );
    let none = Case::default().scaling("none");
    assert_eq!(
        none.flags(Flags::default().with(&SCALE, 4.0)).error(),
        "`rope_scale` 4 needs `rope_scaling` linear or yarn: the scaling in the file is none \
         (llama.rope.scaling.type)"
    );
    assert_eq!(
        error(Flags::default().with(&SCALE, 4.0).with(&FREQ_SCALE, 0.25)),
        "`rope_scale` 4 and `rope_freq_scale` 0.25 both set the factor: remove one of them"
    );
    assert_eq!(
        error(scaling("longrope")),
        "RoPE scaling longrope needs the tensor rope_factors_short.weight, which is not in the file: \
         choose another with `rope_scaling`"
    );
    for flags in [Flags::default(), scaling("linear")] {
        assert_eq!(
            error(flags.clone().with(&yarn::BETA_FAST, 16.0)),
            "`yarn_beta_fast` has no effect with RoPE scaling none: add `rope_scaling` yarn, or remove \
             it"
        );
        assert_eq!(
            error(flags.with(&POLICY, "run")),
            "`rope_policy` has no effect with RoPE scaling none, which does not depend on the length of \
             the sequence: remove it"
        );
    }
    assert_eq!(
        error(Flags::default().with(&SCALE, 4.0).with(&yarn::BETA_FAST, 16.0)),
        "`yarn_beta_fast` has no effect with RoPE scaling linear: add `rope_scaling` yarn, or \
         remove it"
    );
}

#[test]
fn yarn_flags_without_effect_are_errors() {
    let idle = [
        Flags::default().with(&yarn::EXT_FACTOR, 0.0),
        Flags::default().with(&yarn::ORIG_CTX, 4096),
        Flags::default().with(&yarn::BETA_FAST, 16.0),
        Flags::default().with(&yarn::BETA_SLOW, 2.0),
        scaling("none").with(&yarn::EXT_FACTOR, 1.0), // the factor is 1
    ];
    for flags in idle {
        let text = Case::default().flags(flags.clone()).error();
        assert!(text.contains("has no effect"), "{flags:?}: {text}");
        let yarn = flags.with(&SCALING, "yarn").with(&SCALE, 2.0);
        Case::default().flags(yarn).plan().unwrap();
    }
}

#[test]
fn flags_of_another_method_are_errors() {
    let two = |scaling| Flags::method(scaling).with(&SCALE, 2.0);
    let cases = [
        (two("yarn").with(&dprope::DIMS, 8), "`dprope_dims`", "yarn", "dprope"),
        (two("ntk").with(&yarn::MSCALE, 1.0), "`yarn_mscale`", "ntk", "yarn"),
        (two("ntk").with(&ntk_mixed::EXPONENT, 1.0), "`ntk_mixed_exponent`", "ntk", "ntk-mixed"),
        (
            two("dprope").with(&llama3::LOW_FREQ_FACTOR, 1.0),
            "`llama3_low_freq_factor`",
            "dprope",
            "llama3",
        ),
    ];
    for (flags, flag, scaling, needs) in cases {
        let expected = format!(
            "{flag} has no effect with RoPE scaling {scaling}: add `rope_scaling` {needs}, or remove \
             it"
        );
        assert_eq!(Case::default().flags(flags).error(), expected);
    }
}

#[test]
fn parameters_out_of_range_are_errors() {
    let error = |flags: Flags| Case::default().flags(flags.with(&SCALE, 2.0)).error();
    let dprope = || scaling("dprope");
    let llama3 = || scaling("llama3");
    let yarn = || scaling("yarn");
    assert_eq!(
        error(dprope().with(&dprope::DIMS, 66)),
        "`dprope_dims` 66: must be a whole number from 0 to 64"
    );
    assert_eq!(
        error(dprope().with(&dprope::DIMS, 7)),
        "`dprope_dims` 7: must be an even number, as dimensions rotate in pairs"
    );
    assert_eq!(
        error(dprope().with(&dprope::DIMS, 8).with(&dprope::THRESHOLD, 0.5)),
        "`dprope_threshold` 0.5 and `dprope_dims` 8 both set the dimensions that DPRoPE \
         interpolates: remove one of them"
    );
    assert_eq!(
        error(dprope().with(&dprope::INTERVALS, 1)),
        "`dprope_intervals` 1: must be a whole number from 2 to 65536"
    );
    assert_eq!(
        error(dprope().with(&dprope::THRESHOLD, f64::NAN)),
        "`dprope_threshold` NaN: must be a number from -1000 to 1000"
    );
    assert_eq!(
        error(dprope().with(&yarn::ORIG_CTX, 3_000_000)),
        "RoPE scaling dprope: the original context 3000000 (`yarn_orig_ctx` 3000000) times the \
         factor 2 (`rope_scale` 2) must be from 1 to 4194304 positions"
    );
    assert_eq!(
        error(llama3().with(&llama3::HIGH_FREQ_FACTOR, 1.0)),
        "`llama3_high_freq_factor` 1: must be above `llama3_low_freq_factor`, which is 1"
    );
    assert_eq!(
        error(llama3().with(&llama3::LOW_FREQ_FACTOR, 0.0)),
        "`llama3_low_freq_factor` 0: must be a number from 0.000001 to 1000000"
    );
    let mixed = scaling("ntk-mixed").with(&ntk_mixed::EXPONENT, -1.0);
    assert_eq!(error(mixed), "`ntk_mixed_exponent` -1: must be a number from 0 to 16");
    assert_eq!(
        error(yarn().with(&yarn::MSCALE, 1.0)),
        "`yarn_mscale` needs `yarn_mscale_all_dim`: Hugging Face applies them only together"
    );
    let twice = yarn().with(&yarn::ATTENTION_FACTOR, 1.5).with(&yarn::ATTN_FACTOR, 2.0);
    assert_eq!(
        error(twice),
        "`yarn_attention_factor` 1.5 and `yarn_attn_factor` 2 both set the attention scale: remove \
         one of them"
    );
    let dynamic = || scaling("dynamic");
    assert_eq!(
        error(dynamic().with(&dynamic::TARGET, 16384)),
        "`dynamic_target` needs `dynamic_variant` fu2"
    );
    assert_eq!(
        error(dynamic().with(&dynamic::TARGET, 100).with(&dynamic::VARIANT, "fu2")),
        "`dynamic_target` 100: must be a whole number from 8192 to 1073741824"
    );
    assert_eq!(
        error(dynamic().with(&dynamic::STEP, 0)),
        "`rope_step` 0: must be a whole number from 1 to 1073741824"
    );
    assert_eq!(
        error(scaling("dynamic-yarn")),
        "`rope_scale` 2 has no effect with RoPE scaling dynamic-yarn, whose factor is the length of \
         the sequence divided by the original context: remove it"
    );
    let two = Case { n_rot: 2, ..Case::default() };
    assert_eq!(
        two.flags(scaling("ntk")).error(),
        "RoPE scaling ntk needs at least 4 rotated dimensions: the model has 2"
    );
    let set = || Some(vec![2.0; 32]);
    let factors = Factors { long: set(), short: set(), rope_freqs: None };
    let longrope = Case { factors, ..Case::default() }.scaling("longrope");
    assert_eq!(
        longrope.flags(dprope()).error(),
        "RoPE scaling dprope cannot be combined with the LongRoPE divisors in the file: choose \
         longrope, none, linear or yarn"
    );
    assert_eq!(
        error(yarn().with(&yarn::RAMP, "step")),
        "`yarn_ramp` step: must be one of whole, exact, turns"
    );
}

#[test]
fn parameters_of_methods_that_act_on_attention_are_checked() {
    let error = |flags: Flags| Case::default().flags(flags).error();
    let window = scaling("rerope").with(&rerope::WINDOW, 0);
    assert_eq!(error(window), "`rerope_window` 0: must be a whole number from 1 to 8192");
    let window = scaling("leaky-rerope").with(&rerope::WINDOW, 8193);
    assert_eq!(error(window), "`rerope_window` 8193: must be a whole number from 1 to 8192");
    let sinks = |sinks| Flags::default().with(&ATTENTION_SINKS, sinks);
    assert_eq!(error(sinks(8192)), "`attention_sinks` 8192: must be a whole number from 1 to 8191");
    let short = Case { context: Some(1), ..Case::default() };
    assert_eq!(
        short.flags(sinks(1)).error(),
        "`attention_sinks` 1: a context of 1 (--ctx) cannot hold an attention sink and another \
         token: set `context` to 2 or more"
    );
    let k = scaling("leaky-rerope").with(&rerope::K, 0);
    assert_eq!(error(k), "`rerope_k` 0: must be a whole number from 1 to 1048576");
    let groups =
        |n, w| scaling("self-extend").with(&self_extend::GROUP, n).with(&self_extend::WINDOW, w);
    assert_eq!(error(groups(0, 512)), "`grp_attn_n` 0: must be a whole number from 1 to 8192");
    assert_eq!(error(groups(4, 8196)), "`grp_attn_w` 8196: must be a whole number from 1 to 8192");
    assert_eq!(
        error(groups(4, 6)),
        "`grp_attn_w` 6: must be a multiple of the group size, which is 4 (`grp_attn_n` 4)"
    );
    let global = scaling("lm-infinite").with(&lm_infinite::GLOBAL, 9000);
    assert_eq!(error(global), "`lm_infinite_global` 9000: must be a whole number from 1 to 8192");
    let local = scaling("lm-infinite").with(&lm_infinite::LOCAL, 0);
    assert_eq!(error(local), "`lm_infinite_local` 0: must be a whole number from 1 to 8192");
    assert_eq!(
        error(Flags { context_shift: true, ..Flags::default().with(&ATTENTION_SINKS, 4) }),
        "`attention_sinks` 4 and `context_shift` both set the tokens that a full context \
         drops: remove one of them"
    );
    let sinks = |sinks| Flags::default().with(&ATTENTION_SINKS, sinks);
    for bad in [0, 8192] {
        let expected = format!("`attention_sinks` {bad}: must be a whole number from 1 to 8191");
        assert_eq!(error(sinks(bad)), expected);
    }
    assert_eq!(
        error(sinks(4).with(&SCALING, "rerope")),
        "`attention_sinks` 4 and `rope_scaling` rerope both set the distances in attention: \
         remove one of them"
    );
    assert_eq!(
        error(scaling("rerope").with(&rerope::K, 4)),
        "`rerope_k` has no effect with RoPE scaling rerope: add `rope_scaling` leaky-rerope, or \
         remove it"
    );
    assert_eq!(
        error(scaling("ntk").with(&POLICY, "position")),
        "`rope_policy` has no effect with RoPE scaling ntk, which does not depend on the length of \
         the sequence: remove it"
    );
    assert_eq!(
        Case::default().scaling("rerope").error(),
        "llama.rope.scaling.type: unknown RoPE scaling \"rerope\": choose one with `rope_scaling`"
    );
}

#[test]
fn methods_that_act_on_attention_are_in_the_line() {
    let starts = |flags: Flags, start: &str| {
        let case = Case { context: Some(32768), ..Case::default() };
        let line = line(case.flags(flags));
        assert!(line.starts_with(start), "{line}");
    };
    starts(
        scaling("rerope").with(&rerope::WINDOW, 512),
        "RoPE: rerope (`rope_scaling` rerope), window 512 (`rerope_window` 512), queries scaled by \
         log n from 8192 (llama.context_length), base",
    );
    starts(
        scaling("leaky-rerope").with(&SCALE, 2.0).with(&LOG_N, false),
        "RoPE: leaky-rerope (`rope_scaling` leaky-rerope), window 4096 (half the trained context), \
         k 7 (reaches the context), factor 2 (`rope_scale` 2), base",
    );
    starts(
        scaling("self-extend").with(&LOG_N, true),
        "RoPE: self-extend (`rope_scaling` self-extend), groups of 8 (reaches the context), \
         window 2048 (a quarter of the trained context), queries scaled by log n from 8192 \
         (`rope_log_n` on), base",
    );
    starts(
        scaling("lm-infinite"),
        "RoPE: lm-infinite (`rope_scaling` lm-infinite), first tokens 10 (default), last tokens 8192 \
         (llama.context_length), base",
    );
    starts(
        Flags::default().with(&ATTENTION_SINKS, 4),
        "RoPE: no scaling, attention sinks 4 (`attention_sinks` 4) in a rolling context, base",
    );
    starts(
        scaling("leaky-rerope").with(&rerope::WINDOW, 8192),
        "RoPE: leaky-rerope (`rope_scaling` leaky-rerope), window 8192 (`rerope_window` 8192), k 24576 \
         (no value reaches the context with this window), queries",
    );
    starts(
        scaling("self-extend").with(&self_extend::GROUP, 4096),
        "RoPE: self-extend (`rope_scaling` self-extend), groups of 4096 (`grp_attn_n` 4096), window \
         4096 (one group), base",
    );
    // A scaling of the file stays in effect with these methods.
    let yarn = Case { context: Some(16384), ..Case::default() }
        .scaling("yarn")
        .float("scaling.factor", 2.0)
        .key("scaling.original_context_length", Value::U32(4096));
    let found = line(yarn.flags(scaling("lm-infinite")));
    let expected = "RoPE: lm-infinite (`rope_scaling` lm-infinite), first tokens 10 (default), last \
                    tokens 8192 (llama.context_length), factor 2 (llama.rope.scaling.factor), \
                    original context 4096";
    assert!(found.starts_with(expected), "{found}");
}

/// For a scaling that llama.cpp does not have, the reason is that of the scaling, also with attention
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
        let flags = scaling(name).with(&ATTENTION_SINKS, 4);
        let found = Case::default().flags(flags.clone()).plan().unwrap().unlike_llama_cpp(&flags);
        assert_eq!(found[0], format!("it has no `rope_scaling` {name}: {reason}"));
        assert!(found[1].starts_with("it has no `attention_sinks`: "), "{found:?}");
    }
    let flags = scaling("lm-infinite");
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
        assert!(differences(16384, scaling(name)).contains(factor));
        let typed = scaling(name).with(&SCALE, 2.0);
        assert!(!differences(16384, typed).contains("it does not compute a factor"));
    }
    assert!(
        differences(16384, scaling("ntk"))
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

#[test]
fn methods_that_change_nothing_are_warned_about() {
    let window = scaling("rerope").with(&rerope::WINDOW, 8192);
    assert_eq!(
        warning(Case::default().flags(window)),
        "rerope in a context of 8192, which is within its window, changes nothing"
    );
    assert_eq!(
        warning(Case::default().flags(scaling("self-extend"))),
        "self-extend with groups of 1 (reaches the context) changes nothing"
    );
}

#[test]
fn values_out_of_range_are_errors_that_name_the_flag() {
    for bad in [0.0, -1.5, f64::NAN, f64::INFINITY, 1e-300, 1e300] {
        let yarn = scaling("yarn");
        let cases = [
            ("`rope_scale`", Flags::default().with(&SCALE, bad)),
            ("`rope_freq_scale`", Flags::default().with(&FREQ_SCALE, bad)),
            ("`yarn_attn_factor`", yarn.clone().with(&yarn::ATTN_FACTOR, bad)),
            ("`yarn_beta_fast`", yarn.clone().with(&yarn::BETA_FAST, bad)),
            ("`yarn_beta_slow`", yarn.with(&yarn::BETA_SLOW, bad)),
        ];
        for (flag, flags) in cases {
            let expected = format!("{flag} {bad}: must be a number from 0.000001 to 1000000");
            assert_eq!(Case::default().flags(flags).error(), expected);
        }
    }
    let error = |flags: Flags| Case::default().flags(flags).error();
    assert_eq!(
        error(Flags::default().with(&FREQ_BASE, 0.5)),
        "`rope_freq_base` 0.5: must be a finite number above 1"
    );
    assert_eq!(
        error(scaling("yarn").with(&yarn::EXT_FACTOR, -0.5)),
        "`yarn_ext_factor` -0.5: must be a number from 0 to 1000000"
    );
}

#[test]
fn faults_of_a_file_are_errors_that_name_the_key_or_tensor() {
    assert_eq!(
        Case { n_rot: 63, ..Case::default() }.error(),
        "llama.rope.dimension_count (by default the head size) is 63: must be an even number from 2 \
         on, as dimensions rotate in pairs"
    );
    assert_eq!(
        Case::default().scaling("su").error(),
        "llama.rope.scaling.type: unknown RoPE scaling \"su\": choose one with `rope_scaling`"
    );
    // A flag replaces a scaling of the file that is unknown.
    Case::default().scaling("su").flags(scaling("linear")).plan().unwrap();
    assert_eq!(
        Scaling::named("su").unwrap_err().to_string(),
        "unknown RoPE scaling \"su\": must be one of none, linear, ntk, ntk-mixed, dynamic, yarn, \
         dynamic-yarn, llama3, longrope, dprope, clex, rerope, leaky-rerope, self-extend, lm-infinite"
    );
    assert_eq!(
        Case::default().float("scaling.factor", -2.0).error(),
        "llama.rope.scaling.factor = -2: must be a number from 0.000001 to 1000000"
    );
    assert_eq!(
        Case::default().float("freq_base", 1.0).error(),
        "llama.rope.freq_base = 1: must be a finite number above 1"
    );
    let mistyped = Case::default().key("freq_base", Value::U32(10000)).error();
    assert!(mistyped.starts_with("metadata key llama.rope.freq_base is u32"), "{mistyped}");
    let freqs = |rope_freqs: Vec<f32>| Case {
        factors: Factors { rope_freqs: Some(rope_freqs), ..Factors::default() },
        ..Case::default()
    };
    assert_eq!(
        freqs(vec![1.0; 31]).error(),
        "tensor rope_freqs.weight has 31 values: must have 32, one for each rotated pair"
    );
    let mut divisors = vec![1.0; 32];
    divisors[5] = 0.0;
    assert_eq!(
        freqs(divisors).error(),
        "tensor rope_freqs.weight: value 5 is 0: must be a positive normal number"
    );
    let factors = Factors { short: Some(vec![1.0; 32]), ..Factors::default() };
    assert_eq!(
        Case { factors, ..Case::default() }.scaling("longrope").error(),
        "RoPE scaling longrope needs the tensor rope_factors_long.weight, which is not in the file: \
         choose another with `rope_scaling`"
    );
}
