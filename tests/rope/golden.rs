//! The frequencies and attention scales of every rule, against the reference.

use rope_cpu::{
    gguf::Metadata,
    rope::{
        FREQ_BASE, FREQ_SCALE, Factors, Flags, Layers, SCALE, SCALING, Table, cope, dynamic,
        llama3, ntk_mixed, yarn,
    },
};
use serde_json::Value;

use crate::rope::{Case, close, floats, golden};

/// The relative precision of the reference, as it states.
const EXACT: f64 = 1e-14;

/// The relative error of divisors stored in f32 tensors: half a unit in the last place.
const THROUGH_F32: f64 = 1.0 / (1 << 24) as f64 + EXACT;

/// Returns the models and flags that are equivalent to a case of the reference. Each has the length
/// of the sequence and the precision of the frequencies.
fn translate(reference: &Value) -> Vec<(Case, usize, f64)> {
    let params = &reference["params"];
    let given = |name: &str| params.get(name).and_then(Value::as_f64);
    let whole = |name: &str| given(name).map(|x| x as usize);
    let divisors = |name: &str| -> Option<Vec<f32>> {
        Some(floats(params.get(name)?).iter().map(|f| *f as f32).collect())
    };
    let base = given("base").unwrap();
    let case = || {
        Case {
            n_rot: whole("n_rot").unwrap(),
            context_train: whole("max_pos").or(whole("n_ctx_orig")).unwrap(),
            ..Case::default()
        }
        .float("freq_base", base as f32)
    };
    let flags = |name| {
        Flags::method(name)
            .with_some(&SCALE, given("factor").or(given("alpha")).or(given("k")).or(given("s")))
    };
    let yarn = || {
        flags("yarn")
            .with_some(&yarn::BETA_FAST, given("beta_fast").or(given("beta")))
            .with_some(&yarn::BETA_SLOW, given("beta_slow"))
    };
    let length = whole("seq_len").or(whole("C_test")).unwrap_or(1);
    // With a step of 1 no length is rounded, as in the reference.
    let dynamic =
        |name: &'static str, flags: Flags| flags.with(&SCALING, name).with(&dynamic::STEP, 1);
    let exact = |case: Case, flags: Flags| vec![(case.flags(flags), length, EXACT)];
    match reference["method"].as_str().unwrap() {
        "none" => exact(case(), Flags::default()),
        "linear" => exact(case(), Flags::default().with_some(&SCALE, given("factor"))),
        "ntk_static" => {
            let d = given("n_rot").unwrap();
            let freq_base = base * given("alpha").unwrap().powf(d / (d - 2.0));
            let by_base = Flags::default().with(&FREQ_BASE, freq_base);
            let mut cases = exact(case(), by_base);
            cases.extend(exact(case(), flags("ntk")));
            cases
        }
        "ntk_dynamic_hf" => {
            let flags = Flags::default().with_some(&SCALE, given("factor"));
            let fu1 = flags.clone().with(&dynamic::VARIANT, "fu1");
            let mut cases = exact(case(), dynamic("dynamic", flags));
            cases.extend(exact(case(), dynamic("dynamic", fu1)));
            cases
        }
        "ntk_dynamic_fu1" => {
            let flags = Flags::default().with_some(&SCALE, given("s"));
            let fu1 = flags.with(&dynamic::VARIANT, "fu1");
            exact(case(), dynamic("dynamic", fu1))
        }
        "ntk_dynamic_fu2" => {
            let fu2 = Flags::default().with(&dynamic::VARIANT, "fu2");
            let by_flag = fu2.clone().with_some(&dynamic::TARGET, whole("C_prime"));
            let by_context = Case { context: whole("C_prime"), ..case() };
            let mut cases = exact(case(), dynamic("dynamic", by_flag));
            cases.extend(exact(by_context, dynamic("dynamic", fu2)));
            cases
        }
        "yarn_dynamic" => exact(case(), dynamic("dynamic-yarn", Flags::default())),
        "ntk_mixed" => {
            exact(case(), flags("ntk-mixed").with_some(&ntk_mixed::EXPONENT, given("b")))
        }
        "yarn_hf" => {
            let exact_ramp = params.get("truncate") == Some(&Value::Bool(false));
            let by_flags = yarn()
                .with_some(&yarn::ATTENTION_FACTOR, given("attention_factor"))
                .with_some(&yarn::MSCALE, given("mscale"))
                .with_some(&yarn::MSCALE_ALL_DIM, given("mscale_all_dim"))
                .with_some(&yarn::RAMP, exact_ramp.then_some("exact"));
            let mut cases = exact(case(), by_flags);
            if let (Some(above), Some(below)) = (given("mscale"), given("mscale_all_dim")) {
                // In files of DeepSeek 2 both weights are one value, which is stored as a tenth of it.
                let deepseek = above == below;
                assert!(deepseek || above == 1.0, "no file can store {above}, {below}");
                let stored = if deepseek { 0.1 * below } else { below };
                let architecture = if deepseek { "deepseek2" } else { "mistral3" };
                let case = Case { architecture, metadata: Metadata::default(), ..case() }
                    .float("freq_base", base as f32)
                    .float("scaling.yarn_log_multiplier", stored as f32);
                cases.extend(exact(case, yarn()));
            }
            cases
        }
        "yarn_paper" => exact(
            case(),
            yarn()
                .with_some(&SCALE, given("s"))
                .with_some(&yarn::BETA_SLOW, given("alpha"))
                .with(&yarn::RAMP, "turns"),
        ),
        "yarn_llamacpp" => {
            let flags = yarn()
                .with_some(&FREQ_SCALE, given("freq_scale"))
                .with_some(&yarn::EXT_FACTOR, given("ext_factor"))
                .with_some(&yarn::ATTN_FACTOR, given("attn_factor"));
            let rope_freqs = divisors("freq_factors");
            let precision = if rope_freqs.is_some() { THROUGH_F32 } else { EXACT };
            let factors = Factors { rope_freqs, ..Factors::default() };
            vec![(Case { factors, ..case() }.flags(flags), length, precision)]
        }
        "llama3" => {
            let by_flags = flags("llama3")
                .with_some(&llama3::LOW_FREQ_FACTOR, given("low_freq_factor"))
                .with_some(&llama3::HIGH_FREQ_FACTOR, given("high_freq_factor"));
            // The divisors that the converter would write into the file.
            let divisors = floats(&reference["freq_factors"]).iter().map(|f| *f as f32).collect();
            let factors = Factors { rope_freqs: Some(divisors), ..Factors::default() };
            let by_tensor = Case { factors: factors.clone(), ..case() };
            let replaced = Case { factors, ..case() }.flags(by_flags.clone());
            let mut cases = exact(case(), by_flags);
            cases.push((by_tensor, length, THROUGH_F32));
            cases.push((replaced, length, EXACT));
            cases
        }
        "longrope" => {
            let original = whole("n_ctx_orig").unwrap() as u32;
            let factors = Factors {
                short: divisors("short_factor"),
                long: divisors("long_factor"),
                rope_freqs: None,
            };
            let case = Case { factors, ..case() }
                .scaling("longrope")
                .key("scaling.original_context_length", rope_cpu::gguf::Value::U32(original));
            vec![(case, length, THROUGH_F32)]
        }
        other => panic!("method {other}"),
    }
}

