//! Errors in settings and files.

use rope_cpu::{
    gguf::Value,
    rope::{
        ATTENTION_SINKS, FREQ_BASE, FREQ_SCALE, Factors, Flags, POLICY, SCALE, SCALING, Scaling,
        dprope, dynamic, llama3, lm_infinite, ntk_mixed, rerope, self_extend, yarn,
    },
};

use crate::rope::Case;

#[test]
fn contradictions_are_errors() {
    let error = |flags: Flags| Case::default().flags(flags).error();
    assert_eq!(
        error(Flags::method("none").with(&SCALE, 4.0)),
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
        error(Flags::method("longrope")),
        "RoPE scaling longrope needs the tensor rope_factors_short.weight, which is not in the file: \
         choose another with `rope_scaling`"
    );
    for flags in [Flags::default(), Flags::method("linear")] {
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
        Flags::method("none").with(&yarn::EXT_FACTOR, 1.0), // the factor is 1
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
    let dprope = || Flags::method("dprope");
    let llama3 = || Flags::method("llama3");
    let yarn = || Flags::method("yarn");
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
        "RoPE scaling dprope: the original context 3000000 (`yarn_orig_ctx` 3000000), alone and times \
         the factor 2 (`rope_scale` 2), must be from 1 to 4194304 positions"
    );
    let shortened = dprope().with(&SCALE, 0.001).with(&yarn::ORIG_CTX, 1_000_000_000);
    assert!(error(shortened).contains("must be from 1 to 4194304 positions"));
    assert_eq!(
        error(dprope().with(&yarn::ORIG_CTX, (1 << 30) + 1)),
        "`yarn_orig_ctx` 1073741825: must be a whole number from 1 to 1073741824"
    );
    assert_eq!(
        error(llama3().with(&llama3::HIGH_FREQ_FACTOR, 1.0)),
        "`llama3_high_freq_factor` 1: must be above `llama3_low_freq_factor`, which is 1"
    );
    assert_eq!(
        error(llama3().with(&llama3::LOW_FREQ_FACTOR, 0.0)),
        "`llama3_low_freq_factor` 0: must be a number from 0.000001 to 1000000"
    );
    let mixed = Flags::method("ntk-mixed").with(&ntk_mixed::EXPONENT, -1.0);
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
    let dynamic = || Flags::method("dynamic");
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
    let extended = |s: f64| {
        let case = Case { context: Some(16384), ..Case::default() };
        case.flags(dynamic().with(&SCALE, s)).plan()
    };
    assert_eq!(extended(0.5).unwrap_err().to_string(), "`rope_scale` 0.5: must be at least 1");
    extended(1.0).unwrap();
    extended(2.0).unwrap();
    // Within the trained length s has no effect.
    Case::default().flags(dynamic().with(&SCALE, 2.0)).plan().unwrap();
    assert_eq!(
        Case::default().flags(dynamic().with(&SCALE, 0.5)).error(),
        "`rope_scale` 0.5: must be at least 1"
    );
    assert_eq!(
        error(Flags::method("dynamic-yarn")),
        "`rope_scale` 2 has no effect with RoPE scaling dynamic-yarn: its factor is the length of \
         the sequence divided by the original context; remove `rope_scale` 2"
    );
    let two = Case { n_rot: 2, ..Case::default() };
    assert_eq!(
        two.flags(Flags::method("ntk")).error(),
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
    let window = Flags::method("rerope").with(&rerope::WINDOW, 0);
    assert_eq!(error(window), "`rerope_window` 0: must be a whole number from 1 to 8192");
    let window = Flags::method("leaky-rerope").with(&rerope::WINDOW, 8193);
    assert_eq!(error(window), "`rerope_window` 8193: must be a whole number from 1 to 8192");
    let sinks = |sinks| Flags::default().with(&ATTENTION_SINKS, sinks);
    assert_eq!(error(sinks(8192)), "`attention_sinks` 8192: must be a whole number from 1 to 8191");
    let short = Case { context: Some(1), ..Case::default() };
    assert_eq!(
        short.flags(sinks(1)).error(),
        "`attention_sinks` 1: a context of 1 (--ctx) cannot hold an attention sink and another \
         token: set `context` to 2 or more"
    );
    let k = Flags::method("leaky-rerope").with(&rerope::K, 0);
    assert_eq!(error(k), "`rerope_k` 0: must be a whole number from 1 to 1048576");
    let groups = |n, w| {
        Flags::method("self-extend").with(&self_extend::GROUP, n).with(&self_extend::WINDOW, w)
    };
    assert_eq!(error(groups(0, 512)), "`grp_attn_n` 0: must be a whole number from 1 to 8192");
    assert_eq!(error(groups(4, 8196)), "`grp_attn_w` 8196: must be a whole number from 1 to 8192");
    assert_eq!(
        error(groups(4, 6)),
        "`grp_attn_w` 6: must be a multiple of the group size, which is 4 (`grp_attn_n` 4)"
    );
    let global = Flags::method("lm-infinite").with(&lm_infinite::GLOBAL, 9000);
    assert_eq!(error(global), "`lm_infinite_global` 9000: must be a whole number from 1 to 8192");
    let local = Flags::method("lm-infinite").with(&lm_infinite::LOCAL, 0);
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
        error(Flags::method("rerope").with(&rerope::K, 4)),
        "`rerope_k` has no effect with RoPE scaling rerope: add `rope_scaling` leaky-rerope, or \
         remove it"
    );
    assert_eq!(
        error(Flags::method("ntk").with(&POLICY, "position")),
        "`rope_policy` has no effect with RoPE scaling ntk, which does not depend on the length of \
         the sequence: remove it"
    );
    assert_eq!(
        Case::default().scaling("rerope").error(),
        "llama.rope.scaling.type: unknown RoPE scaling \"rerope\": choose one with `rope_scaling`"
    );
}

