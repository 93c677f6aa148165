//! RoPE methods in lists, each with flags of its own: `none,linear,yarn:rope-scale=4`.

use std::{collections::HashSet, fmt, str::FromStr};

use clap::Parser;

use super::{
    args::{self, RopeArgs},
    error::Error,
    wording,
};
use rope_cpu::{
    gguf::Gguf,
    model::Model,
    rope::{self, Flags, Origin, Plan, Scaling, Sourced},
};

/// A method as it was typed: `METHOD[:FLAG=VALUE]...`, where flags are those of RoPE without
/// their dashes.
#[derive(Clone, Debug, PartialEq)]
pub struct Method {
    /// As typed.
    pub name: String,
    /// What it means.
    pub flags: Flags,
}

/// What the flags of a method are parsed as.
#[derive(Parser)]
#[command(disable_help_flag = true, no_binary_name = true)]
struct Line {
    #[command(flatten)]
    rope: RopeArgs,
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let scaling = parts.next().map(|name| format!("--rope-scaling={name}"));
        let line = scaling.into_iter().chain(parts.map(|flag| format!("--{flag}")));
        let line = Line::try_parse_from(line).map_err(|error| {
            let message = wording::first_line(&wording::reworded(error, &[]));
            // This becomes part of a message that begins so.
            message.strip_prefix("invalid value ").unwrap_or(&message).to_string()
        })?;
        Ok(Method { name: text.into(), flags: line.rope.flags() })
    }
}

impl From<Scaling> for Method {
    fn from(scaling: Scaling) -> Self {
        let flags = Flags { scaling: Some(scaling), ..Flags::default() };
        Method { name: scaling.name().into(), flags }
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
/// The first that is.
pub fn each_once(methods: &[Method]) -> Result<(), Error> {
    let mut seen = HashSet::new();
    match methods.iter().find(|method| !seen.insert(&method.name)) {
        Some(method) => Err(Error::usage(format_args!("--methods: {method} is there twice"))),
        None => Ok(()),
    }
}

/// The methods of a run: those of `--methods`, or the one of the RoPE flags.
pub enum Methods<'a> {
    /// Each reaches the length it is run at by just the factor that it needs, if it names none.
    Listed(&'a [Method]),
    /// As the flags say.
    Typed(Box<Method>),
}

impl<'a> Methods<'a> {
    /// Those of a command line.
    ///
    /// # Errors
    /// RoPE flags beside a list.
    pub fn new(listed: &'a [Method], rope: &RopeArgs) -> Result<Self, Error> {
        let flags = rope.flags();
        if listed.is_empty() {
            let name = match flags.scaling {
                Some(scaling) => scaling.name(),
                None if flags.auto => "auto",
                None => "as given",
            };
            let name = name.into();
            return Ok(Methods::Typed(Box::new(Method { name, flags })));
        }
        if flags != Flags::default() {
            return Err(Error::usage(
                "RoPE flags have no effect beside --methods: give each method its own, as in \
                 --methods yarn:rope-scale=4",
            ));
        }
        each_once(listed)?;
        Ok(Methods::Listed(listed))
    }

    /// All of them.
    pub fn all(&self) -> &[Method] {
        match self {
            Methods::Listed(methods) => methods,
            Methods::Typed(method) => std::slice::from_ref(method),
        }
    }

    /// What RoPE does by `method` in a context of `length` tokens, which is typed as `flag`.
    ///
    /// # Errors
    /// Flags or metadata that contradict each other or make no sense.
    pub fn plan(
        &self,
        method: &Method,
        gguf: &Gguf,
        model: &Model,
        length: usize,
    ) -> Result<Plan, Error> {
        let rolls = method.flags.rolls();
        let origin = Origin::Computed(if rolls { "it rolls" } else { "the length" });
        let context = Sourced { value: length, origin };
        let flags = match self {
            Methods::Typed(_) => method.flags.clone(),
            Methods::Listed(_) => Flags { for_context: true, ..method.flags.clone() },
        };
        let named = |e: rope::Error| match self {
            Methods::Typed(_) => Error::usage(e),
            Methods::Listed(_) => Error::usage(format_args!("--methods {method}: {e}")),
        };
        args::resolve(&flags, gguf, model, context).map_err(named)
    }
}