/// Lists the parts of the reference with the test file of each, so that a new part cannot stay
/// without a test.
#[test]
fn every_part_of_the_reference_is_known() {
    let golden = golden();
    let names = |value: &Value| -> Vec<String> {
        let mut names: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        names.sort();
        names
    };
    let parts = [
        "clex",              // clex
        "disturbance",       // dprope
        "dprope",            // dprope
        "hist_tiny",         // dprope
        "llamacpp_grp_attn", // distances
        "llamacpp_resolve",  // precedence
        "meta",              // tolerances, which each test names
        "rel_pos",           // distances
        "rope",              // here
        "rotate",            // rows
    ];
    assert_eq!(names(&golden), parts);
    let maps = [
        "dca_c5_w4",
        "dca_c6_w2",
        "leaky_rerope_w4_k4",
        "lm_infinite_g2_l4_kvlen14",
        "logn_scale_train8",
        "n",
        "rerope_w4",
        "self_extend_G2_W4",
        "self_extend_G4_W6",
    ];
    assert_eq!(names(&golden["rel_pos"]), maps);
}

#[test]
fn frequencies_equal_the_reference() {
    let golden = golden();
    let mut compared = 0;
    for reference in golden["rope"].as_array().unwrap() {
        let id = reference["id"].as_str().unwrap();
        let cases = translate(reference);
        for (way, (case, length, precision)) in cases.into_iter().enumerate() {
            let plan = case.plan().unwrap();
            let table = Table::new(&plan, Layers::Global, plan.effective_length(length));
            let expected = floats(&reference["inv_freq"]);
            let expected_pairs = expected.len();
            assert_eq!(table.inv_freq.len(), expected_pairs, "{id}");
            for (i, (found, expected)) in table.inv_freq.iter().zip(expected).enumerate() {
                close(&format!("{id}, way {way}, pair {i}"), *found, expected, precision);
            }
            if let Some(alpha) = reference.get("alpha").and_then(Value::as_f64) {
                let d = expected_pairs as f64 * 2.0;
                let base = reference["params"]["base"].as_f64().unwrap();
                let own = base.powf(-(d - 2.0) / d);
                close(
                    &format!("{id}, way {way}, alpha"),
                    own / table.inv_freq.last().unwrap(),
                    alpha,
                    EXACT,
                );
            }
            let expected = reference["attn_scale"].as_f64().unwrap();
            close(&format!("{id}, way {way}, attention scale"), table.scale, expected, EXACT);
        }
        compared += 1;
    }
    assert_eq!(compared, 47);
}

