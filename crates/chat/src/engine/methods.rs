//! Methods of Python's `str` that `pycompat` lacks, or has with differences or without a limit.

use minijinja::{
    Error, State, Value,
    value::{Kwargs, ValueKind, from_args},
};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::{
    format,
    meter::{self, List, Text, invalid},
    operators,
};

/// `value.name(args)`
pub(super) fn call(
    state: &mut State,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    meter::call(std::slice::from_ref(value))?;
    args.iter().try_for_each(meter::read)?;
    if let Some(s) = value.as_str() {
        // A search first prepares its pattern.
        meter::charge(args.iter().filter_map(Value::as_str).map(str::len).sum())?;
        if let Some(found) = of_text(s, name, args)? {
            return Ok(found);
        }
        return meter::built(unknown_method_callback(state, value, name, args)?);
    }
    match (value.kind(), name) {
        (ValueKind::Seq | ValueKind::Iterable, "count" | "index") => {
            let (wanted,): (&Value,) = from_args(args)?;
            let mut equal = Vec::new();
            for (i, item) in value.try_iter()?.enumerate() {
                meter::charge(4)?;
                if operators::equal(&item, wanted)? {
                    equal.push(i);
                }
            }
            match equal.first() {
                _ if name == "count" => Ok(equal.len().into()),
                Some(first) => Ok((*first).into()),
                None => Err(invalid("index: the value is not in the list")),
            }
        }
        // The engine divides by the number of arguments.
        (_, "cycle") if args.is_empty() => Err(invalid("cycle takes values")),
        _ => value.call_method(state, name, args),
    }
}

fn of_text(s: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let found = match name {
        "format" => return format::braces(s, args).map(Some),
        "replace" => {
            let (old, new, count): (&str, &str, Option<i64>) = from_args(args)?;
            return replace(s, old, new, count).map(Some);
        }
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            let mut text = Text::default();
            for (i, item) in operators::iterate(items)?.try_iter()?.enumerate() {
                let item = item.as_str();
                text.push(if i > 0 { s } else { "" })?;
                text.push(item.ok_or_else(|| invalid("join: an item is not a text"))?)?;
            }
            text.into_value()?
        }
        "split" | "rsplit" => {
            let (separator, count, named): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
            let separator = separator.or(named.get("sep")?).filter(|x| !x.is_none());
            let count = count.or(named.get("maxsplit")?);
            named.assert_all_used()?;
            let separator = match &separator {
                Some(x) => Some(x.as_str().ok_or_else(|| invalid("split: sep is not a text"))?),
                None => None,
            };
            let mut list = List::default();
            parts(s, separator, count, name == "rsplit", &mut list)?;
            let mut items = list.into_items();
            if name == "rsplit" {
                items.reverse();
            }
            items.into()
        }
        "splitlines" => {
            let (keep, named): (Option<bool>, Kwargs) = from_args(args)?;
            let keep = keep.or(named.get("keepends")?).unwrap_or(false);
            let mut list = List::default();
            lines(s).try_for_each(|(line, all)| list.push_text(if keep { all } else { line }))?;
            list.into_value()
        }
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            return strip(s, name, chars).map(Some);
        }
        "removeprefix" | "removesuffix" => {
            let (part,): (&str,) = from_args(args)?;
            let rest = match name {
                "removeprefix" => s.strip_prefix(part),
                _ => s.strip_suffix(part),
            };
            meter::charge(s.len() * 2)?;
            rest.unwrap_or(s).into()
        }
        "title" => {
            let () = from_args(args)?;
            return title(s, |c| !c.is_alphabetic()).map(Some);
        }
        "index" => {
            let (part,): (&str,) = from_args(args)?;
            let at = s.find(part).ok_or_else(|| invalid("index: the text is not in the other"))?;
            s[..at].chars().count().into()
        }
        "center" | "ljust" | "rjust" | "zfill" => {
            let (width, fill): (Value, Option<&str>) = from_args(args)?;
            return pad(s, name, &width, fill.unwrap_or(" ")).map(Some);
        }
        _ => return Ok(None),
    };
    Ok(Some(found))
}

