//! Values with their origins.

use std::fmt;

use super::Error;
use crate::settings::Setting;

/// A value and its origin.
///
/// ```
/// use rope_cpu::{rope::Sourced, settings::Setting};
///
/// let context = Sourced::setting(8192, Setting::CONTEXT);
/// let trained = Sourced::key(4096, "llama.context_length");
/// assert!(context.value > trained.value && context.origin != trained.origin);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// The origin of the value.
    pub origin: Origin,
}

impl<T> Sourced<T> {
    /// Creates a value that a user has set.
    pub fn setting(value: T, setting: Setting) -> Self
    where
        T: fmt::Display,
    {
        let origin = Origin::Setting(setting, value.to_string());
        Sourced { value, origin }
    }

    /// Creates a value that a user gave. `origin` is the front end's description.
    pub fn given(value: T, origin: impl Into<String>) -> Self {
        Sourced { value, origin: Origin::Given(origin.into()) }
    }

    /// Creates a value from the metadata of the file.
    pub fn key(value: T, key: impl Into<String>) -> Self {
        Sourced { value, origin: Origin::Key(key.into()) }
    }

    /// Creates a default value.
    pub fn default(value: T) -> Self {
        Sourced { value, origin: Origin::Default }
    }
}

/// Makes a default value.
impl<T> From<T> for Sourced<T> {
    fn from(value: T) -> Self {
        Sourced::default(value)
    }
}

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A setting of the user, with the text of its value.
    Setting(Setting, String),
    /// A user, as a front end describes it.
    Given(String),
    /// The metadata of the file, with the key.
    Key(String),
    /// A computation from other values, with its formula or reason.
    Computed(&'static str),
    /// A product of values with these origins.
    Product(Vec<Origin>),
    /// The default.
    Default,
}

impl Origin {
    /// Describes the origin with the value, for an error message.
    pub(super) fn with_value(&self, value: impl fmt::Display) -> String {
        match self {
            Origin::Setting(..) | Origin::Given(_) => self.to_string(),
            other => format!("{other} = {value}"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Setting(setting, text) => write!(f, "{setting} {text}"),
            Origin::Given(text) | Origin::Key(text) => f.write_str(text),
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

/// The largest factor. The smallest is its inverse. In this range, no angle overflows.
const FACTOR_MAX: f64 = 1e6;

impl Sourced<usize> {
    /// Returns the value if it is from `from` to `to`, else an error.
    pub(super) fn between(self, from: usize, to: usize) -> Result<Self, Error> {
        if (from..=to).contains(&self.value) {
            return Ok(self);
        }
        let value = self.origin.with_value(self.value);
        Err(Error::OutOfRange { value, expected: format!("a whole number from {from} to {to}") })
    }
}

impl Sourced<f64> {
    /// Returns the product of all values; 1 if there are none.
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

    /// Returns the value if it is a valid factor, from 1e-6 to 1e6, else an error.
    pub(super) fn factor(self) -> Result<Self, Error> {
        self.check("a number from 0.000001 to 1000000".into(), |x| {
            (1.0 / FACTOR_MAX..=FACTOR_MAX).contains(&x)
        })
    }

    /// Returns the value if it is from 0 to 1e6, else an error.
    pub(super) fn share(self) -> Result<Self, Error> {
        self.within(0.0, FACTOR_MAX)
    }

    /// Returns the value if it is from `from` to `to`, else an error.
    pub(super) fn within(self, from: f64, to: f64) -> Result<Self, Error> {
        self.check(format!("a number from {from} to {to}"), |x| (from..=to).contains(&x))
    }

    /// Returns the value if it is a valid base, finite and above 1, else an error.
    pub(super) fn base(self) -> Result<Self, Error> {
        self.check("a finite number above 1".into(), |x| x > 1.0 && x.is_finite())
    }

    /// Returns the value if `ok`, else an error that says `expected`.
    fn check(self, expected: String, ok: impl Fn(f64) -> bool) -> Result<Self, Error> {
        if ok(self.value) {
            return Ok(self);
        }
        Err(Error::OutOfRange { value: self.origin.with_value(self.value), expected })
    }
}

/// Formats `value` with at most six significant digits, or as a whole number if it has more: 0.25,
/// 3.33333, 10000.
///
/// ```
/// # use rope_cpu::rope::short;
/// assert_eq!([0.25, 10.0 / 3.0].map(short), ["0.25", "3.33333"]);
/// ```
pub fn short(value: f64) -> String {
    let digits = (5 - value.abs().log10().floor().clamp(-9.0, 5.0) as i64).max(0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}