#[test]
fn ramp_may_end_beyond_the_last_pair() {
    // corr(turns) = 64 ln(131072 / (2 pi turns)) / (2 ln 10000) is 22.5 for 32 turns and 34.6 for
    // one. So the ramp goes from pair 22 to 35, although there are only 32 pairs.
    let yarn = Flags::method("yarn").with(&SCALE, 4.0);
    let plan = Case { context_train: 131_072, ..Case::default() }.flags(yarn).plan().unwrap();
    let last = Table::new(&plan, Layers::Global, 131_072).inv_freq[31];
    let kept = 1.0 - (31.0 - 22.0) / (35.0 - 22.0);
    close("last", last, 10000f64.powf(-62.0 / 64.0) * (kept + (1.0 - kept) / 4.0), EXACT);
}

#[test]
fn longrope_has_a_set_for_short_and_one_for_long_sequences() {
    let case = Case {
        n_rot: 8,
        context_train: 16384,
        context: Some(16384),
        factors: Factors {
            short: Some(vec![1.0, 1.0, 1.0, 2.0]),
            long: Some(vec![1.0, 2.0, 4.0, 8.0]),
            rope_freqs: None,
        },
        ..Case::default()
    };
    let plan = case
        .scaling("longrope")
        .key("scaling.original_context_length", rope_cpu::gguf::Value::U32(4096))
        .plan()
        .unwrap();
    let lengths = [1, 4096, 4097, 16384].map(|tokens| plan.effective_length(tokens));
    assert_eq!(lengths, [4096, 4096, 16384, 16384]);
    let last = |length| Table::new(&plan, Layers::Global, length).inv_freq[3];
    close("short", last(4096), 10000f64.powf(-0.75) / 2.0, EXACT);
    close("long", last(16384), 10000f64.powf(-0.75) / 8.0, EXACT);
    // sqrt(1 + ln 4 / ln 4096) = sqrt(1 + 1/6), for both.
    close("scale", plan.attention_scale.value, (7f64 / 6.0).sqrt(), EXACT);
}

#[test]
fn rules_without_length_have_one_effective_length() {
    let plan = Case { context: Some(16384), ..Case::default() }.plan().unwrap();
    let lengths = [1, 8192, 8193, 1 << 40].map(|tokens| plan.effective_length(tokens));
    assert_eq!(lengths, [16384; 4]);
}

