//! `%` and `str.format`, with bounded output. The engine formats single numbers.

use minijinja::{
    Error, Value,
    formatting::{FormatStyle, format},
    value::ValueKind,
};

use super::{
    meter::{self, Text, invalid},
    number::{self, Number},
    print,
};

/// Maximum width or precision.
const COUNT: usize = 65_535;

/// `pattern % value`
pub(super) fn percent(pattern: &str, value: &Value) -> Result<Value, Error> {
    let values: Vec<Value> = match value.is_tuple() {
        true => value.try_iter()?.collect(),
        false => vec![value.clone()],
    };
    meter::charge(values.len() * 64)?;
    let named = value.kind() == ValueKind::Map;
    let mut left = values.iter();
    let mut text = Text::default();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('%') {
        meter::call(&[])?;
        text.push(before)?;
        rest = after;
        if let Some(after) = rest.strip_prefix('%') {
            text.push("%")?;
            rest = after;
            continue;
        }
        let mut next =
            || left.next().cloned().ok_or_else(|| invalid("%: there are too few values"));
        let mut chosen = None;
        if let Some((key, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            let found =
                value.as_object().filter(|_| named).and_then(|map| map.get_value(&key.into()));
            chosen = Some(found.ok_or_else(|| invalid("%: a name of the format is not given"))?);
            rest = after;
        }
        let flags = take(&mut rest, |c| "-+ #0".contains(c));
        let width = size(&mut rest, &mut next)?.unwrap_or(0);
        let precision = match rest.strip_prefix('.') {
            Some(after) => {
                rest = after;
                Some(size(&mut rest, &mut next)?.unwrap_or(0))
            }
            None => None,
        };
        // C has lengths of types; Python ignores them.
        rest = rest.strip_prefix(['h', 'l', 'L']).unwrap_or(rest);
        let kind = rest
            .chars()
            .next()
            .ok_or_else(|| invalid("%: the format ends with an incomplete %"))?;
        rest = &rest[kind.len_utf8()..];
        let value = chosen.map_or_else(next, Ok)?;
        if matches!(kind, 's' | 'r') {
            padded(&value, kind == 'r', flags.contains('-'), width, precision, &mut text)?;
            continue;
        }
        let value = match (kind, Number::new(&value)) {
            ('c', _) => value,
            ('d' | 'i' | 'u', Some(Number::Float(x))) => number::integer(number::whole(x)?),
            (_, Some(_)) => value,
            _ => return Err(invalid(format!("%{kind} takes a number, not a {}", value.kind()))),
        };
        let kind = if matches!(kind, 'i' | 'u') { 'd' } else { kind };
        let precision = precision.map(|precision| format!(".{precision}")).unwrap_or_default();
        let width = if width > 0 { width.to_string() } else { String::new() };
        text.push(&format(
            FormatStyle::Printf,
            &format!("%{flags}{width}{precision}{kind}"),
            &[value],
        )?)?;
    }
    text.push(rest)?;
    if left.next().is_some() && !named {
        return Err(invalid("%: the format does not use all values"));
    }
    text.into_value()
}

/// Writes a value as `%s` or, for `repr`, `%r`.
fn padded(
    value: &Value,
    repr: bool,
    left: bool,
    width: usize,
    precision: Option<usize>,
    text: &mut Text,
) -> Result<(), Error> {
    let mut printed = Text::default();
    match repr {
        true => print::repr(value, 0, &mut printed)?,
        false => print::display(value, &mut printed)?,
    }
    let printed = printed.into_string();
    let end = precision.and_then(|chars| printed.char_indices().nth(chars));
    let printed = end.map_or(printed.as_str(), |(end, _)| &printed[..end]);
    let missing = width.saturating_sub(printed.chars().count());
    text.repeat(" ", if left { 0 } else { missing })?;
    text.push(printed)?;
    text.repeat(" ", if left { missing } else { 0 })
}

fn take<'a>(rest: &mut &'a str, wanted: impl Fn(char) -> bool) -> &'a str {
    let (taken, after) = rest.split_at(rest.find(|c| !wanted(c)).unwrap_or(rest.len()));
    *rest = after;
    taken
}

/// Reads a width or precision: digits, or `*` for the next value.
fn size(
    rest: &mut &str,
    next: impl FnOnce() -> Result<Value, Error>,
) -> Result<Option<usize>, Error> {
    let digits = match rest.strip_prefix('*') {
        Some(after) => {
            *rest = after;
            next()?.to_string()
        }
        None => take(rest, |c| c.is_ascii_digit()).to_owned(),
    };
    match digits.parse() {
        _ if digits.is_empty() => Ok(None),
        Ok(size @ ..=COUNT) => Ok(Some(size)),
        _ => Err(invalid(format!("format: a width of {digits} is too large: {COUNT} at most"))),
    }
}

/// `pattern.format(...)`
pub(super) fn braces(pattern: &str, values: &[Value]) -> Result<Value, Error> {
    let mut bytes = pattern.len();
    for digits in pattern.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty()) {
        bytes += size(&mut &*digits, || Ok(Value::UNDEFINED))?.unwrap_or(0);
    }
    // Each field may write the largest value.
    let printed = values.iter().map(printed).collect::<Result<Vec<_>, _>>()?;
    let largest = printed.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    meter::charge(bytes.saturating_add(largest.saturating_mul(pattern.matches('{').count())))?;
    let values: Vec<Value> = printed.into_iter().map(|(value, _)| value).collect();
    meter::built(format(FormatStyle::StrFormat, pattern, &values)?.into())
}

/// Returns a value for the engine to print, and its size as text. Lists become texts here, since
/// the engine prints them differently.
fn printed(value: &Value) -> Result<(Value, usize), Error> {
    if let Some(text) = value.as_str() {
        return Ok((value.clone(), text.len()));
    }
    let mut text = Text::default();
    print::display(value, &mut text)?;
    let text = text.into_string();
    let bytes = text.len();
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => Ok((text.into(), bytes)),
        _ => Ok((value.clone(), bytes)),
    }
}
