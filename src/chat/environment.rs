//! Jinja as `transformers` sets it up for chat templates.

use std::{fmt, sync::LazyLock};

use jiff::Zoned;
use minijinja::{
    Environment, Error, ErrorKind, State, Value,
    syntax::SyntaxConfig,
    value::{Rest, ValueOrKwargs},
};

const NAME: &str = "chat template";

/// Steps after which a template is taken to run for ever. The largest templates need a few
/// thousand for a message.
const FUEL: u64 = 20_000_000;

/// Widths and counts above this are refused: the engine would fill all memory with them.
const COUNT_MAX: i64 = 65_536;

/// More digits in a row than this are no width in a format.
const DIGITS_MAX: usize = 5;

/// The engine's own filters, which those here hide.
static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(Environment::new);

/// An environment with one template.
pub(super) fn with_template(source: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(method);
    environment.add_filter("tojson", super::tojson::tojson);
    for filter in ["batch", "format", "indent", "slice"] {
        environment.add_filter(filter, move |args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            match filter {
                "format" => check_format(args.first())?,
                _ => check_counts(filter, &args)?,
            }
            ENGINE.empty_state().apply_filter(filter, &args)
        });
    }
    // To the engine none is an empty list, which in Python it is not.
    environment.add_test("iterable", |value: &Value| {
        !value.is_none() && !value.is_undefined() && value.try_iter().is_ok()
    });
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "refused").with_source(Refusal(message)))
    });
    // The same time in every turn, or midnight would change the beginning of a conversation.
    let now = Zoned::now();
    environment.add_function("strftime_now", move |format: String| {
        jiff::fmt::strtime::format(&format, &now).map_err(|error| {
            Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): {error}"))
        })
    });
    environment.add_template_owned(NAME, source)?;
    Ok(environment)
}

/// The methods of Python's values.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if name == "format" {
        check_format(Some(value))?;
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

/// # Errors
/// A width that is larger than what anyone writes.
fn check_format(format: Option<&Value>) -> Result<(), Error> {
    let text = format.and_then(Value::as_str).unwrap_or_default();
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    match numbers.find(|digits| digits.len() > DIGITS_MAX) {
        Some(digits) => Err(too_large("format", digits)),
        None => Ok(()),
    }
}

/// # Errors
/// A number among the arguments, with names or without, that is too large for a count.
fn check_counts(filter: &str, args: &[Value]) -> Result<(), Error> {
    // The first is what is filtered.
    for arg in args.iter().skip(1) {
        let named = arg.is_kwargs().then(|| arg.try_iter()).transpose()?;
        let named = named.into_iter().flatten().map(|name| arg.get_item(&name));
        for value in named.chain([Ok(arg.clone())]) {
            let value = value?;
            if value.is_number() && !i64::try_from(value.clone()).is_ok_and(|n| n <= COUNT_MAX) {
                return Err(too_large(filter, &value.to_string()));
            }
        }
    }
    Ok(())
}

fn too_large(filter: &str, number: &str) -> Error {
    let message = format!("{filter}: {number} is too large a number");
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Runs the template.
pub(super) fn render(environment: &Environment, context: Value) -> Result<String, Error> {
    environment.get_template(NAME)?.render(context)
}

/// What the template said to `raise_exception`, if that is the error.
pub(super) fn refusal(error: &Error) -> Option<&str> {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(Refusal(message)) = error.downcast_ref() {
            return Some(message);
        }
        source = error.source();
    }
    None
}

/// An error in one line: what, and where in the template.
pub(super) fn reason(error: &Error) -> String {
    let what = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    match error.line() {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}

/// What a template says to `raise_exception`.
#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}
