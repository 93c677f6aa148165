//! The precedence of flags, metadata and defaults, as in llama.cpp.

use rope_cpu::{
    gguf::Value,
    rope::{
        self, FREQ_BASE, FREQ_SCALE, Factors, Flags, LOG_N, Layers, Origin, Plan, SCALE, SCALING,
        Scaling, Table,
        linear::Linear,
        yarn::{self, Ramp, Yarn},
    },
};

use crate::rope::{Case, close, golden};

/// The relative error of values stored as f32 metadata.
const THROUGH_F32: f64 = 1e-7;

#[test]
fn plans_equal_those_of_llama_cpp() {
    let golden = golden();
    let mut deviations = 0;
    for reference in golden["llamacpp_resolve"].as_array().unwrap() {
        let architecture: &str = reference["arch"].as_str().unwrap().to_owned().leak();
        let mut case = Case { architecture, ..Case::default() };
        for (name, value) in reference["meta"].as_object().unwrap() {
            let number = value.as_f64().unwrap_or(f64::NAN);
            case = match name.as_str() {
                "n_ctx_train" => Case { context_train: number as usize, ..case },
                "type" => case.scaling(value.as_str().unwrap().to_owned().leak()),
                "original_context_length" => {
                    case.key("scaling.original_context_length", Value::U32(number as u32))
                }
                name @ ("factor" | "yarn_log_multiplier") => {
                    case.float(&format!("scaling.{name}"), number as f32)
                }
                other => panic!("metadata {other}"),
            };
        }
        for (name, value) in reference["cli"].as_object().unwrap() {
            match name.as_str() {
                "rope_scaling" => {
                    let scaling = Scaling::named(value.as_str().unwrap()).unwrap();
                    case.flags = case.flags.with(&SCALING, scaling.name);
                }
                name => {
                    let number = rope::parameters().find(|p| p.setting.0 == name).unwrap();
                    case.flags = case.flags.with_some(number, value.as_f64());
                }
            }
        }
        let attn_factor = case.flags.values.number(&yarn::ATTN_FACTOR);
        let plan = case.plan().unwrap();

        let expected = |name: &str| reference["resolved"][name].as_f64().unwrap();
        assert_eq!(plan.scaling.value.name, reference["resolved"]["type"]);
        close("base", plan.base.value, expected("base"), 0.0);
        close("freq_scale", 1.0 / plan.factor.value, expected("freq_scale"), 1e-14);
        let ext_factor = match plan.rule_as::<Yarn>() {
            None => {
                assert!(plan.rule_as::<Linear>().is_some());
                0.0
            }
            Some(yarn) => {
                assert_eq!(yarn.original_context.value as f64, expected("n_ctx_orig"));
                close("beta_fast", yarn.beta_fast.value, expected("beta_fast"), 0.0);
                close("beta_slow", yarn.beta_slow.value, expected("beta_slow"), 0.0);
                yarn.ext_factor.value
            }
        };
        assert_eq!(ext_factor, expected("ext_factor"));

        let mut multiplier = reference["cos_sin_multiplier"].as_f64().unwrap();
        if let Some(attn_factor) = attn_factor
            && ext_factor != 0.0
        {
            // The difference: llama.cpp ignores `yarn_attn_factor` here, ik_llama.cpp multiplies by it.
            multiplier *= attn_factor;
            deviations += 1;
        }
        close("attention scale", plan.attention_scale.value, multiplier, THROUGH_F32);
    }
    assert_eq!(deviations, 1);
}

fn factor(case: Case) -> (f64, Origin) {
    let factor = case.plan().unwrap().factor;
    (factor.value, factor.origin)
}

#[test]
fn factor_is_flag_then_key_then_old_key_then_one() {
    let key = |name: &str| Origin::Key(format!("llama.rope.{name}"));
    let silent = Case::default;
    assert_eq!(factor(silent()), (1.0, Origin::Default));
    let old = || silent().float("scale_linear", 2.0);
    assert_eq!(factor(old()), (2.0, key("scale_linear")));
    let both = || old().float("scaling.factor", 4.0);
    assert_eq!(factor(both()), (4.0, key("scaling.factor")));
    let zero = old().float("scaling.factor", 0.0);
    assert_eq!(factor(zero), (1.0, key("scaling.factor")));
    let scale = Flags::default().with(&SCALE, 8.0);
    assert_eq!(factor(both().flags(scale)), (8.0, Origin::Setting(SCALE.setting, "8".into())));
    let freq_scale = Flags::default().with(&FREQ_SCALE, 0.125);
    let typed = Origin::Setting(FREQ_SCALE.setting, "0.125".into());
    assert_eq!(factor(both().flags(freq_scale)), (8.0, typed));
    let none = Flags::method("none");
    assert_eq!(factor(both().flags(none)).0, 1.0);
}

