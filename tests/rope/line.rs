//! The RoPE line.

use rope_cpu::{
    gguf::Value,
    rope::{
        ATTENTION_SINKS, FREQ_BASE, FREQ_SCALE, Factors, Flags, LOG_N, SCALE, SCALING, dprope,
        dynamic, llama3, ntk_mixed, rerope, self_extend, yarn,
    },
};

use crate::rope::Case;

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
    let yarn = Flags::method("yarn").with(&SCALE, 4.0).with(&yarn::ATTN_FACTOR, 0.5);
    assert_eq!(
        line(case().flags(yarn)),
        "RoPE: yarn (`rope_scaling` yarn), factor 4 (`rope_scale` 4), original context 8192 \
         (llama.context_length), ext factor 1 (default), beta fast 32 (default), beta slow 1 \
         (default), attention scale 0.569315 (`yarn_attn_factor` 0.5 x (1 + 0.1 ln factor)), \
         base 10000 (llama.rope.freq_base), trained context 8192 (llama.context_length), \
         context 16384 (--ctx)"
    );
    let gemma = Case { architecture: "gemma3", window_n_rot: Some(64), ..Case::default() };
    assert_eq!(
        line(gemma.float("freq_base", 1e6).scaling("linear").float("scaling.factor", 8.0)),
        "RoPE: linear (gemma3.rope.scaling.type), factor 8 (gemma3.rope.scaling.factor), \
         base 1000000 (gemma3.rope.freq_base), window layers base 10000 (default), trained \
         context 8192 (gemma3.context_length), context 8192 (default)"
    );
    let narrow = Case { architecture: "gemma3", window_n_rot: Some(32), ..Case::default() };
    assert_eq!(
        line(narrow),
        "RoPE: no scaling, base 10000 (default), window layers base 10000 (default), rotating 32 \
         dimensions, trained context 8192 (gemma3.context_length), context 8192 (default)"
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
        Flags::method("ntk").with(&yarn::ORIG_CTX, 4096),
        "RoPE: ntk (`rope_scaling` ntk), factor 4 (`rope_scale` 4), base 10000 (default), trained",
    );
    starts(
        Flags::method("ntk-mixed").with(&ntk_mixed::EXPONENT, 0.5),
        "RoPE: ntk-mixed (`rope_scaling` ntk-mixed), factor 4 (`rope_scale` 4), exponent 0.5 \
         (`ntk_mixed_exponent` 0.5), base",
    );
    starts(
        Flags::method("llama3").with(&llama3::HIGH_FREQ_FACTOR, 5.0),
        "RoPE: llama3 (`rope_scaling` llama3), factor 4 (`rope_scale` 4), original context 8192 \
         (llama.context_length), low freq factor 1 (default), high freq factor 5 \
         (`llama3_high_freq_factor` 5), base",
    );
    starts(
        Flags::method("dprope").with(&dprope::DIMS, 40),
        "RoPE: dprope (`rope_scaling` dprope), factor 4 (`rope_scale` 4), 40 of 64 dimensions \
         interpolated, original context 8192 (llama.context_length), dimensions 40 (`dprope_dims` \
         40), intervals 360 (default), direction code (default), base",
    );
    starts(
        Flags::method("dynamic").with(&dynamic::VARIANT, "fu2").with(&dynamic::STEP, 512),
        "RoPE: dynamic (`rope_scaling` dynamic), factor 4 (`rope_scale` 4), alpha by length from \
         8192 (llama.context_length), variant fu2 (`dynamic_variant` fu2), target 32768 (--ctx), \
         step 512 (`rope_step` 512), policy position (default), base",
    );
    let case = Case::default().flags(Flags::method("dynamic-yarn"));
    let found = line(case);
    let start = "RoPE: dynamic-yarn (`rope_scaling` dynamic-yarn), factor by length, step 256 \
                 (default), original context 8192 (llama.context_length), ext factor 1 (default), \
                 beta fast 32 (default), beta slow 1 (default), attention scale by factor (1 + 0.1 \
                 ln factor), policy position (default), base";
    assert!(found.starts_with(start), "{found}");
    let yarn = Flags::method("yarn")
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

#[test]
fn methods_that_act_on_attention_are_in_the_line() {
    let starts = |flags: Flags, start: &str| {
        let case = Case { context: Some(32768), ..Case::default() };
        let line = line(case.flags(flags));
        assert!(line.starts_with(start), "{line}");
    };
    starts(
        Flags::method("rerope").with(&rerope::WINDOW, 512),
        "RoPE: rerope (`rope_scaling` rerope), window 512 (`rerope_window` 512), queries scaled by \
         log n from 8192 (llama.context_length), base",
    );
    starts(
        Flags::method("leaky-rerope").with(&SCALE, 2.0).with(&LOG_N, false),
        "RoPE: leaky-rerope (`rope_scaling` leaky-rerope), window 4096 (half the trained context), \
         k 7 (reaches the context), factor 2 (`rope_scale` 2), base",
    );
    starts(
        Flags::method("self-extend").with(&LOG_N, true),
        "RoPE: self-extend (`rope_scaling` self-extend), groups of 8 (reaches the context), \
         window 2048 (a quarter of the trained context), queries scaled by log n from 8192 \
         (`rope_log_n` on), base",
    );
    starts(
        Flags::method("lm-infinite"),
        "RoPE: lm-infinite (`rope_scaling` lm-infinite), first tokens 10 (default), last tokens 8192 \
         (llama.context_length), base",
    );
    starts(
        Flags::default().with(&ATTENTION_SINKS, 4),
        "RoPE: no scaling, attention sinks 4 (`attention_sinks` 4) in a rolling context, base",
    );
    starts(
        Flags::method("leaky-rerope").with(&rerope::WINDOW, 8192),
        "RoPE: leaky-rerope (`rope_scaling` leaky-rerope), window 8192 (`rerope_window` 8192), k 24576 \
         (no value reaches the context with this window), queries",
    );
    starts(
        Flags::method("self-extend").with(&self_extend::GROUP, 4096),
        "RoPE: self-extend (`rope_scaling` self-extend), groups of 4096 (`grp_attn_n` 4096), window \
         4096 (one group), base",
    );
    // A scaling of the file stays in effect with these methods.
    let yarn = Case { context: Some(16384), ..Case::default() }
        .scaling("yarn")
        .float("scaling.factor", 2.0)
        .key("scaling.original_context_length", Value::U32(4096));
    let found = line(yarn.flags(Flags::method("lm-infinite")));
    let expected = "RoPE: lm-infinite (`rope_scaling` lm-infinite), first tokens 10 (default), last \
                    tokens 8192 (llama.context_length), factor 2 (llama.rope.scaling.factor), \
                    original context 4096";
    assert!(found.starts_with(expected), "{found}");
}
