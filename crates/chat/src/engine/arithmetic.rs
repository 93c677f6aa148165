//! Filters that compute numbers, as Jinja in Python does.

use minijinja::{Environment, Error, Value, value::Kwargs};

use super::{
    filters::{argument, count, string},
    meter::{self, invalid},
    number::{self, Number, integer},
    operators,
};

pub(super) fn add_to(environment: &mut Environment) {
    environment.add_filter(
        "int",
        |value: &Value, default: Option<Value>, base: Option<Value>, named: Kwargs| {
            meter::call(std::slice::from_ref(value))?;
            let default = argument(default, &named, "default")?.unwrap_or_else(|| 0.into());
            let base =
                argument(base, &named, "base")?.map_or(Ok(10), |base| count(&base, "int"))?;
            named.assert_all_used()?;
            let found = match (value.as_str(), Number::new(value)) {
                (Some(text), _) => match number::parse_int(text, base as u32)? {
                    Some(x) => Some(x),
                    None => match number::parse_float(text) {
                        Some(x) if x.is_finite() => Some(number::whole(x)?),
                        _ => None,
                    },
                },
                (None, Some(Number::Int(x))) => Some(x),
                (None, Some(Number::Float(x))) if !x.is_nan() => Some(number::whole(x)?),
                _ if value.is_undefined() => return Err(invalid("int: the value is undefined")),
                _ => None,
            };
            Ok::<_, Error>(found.map_or(default, integer))
        },
    );
    environment.add_filter("float", |value: &Value, default: Option<Value>, named: Kwargs| {
        meter::call(std::slice::from_ref(value))?;
        let default = argument(default, &named, "default")?.unwrap_or_else(|| 0.0.into());
        named.assert_all_used()?;
        if value.is_undefined() {
            return Err(invalid("float: the value is undefined"));
        }
        let text = value.as_str().map(number::parse_float);
        let found = text.unwrap_or_else(|| Number::new(value).map(Number::real));
        Ok::<_, Error>(found.map_or(default, Value::from))
    });
    environment.add_filter(
        "round",
        |value: &Value, precision: Option<Value>, method: Option<Value>, named: Kwargs| {
            let precision = argument(precision, &named, "precision")?;
            let precision = precision.map_or(Ok(0), i64::try_from)?;
            let method = argument(method, &named, "method")?;
            named.assert_all_used()?;
            round(value, precision, method.as_ref().map_or("common", string))
        },
    );
    environment.add_filter(
        "filesizeformat",
        |value: &Value, binary: Option<Value>, named: Kwargs| {
            let binary = argument(binary, &named, "binary")?.is_some_and(|x| x.is_true());
            named.assert_all_used()?;
            let bytes = match value.as_str() {
                Some(text) => number::parse_float(text),
                None => Number::new(value).map(Number::real),
            };
            let bytes = bytes.ok_or_else(|| invalid("filesizeformat takes a number"))?;
            file_size(bytes, binary)
        },
    );
    environment.add_filter(
        "sum",
        |items: &Value, attribute: Option<Value>, start: Option<Value>, named: Kwargs| {
            let attribute = argument(attribute, &named, "attribute")?;
            let mut sum = argument(start, &named, "start")?.unwrap_or_else(|| 0.into());
            named.assert_all_used()?;
            for item in operators::iterate(items)?.try_iter()? {
                meter::call(&[])?;
                let item = match &attribute {
                    Some(name) => item.get_item(name)?,
                    None => item,
                };
                sum = operators::add(&sum, &item)?;
            }
            Ok::<_, Error>(sum)
        },
    );
}

fn round(value: &Value, precision: i64, method: &str) -> Result<Value, Error> {
    let number = Number::new(value).ok_or_else(|| invalid("round takes a number"))?;
    // Floats have no more digits.
    let precision = precision.clamp(-400, 400) as i32;
    let scale = 10f64.powi(precision);
    Ok(match (method, number) {
        ("ceil", x) => ((x.real() * scale).ceil() / scale).into(),
        ("floor", x) => ((x.real() * scale).floor() / scale).into(),
        ("common", Number::Int(x)) if precision >= 0 => integer(x),
        ("common", Number::Int(x)) => {
            let Some(unit) = 10i128.checked_pow(precision.unsigned_abs()) else {
                return Ok(0.into());
            };
            let (down, rest) = (x.div_euclid(unit), x.rem_euclid(unit));
            // Half to even.
            let up = rest > unit - rest || rest == unit - rest && down % 2 != 0;
            let rounded = (down + i128::from(up)).checked_mul(unit);
            integer(rounded.ok_or_else(|| number::too_large(&x.to_string()))?)
        }
        ("common", Number::Float(x)) if !x.is_finite() => x.into(),
        ("common", Number::Float(x)) => match usize::try_from(precision) {
            // Exact digits, half to even.
            Ok(digits) => format!("{x:.digits$}").parse().unwrap_or(x).into(),
            Err(_) => ((x * scale).round_ties_even() / scale).into(),
        },
        _ => return Err(invalid("round: the method is one of common, ceil, floor")),
    })
}

fn file_size(bytes: f64, binary: bool) -> Result<String, Error> {
    let (base, middle) = if binary { (1024.0, "i") } else { (1000.0, "") };
    if bytes == 1.0 {
        return Ok("1 Byte".into());
    }
    if bytes < base {
        return Ok(format!("{} Bytes", number::whole(bytes)?));
    }
    let mut size = bytes / base;
    let mut letters = "kMGTPEZY".chars().peekable();
    while let Some(letter) = letters.next() {
        if size < base || letters.peek().is_none() {
            let letter = if binary { letter.to_ascii_uppercase() } else { letter };
            return Ok(format!("{size:.1} {letter}{middle}B"));
        }
        size /= base;
    }
    Err(invalid("filesizeformat takes a number"))
}