fn original_context(case: Case) -> usize {
    case.plan().unwrap().rule_as::<Yarn>().unwrap().original_context.value
}

#[test]
fn original_context_is_flag_then_key_then_trained() {
    let yarn = |tokens| Flags::method("yarn").with(&SCALE, 2.0).with_some(&yarn::ORIG_CTX, tokens);
    let silent = Case::default;
    let file = |tokens| silent().key("scaling.original_context_length", Value::U32(tokens));
    assert_eq!(original_context(silent().flags(yarn(None))), 8192);
    assert_eq!(original_context(file(0).flags(yarn(None))), 8192);
    assert_eq!(original_context(file(4096).flags(yarn(None))), 4096);
    assert_eq!(original_context(file(4096).flags(yarn(Some(0)))), 4096);
    assert_eq!(original_context(file(4096).flags(yarn(Some(2048)))), 2048);
}

#[test]
fn minus_one_is_the_default_of_yarn_flags() {
    let yarn = Flags::method("yarn").with(&SCALE, 4.0);
    let typed = yarn
        .clone()
        .with(&yarn::EXT_FACTOR, -1.0)
        .with(&yarn::ATTN_FACTOR, -1.0)
        .with(&yarn::BETA_FAST, -1.0)
        .with(&yarn::BETA_SLOW, -1.0)
        .with(&yarn::ORIG_CTX, 0);
    let [typed, silent] = [typed, yarn].map(|flags| Case::default().flags(flags).plan().unwrap());
    assert_eq!(format!("{typed:?}"), format!("{silent:?}"));
}

#[test]
fn an_extrapolation_factor_adds_the_ramp_to_linear_scaling() {
    let linear = Flags::default().with(&SCALE, 4.0).with(&yarn::EXT_FACTOR, 1.0);
    let yarn = Flags::method("yarn").with(&SCALE, 4.0);
    let [linear, yarn] = [linear, yarn].map(|flags| {
        let plan = Case::default().flags(flags).plan().unwrap();
        Table::new(&plan, Layers::Global, 8192)
    });
    assert_eq!(linear, yarn);
}

#[test]
fn attention_factor_of_the_file_multiplies_whatever_the_rule() {
    let scale = |flags: Flags| {
        let case = Case::default().float("scaling.attn_factor", 1.5);
        case.flags(flags).plan().unwrap().attention_scale.value
    };
    assert_eq!(scale(Flags::default()), 1.5);
    let none = Flags::method("none");
    assert_eq!(scale(none), 1.5);
    let given = Flags::default().with(&yarn::ATTN_FACTOR, 2.0);
    assert_eq!(scale(given), 3.0);
    let yarn = Flags::method("yarn").with(&SCALE, 4.0);
    close("YaRN", scale(yarn), 1.5 * (1.0 + 0.1 * 4f64.ln()), 1e-14);
}

#[test]
fn window_layers_keep_their_base_and_are_never_scaled() {
    let gemma = || Case { architecture: "gemma3", window_n_rot: Some(64), ..Case::default() };
    let flags =
        Flags::method("yarn").with(&SCALE, 4.0).with(&FREQ_BASE, 5e6).with(&yarn::ATTN_FACTOR, 1.5);
    let window = |plan: &Plan| Table::new(plan, Layers::Window, 8192);
    let scaled = gemma().float("freq_base", 1e6).flags(flags).plan().unwrap();
    let plain = Case::default().plan().unwrap(); // base 10000, which is also that of windows
    assert_eq!(window(&scaled), Table::new(&plain, Layers::Global, 8192));
    assert_ne!(window(&scaled), Table::new(&scaled, Layers::Global, 8192));
    let own = gemma().float("freq_base_swa", 5000.0).plan().unwrap();
    close("base", window(&own).inv_freq[31], 5000f64.powf(-62.0 / 64.0), 1e-14);
    let narrow = Case { window_n_rot: Some(48), ..gemma() }.plan().unwrap();
    assert_eq!(window(&narrow).inv_freq.len(), 24);
    close("dimensions", window(&narrow).inv_freq[23], 1e4f64.powf(-46.0 / 48.0), 1e-14);
    assert_eq!(Table::new(&narrow, Layers::Global, 8192), Table::new(&plain, Layers::Global, 8192));
}

