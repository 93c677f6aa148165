//! Defaults and limits of the settings.

use rope_cpu::{
    gguf::{Metadata, Value},
    sample::{Sampler, SamplerKind, Settings, unknown_samplers},
};

use crate::neutral;

#[test]
fn defaults_are_those_of_llama_cpp() {
    let expected = Settings {
        seed: None,
        samplers: SamplerKind::ORDER.to_vec(),
        logit_bias: vec![],
        temperature: 0.8,
        top_k: 40,
        top_p: 0.95,
        min_p: 0.05,
        typical_p: 1.0,
        top_n_sigma: -1.0,
        xtc_probability: 0.0,
        xtc_threshold: 0.1,
        dynatemp_range: 0.0,
        dynatemp_exponent: 1.0,
        repeat_last_n: 64,
        repeat_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        dry_multiplier: 0.0,
        dry_base: 1.75,
        dry_allowed_length: 2,
        dry_penalty_last_n: 64,
        dry_breakers: vec![],
        mirostat: 0,
        mirostat_tau: 5.0,
        mirostat_eta: 0.1,
    };
    assert_eq!(Settings::default(), expected);
}

/// Checks that settings with a bad value are refused by the name of its flag.
fn refused(flag: &str, expected: &str, bad: &[f32], settings: impl Fn(f32) -> Settings) {
    for bad in bad.iter().copied().chain([f32::NAN, f32::INFINITY]) {
        let text = Sampler::new(settings(bad)).map(|_| ()).unwrap_err().to_string();
        assert_eq!(text, format!("{flag} {bad}: must be {expected}"));
    }
}

#[test]
fn errors_name_the_flag() {
    let share = "from 0 to 1";
    refused("--top-p", share, &[-0.1, 1.1], |top_p| Settings { top_p, ..neutral() });
    refused("--min-p", share, &[-0.1, 1.1], |min_p| Settings { min_p, ..neutral() });
    refused("--typical", share, &[-0.1, 2.0], |typical_p| Settings { typical_p, ..neutral() });
    let finite = "a finite number";
    refused("--temp", finite, &[], |temperature| Settings { temperature, ..neutral() });
    refused("--presence-penalty", finite, &[], |presence_penalty| Settings {
        presence_penalty,
        ..neutral()
    });
    refused("--frequency-penalty", finite, &[], |frequency_penalty| Settings {
        frequency_penalty,
        ..neutral()
    });
    let divisor = "a finite number above 0";
    refused("--repeat-penalty", divisor, &[0.0, -1.0, 1e-40], |repeat_penalty| Settings {
        repeat_penalty,
        ..neutral()
    });
    refused("--xtc-probability", share, &[1.5], |xtc_probability| Settings {
        xtc_probability,
        ..neutral()
    });
    refused("--dry-base", "a finite number of at least 1", &[0.9], |dry_base| Settings {
        dry_base,
        ..neutral()
    });
    refused("--mirostat-ent", finite, &[], |mirostat_tau| Settings { mirostat_tau, ..neutral() });
    refused("--logit-bias", "a number or -inf", &[], |bias| Settings {
        logit_bias: vec![(0, 1.0), (1, bias)],
        ..neutral()
    });
}

#[test]
fn a_file_may_recommend_settings() {
    let mut metadata = Metadata::default();
    assert_eq!(Settings::from_metadata(&metadata).unwrap(), Settings::default());
    metadata.insert("general.sampling.sequence", Value::String(b"top_k;temp"));
    metadata.insert("general.sampling.top_k", Value::I32(20));
    metadata.insert("general.sampling.temp", Value::F32(0.6));
    metadata.insert("general.sampling.penalty_last_n", Value::I32(9));
    metadata.insert("general.sampling.mirostat", Value::I32(2));
    let expected = Settings {
        samplers: vec![SamplerKind::TopK, SamplerKind::Temperature],
        top_k: 20,
        temperature: 0.6,
        repeat_last_n: 9,
        mirostat: 2,
        ..Settings::default()
    };
    assert_eq!(Settings::from_metadata(&metadata).unwrap(), expected);
    // What only llama.cpp has is left out, and -1 stands for the context.
    metadata.insert("general.sampling.sequence", Value::String(b"top_k;infill;temp"));
    metadata.insert("general.sampling.penalty_last_n", Value::I32(-1));
    let expected = Settings { repeat_last_n: usize::MAX, ..expected };
    assert_eq!(Settings::from_metadata(&metadata).unwrap(), expected);
    assert_eq!(unknown_samplers(&metadata).unwrap(), ["infill"]);
    metadata.insert("general.sampling.penalty_last_n", Value::I32(-2));
    let error = Settings::from_metadata(&metadata).unwrap_err().to_string();
    assert!(error.contains("general.sampling.penalty_last_n"), "{error}");
    metadata.insert("general.sampling.penalty_last_n", Value::I32(0));
    metadata.insert("general.sampling.top_k", Value::F32(20.0));
    let error = Settings::from_metadata(&metadata).unwrap_err().to_string();
    assert!(error.contains("general.sampling.top_k"), "{error}");
}
