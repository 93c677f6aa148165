//! Defaults and ranges of the settings.

use rope_cpu::{
    gguf::{Metadata, Value},
    sample::{Sampler, Settings, StageKind, unknown_samplers},
};

use crate::neutral;

#[test]
fn defaults_are_those_of_llama_cpp() {
    let expected = Settings {
        seed: None,
        samplers: StageKind::ORDER.to_vec(),
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

/// Checks that settings with a value out of range are rejected with the name of the flag.
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

/// Returns the settings recommended by a file with these keys.
fn recommended(metadata: &Metadata) -> Result<Settings, String> {
    Settings::from_metadata(metadata, |_| false).map_err(|e| e.to_string())
}

#[test]
fn a_file_may_recommend_settings() {
    let mut metadata = Metadata::default();
    assert_eq!(recommended(&metadata).unwrap(), Settings::default());
    metadata.insert("general.sampling.sequence", Value::String(b"top_k;temp"));
    metadata.insert("general.sampling.top_k", Value::I32(20));
    metadata.insert("general.sampling.temp", Value::F32(0.6));
    metadata.insert("general.sampling.penalty_last_n", Value::I32(9));
    metadata.insert("general.sampling.mirostat", Value::I32(2));
    let expected = Settings {
        samplers: vec![StageKind::TopK, StageKind::Temperature],
        top_k: 20,
        temperature: 0.6,
        repeat_last_n: 9,
        mirostat: 2,
        ..Settings::default()
    };
    assert_eq!(recommended(&metadata).unwrap(), expected);
    // A sampler that only llama.cpp has is left out, and -1 is the whole context.
    metadata.insert("general.sampling.sequence", Value::String(b"top_k;infill;temp"));
    metadata.insert("general.sampling.penalty_last_n", Value::I32(-1));
    let expected = Settings { repeat_last_n: usize::MAX, ..expected };
    assert_eq!(recommended(&metadata).unwrap(), expected);
    assert_eq!(unknown_samplers(&metadata).unwrap(), ["infill"]);
    metadata.insert("general.sampling.penalty_last_n", Value::I32(-2));
    let error = recommended(&metadata).unwrap_err();
    assert!(error.contains("general.sampling.penalty_last_n is i32 -2"), "{error}");
}

/// llama.cpp parses all of these values from text.
#[test]
fn each_key_of_a_file_is_one_setting_as_any_type_of_number() {
    let base = Settings::default;
    let cases = [
        ("temp", 2, Settings { temperature: 2.0, ..base() }),
        ("top_k", 7, Settings { top_k: 7, ..base() }),
        ("top_p", 1, Settings { top_p: 1.0, ..base() }),
        ("min_p", 1, Settings { min_p: 1.0, ..base() }),
        ("xtc_probability", 1, Settings { xtc_probability: 1.0, ..base() }),
        ("xtc_threshold", 1, Settings { xtc_threshold: 1.0, ..base() }),
        ("penalty_last_n", 9, Settings { repeat_last_n: 9, ..base() }),
        ("penalty_repeat", 2, Settings { repeat_penalty: 2.0, ..base() }),
        ("mirostat", 2, Settings { mirostat: 2, ..base() }),
        ("mirostat_tau", 3, Settings { mirostat_tau: 3.0, ..base() }),
        ("mirostat_eta", 4, Settings { mirostat_eta: 4.0, ..base() }),
    ];
    for (name, n, expected) in cases {
        let key = format!("general.sampling.{name}");
        let mut metadata = Metadata::default();
        for value in [
            Value::I32(n),
            Value::U64(n as u64),
            Value::I8(n as i8),
            Value::F32(n as f32),
            Value::F64(n.into()),
        ] {
            metadata.insert(&key, value);
            assert_eq!(recommended(&metadata).as_ref(), Ok(&expected), "{key}, {value:?}");
        }
        let is_whole = ["top_k", "penalty_last_n", "mirostat"].contains(&name);
        let wrong = [Value::F32(f32::NAN), Value::Bool(true), Value::String(b"1")];
        let fractions = [Value::F64(0.5), Value::F32(1e20)];
        let fractions = fractions.into_iter().filter(|_| is_whole);
        for value in wrong.into_iter().chain(fractions) {
            metadata.insert(&key, value);
            let error = recommended(&metadata).unwrap_err();
            let said = format!("metadata key {key} is {}, where a", value.describe());
            assert!(error.starts_with(&said), "{error}");
            // An overridden key is not read.
            let settings = Settings::from_metadata(&metadata, |overridden| overridden == name);
            assert_eq!(settings.unwrap(), base());
        }
    }
    let mut metadata = Metadata::default();
    metadata.insert("general.sampling.sequence", Value::Bool(true));
    let error = recommended(&metadata).unwrap_err();
    assert!(error.starts_with("metadata key general.sampling.sequence is bool true"), "{error}");
    let settings = Settings::from_metadata(&metadata, |overridden| overridden == "sequence");
    assert_eq!(settings.unwrap(), base());
}
