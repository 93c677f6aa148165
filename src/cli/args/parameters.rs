//! Options that are made from the library's descriptions of settings.

use std::{error::Error, path::PathBuf};

use clap::{Arg, ArgMatches, Command, builder::PossibleValuesParser, value_parser};

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
    let summary = match parameter.default {
        Some(default) => format!("{} [default: {default}]", parameter.summary),
        None => parameter.summary.into(),
    };
    let option = Arg::new(parameter.setting.0)
        .long(flags::long(parameter.setting.0))
        .aliases(parameter.aliases.iter().map(|alias| alias.replace('_', "-")))
        .value_name(parameter.value_name)
        .help(summary.clone())
        .hide_short_help(parameter.rare);
    let option = match parameter.details {
        "" => option,
        details => option.long_help(format!("{summary}\n\n{}", flags::with_flags(details))),
    };
    match parameter.kind {
        Kind::Number => option.value_parser(value_parser!(f64)).allow_negative_numbers(true),
        Kind::Integer(least, most) => option
            .value_parser(move |text: &str| integer(text, least, most))
            .allow_negative_numbers(least < 0),
        Kind::Whole(range) => option.value_parser(move |text: &str| {
            text.parse::<usize>().map_err(|_| format!("must be a whole number {range}"))
        }),
        Kind::Word(words) => {
            option.value_parser(PossibleValuesParser::new(words)).hide_possible_values(true)
        }
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
            Kind::Switch => Value::Switch(*matches.get_one(id)?),
            Kind::Path => Value::Path(matches.get_one::<PathBuf>(id)?.clone()),
            Kind::Word(words) => {
                let given = matches.get_one::<String>(id)?;
                Value::Word(words.iter().find(|word| *word == given)?)
            }
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
