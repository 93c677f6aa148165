//! Defaults and limits of the settings.

use rope_cpu::sample::{Sampler, Settings};

use crate::neutral;

#[test]
fn defaults_are_those_of_llama_cpp() {
    let expected = Settings {
        seed: None,
        temperature: 0.8,
        top_k: 40,
        top_p: 0.95,
        min_p: 0.05,
        typical_p: 1.0,
        repeat_last_n: 64,
        repeat_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
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
}