#[test]
fn dynamic_rules_change_on_a_grid_beyond_the_trained_context() {
    let lengths = |name: &'static str, flags: Flags, tokens: &[usize]| -> Vec<usize> {
        let case = Case { context_train: 1000, context: Some(4000), ..Case::default() };
        let plan = case.flags(flags.with(&SCALING, name)).plan().unwrap();
        tokens.iter().map(|tokens| plan.effective_length(*tokens)).collect()
    };
    for name in ["dynamic", "dynamic-linear", "dynamic-yarn"] {
        let tokens = [1, 999, 1000, 1001, 1024, 1025, 1280, 1281, usize::MAX];
        let expected = [1000, 1000, 1000, 1024, 1024, 1280, 1280, 1536, usize::MAX];
        assert_eq!(lengths(name, Flags::default(), &tokens), expected, "{name}");
        let step = Flags::default().with(&dynamic::STEP, 600);
        assert_eq!(lengths(name, step, &[1000, 1001, 1201]), [1000, 1200, 1800], "{name}");
    }
    // The second formula of Fu et al. is constant up to the context.
    let fu2 = Flags::default().with(&dynamic::VARIANT, "fu2");
    assert_eq!(lengths("dynamic", fu2, &[1, 4000, 4001]), [4000, 4000, 4096]);
}

#[test]
fn a_given_attention_scale_leaves_the_scale_of_scores() {
    let scales = |flags: Flags| {
        let case = Case { architecture: "deepseek2", context: Some(32768), ..Case::default() };
        let flags = flags.with(&yarn::ATTENTION_FACTOR, 1.0);
        let plan = case.float("scaling.yarn_log_multiplier", 0.1).flags(flags).plan().unwrap();
        let length = plan.effective_length(32768);
        (Table::new(&plan, Layers::Global, length).scale, plan.score_scale(length))
    };
    let expected = scales(Flags::method("yarn").with(&SCALE, 4.0));
    assert!(expected.1 > 1.0, "{expected:?}");
    assert_eq!(scales(Flags::method("dynamic-yarn")), expected);
}

#[test]
fn dynamic_rules_leave_short_sequences_alone() {
    let plain = Case::default().plan().unwrap();
    let plain = Table::new(&plain, Layers::Global, 8192);
    for name in ["dynamic", "dynamic-linear", "dynamic-yarn"] {
        let flags = Flags::method(name);
        let plan = Case { context: Some(65536), ..Case::default() }.flags(flags).plan().unwrap();
        let short = Table::new(&plan, Layers::Global, plan.effective_length(8192));
        assert_eq!(short.scale, 1.0);
        for (found, expected) in short.inv_freq.iter().zip(&plain.inv_freq) {
            close(name, *found, *expected, EXACT);
        }
        let long = Table::new(&plan, Layers::Global, plan.effective_length(8193));
        assert!(long.inv_freq[31] < 0.97 * plain.inv_freq[31]);
        assert_eq!(plan.warnings, [""; 0]);
    }
}

/// θ_i = base^(-2i/d) / s with s = max(1, n/L), and n rounded up to a multiple of the step.
#[test]
fn dynamic_linear_scaling_divides_by_the_length() {
    let flags = Flags::method("dynamic-linear").with(&dynamic::STEP, 500);
    let case = Case { context_train: 1000, n_rot: 8, ..Case::default() }.flags(flags);
    let plan = case.plan().unwrap();
    for (tokens, s) in [(1, 1.0), (1000, 1.0), (1001, 1.5), (1500, 1.5), (7001, 7.5)] {
        let table = Table::new(&plan, Layers::Global, plan.effective_length(tokens));
        for (found, own) in table.inv_freq.iter().zip([1.0, 0.1, 0.01, 0.001]) {
            close(&format!("{tokens} tokens"), *found, own / s, EXACT);
        }
        assert_eq!(table.scale, 1.0);
    }
}

