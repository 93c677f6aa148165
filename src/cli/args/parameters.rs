//! Options from the library's descriptions of settings.

use std::{error::Error, ffi::OsStr, path::PathBuf};

use clap::{
    Arg, ArgMatches, Command,
    builder::{PossibleValue, TypedValueParser},
    value_parser,
};

use super::numbers;
use crate::cli::flags;
use rope_cpu::settings::{Kind, Parameter, Value, Values};

/// Adds an option for each parameter to a command.
pub fn added(
    command: Command,
    parameters: impl IntoIterator<Item = &'static Parameter>,
) -> Command {
    command.args(parameters.into_iter().map(option))
}

fn option(parameter: &'static Parameter) -> Arg {
    let long = flags::long(parameter.setting.0);
    let mut summary = flags::with_flags(parameter.summary).into_owned();
    if let Some(default) = parameter.default {
        summary += &format!(" [default: {default}]");
    }
    let details = flags::with_flags(parameter.details);
    let option = match &details[..] {
        "" => Arg::new(parameter.setting.0),
        details => Arg::new(parameter.setting.0).long_help(format!("{summary}\n\n{details}")),
    };
    let option = option
        .long(long)
        .aliases(parameter.aliases.iter().map(|alias| flags::long(alias)))
        .aliases(parameter.llama_cpp)
        .value_name(parameter.value_name)
        .help(summary)
        .hide_short_help(parameter.rare);
    match parameter.kind {
        Kind::Number => option.value_parser(value_parser!(f64)).allow_negative_numbers(true),
        Kind::Integer(least, most) => option
            .value_parser(move |text: &str| integer(text, least, most))
            .allow_negative_numbers(least < 0),
        Kind::Whole(range) => option.value_parser(move |text: &str| {
            text.parse::<usize>().map_err(|_| format!("must be a whole number {range}"))
        }),
        Kind::Word(words) => option.value_parser(Words(words)).hide_possible_values(true),
        Kind::Switch => option.value_parser(super::on_or_off),
        Kind::Path => option.value_parser(value_parser!(PathBuf)),
    }
}

fn integer(text: &str, least: i64, most: i64) -> Result<i64, Box<dyn Error + Send + Sync>> {
    if most < i64::MAX {
        return Ok(numbers::between(least, most)(text)?);
    }
    match text.parse()? {
        number if number < least => Err(format!("must be at least {least}").into()),
        number => Ok(number),
    }
}

/// A parser of one of these words, which completions propose.
#[derive(Clone)]
struct Words(&'static [&'static str]);

impl TypedValueParser for Words {
    type Value = &'static str;

    fn parse_ref(
        &self,
        command: &Command,
        option: Option<&Arg>,
        value: &OsStr,
    ) -> Result<&'static str, clap::Error> {
        let words = self.0;
        let parser = move |text: &str| {
            let word = words.iter().copied().find(|word| *word == text);
            word.ok_or_else(|| format!("must be one of {}", words.join(", ")))
        };
        parser.parse_ref(command, option, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().copied().map(PossibleValue::new)))
    }
}

/// Returns the values of the options that are given.
pub fn values(
    matches: &ArgMatches,
    parameters: impl IntoIterator<Item = &'static Parameter>,
) -> Values {
    let value = |parameter: &'static Parameter| {
        let id = parameter.setting.0;
        Some(match parameter.kind {
            Kind::Number => Value::Number(*matches.get_one(id)?),
            Kind::Integer(..) => Value::Integer(*matches.get_one(id)?),
            Kind::Whole(_) => Value::Whole(*matches.get_one(id)?),
            Kind::Word(_) => Value::Word(matches.get_one::<&str>(id)?),
            Kind::Switch => Value::Switch(*matches.get_one(id)?),
            Kind::Path => Value::Path(matches.get_one::<PathBuf>(id)?.clone()),
        })
    };
    let mut all = Values::default();
    for parameter in parameters {
        if let Some(value) = value(parameter) {
            all = all.with(parameter, value);
        }
    }
    all
}
