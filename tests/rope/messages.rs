//! The RoPE line, the warnings and the errors.

use rope_cpu::{
    gguf::Value,
    rope::{Factors, Flags, Policy, Ramp, Scaling, Variant},
};

use crate::Case;

fn scaling(scaling: Scaling) -> Flags {
    Flags { scaling: Some(scaling), ..Flags::default() }
}

fn line(case: Case) -> String {
    case.plan().unwrap().to_string()
}

#[test]
fn the_line_has_all_values_with_their_origins() {
    let case = || Case { context: Some(16384), ..Case::default() }.float("freq_base", 10000.0);
    assert_eq!(
        line(case().flags(Flags { freq_scale: Some(0.5), ..Flags::default() })),
        "RoPE: linear, factor 2 (--rope-freq-scale 0.5), base 10000 (llama.rope.freq_base), \
         trained context 8192 (llama.context_length), context 16384 (--ctx)"
    );
    assert_eq!(
        line(Case::default()),
        "RoPE: no scaling, base 10000 (default), trained context 8192 (llama.context_length), \
         context 8192 (default)"
    );
    assert_eq!(
        line(case().flags(Flags { freq_base: Some(80000.0), ..Flags::default() })),
        "RoPE: NTK by base, base 80000 (--rope-freq-base 80000) for 10000 \
         (llama.rope.freq_base): alpha 7.49667, trained context 8192 (llama.context_length), \
         context 16384 (--ctx)"
    );
    let yarn = Flags { scale: Some(4.0), yarn_attn_factor: Some(0.5), ..scaling(Scaling::Yarn) };
    assert_eq!(
        line(case().flags(yarn)),
        "RoPE: yarn (--rope-scaling yarn), factor 4 (--rope-scale 4), original context 8192 \
         (llama.context_length), ext factor 1 (default), beta fast 32 (default), beta slow 1 \
         (default), attention scale 0.569315 (--yarn-attn-factor 0.5 x (1 + 0.1 ln factor)), \
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
    let flags = Flags { log_n: Some(true), yarn_orig_ctx: Some(4096), ..Flags::default() };
    let plan = Case::default().flags(flags.clone()).plan().unwrap();
    assert!(plan.to_string().contains("queries scaled by log n from 4096"), "{plan}");
    assert_eq!(plan.warnings, [""; 0]);
    let auto = Case::default().flags(Flags { auto: true, ..flags }).plan();
    assert!(auto.unwrap_err().to_string().contains("--yarn-orig-ctx"));
}

#[test]
fn parameters_are_in_the_line() {
    let starts = |flags: Flags, start: &str| {
        let case = Case { context: Some(32768), ..Case::default() };
        let line = line(case.flags(Flags { scale: Some(4.0), ..flags }));
        assert!(line.starts_with(start), "{line}");
    };
    starts(
        Flags { yarn_orig_ctx: Some(4096), ..scaling(Scaling::Ntk) },
        "RoPE: ntk (--rope-scaling ntk), factor 4 (--rope-scale 4), base 10000 (default), trained",
    );
    starts(
        Flags { ntk_mixed_exponent: Some(0.5), ..scaling(Scaling::NtkMixed) },
        "RoPE: ntk-mixed (--rope-scaling ntk-mixed), factor 4 (--rope-scale 4), exponent 0.5 \
         (--ntk-mixed-exponent 0.5), base",
    );
    starts(
        Flags { llama3_high_freq_factor: Some(5.0), ..scaling(Scaling::Llama3) },
        "RoPE: llama3 (--rope-scaling llama3), factor 4 (--rope-scale 4), original context 8192 \
         (llama.context_length), low freq factor 1 (default), high freq factor 5 \
         (--llama3-high-freq-factor 5), base",
    );
    starts(
        Flags { dprope_dims: Some(40), ..scaling(Scaling::DpRope) },
        "RoPE: dprope (--rope-scaling dprope), factor 4 (--rope-scale 4), 40 of 64 dimensions \
         interpolated, original context 8192 (llama.context_length), dimensions 40 (--dprope-dims \
         40), intervals 360 (default), direction code (default), base",
    );
    let fu2 = Some(Variant::Fu2);
    starts(
        Flags { dynamic_variant: fu2, step: Some(512), ..scaling(Scaling::Dynamic) },
        "RoPE: dynamic (--rope-scaling dynamic), factor 4 (--rope-scale 4), alpha by length from \
         8192 (llama.context_length), variant fu2 (--dynamic-variant fu2), target 32768 (--ctx), \
         step 512 (--rope-step 512), policy position (default), base",
    );
    let case = Case::default().flags(scaling(Scaling::DynamicYarn));
    let found = line(case);
    let start = "RoPE: dynamic-yarn (--rope-scaling dynamic-yarn), factor by length, step 256 \
                 (default), original context 8192 (llama.context_length), ext factor 1 (default), \
                 beta fast 32 (default), beta slow 1 (default), attention scale by factor (1 + 0.1 \
                 ln factor), policy position (default), base";
    assert!(found.starts_with(start), "{found}");
    let yarn = Flags {
        yarn_ramp: Some(Ramp::Exact),
        yarn_mscale: Some(1.0),
        yarn_mscale_all_dim: Some(0.5),
        ..scaling(Scaling::Yarn)
    };
    starts(
        yarn,
        "RoPE: yarn (--rope-scaling yarn), factor 4 (--rope-scale 4), original context 8192 \
         (llama.context_length), ext factor 1 (default), beta fast 32 (default), beta slow 1 \
         (default), ramp exact (--yarn-ramp exact), attention scale 1.06482 (--yarn-mscale 1, \
         --yarn-mscale-all-dim 0.5), base",
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
        warning(case(Flags { freq_scale: Some(4.0), ..Flags::default() })),
        "--rope-freq-scale 4 is probably inverted: it makes the usable context 4 times shorter; \
         --rope-scale 4 (the same as --rope-freq-scale 0.25) makes it longer"
    );
    assert_eq!(
        warning(case(Flags { scale: Some(0.25), ..Flags::default() })),
        "--rope-scale 0.25 is probably inverted: it makes the usable context 4 times shorter; \
         --rope-scale 4 (the same as --rope-freq-scale 0.25) makes it longer"
    );
}

#[test]
fn contexts_that_are_not_reached_are_warned_about() {
    let case = |context, flags| Case { context: Some(context), ..Case::default() }.flags(flags);
    assert_eq!(
        warning(case(16384, Flags::default())),
        "context 16384 is beyond the 8192 tokens that the model was trained for, and no setting \
         extends it: text beyond that length will be poor; --rope-scaling yarn --rope-scale 2, \
         --rope-freq-scale 0.5 or --rope-freq-base 20453 reach this length"
    );
    let half = || Flags { freq_scale: Some(0.5), ..Flags::default() };
    assert_eq!(warnings(case(16384, half())), [""; 0]);
    assert_eq!(
        warning(case(32768, half())),
        "context 32768 is beyond the 8192 tokens that the model was trained for, which the \
         settings extend to 16384: text beyond that length will be poor; --rope-scaling yarn \
         --rope-scale 4, --rope-freq-scale 0.25 or --rope-freq-base 41830 reach this length"
    );
    // A single pair has the same frequency with any base.
    assert_eq!(
        warning(Case { n_rot: 2, ..case(16384, Flags::default()) }),
        "context 16384 is beyond the 8192 tokens that the model was trained for, and no setting \
         extends it: text beyond that length will be poor; --rope-scaling yarn --rope-scale 2 or \
         --rope-freq-scale 0.5 reach this length"
    );
    // The proposed settings reach the context.
    let yarn = Flags { scale: Some(2.0), ..scaling(Scaling::Yarn) };
    assert_eq!(warnings(case(16384, yarn)), [""; 0]);
    let base = Flags { freq_base: Some(20453.0), ..Flags::default() };
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
    let inverted = |scaling| Flags { scaling, freq_scale: Some(4.0), ..Flags::default() };
    let shorter =
        "--rope-freq-scale 4 is probably inverted: it makes the usable context 4 times shorter";
    let longer = "; --rope-scale 4 (the same as --rope-freq-scale 0.25) makes it longer";
    let ways = "--rope-scaling yarn --rope-scale 8, --rope-freq-scale 0.125 or --rope-freq-base 85551 \
                reach this length";
    for scaling in [None, Some(Scaling::Yarn), Some(Scaling::Llama3)] {
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
    let dynamic = Flags { scale: Some(0.5), ..scaling(Scaling::Dynamic) };
    assert_eq!(warnings(case(8192, dynamic.clone())), [""; 0]);
    assert!(warning(case(16384, dynamic)).contains("and no setting extends it"));
    // The proposed values work as printed: they are not rounded down, and no other flag conflicts.
    for context in [8300, 9999, 24_577, 57_344, 1_000_003] {
        let dims = Flags { dprope_dims: Some(8), scale: Some(1.001), ..scaling(Scaling::DpRope) };
        let text = warning(case(context, dims));
        let (_, advice) = text.rsplit_once("; ").unwrap();
        let (yarn, rest) = advice.split_once(", ").unwrap();
        let (linear, rest) = rest.split_once(" or ").unwrap();
        let base = rest.strip_suffix(" reach this length").unwrap();
        let value = |text: &str| text.rsplit_once(' ').unwrap().1.parse().ok();
        for flags in [
            Flags { scale: value(yarn), ..scaling(Scaling::Yarn) },
            Flags { freq_scale: value(linear), ..Flags::default() },
            Flags { freq_base: value(base), ..Flags::default() },
        ] {
            assert_eq!(warnings(case(context, flags)), [""; 0], "{advice}");
        }
    }
    // A factor of the file is in effect together with a base.
    let file = Case { context: Some(65536), ..Case::default() }.float("scaling.factor", 4.0);
    assert_eq!(
        warning(file),
        "context 65536 is beyond the 8192 tokens that the model was trained for, which the settings \
         extend to 32768: text beyond that length will be poor; --rope-scaling yarn --rope-scale 8, \
         --rope-freq-scale 0.125 or --rope-freq-base 20453 reach this length"
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
    assert!(text.contains("; --rope-scaling yarn, --rope-freq-scale 0.5 or "), "{text}");
    assert_eq!(warnings(longrope().flags(scaling(Scaling::Yarn))), [""; 0]);
}

#[test]
fn settings_that_do_nothing_are_warned_about() {
    for name in ["linear", "ntk", "ntk-mixed", "yarn", "llama3", "dprope"] {
        let flags = || scaling(name.parse().unwrap());
        assert_eq!(
            warning(Case::default().flags(flags())),
            format!(
                "{name} changes nothing, as 8192 tokens need no factor: set a larger --ctx, or a factor \
                 with --rope-scale"
            )
        );
        assert_eq!(
            warning(Case::default().flags(Flags { scale: Some(1.0), ..flags() })),
            format!("{name} with a factor of 1 changes nothing: set another with --rope-scale")
        );
    }
    assert_eq!(
        warning(Case::default().scaling("yarn")),
        "yarn with a factor of 1 changes nothing: set another with --rope-scale"
    );
    assert_eq!(warnings(Case::default().scaling("linear")), [""; 0]);
    let swapped = Flags {
        scale: Some(2.0),
        yarn_beta_fast: Some(1.0),
        yarn_beta_slow: Some(32.0),
        ..scaling(Scaling::Yarn)
    };
    assert_eq!(
        warning(Case::default().flags(swapped)),
        "--yarn-beta-fast 1 is below --yarn-beta-slow 32: they are probably swapped"
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
        error(Flags { scale: Some(4.0), ..scaling(Scaling::None) }),
        "--rope-scale 4 contradicts --rope-scaling none: remove one of them"
    );
    let none = Case::default().scaling("none");
    assert_eq!(
        none.flags(Flags { scale: Some(4.0), ..Flags::default() }).error(),
        "--rope-scale 4 needs --rope-scaling linear or yarn: the scaling in the file is none \
         (llama.rope.scaling.type)"
    );
    assert_eq!(
        error(Flags { scale: Some(4.0), freq_scale: Some(0.25), ..Flags::default() }),
        "--rope-scale 4 and --rope-freq-scale 0.25 both set the factor: remove one of them"
    );
    assert_eq!(
        error(scaling(Scaling::LongRope)),
        "RoPE scaling longrope needs the tensor rope_factors_short.weight, which is not in the file: \
         choose another with --rope-scaling"
    );
    for flags in [Flags::default(), scaling(Scaling::Linear)] {
        assert_eq!(
            error(Flags { yarn_beta_fast: Some(16.0), ..flags.clone() }),
            "--yarn-beta-fast has no effect with RoPE scaling none: add --rope-scaling yarn, or remove \
             it"
        );
        assert_eq!(
            error(Flags { policy: Some(Policy::Run), ..flags }),
            "--rope-policy has no effect with RoPE scaling none, which does not depend on the length of \
             the sequence: remove it"
        );
    }
    assert_eq!(
        error(Flags { scale: Some(4.0), yarn_beta_fast: Some(16.0), ..Flags::default() }),
        "--yarn-beta-fast has no effect with RoPE scaling linear: add --rope-scaling yarn, or \
         remove it"
    );
}

#[test]
fn yarn_flags_without_effect_are_errors() {
    let idle = [
        Flags { yarn_ext_factor: Some(0.0), ..Flags::default() },
        Flags { yarn_orig_ctx: Some(4096), ..Flags::default() },
        Flags { yarn_beta_fast: Some(16.0), ..Flags::default() },
        Flags { yarn_beta_slow: Some(2.0), ..Flags::default() },
        Flags { yarn_ext_factor: Some(1.0), ..scaling(Scaling::None) }, // the factor is 1
    ];
    for flags in idle {
        let text = Case::default().flags(flags.clone()).error();
        assert!(text.contains("has no effect"), "{flags:?}: {text}");
        let yarn = Flags { scaling: Some(Scaling::Yarn), scale: Some(2.0), ..flags };
        Case::default().flags(yarn).plan().unwrap();
    }
}

#[test]
fn flags_of_another_method_are_errors() {
    let two = |scaling| Flags { scaling: Some(scaling), scale: Some(2.0), ..Flags::default() };
    let cases = [
        (Flags { dprope_dims: Some(8), ..two(Scaling::Yarn) }, "--dprope-dims", "yarn", "dprope"),
        (Flags { yarn_mscale: Some(1.0), ..two(Scaling::Ntk) }, "--yarn-mscale", "ntk", "yarn"),
        (
            Flags { ntk_mixed_exponent: Some(1.0), ..two(Scaling::Ntk) },
            "--ntk-mixed-exponent",
            "ntk",
            "ntk-mixed",
        ),
        (
            Flags { llama3_low_freq_factor: Some(1.0), ..two(Scaling::DpRope) },
            "--llama3-low-freq-factor",
            "dprope",
            "llama3",
        ),
    ];
    for (flags, flag, scaling, needs) in cases {
        let expected = format!(
            "{flag} has no effect with RoPE scaling {scaling}: add --rope-scaling {needs}, or remove \
             it"
        );
        assert_eq!(Case::default().flags(flags).error(), expected);
    }
}

#[test]
fn parameters_out_of_range_are_errors() {
    let error = |flags: Flags| Case::default().flags(Flags { scale: Some(2.0), ..flags }).error();
    let dprope = || scaling(Scaling::DpRope);
    let llama3 = || scaling(Scaling::Llama3);
    let yarn = || scaling(Scaling::Yarn);
    assert_eq!(
        error(Flags { dprope_dims: Some(66), ..dprope() }),
        "--dprope-dims 66: must be a whole number from 0 to 64"
    );
    assert_eq!(
        error(Flags { dprope_dims: Some(7), ..dprope() }),
        "--dprope-dims 7: must be an even number, as dimensions rotate in pairs"
    );
    assert_eq!(
        error(Flags { dprope_dims: Some(8), dprope_threshold: Some(0.5), ..dprope() }),
        "--dprope-threshold 0.5 and --dprope-dims 8 both set the dimensions that DPRoPE \
         interpolates: remove one of them"
    );
    assert_eq!(
        error(Flags { dprope_intervals: Some(1), ..dprope() }),
        "--dprope-intervals 1: must be a whole number from 2 to 65536"
    );
    assert_eq!(
        error(Flags { dprope_threshold: Some(f64::NAN), ..dprope() }),
        "--dprope-threshold NaN: must be a number from -1000 to 1000"
    );
    assert_eq!(
        error(Flags { yarn_orig_ctx: Some(3_000_000), ..dprope() }),
        "RoPE scaling dprope: the original context 3000000 (--yarn-orig-ctx 3000000) times the \
         factor 2 (--rope-scale 2) must be from 1 to 4194304 positions"
    );
    assert_eq!(
        error(Flags { llama3_high_freq_factor: Some(1.0), ..llama3() }),
        "--llama3-high-freq-factor 1: must be above --llama3-low-freq-factor, which is 1"
    );
    assert_eq!(
        error(Flags { llama3_low_freq_factor: Some(0.0), ..llama3() }),
        "--llama3-low-freq-factor 0: must be a number from 0.000001 to 1000000"
    );
    let mixed = Flags { ntk_mixed_exponent: Some(-1.0), ..scaling(Scaling::NtkMixed) };
    assert_eq!(error(mixed), "--ntk-mixed-exponent -1: must be a number from 0 to 16");
    assert_eq!(
        error(Flags { yarn_mscale: Some(1.0), ..yarn() }),
        "--yarn-mscale needs --yarn-mscale-all-dim: Hugging Face applies them only together"
    );
    let twice = Flags { yarn_attention_factor: Some(1.5), yarn_attn_factor: Some(2.0), ..yarn() };
    assert_eq!(
        error(twice),
        "--yarn-attention-factor 1.5 and --yarn-attn-factor 2 both set the attention scale: remove \
         one of them"
    );
    let dynamic = || scaling(Scaling::Dynamic);
    assert_eq!(
        error(Flags { dynamic_target: Some(16384), ..dynamic() }),
        "--dynamic-target needs --dynamic-variant fu2"
    );
    let variant = Some(Variant::Fu2);
    assert_eq!(
        error(Flags { dynamic_target: Some(100), dynamic_variant: variant, ..dynamic() }),
        "--dynamic-target 100: must be a whole number from 8192 to 1073741824"
    );
    assert_eq!(
        error(Flags { step: Some(0), ..dynamic() }),
        "--rope-step 0: must be a whole number from 1 to 1073741824"
    );
    assert_eq!(
        error(scaling(Scaling::DynamicYarn)),
        "--rope-scale 2 has no effect with RoPE scaling dynamic-yarn, whose factor is the length of \
         the sequence divided by the original context: remove it"
    );
    let two = Case { n_rot: 2, ..Case::default() };
    assert_eq!(
        two.flags(scaling(Scaling::Ntk)).error(),
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
        "step".parse::<Ramp>().unwrap_err().to_string(),
        "unknown ramp of YaRN \"step\": must be one of whole, exact, turns"
    );
}

#[test]
fn parameters_of_methods_that_act_on_attention_are_checked() {
    let error = |flags: Flags| Case::default().flags(flags).error();
    let window = Flags { rerope_window: Some(0), ..scaling(Scaling::ReRope) };
    assert_eq!(error(window), "--rerope-window 0: must be a whole number from 1 to 8192");
    let window = Flags { rerope_window: Some(8193), ..scaling(Scaling::LeakyReRope) };
    assert_eq!(error(window), "--rerope-window 8193: must be a whole number from 1 to 8192");
    let sinks = |sinks| Flags { attention_sinks: Some(sinks), ..Flags::default() };
    assert_eq!(error(sinks(8192)), "--attention-sinks 8192: must be a whole number from 1 to 8191");
    let short = Case { context: Some(1), ..Case::default() };
    assert_eq!(
        short.flags(sinks(1)).error(),
        "--attention-sinks 1: a context of 1 (--ctx) cannot hold an attention sink and another \
         token: set --ctx to 2 or more"
    );
    let k = Flags { rerope_k: Some(0), ..scaling(Scaling::LeakyReRope) };
    assert_eq!(error(k), "--rerope-k 0: must be a whole number from 1 to 1048576");
    let groups =
        |n, w| Flags { grp_attn_n: Some(n), grp_attn_w: Some(w), ..scaling(Scaling::SelfExtend) };
    assert_eq!(error(groups(0, 512)), "--grp-attn-n 0: must be a whole number from 1 to 8192");
    assert_eq!(error(groups(4, 8196)), "--grp-attn-w 8196: must be a whole number from 1 to 8192");
    assert_eq!(
        error(groups(4, 6)),
        "--grp-attn-w 6: must be a multiple of the group size, which is 4 (--grp-attn-n 4)"
    );
    let global = Flags { lm_infinite_global: Some(9000), ..scaling(Scaling::LmInfinite) };
    assert_eq!(error(global), "--lm-infinite-global 9000: must be a whole number from 1 to 8192");
    let local = Flags { lm_infinite_local: Some(0), ..scaling(Scaling::LmInfinite) };
    assert_eq!(error(local), "--lm-infinite-local 0: must be a whole number from 1 to 8192");
    assert_eq!(
        error(Flags { attention_sinks: Some(4), context_shift: true, ..Flags::default() }),
        "--attention-sinks 4 and --context-shift both set the tokens that a full context \
         drops: remove one of them"
    );
    let sinks = |sinks| Flags { attention_sinks: Some(sinks), ..Flags::default() };
    for bad in [0, 8192] {
        let expected = format!("--attention-sinks {bad}: must be a whole number from 1 to 8191");
        assert_eq!(error(sinks(bad)), expected);
    }
    assert_eq!(
        error(Flags { scaling: Some(Scaling::ReRope), ..sinks(4) }),
        "--attention-sinks 4 and --rope-scaling rerope both set the distances in attention: \
         remove one of them"
    );
    assert_eq!(
        error(Flags { rerope_k: Some(4), ..scaling(Scaling::ReRope) }),
        "--rerope-k has no effect with RoPE scaling rerope: add --rope-scaling leaky-rerope, or \
         remove it"
    );
    assert_eq!(
        error(Flags { policy: Some(Policy::Position), ..scaling(Scaling::Ntk) }),
        "--rope-policy has no effect with RoPE scaling ntk, which does not depend on the length of \
         the sequence: remove it"
    );
    assert_eq!(
        Case::default().scaling("rerope").error(),
        "llama.rope.scaling.type: unknown RoPE scaling \"rerope\": choose one with --rope-scaling"
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
        Flags { rerope_window: Some(512), ..scaling(Scaling::ReRope) },
        "RoPE: rerope (--rope-scaling rerope), window 512 (--rerope-window 512), queries scaled by \
         log n from 8192 (llama.context_length), base",
    );
    starts(
        Flags { scale: Some(2.0), log_n: Some(false), ..scaling(Scaling::LeakyReRope) },
        "RoPE: leaky-rerope (--rope-scaling leaky-rerope), window 4096 (half the trained context), \
         k 7 (reaches the context), factor 2 (--rope-scale 2), base",
    );
    starts(
        Flags { log_n: Some(true), ..scaling(Scaling::SelfExtend) },
        "RoPE: self-extend (--rope-scaling self-extend), groups of 8 (reaches the context), \
         window 2048 (a quarter of the trained context), queries scaled by log n from 8192 \
         (--rope-log-n on), base",
    );
    starts(
        scaling(Scaling::LmInfinite),
        "RoPE: lm-infinite (--rope-scaling lm-infinite), first tokens 10 (default), last tokens 8192 \
         (llama.context_length), base",
    );
    starts(
        Flags { attention_sinks: Some(4), ..Flags::default() },
        "RoPE: no scaling, attention sinks 4 (--attention-sinks 4) in a rolling context, base",
    );
    starts(
        Flags { rerope_window: Some(8192), ..scaling(Scaling::LeakyReRope) },
        "RoPE: leaky-rerope (--rope-scaling leaky-rerope), window 8192 (--rerope-window 8192), k 24576 \
         (no value reaches the context with this window), queries",
    );
    starts(
        Flags { grp_attn_n: Some(4096), ..scaling(Scaling::SelfExtend) },
        "RoPE: self-extend (--rope-scaling self-extend), groups of 4096 (--grp-attn-n 4096), window \
         4096 (one group), base",
    );
    // A scaling of the file stays in effect with these methods.
    let yarn = Case { context: Some(16384), ..Case::default() }
        .scaling("yarn")
        .float("scaling.factor", 2.0)
        .key("scaling.original_context_length", Value::U32(4096));
    let found = line(yarn.flags(scaling(Scaling::LmInfinite)));
    let expected = "RoPE: lm-infinite (--rope-scaling lm-infinite), first tokens 10 (default), last \
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
            Scaling::DpRope,
            "for llama and phi3 models, a file made by rope-cpu rope bake gives it the same frequencies",
        ),
        (Scaling::Dynamic, "it has no scaling that depends on the length of the sequence"),
    ] {
        let flags = Flags { attention_sinks: Some(4), ..scaling(name) };
        let found = Case::default().flags(flags.clone()).plan().unwrap().unlike_llama_cpp(&flags);
        assert_eq!(found[0], format!("it has no --rope-scaling {name}: {reason}"));
        assert!(found[1].starts_with("it has no --attention-sinks: "), "{found:?}");
    }
    let flags = scaling(Scaling::LmInfinite);
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
        "it does not compute a factor from the context: without --rope-scale 2 it does not scale";
    for name in [Scaling::Linear, Scaling::Yarn] {
        assert!(differences(16384, scaling(name)).contains(factor));
        let typed = Flags { scale: Some(2.0), ..scaling(name) };
        assert!(!differences(16384, typed).contains("it does not compute a factor"));
    }
    assert!(
        differences(16384, scaling(Scaling::Ntk))
            .contains("--rope-freq-base 204522 gives the same frequencies")
    );
    let errors = |context, base| {
        differences(context, Flags { freq_base: base, ..Flags::default() })
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
    let window = Flags { rerope_window: Some(8192), ..scaling(Scaling::ReRope) };
    assert_eq!(
        warning(Case::default().flags(window)),
        "rerope in a context of 8192, which is within its window, changes nothing"
    );
    assert_eq!(
        warning(Case::default().flags(scaling(Scaling::SelfExtend))),
        "self-extend with groups of 1 (reaches the context) changes nothing"
    );
}

#[test]
fn values_out_of_range_are_errors_that_name_the_flag() {
    for bad in [0.0, -1.5, f64::NAN, f64::INFINITY, 1e-300, 1e300] {
        let yarn = scaling(Scaling::Yarn);
        let cases = [
            ("--rope-scale", Flags { scale: Some(bad), ..Flags::default() }),
            ("--rope-freq-scale", Flags { freq_scale: Some(bad), ..Flags::default() }),
            ("--yarn-attn-factor", Flags { yarn_attn_factor: Some(bad), ..yarn.clone() }),
            ("--yarn-beta-fast", Flags { yarn_beta_fast: Some(bad), ..yarn.clone() }),
            ("--yarn-beta-slow", Flags { yarn_beta_slow: Some(bad), ..yarn }),
        ];
        for (flag, flags) in cases {
            let expected = format!("{flag} {bad}: must be a number from 0.000001 to 1000000");
            assert_eq!(Case::default().flags(flags).error(), expected);
        }
    }
    let error = |flags: Flags| Case::default().flags(flags).error();
    assert_eq!(
        error(Flags { freq_base: Some(0.5), ..Flags::default() }),
        "--rope-freq-base 0.5: must be a finite number above 1"
    );
    assert_eq!(
        error(Flags { yarn_ext_factor: Some(-0.5), ..scaling(Scaling::Yarn) }),
        "--yarn-ext-factor -0.5: must be a number from 0 to 1000000"
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
        "llama.rope.scaling.type: unknown RoPE scaling \"su\": choose one with --rope-scaling"
    );
    // A flag replaces a scaling of the file that is unknown.
    Case::default().scaling("su").flags(scaling(Scaling::Linear)).plan().unwrap();
    assert_eq!(
        "su".parse::<Scaling>().unwrap_err().to_string(),
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
         choose another with --rope-scaling"
    );
}
