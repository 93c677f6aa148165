//! Values that remember where they came from.

use std::fmt;

use super::Error;

/// A value, and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Its origin.
    pub origin: Origin,
}

impl<T> Sourced<T> {
    /// A value from the command line; `flag` as typed, such as `--rope-scale 4`.
    pub fn flag(value: T, flag: impl Into<String>) -> Self {
        Sourced { value, origin: Origin::Flag(flag.into()) }
    }

    /// A value from the metadata of the file.
    pub fn key(value: T, key: impl Into<String>) -> Self {
        Sourced { value, origin: Origin::Key(key.into()) }
    }

    /// A value that nobody chose.
    pub fn default(value: T) -> Self {
        Sourced { value, origin: Origin::Default }
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line: the flag as typed.
    Flag(String),
    /// The metadata of the file: the key.
    Key(String),
    /// Other values: how it follows from them.
    Computed(&'static str),
    /// Several values, multiplied.
    Product(Vec<Origin>),
    /// Nowhere: the value that holds where nothing is said.
    Default,
}

impl Origin {
    /// The value with its name, for an error: a flag as typed, `key = value` else.
    pub(super) fn with_value(&self, value: impl fmt::Display) -> String {
        match self {
            Origin::Flag(text) => text.clone(),
            other => format!("{other} = {value}"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag(text) | Origin::Key(text) => f.write_str(text),
            Origin::Computed(text) => f.write_str(text),
            Origin::Product(parts) => {
                for (i, part) in parts.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { " x " })?;
                    match part {
                        Origin::Computed(_) => write!(f, "({part})")?,
                        _ => write!(f, "{part}")?,
                    }
                }
                Ok(())
            }
            Origin::Default => f.write_str("default"),
        }
    }
}

impl fmt::Display for Sourced<f64> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", short(self.value), self.origin)
    }
}

impl fmt::Display for Sourced<usize> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.value, self.origin)
    }
}

/// Factors stay within this distance of 1, far beyond any use, so that no angle overflows.
const FACTOR_MAX: f64 = 1e6;

impl Sourced<usize> {
    /// A whole number from the command line.
    pub(super) fn whole(flag: &str, value: usize) -> Self {
        Sourced::flag(value, format!("{flag} {value}"))
    }

    /// The value, if it is in this range.
    pub(super) fn between(self, from: usize, to: usize) -> Result<Self, Error> {
        if (from..=to).contains(&self.value) {
            return Ok(self);
        }
        let value = self.origin.with_value(self.value);
        Err(Error::OutOfRange { value, expected: format!("a whole number from {from} to {to}") })
    }
}

impl Sourced<f64> {
    /// A number from the command line.
    pub(super) fn number(flag: &str, value: f64) -> Self {
        Sourced::flag(value, format!("{flag} {value}"))
    }

    /// The product of all values; 1 if there are none.
    pub(super) fn product(mut parts: Vec<Self>) -> Self {
        match parts.len() {
            0 => Sourced::default(1.0),
            1 => parts.remove(0),
            _ => Sourced {
                value: parts.iter().map(|part| part.value).product(),
                origin: Origin::Product(parts.into_iter().map(|part| part.origin).collect()),
            },
        }
    }

    /// The value, if it can multiply or divide.
    pub(super) fn factor(self) -> Result<Self, Error> {
        self.check("a number from 0.000001 to 1000000".into(), |x| {
            (1.0 / FACTOR_MAX..=FACTOR_MAX).contains(&x)
        })
    }

    /// The value, if it is zero or can multiply.
    pub(super) fn share(self) -> Result<Self, Error> {
        self.within(0.0, FACTOR_MAX)
    }

    /// The value, if it is in this range.
    pub(super) fn within(self, from: f64, to: f64) -> Result<Self, Error> {
        self.check(format!("a number from {from} to {to}"), |x| (from..=to).contains(&x))
    }

    /// The value, if frequencies can be its powers.
    pub(super) fn base(self) -> Result<Self, Error> {
        self.check("a finite number above 1".into(), |x| x > 1.0 && x.is_finite())
    }

    fn check(self, expected: String, ok: impl Fn(f64) -> bool) -> Result<Self, Error> {
        if ok(self.value) {
            return Ok(self);
        }
        Err(Error::OutOfRange { value: self.origin.with_value(self.value), expected })
    }
}

/// `value` with at most six significant digits: 0.25, 3.33333, 10000.
pub fn short(value: f64) -> String {
    let digits = (5 - value.abs().log10().floor().clamp(-9.0, 5.0) as i64).max(0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}
