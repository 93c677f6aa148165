//! The flags and environment variables for the library's settings.

use std::borrow::Cow;

use rope_cpu::{
    rope::{self, Plan},
    runtime::parameters,
    sample::{self, SamplerSetting},
    settings::{self, Parameter, Setting},
};

/// The names that cannot be derived from a setting's name.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("model", "-m"),
    ("hub_endpoint", "HF_ENDPOINT"),
    ("hub_cache", "HF_HUB_CACHE"),
    ("hub_token", "-hft or HF_TOKEN"),
    ("context", "--ctx"),
    ("spec_draft_model", "-md"),
];

/// Returns all settings that texts of the library contain, under all their names.
fn all() -> impl Iterator<Item = Setting> {
    let names = |parameter: &'static Parameter| {
        let aliases = parameter.aliases.iter().copied().map(Setting);
        [parameter.setting].into_iter().chain(aliases)
    };
    let of_sampling = sample::settings().map(SamplerSetting::name);
    let of_rows = rope::parameters().chain(parameters::all()).flat_map(names);
    Setting::ALL.into_iter().chain(of_sampling).chain(of_rows)
}

/// Returns the flag or the environment variable for a setting.
pub fn shown(setting: &str) -> Cow<'static, str> {
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == setting);
    other.map_or_else(|| format!("--{}", long(setting)).into(), |(_, name)| (*name).into())
}

/// Returns the long name of the option that is made for a setting, without dashes.
pub fn long(setting: &str) -> String {
    setting.replace('_', "-")
}

/// Returns the RoPE line of a plan with its settings written as flags.
pub fn line(plan: &Plan) -> String {
    with_flags(&plan.to_string()).into_owned()
}

/// Replaces settings in a message of the library by flags and environment variables.
pub fn with_flags(message: &str) -> Cow<'_, str> {
    settings::renamed(message, |name| {
        all().any(|Setting(setting)| setting == name).then(|| shown(name).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{argv, command};

    /// A setting may have a flag, an environment variable of another program, or both.
    #[test]
    fn every_setting_has_an_option_or_a_variable() {
        let root = command();
        let commands = ["run", "serve"].map(|name| root.find_subcommand(name).unwrap());
        for Setting(setting) in all() {
            for name in shown(setting).split(" or ") {
                if name.starts_with("HF_") {
                    continue;
                }
                let typed = ["rope-cpu", "run", name, "x"].map(Into::into);
                let typed = argv::normalize(&root, typed.to_vec()).unwrap().argv;
                let long = typed[2].to_str().unwrap().split('=').next().unwrap();
                let mut options = commands.iter().flat_map(|command| command.get_arguments());
                let known = options.any(|option| {
                    option.get_long().is_some_and(|known| format!("--{known}") == long)
                });
                assert!(known, "{setting}: {name}");
            }
        }
    }

    #[test]
    fn messages_show_flags() {
        for (message, expected) in [
            ("`top_k` 1: must be", "--top-k 1: must be"),
            ("give it with `model`", "give it with -m"),
            ("run `rope-cpu tokenize`", "run `rope-cpu tokenize`"),
        ] {
            assert_eq!(with_flags(message), expected);
        }
    }
}
