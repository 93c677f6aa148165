//! The fields of a request, with errors that name them.

use axum::body::Bytes;
use rope_cpu::json;
use serde::Serialize;
use serde_json::{Map, Value};

use super::error::ApiError;

/// The field with parameters of the chat template.
pub const TEMPLATE_ARGUMENTS: &str = "chat_template_kwargs";

/// The fields of a JSON object. A field that is `null` counts as missing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Parses the body of a request.
    ///
    /// # Errors
    /// If it is not a JSON object, with the position.
    pub fn parse(body: &Bytes) -> Result<Self, ApiError> {
        match parse(body)? {
            Value::Object(fields) => Ok(Fields(fields)),
            _ => Err(ApiError::invalid("the body must be a JSON object")),
        }
    }

    /// Returns the fields of an object.
    pub fn of(object: Map<String, Value>) -> Self {
        Fields(object)
    }

    /// Returns the fields of a value, which is one of those of the field `name`.
    ///
    /// # Errors
    /// If it is not an object.
    pub fn from_value(name: &str, value: &Value) -> Result<Self, ApiError> {
        let object = value.as_object().cloned().map(Fields);
        object.ok_or_else(|| ApiError::field(name, format_args!("made of objects, not {value}")))
    }

    /// Sets a field.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.into(), value.into());
    }

    /// Sets a parameter of the chat template, unless the request gives it.
    ///
    /// # Errors
    /// If the field of these parameters is not an object.
    pub fn set_template_argument(
        &mut self,
        name: &str,
        value: impl Into<Value>,
    ) -> Result<(), ApiError> {
        let mut arguments = self.object(TEMPLATE_ARGUMENTS)?.cloned().unwrap_or_default();
        arguments.entry(name).or_insert(value.into());
        self.set(TEMPLATE_ARGUMENTS, arguments);
        Ok(())
    }

    /// Removes a field, and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Returns the value of a field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Returns the first of some fields that is there, with its name.
    pub fn first<'n>(&self, names: &[&'n str]) -> Option<(&'n str, &Value)> {
        names.iter().find_map(|name| Some((*name, self.get(name)?)))
    }

    /// Returns a text.
    ///
    /// # Errors
    /// If the field is not a string.
    pub fn text(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let text = |value: &'_ Value| value.as_str().is_some();
        match self.get(name) {
            Some(value) if !text(value) => Err(ApiError::field(name, "a string")),
            value => Ok(value.and_then(Value::as_str)),
        }
    }

    /// Returns a switch, `default` if it is missing.
    ///
    /// # Errors
    /// If the field is not a Boolean.
    pub fn switch(&self, name: &str, default: bool) -> Result<bool, ApiError> {
        match self.get(name) {
            None => Ok(default),
            Some(value) => value.as_bool().ok_or_else(|| ApiError::field(name, "true or false")),
        }
    }

    /// Returns a finite number.
    ///
    /// # Errors
    /// If the field is not a number, or not finite.
    pub fn number(&self, name: &str) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_f64().filter(|number| number.is_finite());
        number.map(Some).ok_or_else(|| ApiError::field(name, "a finite number"))
    }

    /// Returns a whole number from `least` to `most`.
    ///
    /// # Errors
    /// If the field is not a whole number, or out of range.
    pub fn whole(&self, name: &str, least: i64, most: i64) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let whole = whole_number(value).filter(|number| (least..=most).contains(number));
        whole.map(Some).ok_or_else(|| {
            let range = match most {
                i64::MAX => format!("a whole number of at least {least}"),
                _ => format!("a whole number from {least} to {most}"),
            };
            ApiError::field(name, format_args!("{range}, not {value}"))
        })
    }

    /// Returns a number of things, from 0 to `most`.
    ///
    /// # Errors
    /// If the field is not a whole number, or out of range.
    pub fn count(&self, name: &str, most: usize) -> Result<Option<usize>, ApiError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        Ok(self.whole(name, 0, most)?.and_then(|number| usize::try_from(number).ok()))
    }

    /// Returns a list.
    ///
    /// # Errors
    /// If the field is not a list.
    pub fn list(&self, name: &str) -> Result<Option<&[Value]>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let list = value.as_array().ok_or_else(|| ApiError::field(name, "a list"))?;
        Ok(Some(list))
    }

    /// Returns an object.
    ///
    /// # Errors
    /// If the field is not an object.
    pub fn object(&self, name: &str) -> Result<Option<&Map<String, Value>>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let object = value.as_object().ok_or_else(|| ApiError::field(name, "an object"))?;
        Ok(Some(object))
    }

    /// Returns a text, or the texts of a list.
    ///
    /// # Errors
    /// If the field is neither.
    pub fn texts(&self, name: &str) -> Result<Vec<String>, ApiError> {
        let expected = || ApiError::field(name, "a string or a list of strings");
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(vec![text.clone()]),
            Some(Value::Array(texts)) => texts
                .iter()
                .map(|text| text.as_str().map(str::to_string).ok_or_else(expected))
                .collect(),
            Some(_) => Err(expected()),
        }
    }
}

/// Parses the body of a request.
///
/// # Errors
/// If it is not JSON, with the position.
pub fn parse(body: &Bytes) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(body)
        .map_err(|e| ApiError::invalid(format_args!("the body is not UTF-8: {e}")))?;
    json::parse(text)
        .map_err(|e| ApiError::invalid(format_args!("the body is not valid JSON: {e}")))
}

/// Returns a number without a fraction, such as 3 or 3.0.
pub fn whole_number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let number = value.as_f64()?;
        let exact = number.fract() == 0.0 && number.abs() < 2f64.powi(53);
        exact.then_some(number as i64)
    })
}
