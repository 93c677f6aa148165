//! How long a model stays open without use: ollama's `keep_alive`.

use std::time::Duration;

use serde_json::Value;

use crate::server::read::Failure;

/// Longer times mean for ever.
const SECONDS_MAX: f64 = 1e9;

/// What a value must be.
const EXPECTED: &str = "seconds or a time such as \"5m\" or \"1h30m\"; 0 to close the model at once, a \
                        negative one to keep it open";

/// How long a model stays open without use; `None` until its memory is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive(Option<Duration>);

impl KeepAlive {
    /// Returns the time; `None` for no limit.
    pub fn time(self) -> Option<Duration> {
        self.0
    }

    /// Returns whether the model closes at once.
    pub fn is_zero(self) -> bool {
        self.0.is_some_and(|time| time.is_zero())
    }

    /// Reads the value of a request's field.
    ///
    /// # Errors
    /// If it is not a time.
    pub fn of_value(value: &Value) -> Result<Self, Failure> {
        let read = match value {
            Value::String(text) => text.parse().ok(),
            value => value.as_f64().map(KeepAlive::of_seconds),
        };
        read.ok_or_else(|| Failure::wrong("keep_alive", EXPECTED, value))
    }

    fn of_seconds(seconds: f64) -> Self {
        KeepAlive((0.0..SECONDS_MAX).contains(&seconds).then(|| Duration::from_secs_f64(seconds)))
    }
}

impl std::str::FromStr for KeepAlive {
    type Err = String;

    /// Parses seconds, or numbers with units as in Go: `1h30m`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be {EXPECTED}");
        let text = text.trim();
        if let Ok(seconds) = text.parse::<f64>() {
            return if seconds.is_finite() { Ok(Self::of_seconds(seconds)) } else { Err(wrong()) };
        }
        let (sign, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (-1.0, rest),
            None => (1.0, text),
        };
        let mut seconds = 0.0;
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
            let number: f64 = rest[..end].parse().map_err(|_| wrong())?;
            rest = &rest[end..];
            let units = [
                ("ms", 1e-3),
                ("us", 1e-6),
                ("µs", 1e-6),
                ("ns", 1e-9),
                ("s", 1.0),
                ("m", 60.0),
                ("h", 3600.0),
            ];
            let unit = units.iter().find(|(unit, _)| rest.starts_with(unit)).ok_or_else(wrong)?;
            seconds += number * unit.1;
            rest = &rest[unit.0.len()..];
        }
        Ok(Self::of_seconds(sign * seconds))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_read_as_ollama_reads_them() {
        let seconds = |seconds| KeepAlive(Some(Duration::from_secs_f64(seconds)));
        for (value, expected) in [
            (json!(0), seconds(0.0)),
            (json!("0"), seconds(0.0)),
            (json!(2.5), seconds(2.5)),
            (json!("5m"), seconds(300.0)),
            (json!("1h30m"), seconds(5400.0)),
            (json!("250ms"), seconds(0.25)),
            (json!("1.5s"), seconds(1.5)),
            (json!(-1), KeepAlive(None)),
            (json!("-1m"), KeepAlive(None)),
            (json!(1e300), KeepAlive(None)),
        ] {
            assert_eq!(KeepAlive::of_value(&value).unwrap(), expected, "{value}");
        }
        for value in [
            json!("5"),
            json!(null),
            json!([]),
            json!(""),
            json!("-"),
            json!("m"),
            json!("5x"),
            json!("nan"),
        ] {
            let read = KeepAlive::of_value(&value);
            assert_eq!(read.is_ok(), value == "5", "{value}");
        }
    }
}
