//! Python's operators, in place of the engine's operators without a limit.

use std::cmp::Ordering;

use minijinja::{
    Environment, Error, Value,
    value::{Rest, Tuple, ValueKind},
};

use super::{
    format,
    meter::{self, List, Text, invalid},
    number::{Number, integer, too_large},
    print,
};

/// Adds the filters that replace operators: see [`super::program`].
pub(super) fn add_to(environment: &mut Environment) {
    type Binary = fn(&Value, &Value) -> Result<Value, Error>;
    let binary: [(&str, Binary); 5] =
        [("+", add), ("*", multiply), ("%", remainder), ("~", concatenate), ("[]", item)];
    for (name, operator) in binary {
        environment.add_filter(name, move |a: &Value, b: &Value| {
            meter::call(&[])?;
            operator(a, b)
        });
    }
    for name in ["==", "!=", "<", "<=", ">", ">=", "in"] {
        environment.add_filter(name, move |a: &Value, b: &Value| compare(name, a, b));
    }
    environment.add_filter("compare", |a: &Value, rest: Rest<Value>| {
        let mut left = a;
        for pair in rest.chunks_exact(2) {
            if !compare(pair[0].as_str().unwrap_or_default(), left, &pair[1])? {
                return Ok(false);
            }
            left = &pair[1];
        }
        Ok::<_, Error>(true)
    });
    environment.add_filter("[:]", |value: &Value, bounds: Rest<Value>| {
        meter::call(&[])?;
        slice(value, &bounds)
    });
    environment.add_filter("{}", |items: Rest<Value>| map(&items));
    environment.add_filter("for", |value: &Value| meter::call(&[]).and(iterate(value)));
    environment.add_filter("*args", |value: &Value| match value.len() {
        Some(len @ ..=ARGUMENTS) => meter::charge(len * 64).map(|()| value.clone()),
        Some(len) => Err(invalid(format!("{len} arguments, of {ARGUMENTS} at most"))),
        None => Err(invalid(format!("* does not take a value of type {}", value.kind()))),
    });
    environment.add_filter("set", |value: Value| meter::read(&value).map(|()| value));
    environment.add_filter("set_attribute", |value: Value| keep(&value).map(|()| value));
}

/// Maximum arguments that a list may give to a call.
const ARGUMENTS: usize = 1_000;

/// Checks a value for a namespace. A namespace within another could contain itself: readers would
/// never finish, and it would never be freed.
///
/// # Errors
/// If the value contains a namespace, or is nested too deeply.
pub(super) fn keep(value: &Value) -> Result<(), Error> {
    meter::walk(value, 0, &|part| match print::is_namespace(part) {
        true => Err(invalid("a namespace cannot be kept in a namespace")),
        false => Ok(()),
    })
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

fn unsupported(operator: &str, a: &Value, b: &Value) -> Error {
    let undefined =
        if a.is_undefined() || b.is_undefined() { " (a value is undefined)" } else { "" };
    invalid(format!("{operator} is not for {} and {}{undefined}", a.kind(), b.kind()))
}

pub(super) fn add(a: &Value, b: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        let mut text = Text::default();
        text.push(a)?;
        text.push(b)?;
        return text.into_value();
    }
    if is_list(a) && is_list(b) && a.is_tuple() == b.is_tuple() {
        let mut list = List::default();
        a.try_iter()?.chain(b.try_iter()?).try_for_each(|item| list.push(item))?;
        return Ok(like(a, list));
    }
    match (Number::new(a), Number::new(b)) {
        (Some(Number::Int(a)), Some(Number::Int(b))) => {
            a.checked_add(b).map(integer).ok_or_else(|| too_large(&format!("{a} + {b}")))
        }
        (Some(a), Some(b)) => Ok((a.real() + b.real()).into()),
        _ => Err(unsupported("+", a, b)),
    }
}

/// Returns a tuple if `value` is one, or else a list.
fn like(value: &Value, list: List) -> Value {
    match value.is_tuple() {
        true => Tuple::from(list.into_items()).into(),
        false => list.into_value(),
    }
}

fn multiply(a: &Value, b: &Value) -> Result<Value, Error> {
    let repeated = |value: &Value| value.as_str().is_some() || is_list(value);
    let (value, times) = match (Number::new(a), Number::new(b)) {
        (Some(Number::Int(a)), Some(Number::Int(b))) => {
            let product = a.checked_mul(b).map(integer);
            return product.ok_or_else(|| too_large(&format!("{a} * {b}")));
        }
        (Some(a), Some(b)) => return Ok((a.real() * b.real()).into()),
        (Some(Number::Int(times)), None) if repeated(b) => (b, times),
        (None, Some(Number::Int(times))) if repeated(a) => (a, times),
        _ => return Err(unsupported("*", a, b)),
    };
    // A negative number counts as 0, and the budget refuses what exceeds the type.
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    if let Some(part) = value.as_str() {
        let mut text = Text::default();
        text.repeat(part, times)?;
        return text.into_value();
    }
    let mut list = List::default();
    if value.len() != Some(0) {
        for _ in 0..times {
            value.try_iter()?.try_for_each(|item| list.push(item))?;
        }
    }
    Ok(like(value, list))
}

