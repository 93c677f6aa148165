//! Options from the library's descriptions of settings.

use std::{error::Error, ffi::OsStr, marker::PhantomData, path::PathBuf};

use clap::{
    Arg, ArgAction, ArgMatches, Command, FromArgMatches,
    builder::{PossibleValue, TypedValueParser},
    value_parser,
};

use super::numbers;
use crate::cli::flags;
use rope_cpu::{
    rope,
    settings::{Kind, Parameter, Value, Values},
};

/// A group of settings, each of which becomes an option.
pub trait Group {
    /// The heading of the options in the help; `None` for the heading of the options before.
    const HEADING: Option<&'static str> = None;

    /// Returns the descriptions of the settings.
    fn parameters() -> impl Iterator<Item = &'static Parameter>;
}

/// The options of a group, with the values that are given.
#[derive(Clone, Debug, Default)]
pub struct Options<G> {
    /// The values.
    pub values: Values,
    group: PhantomData<G>,
}

impl<G: Group> clap::Args for Options<G> {
    fn augment_args(command: Command) -> Command {
        let command = match G::HEADING {
            Some(heading) => command.next_help_heading(heading),
            None => command,
        };
        command.args(G::parameters().map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<G: Group> FromArgMatches for Options<G> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = G::parameters().filter_map(|p| Some((p, value(matches, p)?)));
        let values = given.fold(Values::default(), |all, (p, value)| all.with(p, value));
        Ok(Options { values, group: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
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
        Kind::Number => option.value_parser(number).allow_negative_numbers(true),
        Kind::Between(least, most) => option.value_parser(move |text: &str| match number(text)? {
            number if number > least && number < most => Ok(number),
            _ => Err(format!("must be above {least} and below {most}")),
        }),
        Kind::Integer(least, most) => option
            .value_parser(move |text: &str| integer(text, least, most))
            .allow_negative_numbers(least < 0),
        Kind::Whole(range) => option.value_parser(move |text: &str| {
            text.parse::<usize>().map_err(|_| format!("must be a whole number {range}"))
        }),
        Kind::Word(words) => option.value_parser(Words(words)).hide_possible_values(true),
        Kind::Words(words) => option
            .value_parser(Words(words))
            .hide_possible_values(true)
            .value_delimiter(',')
            .action(ArgAction::Append),
        Kind::Switch => option.value_parser(super::on_or_off),
        Kind::Path => option.value_parser(value_parser!(PathBuf)),
    }
}

fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "not a number".into())
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
        let is_scaling = option.is_some_and(|option| option.get_id() == rope::SCALING.setting.0);
        let parser = move |text: &str| {
            let word = words.iter().copied().find(|word| *word == text);
            word.ok_or_else(|| match rope::trained(text).filter(|_| is_scaling) {
                Some(about) => format!("no setting applies it: {about}"),
                None => format!("must be one of {}", words.join(", ")),
            })
        };
        parser.parse_ref(command, option, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().copied().map(PossibleValue::new)))
    }
}

/// Returns the value of a parameter's option, if it is given.
fn value(matches: &ArgMatches, parameter: &Parameter) -> Option<Value> {
    let id = parameter.setting.0;
    Some(match parameter.kind {
        Kind::Number | Kind::Between(..) => Value::Number(*matches.get_one(id)?),
        Kind::Integer(..) => Value::Integer(*matches.get_one(id)?),
        Kind::Whole(_) => Value::Whole(*matches.get_one(id)?),
        Kind::Word(_) => Value::Word(matches.get_one::<&str>(id)?),
        Kind::Words(_) => Value::Words(matches.get_many::<&str>(id)?.copied().collect()),
        Kind::Switch => Value::Switch(*matches.get_one(id)?),
        Kind::Path => Value::Path(matches.get_one::<PathBuf>(id)?.clone()),
    })
}
