//! The filters, tests and functions of chat templates, each with its limit.
//!
//! Filters with results larger than their input are written here. The others are the engine's, and
//! pay for the bytes that they read and build. Other names do not exist.

use std::{fmt, sync::LazyLock};

use jiff::Zoned;
use minijinja::{
    Environment, Error, State, Value, filters, functions,
    value::{Kwargs, Rest, Tuple, ValueOrKwargs},
};

use super::{
    format,
    meter::{self, List, Text, invalid},
    methods,
    number::Number,
    operators, print, tojson,
};

type Args = Rest<ValueOrKwargs>;

/// The engine's own filters and tests.
static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(Environment::new);

/// Filters that read a text or a list once and build nothing larger.
const SIMPLE: [&str; 10] =
    ["abs", "attr", "bool", "count", "d", "default", "first", "items", "last", "length"];

/// Filters of texts, which convert other values first.
const OF_TEXT: [&str; 3] = ["capitalize", "lower", "upper"];

/// Filters that compare all of a list.
const COMPARING: [&str; 6] = ["sort", "dictsort", "unique", "groupby", "min", "max"];

/// Tests, which may read all of their values.
const TESTS: &str = "\
undefined defined none safe escaped boolean odd even divisibleby number integer float string \
mapping lower upper sameas eq equalto == ne != lt lessthan < le <= gt greaterthan > ge >= in \
true false filter test startingwith endingwith";

/// Maximum bytes of a format of `strftime_now`.
const TIME_FORMAT: usize = 1_000;

pub(super) fn add_to(environment: &mut Environment, now: &Zoned) {
    for name in SIMPLE {
        environment.add_filter(name, move |args: Args| {
            let args = args.into_values();
            meter::call(&args)?;
            meter::built(ENGINE.empty_state().apply_filter(name, &args)?)
        });
    }
    for name in OF_TEXT {
        environment.add_filter(name, move |value: &Value| {
            let value = text(value)?;
            meter::built(ENGINE.empty_state().apply_filter(name, &[value])?)
        });
    }
    for name in COMPARING {
        environment.add_filter(name, move |args: Args| {
            let args = args.into_values();
            let count = args.first().and_then(Value::len).unwrap_or(0);
            // Sorting compares an item about log2(count) times.
            for _ in 0..=count.checked_ilog2().unwrap_or(0) {
                args.iter().try_for_each(meter::read)?;
            }
            meter::built(ENGINE.empty_state().apply_filter(name, &args)?)
        });
    }
    for name in TESTS.split(' ') {
        environment.add_test(name, move |args: Args| {
            let args = args.into_values();
            meter::call(&args)?;
            if args.len() > 1 {
                args.iter().try_for_each(meter::read)?;
            }
            ENGINE.empty_state().perform_test(name, &args)
        });
    }
    // The engine treats none as an empty list; Python does not.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    // Values with a length and items.
    environment.add_test("sequence", |value: &Value| value.len().is_some());
    add_choosing(environment);
    add_building(environment);
    add_functions(environment, now);
}

/// Filters that call others for each item.
fn add_choosing(environment: &mut Environment) {
    environment.add_filter("map", |state: &mut State, value: Value, args: Args| {
        meter::call(std::slice::from_ref(&value))?;
        filters::map(state, value, args).and_then(|list| meter::built(list.into()))
    });
    for name in ["select", "reject"] {
        let choose = move |state: &mut State, value: Value, test: Option<&str>, args: Args| {
            meter::call(std::slice::from_ref(&value))?;
            let test = test.map(Into::into);
            let list = match name {
                "select" => filters::select(state, value, test, args),
                _ => filters::reject(state, value, test, args),
            };
            meter::built(list?.into())
        };
        environment.add_filter(name, choose);
    }
    for name in ["selectattr", "rejectattr"] {
        let choose =
            move |state: &mut State, value: Value, attr: &str, test: Option<&str>, args: Args| {
                meter::call(std::slice::from_ref(&value))?;
                let (attr, test) = (attr.into(), test.map(Into::into));
                let list = match name {
                    "selectattr" => filters::selectattr(state, value, attr, test, args),
                    _ => filters::rejectattr(state, value, attr, test, args),
                };
                meter::built(list?.into())
            };
        environment.add_filter(name, choose);
    }
}

