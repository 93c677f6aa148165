//! Defaults and ranges of the settings.

use rope_cpu::{
    gguf::{Metadata, Value},
    sample::{
        Sampler, Settings, default_order, dry, min_p, mirostat, parse_names, penalties, settings,
        temperature, top_k, top_p, typical_p, unknown_samplers, xtc,
    },
    settings::{Kind, Setting},
};

use crate::sample::neutral;

#[test]
fn defaults_are_those_of_llama_cpp_and_others_are_off() {
    let expected = [
        ("temp", 0.8),
        ("dynatemp_range", 0.0),
        ("dynatemp_exp", 1.0),
        ("xtc_probability", 0.0),
        ("xtc_threshold", 0.1),
        ("min_p", 0.05),
        ("top_p", 0.95),
        ("typical", 1.0),
        ("top_a", 0.0),
        ("top_k", 40.0),
        ("top_n_sigma", -1.0),
        ("dry_multiplier", 0.0),
        ("dry_base", 1.75),
        ("dry_allowed_length", 2.0),
        ("dry_penalty_last_n", 64.0),
        ("repeat_last_n", 64.0),
        ("repeat_penalty", 1.0),
        ("presence_penalty", 0.0),
        ("frequency_penalty", 0.0),
        ("mirostat", 0.0),
        ("mirostat_ent", 5.0),
        ("mirostat_lr", 0.1),
    ];
    let found: Vec<_> = settings().map(|setting| (setting.name().0, setting.default())).collect();
    assert_eq!(found, expected);
    let default = Settings::default();
    assert_eq!((default.seed, &default.samplers), (None, &default_order()));
    default.check().unwrap();
    for setting in settings() {
        let with = match setting.parameter.kind {
            Kind::Integer(..) => Settings::default().with(setting, setting.default() as i64),
            _ => Settings::default().with(setting, setting.default()),
        };
        with.check().unwrap();
    }
}

/// Checks that settings with a value out of range are rejected with its name.
fn refused(name: &str, expected: &str, bad: &[f32], settings: impl Fn(f32) -> Settings) {
    for bad in bad.iter().copied().chain([f32::NAN, f32::INFINITY]) {
        let text = Sampler::new(settings(bad)).map(|_| ()).unwrap_err().to_string();
        assert_eq!(text, format!("`{name}` {bad}: must be {expected}"));
    }
}

#[test]
fn errors_name_the_setting() {
    let share = "from 0 to 1";
    refused("top_p", share, &[-0.1, 1.1], |top_p| neutral().with(&top_p::TOP_P, top_p));
    refused("min_p", share, &[-0.1, 1.1], |min_p| neutral().with(&min_p::MIN_P, min_p));
    refused("typical", share, &[-0.1, 2.0], |typical_p| {
        neutral().with(&typical_p::TYPICAL_P, typical_p)
    });
    let finite = "a finite number";
    refused("temp", "a finite number of at least 0", &[-0.1], |temperature| {
        neutral().with(&temperature::TEMPERATURE, temperature)
    });
    refused("presence_penalty", finite, &[], |presence_penalty| {
        neutral().with(&penalties::PRESENCE, presence_penalty)
    });
    refused("frequency_penalty", finite, &[], |frequency_penalty| {
        neutral().with(&penalties::FREQUENCY, frequency_penalty)
    });
    let divisor = "a finite number above 0";
    refused("repeat_penalty", divisor, &[0.0, -1.0, 1e-40], |repeat_penalty| {
        neutral().with(&penalties::REPEAT, repeat_penalty)
    });
    refused("xtc_probability", share, &[1.5], |xtc_probability| {
        neutral().with(&xtc::PROBABILITY, xtc_probability)
    });
    refused("dry_base", "a finite number of at least 1", &[0.9], |dry_base| {
        neutral().with(&dry::BASE, dry_base)
    });
    refused("mirostat_ent", finite, &[], |mirostat_tau| {
        neutral().with(&mirostat::TARGET, mirostat_tau)
    });
    refused("logit_bias", "a number or -inf", &[], |bias| Settings {
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
    let expected = Settings { samplers: parse_names("top_k;temp").unwrap(), ..Settings::default() }
        .with(&top_k::TOP_K, 20)
        .with(&temperature::TEMPERATURE, 0.6f32)
        .with(&penalties::LAST_N, 9)
        .with(&mirostat::VERSION, 2);
    assert_eq!(recommended(&metadata).unwrap(), expected);
    // A sampler that only llama.cpp has is left out, and -1 is the whole context.
    metadata.insert("general.sampling.sequence", Value::String(b"top_k;infill;temp"));
    metadata.insert("general.sampling.penalty_last_n", Value::I32(-1));
    let expected = expected.with(&penalties::LAST_N, -1);
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
        ("temp", 2, base().with(&temperature::TEMPERATURE, 2.0)),
        ("top_k", 7, base().with(&top_k::TOP_K, 7)),
        ("top_p", 1, base().with(&top_p::TOP_P, 1.0)),
        ("min_p", 1, base().with(&min_p::MIN_P, 1.0)),
        ("xtc_probability", 1, base().with(&xtc::PROBABILITY, 1.0)),
        ("xtc_threshold", 1, base().with(&xtc::THRESHOLD, 1.0)),
        ("penalty_last_n", 9, base().with(&penalties::LAST_N, 9)),
        ("penalty_repeat", 2, base().with(&penalties::REPEAT, 2.0)),
        ("mirostat", 2, base().with(&mirostat::VERSION, 2)),
        ("mirostat_tau", 3, base().with(&mirostat::TARGET, 3.0)),
        ("mirostat_eta", 4, base().with(&mirostat::RATE, 4.0)),
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
            let setting = settings().find(|setting| setting.key == Some(name)).unwrap().name();
            let settings = Settings::from_metadata(&metadata, |overridden| overridden == setting);
            assert_eq!(settings.unwrap(), base());
        }
    }
    let mut metadata = Metadata::default();
    metadata.insert("general.sampling.sequence", Value::Bool(true));
    let error = recommended(&metadata).unwrap_err();
    assert!(error.starts_with("metadata key general.sampling.sequence is bool true"), "{error}");
    let settings = Settings::from_metadata(&metadata, |overridden| overridden == Setting::SAMPLERS);
    assert_eq!(settings.unwrap(), base());
}
