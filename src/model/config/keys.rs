//! Typed access to the metadata keys of an architecture.

use std::{cell::RefCell, collections::HashSet};

use crate::{
    gguf::{Metadata, Value},
    model::Error,
};

/// The metadata keys that start with the architecture's name.
pub struct Keys<'m, 'a> {
    pub metadata: &'m Metadata<'a>,
    pub architecture: &'static str,
    /// The keys that were read, without the architecture's name.
    read: RefCell<HashSet<String>>,
}

impl<'m, 'a> Keys<'m, 'a> {
    pub fn new(metadata: &'m Metadata<'a>, architecture: &'static str) -> Self {
        Keys { metadata, architecture, read: RefCell::default() }
    }

    /// Returns the whole name of a key, to read it: from then on the key is not unread.
    pub fn name(&self, key: &str) -> String {
        self.read.borrow_mut().insert(key.into());
        format!("{}.{key}", self.architecture)
    }

    /// Returns the value of a key that the file has and that was not read.
    pub fn unread(&self, key: &str) -> Option<Value<'a>> {
        if self.read.borrow().contains(key) {
            return None;
        }
        self.metadata.get(&format!("{}.{key}", self.architecture))
    }

    /// Returns whether the file has a key, without reading it.
    pub fn has(&self, key: &str) -> bool {
        self.metadata.get(&format!("{}.{key}", self.architecture)).is_some()
    }

    pub fn number(&self, key: &str) -> Result<Option<usize>, Error> {
        Ok(self.metadata.u32(&self.name(key))?.map(|n| n as usize))
    }

    /// Reads a number that must be present, from 1 to `max`.
    pub fn size(&self, key: &str, max: usize) -> Result<usize, Error> {
        let name = self.name(key);
        let size = Metadata::require(&name, self.number(key)?)?;
        in_range(name, size, max)
    }

    pub fn size_or(&self, key: &str, max: usize, default: usize) -> Result<usize, Error> {
        if self.metadata.get(&self.name(key)).is_none() {
            return Ok(default);
        }
        self.size(key, max)
    }

    /// Reads one number from 1 to `max` for each of `layers` layers: an array, or one number for
    /// all of them. If the key is absent, it is `default`, which makes the key optional.
    pub fn by_layer(
        &self,
        key: &str,
        layers: usize,
        max: usize,
        default: Option<usize>,
    ) -> Result<Vec<usize>, Error> {
        self.by_layer_from(&|_| 1, key, layers, max, default)
    }

    /// Reads numbers like [`Keys::by_layer`]. In an array, `least` is the minimum for each layer: 0 or
    /// 1.
    pub fn by_layer_from(
        &self,
        least: &dyn Fn(usize) -> usize,
        key: &str,
        layers: usize,
        max: usize,
        default: Option<usize>,
    ) -> Result<Vec<usize>, Error> {
        if let Some(values) = self.array(key, layers)? {
            let in_range = |(layer, value): (usize, i64)| match usize::try_from(value) {
                Ok(0) if least(layer) == 0 => Ok(0),
                value => in_range(format!("{}[{layer}]", self.name(key)), value.unwrap_or(0), max),
            };
            return values.into_iter().enumerate().map(in_range).collect();
        }
        let value = match default {
            Some(default) => self.size_or(key, max, default)?,
            None => self.size(key, max)?,
        };
        Ok(vec![value; layers])
    }

    /// Reads an integer for each of `layers` layers, if the key is an array.
    pub fn array(&self, key: &str, layers: usize) -> Result<Option<Vec<i64>>, Error> {
        let name = self.name(key);
        let Some(Value::Array(_)) = self.metadata.get(&name) else { return Ok(None) };
        let values = self.metadata.integers(&name)?.unwrap_or_default();
        self.check_len(key, values.len(), layers)?;
        Ok(Some(values))
    }

    /// Reads numbers like [`Keys::by_layer`], or returns `default` if the key is absent.
    pub fn by_layer_or(
        &self,
        key: &str,
        max: usize,
        default: &[usize],
    ) -> Result<Vec<usize>, Error> {
        match self.metadata.get(&self.name(key)) {
            Some(_) => self.by_layer(key, default.len(), max, None),
            None => Ok(default.to_vec()),
        }
    }

    /// Returns the length of the array in a key, if it has one.
    pub fn array_len(&self, key: &str) -> Option<usize> {
        match self.metadata.get(&self.name(key))? {
            Value::Array(array) => Some(array.len),
            _ => None,
        }
    }

    /// Returns the name of a layer's value: with its index if the key has an array.
    pub fn name_in(&self, key: &str, layer: usize) -> String {
        let name = self.name(key);
        match self.metadata.get(&name) {
            Some(Value::Array(_)) => format!("{name}[{layer}]"),
            _ => name,
        }
    }

    /// Reads a number like [`Keys::by_layer`] that must be the same in all layers.
    pub fn uniform(
        &self,
        key: &str,
        layers: usize,
        max: usize,
        default: Option<usize>,
    ) -> Result<usize, Error> {
        let values = self.by_layer(key, layers, max, default)?;
        match values.iter().position(|value| *value != values[0]) {
            None => Ok(values[0]),
            Some(layer) => Err(Error::Value {
                key: format!("{}[{layer}]", self.name(key)),
                value: values[layer].to_string(),
                reason: format!(
                    "must be {}, as in layer 0: layers of different shapes are not supported",
                    values[0]
                ),
            }),
        }
    }

    /// Checks the length of an array with a value for each layer.
    fn check_len(&self, key: &str, len: usize, layers: usize) -> Result<(), Error> {
        self.check_array(&self.name(key), len, layers)
    }

    fn check_array(&self, name: &str, len: usize, layers: usize) -> Result<(), Error> {
        if len == layers {
            return Ok(());
        }
        let value = format!("an array of {len}");
        let reason = format!("must have a value for each of the {layers} layers");
        Err(Error::Value { key: name.into(), value, reason })
    }

    pub fn epsilon(&self, key: &str) -> Result<f32, Error> {
        Metadata::require(&self.name(key), self.metadata.f32(&self.name(key))?)?;
        Ok(self.positive(key)?.unwrap_or(0.0))
    }

    /// Reads a number that must be present and above 0.
    pub fn required(&self, key: &str) -> Result<f32, Error> {
        let value = Metadata::require(&self.name(key), self.metadata.f32(&self.name(key))?)?;
        self.positive(key)?.ok_or_else(|| Error::Value {
            key: self.name(key),
            value: value.to_string(),
            reason: "must be above 0".into(),
        })
    }

    /// Reads a number for each of `layers` layers from a key without the architecture's name: an
    /// array, or one number for all of them.
    pub fn floats(&self, key: &str, layers: usize) -> Result<Vec<f32>, Error> {
        let Some(Value::Array(_)) = self.metadata.get(key) else {
            return Ok(vec![Metadata::require(key, self.metadata.f32(key)?)?; layers]);
        };
        let values = self.metadata.f32s(key)?.unwrap_or_default();
        self.check_array(key, values.len(), layers)?;
        Ok(values)
    }

    /// Reads whether each of `layers` layers has a property, if the key is an array.
    pub fn flags(&self, key: &str, layers: usize) -> Result<Option<Vec<bool>>, Error> {
        let flags = self.array(key, layers)?;
        Ok(flags.map(|flags| flags.into_iter().map(|flag| flag != 0).collect()))
    }

    /// Returns the property of all layers, if the key is not an array.
    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.metadata.get(&self.name(key))? {
            Value::Bool(flag) => Some(flag),
            other => other.integer().map(|number| number != 0),
        }
    }

    /// Reads a number that is not negative. Returns `None` for 0.
    pub fn positive_or(&self, key: &str, default: f32) -> Result<Option<f32>, Error> {
        let name = self.name(key);
        match self.metadata.f32(&name)?.unwrap_or(default) {
            0.0 => Ok(None),
            x if x < 0.0 => {
                let reason = "must not be negative".into();
                Err(Error::Value { key: name, value: x.to_string(), reason })
            }
            x => Ok(Some(x)),
        }
    }

    pub fn positive(&self, key: &str) -> Result<Option<f32>, Error> {
        self.positive_or(key, 0.0)
    }
}

fn in_range(key: String, size: usize, max: usize) -> Result<usize, Error> {
    if size == 0 || size > max {
        let reason = format!("must be from 1 to {max}");
        return Err(Error::Value { key, value: size.to_string(), reason });
    }
    Ok(size)
}
