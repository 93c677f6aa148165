//! Options from the library's descriptions of settings.

use std::{ffi::OsStr, marker::PhantomData};

use clap::{
    Arg, ArgAction, ArgMatches, Command, FromArgMatches, ValueHint,
    builder::{PossibleValue, TypedValueParser},
};

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
    let option = option.value_parser(Parser(parameter));
    match parameter.kind {
        Kind::Number => option.allow_negative_numbers(true),
        Kind::Integer(least, _) => option.allow_negative_numbers(least < 0),
        Kind::Word(_) => option.hide_possible_values(true),
        Kind::Words(_) => {
            option.hide_possible_values(true).value_delimiter(',').action(ArgAction::Append)
        }
        Kind::Path => option.value_hint(ValueHint::AnyPath),
        Kind::Between(..) | Kind::Whole(_) | Kind::Switch => option,
    }
}

/// Parses values of a parameter. Completions propose its words.
#[derive(Clone)]
struct Parser(&'static Parameter);

impl TypedValueParser for Parser {
    type Value = Value;

    fn parse_ref(
        &self,
        command: &Command,
        option: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Value, clap::Error> {
        let Parser(parameter) = *self;
        if let Kind::Path = parameter.kind {
            return Ok(Value::Path(value.into()));
        }
        let parser = move |text: &str| {
            let is_scaling = parameter.setting == rope::SCALING.setting;
            parameter.parse(text).ok_or_else(|| match rope::trained(text).filter(|_| is_scaling) {
                Some(about) => format!("no setting applies it: {about}"),
                None => format!("must be {}", expected(parameter.kind)),
            })
        };
        parser.parse_ref(command, option, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        match self.0.kind {
            Kind::Word(words) | Kind::Words(words) => {
                Some(Box::new(words.iter().copied().map(PossibleValue::new)))
            }
            _ => None,
        }
    }
}

/// Describes the values of a setting. Clap separates words before it parses each.
fn expected(kind: Kind) -> String {
    match kind {
        Kind::Words(words) => Kind::Word(words).expected(),
        kind => kind.expected(),
    }
}

/// Returns the value of a parameter's option, if it is given.
fn value(matches: &ArgMatches, parameter: &Parameter) -> Option<Value> {
    let mut values = matches.get_many::<Value>(parameter.setting.0)?.cloned();
    match parameter.kind {
        Kind::Words(_) => {
            let words = values.filter_map(|value| match value {
                Value::Words(words) => Some(words),
                _ => None,
            });
            Some(Value::Words(words.flatten().collect()))
        }
        _ => values.next(),
    }
}