#[test]
fn values_out_of_range_are_errors_that_name_the_flag() {
    for bad in [0.0, -1.5, f64::NAN, f64::INFINITY, 1e-300, 1e300] {
        let yarn = Flags::method("yarn");
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
        error(Flags::method("yarn").with(&yarn::EXT_FACTOR, -0.5)),
        "`yarn_ext_factor` -0.5: must be a number from 0 to 1000000"
    );
}

#[test]
fn faults_of_a_file_are_errors_that_name_the_key_or_tensor() {
    assert_eq!(
        Case { n_rot: 63, ..Case::default() }.error(),
        "llama.rope.dimension_count (by default the head size) is 63: must be an even number of at \
         least 2, as dimensions rotate in pairs"
    );
    assert_eq!(
        Case { window_n_rot: Some(7), ..Case::default() }.error(),
        "llama.rope.dimension_count_swa (by default the head size) is 7: must be an even number of \
         at least 2, as dimensions rotate in pairs"
    );
    assert_eq!(
        Case::default().scaling("su").error(),
        "llama.rope.scaling.type: unknown RoPE scaling \"su\": choose one with `rope_scaling`"
    );
    // A flag replaces a scaling of the file that is unknown.
    Case::default().scaling("su").flags(Flags::method("linear")).plan().unwrap();
    assert_eq!(
        Scaling::named("su").unwrap_err().to_string(),
        "unknown RoPE scaling \"su\": must be one of none, linear, ntk, ntk-mixed, dynamic, dynamic-linear, yarn, \
         dynamic-yarn, llama3, longrope, dprope, clex, cope, rerope, leaky-rerope, self-extend, lm-infinite, string, dca"
    );
    let drope = "DroPE models are trained to attend without rotation, which is not supported in llama and \
                 qwen2 models";
    assert_eq!(
        Scaling::named("drope").unwrap_err().to_string(),
        format!(
            "RoPE scaling \"drope\" is trained into a model, and no setting applies it: {drope}"
        )
    );
    // Even if a setting names another method.
    let yarn = || Case::default().flags(Flags::method("yarn"));
    let in_file = |key, name| {
        format!("llama.{key} is \"{name}\": {drope}, so results by this key alone would be wrong")
    };
    assert_eq!(yarn().scaling("drope").error(), in_file("rope.scaling.type", "drope"));
    let mut case = yarn();
    case.metadata.insert("llama.attention_type", Value::String(b"k_norm_nope"));
    assert_eq!(case.error(), in_file("attention_type", "k_norm_nope"));
    let error = Case::default().scaling("rope-id").error();
    assert!(error.contains("RoPE-ID models are trained with fast rotations"), "{error}");
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

#[test]
fn a_text_names_a_method_with_its_settings() {
    let parse = |text: &str| text.parse::<Flags>().map_err(|error| error.to_string());
    let yarn = Flags::method("yarn").with(&SCALE, 4.0).with(&yarn::RAMP, "turns");
    for text in ["yarn:4:yarn-ramp=turns", "yarn:yarn_ramp=turns:rope-scale=4"] {
        assert_eq!(parse(text).unwrap(), yarn, "{text}");
    }
    for (text, error) in [
        ("su", "`rope_scaling` su: must be one of none, linear, ntk"),
        ("yarn:x", "`rope_scale` x: must be a number"),
        ("yarn:yarn-ramp=x", "`yarn_ramp` x: must be one of "),
        ("yarn:no-setting=1", "unknown RoPE setting \"no_setting\": must be one of rope_scaling, "),
        ("self-extend:grp-attn-n=-1", "must be a whole number "),
        ("linear:rope-log-n=maybe", "`rope_log_n` maybe: must be on or off"),
    ] {
        let found = parse(text).unwrap_err();
        assert!(found.contains(error), "{text}: {found}");
    }
}