#[test]
fn divisors_are_those_that_llama_cpp_loads() {
    let all = || Factors {
        rope_freqs: Some(vec![2.0; 32]),
        long: Some(vec![4.0; 32]),
        short: Some(vec![3.0; 32]),
    };
    let llama = || Case { factors: all(), ..Case::default() };
    // For a short and for a long sequence.
    let divisors = |plan: &Plan| {
        let divisors = plan.divisors.as_ref().unwrap();
        [1, 1 << 20].map(|tokens| divisors.at(tokens)[0])
    };
    let fixed = llama().plan().unwrap();
    assert_eq!(divisors(&fixed), [2.0; 2]);
    assert_eq!(fixed.warnings.len(), 2, "{:?}", fixed.warnings);
    // No flag disables the divisors, as they are part of the model.
    let none = Flags::method("none");
    assert_eq!(divisors(&llama().flags(none).plan().unwrap()), [2.0; 2]);
    let longrope = Flags::method("longrope");
    for case in [llama().scaling("longrope"), llama().flags(longrope)] {
        assert_eq!(divisors(&case.plan().unwrap()), [3.0, 4.0]);
    }
    let gemma = Case { architecture: "gemma3", ..llama() };
    assert!(gemma.plan().unwrap().divisors.is_none());
}

#[test]
fn divisors_and_factor_compose() {
    let factors = Factors { rope_freqs: Some(vec![2.0; 32]), ..Factors::default() };
    let flags = Flags::default().with(&SCALE, 4.0);
    let plan = Case { factors, ..Case::default() }.flags(flags).plan().unwrap();
    let table = Table::new(&plan, Layers::Global, 8192);
    assert_eq!(table.inv_freq[0], 1.0 / 8.0);
}

#[test]
fn factor_of_a_method_reaches_the_context() {
    let case = |name: &'static str, context| {
        let flags = Flags::method(name);
        Case { context: Some(context), ..Case::default() }.flags(flags)
    };
    let computed = Origin::Computed("context / original context");
    for name in ["linear", "ntk", "ntk-mixed", "yarn", "llama3", "dprope"] {
        assert_eq!(factor(case(name, 24576)), (3.0, computed.clone()), "{name}");
        // A computed factor is never below 1.
        assert_eq!(factor(case(name, 100)), (1.0, computed.clone()), "{name}");
        let file = case(name, 24576).float("scaling.factor", 2.0);
        assert_eq!(factor(file).0, 2.0, "{name}");
        let old = case(name, 24576).float("scale_linear", 2.0);
        assert_eq!(factor(old).0, 2.0, "{name}");
        let plan = case(name, 24576).plan().unwrap();
        assert_eq!(plan.warnings, [""; 0], "{name}");
        let line = plan.to_string();
        let start =
            format!("RoPE: {name} (`rope_scaling` {name}), factor 3 (context / original context)");
        assert!(line.starts_with(&start), "{line}");
        // In a comparison of methods the factor of the file is ignored.
        let flags = Flags { for_context: true, ..case(name, 0).flags };
        let file = case(name, 24576).float("scaling.factor", 2.0).flags(flags);
        assert_eq!(factor(file), (3.0, computed.clone()), "{name}");
        // A larger base reduces the factor that is needed.
        let flags = case(name, 0).flags.with(&FREQ_BASE, 20453.0);
        let (found, origin) = factor(case(name, 24576).flags(flags));
        close(name, found, 1.5, 1e-4);
        assert_eq!(origin, Origin::Computed("context / original context / alpha of the base"));
    }
    let alpha = || case("ntk", 24576).float("scaling.factor", 2.0).float("scaling.alpha", 5.0);
    assert_eq!(factor(alpha()).0, 5.0);
    assert_eq!(alpha().plan().unwrap().warnings, [""; 0]);
    for name in ["yarn", "llama3"] {
        let original = case(name, 0).flags.with(&yarn::ORIG_CTX, 4096);
        assert_eq!(factor(case(name, 24576).flags(original)).0, 6.0);
    }
    // The length for log n is not the context that linear scaling extends.
    let log_n = case("linear", 0).flags.with(&yarn::ORIG_CTX, 4096).with(&LOG_N, true);
    assert_eq!(factor(case("linear", 24576).flags(log_n)).0, 3.0);
}

