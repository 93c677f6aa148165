//! Frequencies and attention scales of every rule, against the reference.

use std::collections::BTreeSet;

use rope_cpu::rope::{Factors, Flags, Layers, Scaling, Table};
use serde_json::Value;

use crate::{Case, close, floats, golden};

/// What the file says of its own precision.
const EXACT: f64 = 1e-14;

/// Divisors pass through tensors of f32, which round by half a unit in the last place.
const THROUGH_F32: f64 = 1.0 / (1 << 24) as f64 + EXACT;

/// YaRN's growth of cosine and sine for a factor above 1.
fn magnitude(factor: f64) -> f64 {
    1.0 + 0.1 * factor.ln()
}

/// The model and flags that mean the same as a case, the length of its sequence, and the
/// precision with which frequencies come out; `None` for methods that there is no flag for yet.
fn translate(method: &str, params: &Value) -> Option<(Case, usize, f64)> {
    let given = |name: &str| params.get(name).and_then(Value::as_f64);
    let whole = |name: &str| given(name).map(|x| x as usize);
    let divisors = |name: &str| -> Option<Vec<f32>> {
        Some(floats(params.get(name)?).iter().map(|f| *f as f32).collect())
    };
    let base = given("base").unwrap();
    let case = Case {
        n_rot: whole("n_rot").unwrap(),
        context_train: whole("max_pos").or(whole("n_ctx_orig")).unwrap(),
        ..Case::default()
    }
    .float("freq_base", base as f32);
    let yarn = Flags {
        scaling: Some(Scaling::Yarn),
        scale: given("factor"),
        yarn_beta_fast: given("beta_fast"),
        yarn_beta_slow: given("beta_slow"),
        ..Flags::default()
    };
    let length = whole("seq_len").unwrap_or(1);
    let (case, precision) = match method {
        "none" => (case, EXACT),
        "linear" => (case.flags(Flags { scale: given("factor"), ..Flags::default() }), EXACT),
        "ntk_static" => {
            let d = given("n_rot").unwrap();
            let freq_base = base * given("alpha").unwrap().powf(d / (d - 2.0));
            (case.flags(Flags { freq_base: Some(freq_base), ..Flags::default() }), EXACT)
        }
        "yarn_hf" if params.get("truncate") == Some(&Value::Bool(false)) => return None,
        "yarn_hf" => {
            let factor = given("factor").unwrap();
            let flags = Flags {
                // There it replaces the magnitude, here it multiplies it.
                yarn_attn_factor: given("attention_factor").map(|a| a / magnitude(factor)),
                ..yarn
            };
            let weights = (given("mscale"), given("mscale_all_dim"));
            let case = match weights {
                (Some(above), Some(below)) => {
                    // In files of DeepSeek 2 both weights are one, and stored as a tenth.
                    let deepseek = above == below;
                    assert!(deepseek || above == 1.0, "no file can say {weights:?}");
                    let stored = if deepseek { 0.1 * below } else { below };
                    let architecture = if deepseek { "deepseek2" } else { "mistral3" };
                    Case { architecture, ..case }
                        .float("freq_base", base as f32)
                        .float("scaling.yarn_log_multiplier", stored as f32)
                }
                _ => case,
            };
            (case.flags(flags), EXACT)
        }
        "yarn_llamacpp" => {
            let flags = Flags {
                freq_scale: given("freq_scale"),
                yarn_ext_factor: given("ext_factor"),
                yarn_attn_factor: given("attn_factor"),
                ..yarn
            };
            let rope_freqs = divisors("freq_factors");
            let precision = if rope_freqs.is_some() { THROUGH_F32 } else { EXACT };
            let factors = Factors { rope_freqs, ..Factors::default() };
            (Case { factors, ..case }.flags(flags), precision)
        }
        "longrope" => {
            let original = whole("n_ctx_orig").unwrap() as u32;
            let factors = Factors {
                short: divisors("short_factor"),
                long: divisors("long_factor"),
                rope_freqs: None,
            };
            let case = Case { factors, ..case }
                .scaling("longrope")
                .key("scaling.original_context_length", rope_cpu::gguf::Value::U32(original));
            (case, THROUGH_F32)
        }
        _ => return None,
    };
    Some((case, length, precision))
}

#[test]
fn frequencies_equal_the_reference() {
    let golden = golden();
    let mut compared = 0;
    let mut left_out = BTreeSet::new();
    for reference in golden["rope"].as_array().unwrap() {
        let id = reference["id"].as_str().unwrap();
        let method = reference["method"].as_str().unwrap();
        let (case, length, precision) = if method == "llama3" {
            // The divisors that the converter would have written into the file.
            let divisors = floats(&reference["freq_factors"]).iter().map(|f| *f as f32).collect();
            let (case, length, _) = translate("none", &reference["params"]).unwrap();
            let factors = Factors { rope_freqs: Some(divisors), ..Factors::default() };
            (Case { factors, ..case }, length, THROUGH_F32)
        } else if let Some(translated) = translate(method, &reference["params"]) {
            translated
        } else {
            left_out.insert(method);
            continue;
        };
        let plan = case.plan().unwrap();
        let table = Table::new(&plan, Layers::Global, plan.effective_length(length));
        let expected = floats(&reference["inv_freq"]);
        assert_eq!(table.inv_freq.len(), expected.len(), "{id}");
        for (i, (found, expected)) in table.inv_freq.iter().zip(expected).enumerate() {
            close(&format!("{id}, pair {i}"), *found, expected, precision);
        }
        let expected = reference["attn_scale"].as_f64().unwrap();
        close(&format!("{id}, attention scale"), table.scale, expected, EXACT);
        compared += 1;
    }
    assert_eq!(compared, 31);
    let later = [
        "ntk_dynamic_fu1",
        "ntk_dynamic_fu2",
        "ntk_dynamic_hf",
        "ntk_mixed",
        "yarn_dynamic",
        "yarn_hf", // without truncation: gpt-oss alone
        "yarn_paper",
    ];
    assert_eq!(left_out, BTreeSet::from(later));
}

#[test]
fn ramp_may_end_beyond_the_last_pair() {
    // corr(turns) = 64 ln(131072 / (2 pi turns)) / (2 ln 10000) is 22.5 for 32 turns and 34.6
    // for one: the ramp goes from pair 22 to 35, though there are only 32 pairs.
    let yarn = Flags { scaling: Some(Scaling::Yarn), scale: Some(4.0), ..Flags::default() };
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