fn remainder(a: &Value, b: &Value) -> Result<Value, Error> {
    if let Some(pattern) = a.as_str() {
        return format::percent(pattern, b);
    }
    let zero = || invalid("division by zero");
    match (Number::new(a), Number::new(b)) {
        (Some(Number::Int(a)), Some(Number::Int(b))) => {
            // With the sign of `b`.
            let rest = a.checked_rem(b).ok_or_else(zero)?;
            Ok(integer(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }))
        }
        (Some(a), Some(b)) => {
            let (a, b) = (a.real(), b.real());
            if b == 0.0 {
                return Err(zero());
            }
            let rest = a % b;
            Ok(Value::from(match rest != 0.0 {
                true if (rest < 0.0) != (b < 0.0) => rest + b,
                true => rest,
                false => 0.0_f64.copysign(b),
            }))
        }
        _ => Err(unsupported("%", a, b)),
    }
}

fn concatenate(a: &Value, b: &Value) -> Result<Value, Error> {
    let mut text = Text::default();
    print::display(a, &mut text)?;
    print::display(b, &mut text)?;
    text.into_value()
}

/// Evaluates `a operator b`.
fn compare(operator: &str, a: &Value, b: &Value) -> Result<bool, Error> {
    meter::call(&[])?;
    match operator {
        "in" => contains(b, a),
        "not in" => contains(b, a).map(|found| !found),
        "==" => equal(a, b),
        "!=" => equal(a, b).map(|equal| !equal),
        _ => {
            let order = order(a, b)?;
            Ok(order.is_some_and(|order| match operator {
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                ">" => order.is_gt(),
                _ => order.is_ge(),
            }))
        }
    }
}

pub(super) fn equal(a: &Value, b: &Value) -> Result<bool, Error> {
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        meter::charge(a.len().min(b.len()) / 8)?;
        return Ok(a == b);
    }
    if let (Some(a), Some(b)) = (Number::new(a), Number::new(b)) {
        return Ok(match (a, b) {
            (Number::Int(a), Number::Int(b)) => a == b,
            (Number::Int(whole), Number::Float(real))
            | (Number::Float(real), Number::Int(whole)) => {
                real == whole as f64 && real as i128 == whole
            }
            (a, b) => a.real() == b.real(),
        });
    }
    if a.kind() != b.kind() || a.is_tuple() != b.is_tuple() {
        return Ok(false);
    }
    // Only common parts are compared, so reading one value is enough.
    meter::read(a)?;
    meter::read(b)?;
    Ok(a == b)
}

/// Returns the order of two values; `None` for unordered numbers (NaN).
fn order(a: &Value, b: &Value) -> Result<Option<Ordering>, Error> {
    order_at(a, b, 0)
}

fn order_at(a: &Value, b: &Value, depth: usize) -> Result<Option<Ordering>, Error> {
    meter::enter(depth)?;
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        meter::charge(a.len().min(b.len()) / 8)?;
        return Ok(Some(a.cmp(b)));
    }
    if let (Some(a), Some(b)) = (Number::new(a), Number::new(b)) {
        return Ok(match (a, b) {
            (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
            (a, b) => a.real().partial_cmp(&b.real()),
        });
    }
    if !is_list(a) || !is_list(b) {
        return Err(unsupported("an order", a, b));
    }
    let (mut left, mut right) = (a.try_iter()?, b.try_iter()?);
    loop {
        meter::charge(4)?;
        match (left.next(), right.next()) {
            (Some(a), Some(b)) if equal(&a, &b)? => {}
            (Some(a), Some(b)) => return order_at(&a, &b, depth + 1),
            (a, b) => return Ok(Some(a.is_some().cmp(&b.is_some()))),
        }
    }
}

