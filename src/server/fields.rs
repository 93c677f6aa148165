//! The fields of a request, with errors that name them.

use axum::body::Bytes;
use rope_cpu::json;
use serde::Serialize;
use serde_json::{Map, Value};

use super::error::ApiError;

/// The field with parameters of the chat template.
pub const TEMPLATE_ARGUMENTS: &str = "chat_template_kwargs";

/// The largest number of tokens or milliseconds that a request may give: more than any answer takes.
pub const COUNT_MAX: i64 = i32::MAX as i64;

/// The longest value in an error, in characters.
const SHOWN_MAX: usize = 100;

/// The fields of a JSON object. A field that is `null` counts as missing.
///
/// Errors name a field as the request does, with its place: `messages[0].role`. That holds after a conversion
/// into the form of another interface, too, see [`Fields::rename`].
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Fields {
    values: Map<String, Value>,
    /// The place of the object in the request; empty for the whole.
    #[serde(skip)]
    place: String,
    /// Fields that the request has at another place, with that place.
    #[serde(skip)]
    moved: Vec<(String, String)>,
}

impl Fields {
    /// Parses the body of a request. The name of a model is any text: the server has only one.
    ///
    /// # Errors
    /// If it is not a JSON object, with the position, or names the model by anything but a text.
    pub fn parse(body: &Bytes) -> Result<Self, ApiError> {
        let Value::Object(values) = parse(body)? else {
            return Err(ApiError::invalid("the body must be a JSON object"));
        };
        let fields = Fields { values, ..Fields::default() };
        fields.text("model")?;
        Ok(fields)
    }

    /// Returns the fields of the value at a place of a request.
    ///
    /// # Errors
    /// If it is not an object.
    pub fn of_value(place: impl Into<String>, value: &Value) -> Result<Self, ApiError> {
        let place = place.into();
        match value {
            Value::Object(values) => {
                Ok(Fields { values: values.clone(), place, moved: Vec::new() })
            }
            value => Err(ApiError::field(&place, format_args!("an object, not {}", shown(value)))),
        }
    }