/// `transformers`, `_compute_dynamic_ntk_parameters`, whose factor has no limit.
#[test]
fn dynamic_ntk_has_hugging_faces_frequencies_for_every_factor() {
    let (d, trained, context) = (64.0, 8192, 16384);
    for factor in [1.0, 2.0, 4.0, 8.0] {
        let flags = Flags::method("dynamic").with(&SCALE, factor).with(&dynamic::STEP, 1);
        let plan = Case { context: Some(context), ..Case::default() }.flags(flags).plan().unwrap();
        for length in [trained, 10_000, context] {
            let alpha = factor * length as f64 / trained as f64 - (factor - 1.0);
            let base = 10_000.0 * alpha.powf(d / (d - 2.0));
            let found = Table::new(&plan, Layers::Global, length).inv_freq;
            for (i, found) in found.iter().enumerate() {
                let expected = base.powf(-2.0 * i as f64 / d);
                // A few roundings of powers.
                assert!((found / expected - 1.0).abs() < 1e-13, "{factor} {length} {i}");
            }
        }
    }
}

#[test]
fn ntk_by_parts_is_yarn_by_turns_without_its_attention_scale() {
    let table = |flags: Flags| {
        let plan = Case { context: Some(32768), ..Case::default() }.flags(flags).plan().unwrap();
        (plan.to_string(), Table::new(&plan, Layers::Global, 32768))
    };
    let (name, by_parts) = table("ntk-by-parts:4".parse().unwrap());
    assert!(name.contains("yarn (`rope_scaling` ntk-by-parts), factor 4"), "{name}");
    assert_eq!(by_parts.scale, 1.0);
    let (_, yarn) = table("yarn:4:yarn-ramp=turns:yarn-attention-factor=1".parse().unwrap());
    assert_eq!(by_parts.inv_freq, yarn.inv_freq);
    // Its settings can still be given.
    let (_, exact) = table("ntk-by-parts:4:yarn-ramp=exact".parse().unwrap());
    assert_ne!(exact.inv_freq, yarn.inv_freq);
}

/// `modeling_cope.py` of the authors, `LlamaRotaryEmbedding`.
#[test]
fn cope_fades_out_the_last_pairs_as_in_its_code() {
    let fade = |pairs: usize, n: usize, i: usize| match (i + n).checked_sub(pairs) {
        Some(j) if n > 1 => (1.0 + (std::f64::consts::PI * j as f64 / (n - 1) as f64).cos()) / 2.0,
        _ => 1.0,
    };
    let check = |case: Case, n: usize, base: f64, factor: f64| {
        let (pairs, plan) = (case.n_rot / 2, case.plan().unwrap());
        let found = Table::new(&plan, Layers::Global, 16384).inv_freq;
        assert_eq!(found.len(), pairs);
        for (i, found) in found.iter().enumerate() {
            let theta = base.powf(-(i as f64) / pairs as f64) / factor;
            let expected = theta * fade(pairs, n, i);
            assert!((found - expected).abs() <= 1e-14 * theta, "{n} {i}: {found} {expected}");
        }
        assert!(n == 1 || found[pairs - 1] == 0.0, "{n}");
        assert_eq!(plan.warnings, [""; 0]);
    };
    let cope = || Flags::method("cope");
    // Llama 3: 29 of 64 pairs turn less than once in 8,192 tokens.
    let llama3 = || Case { n_rot: 128, ..Case::default() }.float("freq_base", 500_000.0);
    check(llama3().flags(cope()), 20, 500_000.0, 1.0);
    check(llama3().flags(cope().with(&cope::PAIRS, 40)), 40, 500_000.0, 1.0);
    check(llama3().flags(cope().with(&cope::PAIRS, 1)), 1, 500_000.0, 1.0);
    // Of 32 pairs by 100,000 there are 12.
    let small = || Case::default().float("freq_base", 100_000.0);
    check(small().flags(cope()), 12, 100_000.0, 1.0);
    let longer = Case { context: Some(16384), ..small() };
    check(longer.flags(cope().with(&SCALE, 2.0)), 12, 100_000.0, 2.0);
    assert_eq!(
        Case::default().flags(cope().with(&cope::PAIRS, 33)).error(),
        "`cope_pairs` 33: must be a whole number from 1 to 32"
    );
}
