//! The description of a sampler's setting.

use super::Error;
use crate::settings::{Parameter, Setting, Value, Values};

/// A setting of a sampler: a number with a name, a default and a range.
///
/// ```
/// use rope_cpu::sample::{Settings, temperature::TEMPERATURE};
///
/// assert_eq!(TEMPERATURE.default(), 0.8);
/// let value = TEMPERATURE.parse("0.2")?;
/// let settings = Settings::default().with(&TEMPERATURE, value);
/// assert!(TEMPERATURE.parse("-x").is_err());
/// # Ok::<(), rope_cpu::sample::Error>(())
/// ```
#[derive(Debug)]
pub struct SamplerSetting {
    /// The name, the description and the default.
    pub parameter: Parameter,
    /// The key in `general.sampling` of a model file that recommends a value.
    pub key: Option<&'static str>,
    pub(super) range: Range,
    pub(super) no_effect: fn(&Values) -> Option<&'static str>,
}

/// The allowed values of a setting.
#[derive(Debug)]
pub(super) enum Range {
    Real { permitted: fn(f32) -> bool, expected: &'static str },
    Whole { least: i64, most: i64, expected: &'static str },
}

impl Range {
    pub const FINITE: Range =
        Range::Real { permitted: f32::is_finite, expected: "a finite number" };
    pub const NOT_NEGATIVE: Range = Range::Real {
        permitted: |x| x.is_finite() && x >= 0.0,
        expected: "a finite number of at least 0",
    };
    pub const SHARE: Range =
        Range::Real { permitted: |x| (0.0..=1.0).contains(&x), expected: "from 0 to 1" };
    pub const WHOLE: Range =
        Range::Whole { least: i64::MIN, most: i64::MAX, expected: "a whole number" };
    pub const COUNT: Range =
        Range::Whole { least: 0, most: i64::MAX, expected: "a whole number of at least 0" };
    pub const LAST: Range = Range::Whole {
        least: -1,
        most: i64::MAX,
        expected: "a whole number of at least 0, or -1 for all tokens",
    };

    /// Returns the allowed values, in words.
    pub fn expected(&self) -> &'static str {
        match self {
            Range::Real { expected, .. } | Range::Whole { expected, .. } => expected,
        }
    }
}

impl SamplerSetting {
    /// Creates a setting that only users set, and that always has an effect.
    pub(super) const fn new(
        name: &'static str,
        default: f64,
        range: Range,
        summary: &'static str,
    ) -> Self {
        let parameter = match range {
            Range::Real { .. } => Parameter::number(name, "N", summary),
            Range::Whole { least, most, .. } => Parameter::integer(name, "N", least, most, summary),
        };
        SamplerSetting {
            parameter: parameter.default(default),
            key: None,
            range,
            no_effect: |_| None,
        }
    }

    /// Adds sentences to the help.
    pub(super) const fn details(self, details: &'static str) -> Self {
        SamplerSetting { parameter: self.parameter.details(details), ..self }
    }

    /// Adds other names.
    pub(super) const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        SamplerSetting { parameter: self.parameter.aliases(aliases), ..self }
    }

    /// Adds llama.cpp's environment variable.
    pub(super) const fn llama_cpp(self, names: &'static [&'static str]) -> Self {
        SamplerSetting { parameter: self.parameter.llama_cpp(names), ..self }
    }

    /// Marks the setting as one that most users never need.
    pub(super) const fn rare(self) -> Self {
        SamplerSetting { parameter: self.parameter.rare(), ..self }
    }

    /// Lets a file recommend a value.
    pub(super) const fn key(self, key: &'static str) -> Self {
        SamplerSetting { key: Some(key), ..self }
    }

    /// Adds a function that returns why the setting has no effect with the values in use. The
    /// reason continues the sentence "... has no effect".
    pub(super) const fn no_effect(self, no_effect: fn(&Values) -> Option<&'static str>) -> Self {
        SamplerSetting { no_effect, ..self }
    }

    /// Returns the name.
    pub fn name(&self) -> Setting {
        self.parameter.setting
    }

    /// Returns the allowed values, in words.
    pub fn expected(&self) -> &'static str {
        self.range.expected()
    }

    /// Returns the default.
    pub fn default(&self) -> f64 {
        self.parameter.default.unwrap_or_default()
    }

    /// Returns the value or the default.
    pub fn real(&self, values: &Values) -> f32 {
        match values.get(&self.parameter) {
            Some(Value::Number(value)) => *value as f32,
            _ => self.default() as f32,
        }
    }

    /// Returns the value or the default of a setting that is a whole number.
    pub fn whole(&self, values: &Values) -> i64 {
        match values.get(&self.parameter) {
            Some(Value::Integer(value)) => *value,
            _ => self.default() as i64,
        }
    }

    /// Returns a count: the value or the default, or 0 if it is negative.
    pub(super) fn count(&self, values: &Values) -> usize {
        usize::try_from(self.whole(values)).unwrap_or(0)
    }

    /// Returns a number of last tokens: the value or the default; -1 means all.
    pub(super) fn last(&self, values: &Values) -> usize {
        usize::try_from(self.whole(values)).unwrap_or(usize::MAX)
    }

    /// Parses a value.
    ///
    /// # Errors
    /// If `text` is not an allowed value.
    pub fn parse(&self, text: &str) -> Result<Value, Error> {
        let value = match self.range {
            Range::Real { .. } => text.parse().ok().map(Value::Number),
            Range::Whole { .. } => text.parse().ok().map(Value::Integer),
        };
        value.filter(|value| self.permits(value)).ok_or_else(|| Error::Setting {
            setting: self.name(),
            value: text.into(),
            expected: self.range.expected(),
        })
    }

    /// Returns whether a value is allowed.
    pub fn permits(&self, value: &Value) -> bool {
        match (&self.range, value) {
            (Range::Real { permitted, .. }, Value::Number(x)) => permitted(*x as f32),
            (Range::Whole { least, most, .. }, Value::Integer(n)) => (least..=most).contains(&n),
            _ => false,
        }
    }
}