/// Returns an argument, given by place or by name.
pub(super) fn argument(
    given: Option<Value>,
    named: &Kwargs,
    name: &str,
) -> Result<Option<Value>, Error> {
    Ok(given.or(named.get::<Option<Value>>(name)?).filter(|value| !value.is_none()))
}

/// Returns a given count, which may exceed the memory.
pub(super) fn count(value: &Value, name: &str) -> Result<usize, Error> {
    match Number::new(value) {
        Some(Number::Int(x)) => Ok(usize::try_from(x.max(0)).unwrap_or(usize::MAX)),
        _ => Err(invalid(format!("{name} takes a whole number"))),
    }
}

/// Filters with results larger than their arguments.
fn add_building(environment: &mut Environment) {
    for name in ["string", "safe"] {
        environment.add_filter(name, move |value: &Value| text(value));
    }
    environment.add_filter("trim", |value: &Value, chars: Option<&str>| {
        methods::strip(string(&text(value)?), "strip", chars)
    });
    environment.add_filter("reverse", |value: &Value| match value.as_str() {
        Some(s) => {
            meter::charge(s.len() * 2)?;
            Ok(s.chars().rev().collect::<String>().into())
        }
        None => operators::reversed(value),
    });
    environment.add_filter("list", |value: &Value| {
        let mut list = List::default();
        operators::iterate(value)?.try_iter()?.try_for_each(|item| list.push(item))?;
        Ok::<_, Error>(list.into_value())
    });
    environment.add_filter(
        "join",
        |items: &Value, by: Option<Value>, attribute: Option<Value>, named: Kwargs| {
            let by = argument(by, &named, "d")?;
            let attribute = argument(attribute, &named, "attribute")?;
            named.assert_all_used()?;
            let mut joined = Text::default();
            for (i, item) in operators::iterate(items)?.try_iter()?.enumerate() {
                if let Some(by) = by.as_ref().filter(|_| i > 0) {
                    print::display(by, &mut joined)?;
                }
                let item = match &attribute {
                    Some(name) => item.get_item(name)?,
                    None => item,
                };
                print::display(&item, &mut joined)?;
            }
            joined.into_value()
        },
    );
    environment.add_filter(
        "replace",
        |value: &Value, old: &Value, new: &Value, count: Option<i64>| {
            let [value, old, new] = [text(value)?, text(old)?, text(new)?];
            methods::replace(string(&value), string(&old), string(&new), count)
        },
    );
    environment.add_filter("format", |pattern: &str, args: Args| {
        let args = args.into_values();
        // By place or by name.
        let values = match args.as_slice() {
            [named] if named.is_kwargs() => named.clone(),
            _ => Tuple::from(args).into(),
        };
        format::percent(pattern, &values)
    });
    environment.add_filter("title", |value: &Value| {
        let between = |c| methods::is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
        methods::title(string(&text(value)?), between)
    });
    for name in ["e", "escape"] {
        environment.add_filter(name, move |value: &Value| {
            let mut escaped = Text::default();
            for c in string(&text(value)?).chars() {
                match c {
                    '&' => escaped.push("&amp;")?,
                    '<' => escaped.push("&lt;")?,
                    '>' => escaped.push("&gt;")?,
                    '"' => escaped.push("&#34;")?,
                    '\'' => escaped.push("&#39;")?,
                    c => escaped.push_char(c)?,
                }
            }
            escaped.into_value()
        });
    }
    environment.add_filter("center", |value: &Value, width: Option<Value>| {
        let width = width.unwrap_or_else(|| 80.into());
        methods::pad(string(&text(value)?), "center", &width, " ")
    });
    environment.add_filter(
        "indent",
        |value: &Value,
         width: Option<Value>,
         first: Option<Value>,
         blank: Option<Value>,
         named: Kwargs| {
            let width = argument(width, &named, "width")?;
            let is =
                |given, name| argument(given, &named, name).map(|x| x.is_some_and(|x| x.is_true()));
            let (first, blank) = (is(first, "first")?, is(blank, "blank")?);
            named.assert_all_used()?;
            indent(string(&text(value)?), width, first, blank)
        },
    );
    for name in ["batch", "slice"] {
        environment.add_filter(name, move |items: &Value, width: &Value, fill: Option<Value>| {
            let width = count(width, name)?;
            if width == 0 {
                return Err(invalid(format!("{name}: the length must not be 0")));
            }
            let items: Vec<Value> = operators::iterate(items)?.try_iter()?.collect();
            meter::charge(items.len() * 64)?;
            let mut rows = List::default();
            let mut rest = items.as_slice();
            // `slice` returns rows; the first `more` rows have one more item.
            let (least, more) = (items.len() / width, items.len() % width);
            let longest = if name == "batch" { width } else { least + usize::from(more > 0) };
            while name == "batch" && !rest.is_empty() || name == "slice" && rows.len() < width {
                let row_len = match name {
                    "batch" => width.min(rest.len()),
                    _ => least + usize::from(rows.len() < more),
                };
                let (part, after) = rest.split_at(row_len);
                rest = after;
                let mut row = List::default();
                part.iter().try_for_each(|item| row.push(item.clone()))?;
                if let Some(fill) = &fill {
                    (part.len()..longest).try_for_each(|_| row.push(fill.clone()))?;
                }
                meter::charge(meter::LIST)?;
                rows.push(row.into_value())?;
            }
            Ok(rows.into_value())
        });
    }
    environment.add_filter("tojson", |value: &Value, indent: Option<Value>, named: Kwargs| {
        tojson::tojson(value, indent, named)
    });
    environment.add_filter(".()", |state: &mut State, value: &Value, name: &str, args: Args| {
        methods::call(state, value, name, &args.into_values())
    });
}

