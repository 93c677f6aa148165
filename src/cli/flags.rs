//! The names that users of the program have for the library's settings.

use std::borrow::Cow;

use rope_cpu::settings::{self, Setting};

/// The names that do not follow from those of the settings.
const OTHER_NAMES: [(&str, &str); 5] = [
    ("model", "-m"),
    ("hub_endpoint", "HF_ENDPOINT"),
    ("hub_cache", "HF_HUB_CACHE"),
    ("hub_token", "-hft or HF_TOKEN"),
    ("context", "--ctx"),
];

/// Returns the flag or the environment variable for a setting.
pub fn shown(setting: &str) -> Cow<'static, str> {
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == setting);
    other.map_or_else(|| format!("--{}", long(setting)).into(), |(_, name)| (*name).into())
}

/// Returns the long name of the option that is made for a setting, without dashes.
pub fn long(setting: &str) -> String {
    setting.replace('_', "-")
}

/// Returns a message of the library with its settings as users of the program name them.
pub fn with_flags(message: &str) -> Cow<'_, str> {
    settings::renamed(message, |name| {
        settings::all().any(|Setting(setting)| setting == name).then(|| shown(name).into())
    })
}