/// `strip`, `lstrip` or `rstrip`
pub(super) fn strip(s: &str, how: &str, chars: Option<&str>) -> Result<Value, Error> {
    // Each character at either end is compared with them.
    meter::charge(chars.map_or(0, |chars| (s.len() / 8).saturating_mul(chars.len())))?;
    let out = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let stripped = match how {
        "lstrip" => s.trim_start_matches(out),
        "rstrip" => s.trim_end_matches(out),
        _ => s.trim_matches(out),
    };
    meter::charge(stripped.len() * 2)?;
    Ok(stripped.into())
}

/// Returns whether Python counts a character as white space.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// Returns a text with capitals at the start of words. `between` returns whether a character
/// separates words.
pub(super) fn title(s: &str, between: impl Fn(char) -> bool) -> Result<Value, Error> {
    let mut title = Text::default();
    let mut begins = true;
    for c in s.chars() {
        match begins {
            true => c.to_uppercase().try_for_each(|c| title.push_char(c))?,
            false => c.to_lowercase().try_for_each(|c| title.push_char(c))?,
        }
        begins = between(c);
    }
    title.into_value()
}

pub(super) fn replace(s: &str, old: &str, new: &str, count: Option<i64>) -> Result<Value, Error> {
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    meter::charge(s.len() / 8 + old.len())?;
    let mut text = Text::default();
    let mut from = 0;
    for (at, _) in s.match_indices(old).take(count) {
        text.push(&s[from..at])?;
        text.push(new)?;
        from = at + old.len();
    }
    text.push(&s[from..])?;
    text.into_value()
}

/// Returns the parts for `split`, or for `rsplit` from the last to the first.
fn parts(
    s: &str,
    separator: Option<&str>,
    count: Option<i64>,
    backwards: bool,
    list: &mut List,
) -> Result<(), Error> {
    let mut left = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let mut rest = s;
    if separator == Some("") {
        return Err(invalid("split: the separator is empty"));
    }
    loop {
        if separator.is_none() {
            rest = match backwards {
                true => rest.trim_end_matches(is_space),
                false => rest.trim_start_matches(is_space),
            };
            if rest.is_empty() {
                return Ok(());
            }
        }
        let found = match (separator, backwards) {
            _ if left == 0 => None,
            (Some(separator), false) => rest.split_once(separator),
            (Some(separator), true) => rest.rsplit_once(separator).map(|(a, b)| (b, a)),
            (None, false) => rest.split_once(is_space),
            (None, true) => rest.rsplit_once(is_space).map(|(a, b)| (b, a)),
        };
        let Some((part, more)) = found else { return list.push_text(rest) };
        list.push_text(part)?;
        rest = more;
        left -= 1;
    }
}

/// Splits a text into lines, each with its ending, at the line breaks of Python.
pub(super) fn lines(s: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = s;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let ends =
            |c| matches!(c, '\n'..='\r' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
        let line = rest.find(ends).unwrap_or(rest.len());
        let end = match rest[line..].strip_prefix("\r\n") {
            Some(_) => 2,
            None => rest[line..].chars().next().map_or(0, char::len_utf8),
        };
        let (whole, after) = rest.split_at(line + end);
        rest = after;
        Some((&whole[..line], whole))
    })
}

/// `center`, `ljust`, `rjust` or `zfill`
pub(super) fn pad(s: &str, how: &str, width: &Value, fill: &str) -> Result<Value, Error> {
    let width = width.as_i64().map(|width| usize::try_from(width).unwrap_or(0));
    let width =
        width.ok_or_else(|| invalid(format!("{how}: the width is missing or too large")))?;
    if fill.chars().count() != 1 {
        return Err(invalid(format!("{how}: the fill must be one character")));
    }
    let missing = width.saturating_sub(s.chars().count());
    let left = match how {
        // Python rounds odd numbers this way.
        "center" => missing / 2 + (missing & width & 1),
        "ljust" => 0,
        _ => missing,
    };
    let mut text = Text::default();
    if how == "zfill" {
        let digits = s.strip_prefix(['+', '-']).unwrap_or(s);
        text.push(&s[..s.len() - digits.len()])?;
        text.repeat("0", missing)?;
        text.push(digits)?;
    } else {
        text.repeat(fill, left)?;
        text.push(s)?;
        text.repeat(fill, missing - left)?;
    }
    text.into_value()
}
