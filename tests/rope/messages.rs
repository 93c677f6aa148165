//! What the user reads: the line, the warnings, the errors.

use rope_cpu::{
    gguf::Value,
    rope::{Factors, Flags, Scaling},
};

use crate::Case;

fn scaling(scaling: Scaling) -> Flags {
    Flags { scaling: Some(scaling), ..Flags::default() }
}

fn line(case: Case) -> String {
    case.plan().unwrap().to_string()
}

#[test]
fn one_line_says_what_is_in_force_and_why() {
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
    let gemma = Case { architecture: "gemma3", window: true, ..Case::default() };
    assert_eq!(
        line(gemma.float("freq_base", 1e6).scaling("linear").float("scaling.factor", 8.0)),
        "RoPE: linear (gemma3.rope.scaling.type), factor 8 (gemma3.rope.scaling.factor), \
         base 1000000 (gemma3.rope.freq_base), window layers base 10000 (default), trained \
         context 8192 (gemma3.context_length), context 8192 (default)"
    );
}

#[test]
fn divisors_are_in_the_line() {
    let factors = Factors { rope_freqs: Some(vec![2.0; 32]), ..Factors::default() };
    let llama3 = line(Case { factors, ..Case::default() });
    assert!(llama3.starts_with("RoPE: linear, frequencies divided (rope_freqs.weight), base"));
    let set = || Some(vec![2.0; 32]);
    let factors = Factors { long: set(), short: set(), rope_freqs: None };
    let longrope = Case { factors, context_train: 131_072, ..Case::default() }
        .scaling("longrope")
        .key("scaling.original_context_length", Value::U32(4096));
    assert!(line(longrope).starts_with(
        "RoPE: longrope (llama.rope.scaling.type), frequencies divided \
             (rope_factors_short.weight up to 4096 tokens, rope_factors_long.weight beyond), \
             attention scale 1.19024 (LongRoPE's, from trained and original context), base"
    ),);
}

/// The only warning of a case.
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
fn contexts_beyond_reach_are_warned_about() {
    let case = |context, flags| Case { context: Some(context), ..Case::default() }.flags(flags);
    assert_eq!(
        warning(case(16384, Flags::default())),
        "context 16384 is beyond the 8192 tokens that the model was trained for, and nothing \
         extends it: text past that point will be poor; --rope-scaling yarn --rope-scale 2, \
         --rope-freq-scale 0.5 or --rope-freq-base 20453 reach this far"
    );
    let half = || Flags { freq_scale: Some(0.5), ..Flags::default() };
    assert_eq!(warnings(case(16384, half())), [""; 0]);
    assert_eq!(
        warning(case(32768, half())),
        "context 32768 is beyond the 8192 tokens that the model was trained for, which the \
         settings extend to 16384: text past that point will be poor; --rope-scaling yarn \
         --rope-scale 4, --rope-freq-scale 0.25 or --rope-freq-base 41830 reach this far"
    );
    // What is proposed is enough.
    let yarn = Flags { scale: Some(2.0), ..scaling(Scaling::Yarn) };
    assert_eq!(warnings(case(16384, yarn)), [""; 0]);
    let base = Flags { freq_base: Some(20453.0), ..Flags::default() };
    assert_eq!(warnings(case(16384, base)), [""; 0]);
    // A model that was extended before it was trained needs nothing more.
    let qwen = Case { context_train: 131_072, ..Case::default() }
        .scaling("yarn")
        .float("scaling.factor", 4.0)
        .key("scaling.original_context_length", Value::U32(32768));
    assert_eq!(warnings(qwen), [""; 0]);
}

#[test]
fn settings_that_do_nothing_are_warned_about() {
    assert_eq!(
        warning(Case::default().flags(scaling(Scaling::Yarn))),
        "YaRN with a factor of 1 changes nothing: give one with --rope-scale"
    );
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
        "llama.rope.scaling.yarn_beta_fast = 16 is ignored, as llama.cpp does for llama models"
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
        "tensor rope_freqs.weight is ignored, as in llama.cpp: gemma3 does not use it"
    );
}

#[test]
fn contradictions_are_errors() {
    let error = |flags: Flags| Case::default().flags(flags).error();
    assert_eq!(
        error(Flags { scale: Some(4.0), ..scaling(Scaling::None) }),
        "--rope-scale 4 contradicts --rope-scaling none: leave one of them out"
    );
    let none = Case::default().scaling("none");
    assert_eq!(
        none.flags(Flags { scale: Some(4.0), ..Flags::default() }).error(),
        "--rope-scale 4 needs --rope-scaling linear or yarn: the file says none \
         (llama.rope.scaling.type)"
    );
    assert_eq!(
        error(Flags { scale: Some(4.0), freq_scale: Some(0.25), ..Flags::default() }),
        "--rope-scale 4 and --rope-freq-scale 0.25 both set the factor: give one"
    );
    assert_eq!(
        error(scaling(Scaling::LongRope)),
        "RoPE scaling longrope needs the tensor rope_factors_short.weight, which the file lacks"
    );
    assert_eq!(
        error(Flags { scale: Some(4.0), yarn_beta_fast: Some(16.0), ..Flags::default() }),
        "--yarn-beta-fast has no effect with RoPE scaling linear: add --rope-scaling yarn, or \
         leave it out"
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
        "RoPE over 63 dimensions: they rotate in pairs, so an even number above 0 is needed"
    );
    assert_eq!(
        Case::default().scaling("su").error(),
        "llama.rope.scaling.type: unknown RoPE scaling \"su\"; choose one with --rope-scaling"
    );
    // ... which is not what the file says, so that a flag replaces it.
    Case::default().scaling("su").flags(scaling(Scaling::Linear)).plan().unwrap();
    assert_eq!(
        "su".parse::<Scaling>().unwrap_err().to_string(),
        "unknown RoPE scaling \"su\": it is one of none, linear, yarn, longrope"
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
        "tensor rope_freqs.weight has 31 values: 32 are needed, one for each rotated pair"
    );
    let mut divisors = vec![1.0; 32];
    divisors[5] = 0.0;
    assert_eq!(
        freqs(divisors).error(),
        "tensor rope_freqs.weight: value 5 is 0, and cannot divide a frequency"
    );
    let factors = Factors { short: Some(vec![1.0; 32]), ..Factors::default() };
    assert_eq!(
        Case { factors, ..Case::default() }.scaling("longrope").error(),
        "RoPE scaling longrope needs the tensor rope_factors_long.weight, which the file lacks"
    );
}
