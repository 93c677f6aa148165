//! Jinja as `transformers` sets it up for chat templates, with limits: a template comes with a file
//! that anyone may have written.
//!
//! [`source`] bounds what is parsed, and the engine's fuel bounds the steps of a render. [`meter`]
//! bounds what a step reads and builds. For this, [`program`] turns operations that the engine does
//! not bound into calls. These limits also bound the depth of recursion. Everything runs, and is
//! dropped, in a thread with enough stack.
//!
//! Fuel alone is not enough: it counts instructions, and `x ~ x` doubles a text in one. So 40 of
//! them take a terabyte. minijinja has no hook for operators, and computes operators of constants
//! while it compiles. So the syntax tree has to be rewritten before. An allocator with a limit would
//! be shorter, but only a program can choose its allocator, not a library, and a refused allocation
//! aborts the process. Filters and methods are minijinja's where these do the same as Python;
//! `tests/data/expressions.json` has hundreds of cases in which `minijinja_contrib` does not, such as
//! `title`, `splitlines`, `round` and `filesizeformat`.

mod arithmetic;
mod filters;
mod format;
mod meter;
mod methods;
mod number;
mod operators;
mod print;
mod program;
mod source;
mod tojson;

use std::{fmt, thread};

use jiff::Zoned;
use minijinja::{Environment, Error, ErrorKind, Value, syntax::SyntaxConfig};

use filters::Refusal;
use meter::Text;
use program::Program;
use rope_cpu_json::FileText;

/// Steps after which a template counts as endless. The largest templates need a few thousand for a
/// message.
const FUEL: u64 = 2_000_000;
const FUEL_PER_MESSAGE: u64 = 5_000;
const FUEL_PER_KILOBYTE: u64 = 5_000;

/// Stack of the thread in bytes; only the used part takes memory. The most deeply nested templates
/// of tests/chat need less than 4 MiB, or several times as much without optimization.
const STACK: usize = 64 << 20;

/// The input of a render.
pub(super) struct Given {
    pub context: Value,
    /// The number of messages, and the bytes of all texts.
    pub messages: usize,
    pub bytes: usize,
}

/// Checks the source of a template.
///
/// # Errors
/// If the source is invalid or above a limit; the error names the line.
pub(super) fn check(source: &str) -> Result<(), String> {
    let checked = run(|| {
        let syntax = syntax()?;
        source::check(source, syntax.clone())?;
        Program::new(source, syntax).map(|_| ())
    });
    checked.map_err(|failure| failure.to_string())
}

/// Renders a template with a checked source.
///
/// # Errors
/// If the template fails, or refuses the conversation.
pub(super) fn render(source: &str, given: Given, now: &Zoned) -> Result<String, Failure> {
    let Given { context, messages, bytes } = given;
    run(move || {
        let program = Program::new(source, syntax()?)?;
        meter::start(bytes);
        let mut environment = Environment::empty();
        let fuel = FUEL
            + FUEL_PER_MESSAGE.saturating_mul(messages as u64)
            + FUEL_PER_KILOBYTE.saturating_mul(bytes as u64 >> 10);
        environment.set_fuel(Some(fuel));
        operators::add_to(&mut environment);
        filters::add_to(&mut environment, now);
        arithmetic::add_to(&mut environment);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(|output, _, value| {
            if let Some(text) = value.as_str() {
                // Writing copies the text once; a block that becomes a value copies it again.
                meter::charge(text.len() * 2 + 1)?;
                return Ok(output.write_str(text)?);
            }
            let mut text = Text::default();
            print::display(value, &mut text)?;
            let text = text.into_string();
            meter::charge(text.len() * 2)?;
            Ok(output.write_str(&text)?)
        });
        program.run(&environment, context)
    })
}

fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()
}

/// Runs a part of the engine in a thread with a large stack.
fn run<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Failure> {
    let failed = |reason| Err(Failure { refused: false, reason });
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("chat template".into()).stack_size(STACK);
        let work = || work().map_err(|error| Failure::new(&error));
        match builder.spawn_scoped(scope, work).map(|thread| thread.join()) {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => failed(
                "the template engine panicked; this is a bug, please report it with the template"
                    .to_owned(),
            ),
            Err(error) => failed(format!("cannot start a thread for it: {error}")),
        }
    })
}

/// Maximum characters of a reason.
const REASON_MAX: usize = 2000;

/// Why there is no text.
#[derive(Debug)]
pub(super) struct Failure {
    /// Whether the reason comes from the template's `raise_exception`.
    pub refused: bool,
    pub reason: String,
}

impl Failure {
    fn new(error: &Error) -> Self {
        let mut source = std::error::Error::source(error);
        while let Some(error) = source {
            if let Some(Refusal(message)) = error.downcast_ref() {
                return Self { refused: true, reason: shown(message) };
            }
            source = error.source();
        }
        // One line: what failed, and where in the template.
        let mut reason = match error.kind() {
            ErrorKind::OutOfFuel => "it takes too many steps, as if it ran forever".to_owned(),
            kind => kind.to_string(),
        };
        if let Some(detail) = error.detail() {
            reason = format!("{reason}: {detail}");
        }
        if let Some(line) = error.line() {
            reason = format!("{reason} (line {line})");
        }
        Self { refused: false, reason: shown(&reason) }
    }
}

/// Returns a reason for a message: it may have texts of the template.
fn shown(reason: &str) -> String {
    FileText::shortened(reason, REASON_MAX).to_string()
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.reason)
    }
}
