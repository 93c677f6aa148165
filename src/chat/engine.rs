//! Jinja as `transformers` sets it up for chat templates, with limits: a template comes with a
//! file that anyone may have written.
//!
//! [`source`] bounds what is parsed, the engine's fuel the steps of a render, and [`meter`] what a
//! step reads and builds, for which [`program`] makes calls of all that the engine does not bound.
//! These limits also bound the depth of recursion: everything runs, and is dropped, in a thread with a
//! stack for it.

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

use meter::{Meter, Text};
use program::Program;

/// Steps after which a template is taken to run for ever. The largest templates need a few
/// thousand for a message.
const FUEL: u64 = 2_000_000;
const FUEL_PER_MESSAGE: u64 = 5_000;
const FUEL_PER_KILOBYTE: u64 = 5_000;

/// Bytes of the thread's stack, of which only what is used takes memory. The templates of
/// tests/chat.rs that nest as deeply as the limits permit need less than 4 MiB; without
/// optimization it may be some times as much.
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
/// A source that is not valid, with its line, or that is above a limit.
pub(super) fn check(source: &str) -> Result<(), String> {
    let checked = run(|| {
        let syntax = syntax()?;
        source::check(source, syntax.clone())?;
        Program::new(source, syntax).map(|_| ())
    });
    checked.map_err(|failure| failure.to_string())
}

/// The text of a template, whose source was checked.
///
/// # Errors
/// A template that fails, or that refuses the conversation.
pub(super) fn render(source: &str, given: Given, now: &Zoned) -> Result<String, Failure> {
    let Given { context, messages, bytes } = given;
    run(move || {
        let program = Program::new(source, syntax()?)?;
        let meter = Meter::new(bytes);
        let mut environment = Environment::empty();
        let fuel = FUEL
            + FUEL_PER_MESSAGE.saturating_mul(messages as u64)
            + FUEL_PER_KILOBYTE.saturating_mul(bytes as u64 >> 10);
        environment.set_fuel(Some(fuel));
        operators::add_to(&mut environment, &meter);
        filters::add_to(&mut environment, &meter, now);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(move |output, _, value| {
            if let Some(text) = value.as_str() {
                // Once to write it, and once for a block whose text becomes a value.
                meter.charge(text.len() * 2 + 1)?;
                return Ok(output.write_str(text)?);
            }
            let mut text = Text::new(&meter);
            print::display(value, &mut text)?;
            let text = text.into_string();
            meter.charge(text.len() * 2)?;
            Ok(output.write_str(&text)?)
        });
        program.run(&environment, context)
    })
}

fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()
}

/// Runs a part of the engine in a thread with a stack that is large enough.
fn run<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Failure> {
    let failed = |reason| Err(Failure { refused: false, reason });
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("chat template".into()).stack_size(STACK);
        let work = || work().map_err(|error| Failure::new(&error));
        match builder.spawn_scoped(scope, work).map(|thread| thread.join()) {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => failed("the template engine ended with a fault of its own".to_owned()),
            Err(error) => failed(format!("no thread for it can be started: {error}")),
        }
    })
}

/// Why there is no text.
#[derive(Debug)]
pub(super) struct Failure {
    /// Whether the reason is what the template gave to `raise_exception`.
    pub refused: bool,
    pub reason: String,
}

impl Failure {
    fn new(error: &Error) -> Self {
        let mut source = std::error::Error::source(error);
        while let Some(error) = source {
            if let Some(Refusal(message)) = error.downcast_ref() {
                return Self { refused: true, reason: message.clone() };
            }
            source = error.source();
        }
        // One line: what, and where in the template.
        let mut reason = match error.kind() {
            ErrorKind::OutOfFuel => "it takes too many steps, as if it ran for ever".to_owned(),
            kind => kind.to_string(),
        };
        if let Some(detail) = error.detail() {
            reason = format!("{reason}: {detail}");
        }
        if let Some(line) = error.line() {
            reason = format!("{reason} (line {line})");
        }
        Self { refused: false, reason }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// The message of a template's `raise_exception`.
#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}