/// A file that names a scaling without a factor is not scaled, as in llama.cpp.
#[test]
fn a_file_without_a_factor_is_not_scaled() {
    let case = || Case { context: Some(24576), ..Case::default() };
    for case in [case(), case().scaling("none"), case().scaling("linear"), case().scaling("yarn")] {
        assert_eq!(factor(case).0, 1.0);
    }
}

#[test]
fn computed_factors_extend_the_context_of_divisors() {
    let set = || Some(vec![2.0; 32]);
    let case = |name: &'static str, factors| {
        let flags = Flags::method(name);
        Case { context: Some(16384), factors, ..Case::default() }
            .key("scaling.original_context_length", Value::U32(1024))
            .flags(flags)
    };
    let longrope = |name| {
        case(name, Factors { long: set(), short: set(), rope_freqs: None }).scaling("longrope")
    };
    let fixed = |name| case(name, Factors { rope_freqs: set(), ..Factors::default() });
    for case in [longrope("linear"), longrope("yarn"), fixed("ntk"), fixed("yarn"), fixed("dprope")]
    {
        let plan = case.plan().unwrap();
        assert_eq!((plan.factor.value, &plan.warnings[..]), (2.0, &[][..]), "{plan}");
    }
    assert_eq!(original_context(longrope("yarn")), 8192);
}

#[test]
fn llama3_replaces_the_tensor_of_the_file() {
    let factors = Factors { rope_freqs: Some(vec![2.0; 32]), ..Factors::default() };
    let flags = Flags::method("llama3").with(&SCALE, 4.0);
    let plan = Case { factors, ..Case::default() }.flags(flags).plan().unwrap();
    assert!(plan.divisors.is_none());
    assert_eq!(plan.warnings, ["tensor rope_freqs.weight is replaced by `rope_scaling` llama3"]);
}

/// Some families read keys that others ignore, or have another default, as their models were trained.
#[test]
fn families_have_keys_and_defaults_of_their_own() {
    let plan = |case: Case| case.plan().unwrap();
    let yarn = |case: Case| plan(case).rule_as::<Yarn>().unwrap().clone();
    let scaled = |architecture| Case { architecture, ..Case::default() }.scaling("yarn");

    let mistral = || {
        let betas = scaled("mistral3").float("scaling.yarn_beta_fast", 8.0);
        betas.float("scaling.yarn_beta_slow", 0.5)
    };
    let betas = |case| {
        let Yarn { beta_fast, beta_slow, .. } = yarn(case);
        (beta_fast.value, beta_slow.value)
    };
    assert_eq!(betas(mistral()), (8.0, 0.5));
    assert_eq!(betas(mistral().flags(Flags::default().with(&yarn::BETA_FAST, 4.0))), (4.0, 0.5));
    assert_eq!(betas(scaled("mistral3")), (32.0, 1.0));

    assert_eq!(yarn(scaled("llama")).ramp.value, Ramp::Whole);
    assert_eq!(yarn(scaled("gpt-oss")).ramp.value, Ramp::Exact);
    let whole = Flags::default().with(&yarn::RAMP, "whole");
    assert_eq!(yarn(scaled("gpt-oss").flags(whole)).ramp.value, Ramp::Whole);

    let hunyuan = Case { architecture: "hunyuan-dense", n_rot: 128, ..Case::default() };
    let plan = plan(hunyuan.float("freq_base", 10000.0).float("scaling.alpha", 1000.0));
    close("base", plan.base_train.value, 1e4 * 1e3f64.powf(128.0 / 126.0), THROUGH_F32);
    assert_eq!(plan.warnings, [""; 0]);
}
