//! Jinja as `transformers` sets it up for chat templates.

use std::fmt;

use jiff::Zoned;
use minijinja::{Environment, Error, ErrorKind, Value, syntax::SyntaxConfig};

const NAME: &str = "chat template";

/// Steps after which a template is taken to run for ever. The largest templates need a few
/// thousand for a message.
const FUEL: u64 = 20_000_000;

/// An environment with one template.
pub(super) fn with_template(source: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", super::tojson::tojson);
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
