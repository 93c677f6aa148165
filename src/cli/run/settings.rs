//! `/set`: the settings of the samplers, the seed and the length of answers.

use super::{Args, command::nearest, writer::Writer};
use crate::cli::{args::numbers, error::Error, flags, note, sampling};
use rope_cpu::{
    sample::{self, SamplerSetting, Settings},
    settings::{Kind, Values},
};

const SEED: &str = "seed";
const PREDICT: &str = "n";

/// Returns the names that start with `prefix`, each with a space.
pub fn completions(prefix: &str) -> Vec<String> {
    names().filter(|name| name.starts_with(prefix)).map(|name| format!("{name} ")).collect()
}

/// Shows all settings or one, or sets one, as the argument of `/set` asks for.
///
/// # Errors
/// If there is no such setting, or it cannot have that value.
pub fn run(typed: &str, writer: &mut Writer, args: &Args) -> Result<(), Error> {
    let (name, value) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    if name.is_empty() {
        note(list(writer));
        return Ok(());
    }
    let known = names().any(|known| known == name) || setting(name).is_some();
    if !known {
        let all: Vec<_> = names().collect();
        let near = nearest(name, all.iter().map(String::as_str));
        let near = near.map_or(String::new(), |near| format!("{near} is; "));
        return Err(Error::usage(format_args!(
            "/set {name}: not a setting: {near}/set lists the settings"
        )));
    }
    match value.trim() {
        "" => note(format_args!("{name} {}", value_of(name, writer))),
        value => set(name, value, writer, args)
            .map_err(|reason| Error::usage(format_args!("/set {name} {value}: {reason}")))?,
    }
    Ok(())
}

/// Returns the names of all settings.
fn names() -> impl Iterator<Item = String> {
    let of_samplers = sample::settings().map(|setting| flags::long(setting.name().0));
    [PREDICT, SEED].map(String::from).into_iter().chain(of_samplers)
}

/// Returns the sampler's setting of a name, which may be another program's name.
fn setting(name: &str) -> Option<&'static SamplerSetting> {
    sample::settings().find(|setting| {
        let aliases = setting.parameter.aliases.iter().copied();
        aliases.chain([setting.name().0]).any(|known| flags::long(known) == name)
    })
}

fn list(writer: &Writer) -> String {
    let lines = names().map(|name| {
        let summary = match &name[..] {
            PREDICT => "Maximum tokens to generate; -1: no limit".into(),
            SEED => "Seed of random numbers; -1: random".into(),
            name => setting(name).map_or_else(Default::default, |setting| {
                flags::with_flags(setting.parameter.summary)
            }),
        };
        format!("{name:19} {:8} {summary}", value_of(&name, writer))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn value_of(name: &str, writer: &Writer) -> String {
    let Settings { seed, values, .. } = &writer.settings;
    match (name, setting(name)) {
        (PREDICT, _) => writer.limits.tokens_max.map_or("-1".into(), |n| n.to_string()),
        (SEED, _) => seed.map_or("-1".into(), |seed| seed.to_string()),
        (_, Some(setting)) if matches!(setting.parameter.kind, Kind::Integer(..)) => {
            setting.whole(values).to_string()
        }
        (_, Some(setting)) => setting.real(values).to_string(),
        (_, None) => String::new(),
    }
}

/// Sets a value; an error is the reason without the name.
fn set(name: &str, value: &str, writer: &mut Writer, args: &Args) -> Result<(), String> {
    let mut settings = writer.settings.clone();
    match (name, setting(name)) {
        (PREDICT, _) => {
            writer.limits.tokens_max = usize::try_from(numbers::from(-1)(value)?).ok();
            return Ok(());
        }
        (_, Some(setting)) => {
            let value = setting.parse(value).map_err(|e| match e {
                sample::Error::Setting { expected, .. } => format!("must be {expected}"),
                other => other.to_string(),
            })?;
            let given = Values::default().with(&setting.parameter, value);
            settings.values = given.clone().or(settings.values);
            for warning in settings.without_effect(&given) {
                note(format_args!("warning: {warning}"));
            }
        }
        (_, None) => {
            let seed = numbers::between::<i64>(-1, i64::from(u32::MAX) - 1)(value)?;
            settings.seed = u32::try_from(seed).ok();
        }
    }
    sampling::set_breakers(
        &mut settings,
        &args.sampling,
        args.prompt.opening.no_escape,
        writer.tokenizer,
    )
    .map_err(|e| e.to_string())?;
    writer.sample(settings).map_err(|e| e.to_string())
}