fn contains(container: &Value, value: &Value) -> Result<bool, Error> {
    if let Some(text) = container.as_str() {
        let part = value.as_str().ok_or_else(|| unsupported("in", value, container))?;
        // A search first prepares its pattern.
        meter::charge(text.len() / 8 + part.len())?;
        return Ok(text.contains(part));
    }
    match container.kind() {
        ValueKind::Undefined => Ok(false),
        ValueKind::Map => {
            meter::read(value)?;
            Ok(container.as_object().is_some_and(|map| map.get_value(value).is_some()))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            for item in container.try_iter()? {
                meter::charge(4)?;
                if equal(&item, value)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => Err(unsupported("in", value, container)),
    }
}

/// `value[key]`; undefined if it does not exist.
fn item(value: &Value, key: &Value) -> Result<Value, Error> {
    meter::read(key)?;
    meter::charge(value.as_str().map_or(0, str::len) / 8)?;
    if value.is_undefined() || value.is_none() && key.as_str().is_none() {
        return Err(invalid(format!("a value of type {} has no items", value.kind())));
    }
    if is_list(value) {
        // The engine iterates over values other than lists.
        meter::charge(
            value.len().map_or(0, |len| if value.kind() == ValueKind::Seq { 0 } else { len }),
        )?;
    }
    value.get_item(key)
}

/// `value[start:stop:step]`
fn slice(value: &Value, bounds: &[Value]) -> Result<Value, Error> {
    let mut numbers = [None; 3];
    for (number, bound) in numbers.iter_mut().zip(bounds) {
        *number = match Number::new(bound) {
            Some(Number::Int(x)) => Some(x),
            None if bound.is_none() => None,
            _ => return Err(invalid("the bounds of a slice are integers")),
        };
    }
    let [start, stop, step] = numbers;
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(invalid("a slice has a step of 0"));
    }
    if value.as_str().is_none() && !is_list(value) {
        return Err(invalid(format!("a value of type {} has no slices", value.kind())));
    }
    if let Some(text) = value.as_str() {
        meter::charge(text.len())?;
    }
    let len = match value.as_str() {
        Some(text) => text.chars().count(),
        None => value.try_iter()?.count(),
    };
    let len = len as i128;
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let place = |at: Option<i128>, default| match at {
        None => default,
        Some(at) if at < 0 => at.saturating_add(len).max(low),
        Some(at) => at.min(high),
    };
    let (first, end) = match step > 0 {
        true => (place(start, low), place(stop, high)),
        false => (place(start, high), place(stop, low)),
    };
    // The places, all below `len`, from the lowest.
    let distance = if step > 0 { end - first } else { first - end }.max(0).unsigned_abs();
    let count = distance.div_ceil(step.unsigned_abs()) as usize;
    let lowest = match step > 0 || count == 0 {
        true => first,
        false => first + step.saturating_mul(count as i128 - 1),
    };
    let lowest = usize::try_from(lowest).unwrap_or(0);
    let step_size = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
    if let Some(text) = value.as_str() {
        let chosen = text.chars().skip(lowest).step_by(step_size).take(count);
        let mut text: String = chosen.collect();
        if step < 0 {
            text = text.chars().rev().collect();
        }
        return Ok(text.into());
    }
    let mut list = List::default();
    let chosen = value.try_iter()?.skip(lowest).step_by(step_size).take(count);
    chosen.into_iter().try_for_each(|item| list.push(item))?;
    if step > 0 {
        return Ok(like(value, list));
    }
    let mut reversed = List::default();
    list.into_items().into_iter().rev().try_for_each(|item| reversed.push(item))?;
    Ok(like(value, reversed))
}

/// Returns the items of a list from the last to the first.
pub(super) fn reversed(value: &Value) -> Result<Value, Error> {
    slice(value, &[().into(), ().into(), (-1).into()])
}

/// `{key: value, ...}`
fn map(items: &[Value]) -> Result<Value, Error> {
    meter::charge(items.len() * 128)?;
    let mut map = indexmap::IndexMap::with_capacity(items.len() / 2);
    for pair in items.chunks_exact(2) {
        if matches!(pair[0].kind(), ValueKind::Map) || is_list(&pair[0]) && !pair[0].is_tuple() {
            return Err(invalid(format!("a value of type {} cannot be a key", pair[0].kind())));
        }
        meter::read(&pair[0])?;
        map.insert(pair[0].clone(), pair[1].clone());
    }
    Ok(Value::from_object(map))
}

/// Returns the items that a `for` iterates over.
pub(super) fn iterate(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => characters(value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map | ValueKind::Undefined => {
            meter::charge(value.len().unwrap_or(0) * 4)?;
            Ok(value.clone())
        }
        other => Err(invalid(format!("a value of type {other} cannot be iterated"))),
    }
}

/// Returns the characters of a text, as texts.
fn characters(s: &str) -> Result<Value, Error> {
    let mut list = List::default();
    s.chars().try_for_each(|c| list.push(c.into()))?;
    Ok(list.into_value())
}