/// Returns a value as `str` prints it.
fn text(value: &Value) -> Result<Value, Error> {
    if value.as_str().is_some() {
        return meter::call(std::slice::from_ref(value)).map(|()| value.clone());
    }
    let mut text = Text::default();
    print::display(value, &mut text)?;
    text.into_value()
}

pub(super) fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn indent(s: &str, width: Option<Value>, first: bool, blank: bool) -> Result<Value, Error> {
    let (space, width) = match &width {
        Some(width) => match width.as_str() {
            Some(space) => (space, 1),
            None => (" ", count(width, "indent")?),
        },
        None => (" ", 4),
    };
    // Refuse a large width even if no line is indented.
    meter::charge(width)?;
    let mut text = Text::default();
    // As if the text had a final line break: `a\n` has one more empty line than `a`.
    let closing =
        methods::lines(s).last().is_none_or(|(line, all)| line != all).then_some(("", ""));
    for (i, (line, _)) in methods::lines(s).chain(closing).enumerate() {
        text.push(if i > 0 { "\n" } else { "" })?;
        if if i == 0 { first } else { blank || !line.is_empty() } {
            text.repeat(space, width)?;
        }
        text.push(line)?;
    }
    text.into_value()
}

fn add_functions(environment: &mut Environment, now: &Zoned) {
    environment.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
        Err(invalid("refused").with_source(Refusal(string(message).to_owned())))
    });
    let now = now.clone();
    environment.add_function("strftime_now", move |format: &str| {
        if format.len() > TIME_FORMAT {
            return Err(invalid(format!(
                "strftime_now: the format is too large: {} bytes, of {TIME_FORMAT} at most",
                format.len()
            )));
        }
        jiff::fmt::strtime::format(format, &now)
            .map_err(|error| invalid(format!("strftime_now({format:?}): {error}")))
    });
    environment.add_function("range", |from: i64, to: Option<i64>, step: Option<i64>| {
        let large =
            [Some(from), to, step].into_iter().flatten().any(|x| x.unsigned_abs() >> 40 > 0);
        if large {
            return Err(invalid("range: a number is too large"));
        }
        functions::range(from as isize, to.map(|x| x as isize), step.map(|x| x as isize))
    });
    environment.add_function("namespace", |state: &mut State, args: Args| {
        let args = args.into_values();
        args.iter().try_for_each(operators::keep)?;
        let namespace = ENGINE.empty_state().lookup("namespace").unwrap_or_default();
        namespace.call(state, &args)
    });
    environment.add_function("dict", |state: &mut State, args: Args| {
        let args = args.into_values();
        args.iter().try_for_each(meter::read)?;
        let dict = ENGINE.empty_state().lookup("dict").unwrap_or_default();
        meter::built(dict.call(state, &args)?)
    });
}

/// The message of a template's `raise_exception`.
#[derive(Debug)]
pub(super) struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}
