//! The flags that set the library's settings.

use std::borrow::Cow;

use rope_cpu::settings::{self, Setting};

/// The flags that are not spelled like their settings.
const OTHER_NAMES: [(&str, &str); 1] = [("context", "ctx")];

/// Returns the long name of the flag for a setting, without dashes.
pub fn long(setting: &str) -> String {
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == setting);
    other.map_or_else(|| setting.replace('_', "-"), |(_, flag)| (*flag).into())
}

/// Returns a message of the library with its settings written as flags.
pub fn with_flags(message: &str) -> Cow<'_, str> {
    settings::renamed(message, |name| {
        settings::all().any(|Setting(setting)| setting == name).then(|| format!("--{}", long(name)))
    })
}