    /// Sets a field.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.values.insert(name.into(), value.into());
        self.moved.retain(|(moved, _)| moved != name);
    }

    /// Sets a field to what the request has at another place.
    pub fn set_from(&mut self, name: &str, value: impl Into<Value>, place: impl Into<String>) {
        self.set(name, value);
        self.moved.push((name.into(), place.into()));
    }

    /// Gives a field another name. Errors have the old one.
    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some(value) = self.remove(from) {
            self.set_from(to, value, self.place(from));
        }
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
        self.values.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Returns the value of a field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name).filter(|value| !value.is_null())
    }

    /// Returns the first of some fields that is there, with its name.
    pub fn first<'n>(&self, names: &[&'n str]) -> Option<(&'n str, &Value)> {
        names.iter().find_map(|name| Some((*name, self.get(name)?)))
    }

    /// Returns the place of a field in the request.
    pub fn place(&self, name: &str) -> String {
        let moved = self.moved.iter().rev().find(|(moved, _)| moved == name);
        match (moved, &self.place[..]) {
            (Some((_, place)), _) => place.clone(),
            (None, "") => name.into(),
            (None, place) => format!("{place}.{name}"),
        }
    }

    /// Creates an error for a field that is missing or has another value than it must have.
    pub fn error(&self, name: &str, expected: impl std::fmt::Display) -> ApiError {
        let place = self.place(name);
        match self.get(name) {
            Some(value) => {
                ApiError::field(&place, format_args!("{expected}, not {}", shown(value)))
            }
            None => ApiError::field(&place, format_args!("given: {expected}")),
        }
    }

    /// Creates an error for a field that cannot be used.
    pub fn invalid_field(&self, name: &str, reason: impl std::fmt::Display) -> ApiError {
        let place = self.place(name);
        let error = ApiError::invalid(format_args!("\"{place}\": {reason}"));
        ApiError { field: Some(place), ..error }
    }

    /// Creates an error for the whole object.
    pub fn invalid(&self, reason: impl std::fmt::Display) -> ApiError {
        ApiError::invalid(format_args!("\"{}\": {reason}", self.place))
    }

    /// Returns a text.
    ///
    /// # Errors
    /// If the field is not a string.
    pub fn text(&self, name: &str) -> Result<Option<&str>, ApiError> {
        self.read(name, "a string", Value::as_str)
    }

    /// Returns a text that must be there.
    ///
    /// # Errors
    /// If the field is missing, or not a string.
    pub fn required_text(&self, name: &str) -> Result<&str, ApiError> {
        self.text(name)?.ok_or_else(|| self.error(name, "a string"))
    }

    /// Returns a switch, `default` if it is missing.
    ///
    /// # Errors
    /// If the field is not a Boolean.
    pub fn switch(&self, name: &str, default: bool) -> Result<bool, ApiError> {
        Ok(self.read(name, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    /// Returns a finite number.
    ///
    /// # Errors
    /// If the field is not a number, or not finite.
    pub fn number(&self, name: &str) -> Result<Option<f64>, ApiError> {
        let finite = |value: &Value| value.as_f64().filter(|number| number.is_finite());
        self.read(name, "a finite number", finite)
    }

    /// Returns a whole number from `least` to `most`.
    ///
    /// # Errors
    /// If the field is not a whole number, or out of range.
    pub fn whole(&self, name: &str, least: i64, most: i64) -> Result<Option<i64>, ApiError> {
        let within =
            |value: &Value| whole_number(value).filter(|number| (least..=most).contains(number));
        match (least, most) {
            (i64::MIN, i64::MAX) => self.read(name, "a whole number of 64 bits", within),
            _ => self.read(name, format_args!("a whole number from {least} to {most}"), within),
        }
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
        self.read(name, "a list", |value| value.as_array().map(Vec::as_slice))
    }

    /// Returns the fields of each object in a list.
    ///
    /// # Errors
    /// If the field is not a list of objects.
    pub fn objects(&self, name: &str) -> Result<Option<Vec<Fields>>, ApiError> {
        self.list(name)?.map(|list| objects(&self.place(name), list)).transpose()
    }

    /// Returns an object.
    ///
    /// # Errors
    /// If the field is not an object.
    pub fn object(&self, name: &str) -> Result<Option<&Map<String, Value>>, ApiError> {
        self.read(name, "an object", Value::as_object)
    }

    /// Returns the fields of an object.
    ///
    /// # Errors
    /// If the field is not an object.
    pub fn within(&self, name: &str) -> Result<Option<Fields>, ApiError> {
        self.get(name).map(|value| Fields::of_value(self.place(name), value)).transpose()
    }

    /// Returns a text, or the texts of a list.
    ///
    /// # Errors
    /// If the field is neither.
    pub fn texts(&self, name: &str) -> Result<Vec<String>, ApiError> {
        let text = |value: &Value| value.as_str().map(str::to_string);
        let texts = |value: &Value| match value {
            Value::Array(texts) => texts.iter().map(text).collect(),
            value => Some(vec![text(value)?]),
        };
        Ok(self.read(name, "a string or a list of strings", texts)?.unwrap_or_default())
    }

    /// Returns a text, or the texts of a list, of which there are at most `count`, of `bytes` together.
    ///
    /// # Errors
    /// If the field is neither, or has more.
    pub fn limited_texts(
        &self,
        name: &str,
        (count, bytes): (usize, usize),
    ) -> Result<Vec<String>, ApiError> {
        let texts = self.texts(name)?;
        let length: usize = texts.iter().map(String::len).sum();
        if texts.len() > count || length > bytes {
            return Err(ApiError::field(
                &self.place(name),
                format_args!(
                    "at most {count} strings of at most {bytes} bytes together, not {} strings of \
                     {length} bytes",
                    texts.len()
                ),
            ));
        }
        Ok(texts)
    }

    fn read<'v, T>(
        &'v self,
        name: &str,
        expected: impl std::fmt::Display,
        read: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.error(name, expected))
    }
}

/// Returns the fields of each object in a list at a place of a request.
///
/// # Errors
/// If another value is in it.
pub fn objects(place: &str, list: &[Value]) -> Result<Vec<Fields>, ApiError> {
    let fields = |(i, value)| Fields::of_value(format!("{place}[{i}]"), value);
    list.iter().enumerate().map(fields).collect()
}

/// Returns a value as errors show it.
pub fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
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
        let exact = number.fract() == 0.0 && number.abs() < 2f64.powi(63);
        exact.then_some(number as i64)
    })
}
