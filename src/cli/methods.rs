//! Lists of RoPE methods, each with its own flags: `none,linear,yarn:rope-scale=4`.

use std::{collections::HashSet, fmt, str::FromStr};

use clap::Parser;

use super::{args::RopeArgs, error::Error, wording};
use rope_cpu::{
    model::Model,
    rope::{self, Flags, Origin, Plan, Scaling, Sourced},
};

/// A method in the form `METHOD[:FLAG=VALUE]...`, with RoPE flags without dashes.
#[derive(Clone, Debug, PartialEq)]
pub struct Method {
    /// The text that the user gave.
    pub name: String,
    /// The RoPE flags of the method and of its `:FLAG=VALUE` parts.
    pub flags: Flags,
}

/// A command line of the flags of a method only.
#[derive(Parser)]
#[command(disable_help_flag = true, no_binary_name = true)]
struct MethodCommandLine {
    #[command(flatten)]
    rope: RopeArgs,
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = Flags::parts(text);
        let scaling = parts.next().map(|name| format!("--rope-scaling={name}"));
        let line = scaling.into_iter().chain(parts.map(|flag| format!("--{flag}")));
        let line = MethodCommandLine::try_parse_from(line).map_err(|error| {
            let message = wording::first_line(&wording::reworded(error, &[]));
            // The error is inserted into a message with the same prefix.
            message.strip_prefix("invalid value ").unwrap_or(&message).to_string()
        })?;
        Ok(Method { name: text.into(), flags: line.rope.flags() })
    }
}

impl From<&Scaling> for Method {
    fn from(scaling: &Scaling) -> Self {
        Method { name: scaling.name.into(), flags: Flags::method(scaling.name) }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Checks that no method is listed twice.
///
/// # Errors
/// If a method is listed twice.
pub fn each_once(methods: &[Method]) -> Result<(), Error> {
    let mut seen = HashSet::new();
    match methods.iter().find(|method| !seen.insert(&method.name)) {
        Some(method) => Err(Error::usage(format_args!("--methods: {method} is listed twice"))),
        None => Ok(()),
    }
}

/// The methods of a command, from `--methods` or from the RoPE flags.
pub enum Methods<'a> {
    /// The methods of `--methods`. A method without a factor gets the factor that the length needs.
    Listed(&'a [Method]),
    /// The method of the RoPE flags.
    FromFlags(Box<Method>),
}

impl<'a> Methods<'a> {
    /// Returns the methods of a command line.
    ///
    /// # Errors
    /// If both RoPE flags and a list are given, or a method is listed twice.
    pub fn new(listed: &'a [Method], flags: &Flags) -> Result<Self, Error> {
        if listed.is_empty() {
            let name = match flags.scaling() {
                Some(scaling) => scaling.name,
                None if flags.auto() => "auto",
                None => "as given",
            };
            let (name, flags) = (name.into(), flags.clone());
            return Ok(Methods::FromFlags(Box::new(Method { name, flags })));
        }
        if *flags != Flags::default() {
            return Err(Error::usage(
                "RoPE flags have no effect with --methods: give flags to each method, as in \
                 --methods yarn:rope-scale=4",
            ));
        }
        each_once(listed)?;
        Ok(Methods::Listed(listed))
    }

    /// Returns all methods.
    pub fn all(&self) -> &[Method] {
        match self {
            Methods::Listed(methods) => methods,
            Methods::FromFlags(method) => std::slice::from_ref(method),
        }
    }

    /// Resolves the plan of a method in a context of `length` tokens.
    ///
    /// # Errors
    /// If flags or metadata contradict each other or are invalid.
    pub fn plan(&self, method: &Method, model: &Model, length: usize) -> Result<Plan, Error> {
        let rolls = method.flags.rolls();
        let origin = Origin::Computed(if rolls { "rolling" } else { "the length" });
        let context = Sourced { value: length, origin };
        let flags = match self {
            Methods::FromFlags(_) => method.flags.clone(),
            Methods::Listed(_) => Flags { for_context: true, ..method.flags.clone() },
        };
        let named = |e: rope::Error| match self {
            Methods::FromFlags(_) => Error::usage(e),
            Methods::Listed(_) => Error::usage(format_args!("--methods {method}: {e}")),
        };
        model.rope_plan(&flags, context).map_err(named)
    }
}
