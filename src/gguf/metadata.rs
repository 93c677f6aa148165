//! The key-value pairs of a GGUF file, borrowed from its bytes.

use std::collections::{HashMap, HashSet};
use std::fmt;

use thiserror::Error;

use super::quoted;
use crate::settings::Setting;

/// An error for a metadata key that is missing or has an unusable value.
#[derive(Debug, Error)]
pub enum Error {
    /// A required key is missing.
    #[error("metadata key {0} is missing")]
    Missing(String),
    /// A key has a value of another type than the specification requires.
    #[error("metadata key {key} is {found}, where {expected} is expected")]
    Type {
        /// The key.
        key: String,
        /// A description of the value in the file.
        found: String,
        /// A description of the allowed values.
        expected: &'static str,
    },
    /// A key has a value of the right type that cannot be used.
    #[error("metadata key {key} is {value}: {reason}")]
    Value {
        /// The key.
        key: String,
        /// The value, as text.
        value: String,
        /// Why the value cannot be used, and the allowed values.
        reason: String,
    },
}

/// The type of a GGUF value, with its number in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are from the GGUF specification")]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    /// Returns the type with this number in files.
    pub fn from_number(number: u32) -> Option<Self> {
        use ValueType::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64]
            .into_iter()
            .find(|t| *t as u32 == number)
    }

    /// Returns the name of the type for messages: `u32`, `string`.
    pub fn name(self) -> &'static str {
        use ValueType::*;
        match self {
            U8 => "u8",
            I8 => "i8",
            U16 => "u16",
            I16 => "i16",
            U32 => "u32",
            I32 => "i32",
            F32 => "f32",
            Bool => "bool",
            String => "string",
            Array => "array",
            U64 => "u64",
            I64 => "i64",
            F64 => "f64",
        }
    }

    /// Returns the size in bytes of one value; `None` for strings and arrays.
    pub fn size(self) -> Option<usize> {
        use ValueType::*;
        match self {
            U8 | I8 | Bool => Some(1),
            U16 | I16 => Some(2),
            U32 | I32 | F32 => Some(4),
            U64 | I64 | F64 => Some(8),
            String | Array => None,
        }
    }
}

/// A metadata value. Strings are raw bytes: a file may hold text that is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are from the GGUF specification")]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(&'a [u8]),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    /// Returns the type of the value.
    pub fn value_type(self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// Returns the value if its type is an integer type of any width.
    pub fn integer(self) -> Option<i128> {
        Some(match self {
            Value::U8(x) => x.into(),
            Value::I8(x) => x.into(),
            Value::U16(x) => x.into(),
            Value::I16(x) => x.into(),
            Value::U32(x) => x.into(),
            Value::I32(x) => x.into(),
            Value::U64(x) => x.into(),
            Value::I64(x) => x.into(),
            _ => return None,
        })
    }

    /// Converts `x` to an integer type; `None` if the type is no integer type, or too small.
    pub(super) fn from_integer(value_type: ValueType, x: i64) -> Option<Self> {
        match value_type {
            ValueType::U8 => x.try_into().ok().map(Value::U8),
            ValueType::I8 => x.try_into().ok().map(Value::I8),
            ValueType::U16 => x.try_into().ok().map(Value::U16),
            ValueType::I16 => x.try_into().ok().map(Value::I16),
            ValueType::U32 => x.try_into().ok().map(Value::U32),
            ValueType::I32 => x.try_into().ok().map(Value::I32),
            ValueType::U64 => x.try_into().ok().map(Value::U64),
            ValueType::I64 => Some(Value::I64(x)),
            _ => None,
        }
    }

    /// Decodes a value of a fixed size from its bytes; `None` for strings and arrays.
    pub(super) fn fixed(value_type: ValueType, bytes: &[u8]) -> Option<Self> {
        fn number<const N: usize, T>(bytes: &[u8], read: fn([u8; N]) -> T) -> Option<T> {
            bytes.try_into().ok().map(read)
        }
        match value_type {
            ValueType::U8 => number(bytes, u8::from_le_bytes).map(Value::U8),
            ValueType::I8 => number(bytes, i8::from_le_bytes).map(Value::I8),
            ValueType::U16 => number(bytes, u16::from_le_bytes).map(Value::U16),
            ValueType::I16 => number(bytes, i16::from_le_bytes).map(Value::I16),
            ValueType::U32 => number(bytes, u32::from_le_bytes).map(Value::U32),
            ValueType::I32 => number(bytes, i32::from_le_bytes).map(Value::I32),
            ValueType::F32 => number(bytes, f32::from_le_bytes).map(Value::F32),
            ValueType::Bool => number(bytes, |[byte]| byte != 0).map(Value::Bool),
            ValueType::U64 => number(bytes, u64::from_le_bytes).map(Value::U64),
            ValueType::I64 => number(bytes, i64::from_le_bytes).map(Value::I64),
            ValueType::F64 => number(bytes, f64::from_le_bytes).map(Value::F64),
            ValueType::String | ValueType::Array => None,
        }
    }

    /// Describes the value for error messages: for example `u32 7`, `a string`, or
    /// `an array of 3 values of type f32`.
    pub fn describe(self) -> String {
        match self {
            Value::Array(_) => self.to_string(),
            Value::String(_) => "a string".into(),
            number => format!("{} {number}", number.value_type().name()),
        }
    }
}

/// Formats numbers as Rust does, strings quoted and shortened, and arrays by their length.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(x) => write!(f, "{x}"),
            Value::I8(x) => write!(f, "{x}"),
            Value::U16(x) => write!(f, "{x}"),
            Value::I16(x) => write!(f, "{x}"),
            Value::U32(x) => write!(f, "{x}"),
            Value::I32(x) => write!(f, "{x}"),
            Value::U64(x) => write!(f, "{x}"),
            Value::I64(x) => write!(f, "{x}"),
            Value::Bool(x) => write!(f, "{x}"),
            // `{:?}` always writes a decimal point or an exponent.
            Value::F32(x) => write!(f, "{x:?}"),
            Value::F64(x) => write!(f, "{x:?}"),
            Value::String(text) => write!(f, "{}", quoted(&String::from_utf8_lossy(text))),
            Value::Array(a) => {
                write!(f, "an array of {} values of type {}", a.len, a.element.name())
            }
        }
    }
}

/// An array whose elements are decoded on access. The scanner has checked that `bytes` holds all of
/// them.
///
/// ```
/// use rope_cpu::gguf::{Array, Value, ValueType};
///
/// let array = Array { element: ValueType::U16, len: 2, bytes: &[1, 0, 2, 0] };
/// assert_eq!(array.integers(), Some(vec![1, 2]));
/// assert_eq!(array.values().next(), Some(Value::U16(1)));
/// assert_eq!(array.f32s(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array<'a> {
    /// The type of every element.
    pub element: ValueType,
    /// The number of elements.
    pub len: usize,
    /// The encoded elements. A string is preceded by its length as a `u64`.
    pub bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// Decodes the elements one by one.
    pub fn values(self) -> impl Iterator<Item = Value<'a>> {
        let mut rest = self.bytes;
        (0..self.len).map_while(move |_| match self.element.size() {
            Some(size) => {
                let (value, tail) = rest.split_at_checked(size)?;
                rest = tail;
                Value::fixed(self.element, value)
            }
            None => {
                let (text, tail) = split_string(rest)?;
                rest = tail;
                Some(Value::String(text))
            }
        })
    }

    /// Returns the elements if they are strings.
    pub fn strings(self) -> Option<Vec<&'a [u8]>> {
        if self.element != ValueType::String {
            return None;
        }
        let mut rest = self.bytes;
        let mut strings = Vec::with_capacity(self.len);
        for _ in 0..self.len {
            let (text, tail) = split_string(rest)?;
            strings.push(text);
            rest = tail;
        }
        Some(strings)
    }

    /// Returns the elements if they are `f32`.
    pub fn f32s(self) -> Option<Vec<f32>> {
        (self.element == ValueType::F32)
            .then(|| self.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    /// Returns the elements if they are integers of any width, or booleans.
    pub fn integers(self) -> Option<Vec<i64>> {
        fn each<const N: usize>(bytes: &[u8], f: fn([u8; N]) -> i64) -> Option<Vec<i64>> {
            Some(bytes.as_chunks::<N>().0.iter().map(|b| f(*b)).collect())
        }
        match self.element {
            ValueType::U8 | ValueType::Bool => each(self.bytes, |[b]| b.into()),
            ValueType::I8 => each(self.bytes, |b| i8::from_le_bytes(b).into()),
            ValueType::U16 => each(self.bytes, |b| u16::from_le_bytes(b).into()),
            ValueType::I16 => each(self.bytes, |b| i16::from_le_bytes(b).into()),
            ValueType::U32 => each(self.bytes, |b| u32::from_le_bytes(b).into()),
            ValueType::I32 => each(self.bytes, |b| i32::from_le_bytes(b).into()),
            ValueType::I64 => each(self.bytes, i64::from_le_bytes),
            ValueType::U64 if self.bytes.as_chunks::<8>().0.iter().all(|b| b[7] < 128) => {
                each(self.bytes, |b| u64::from_le_bytes(b) as i64)
            }
            _ => None,
        }
    }
}

/// Splits off the string at the start of `bytes`, after its length.
fn split_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, tail) = bytes.split_first_chunk()?;
    tail.split_at_checked(u64::from_le_bytes(*len).try_into().ok()?)
}

/// The key-value pairs of a file in file order, with typed access.
///
/// A getter returns `Ok(None)` if the key is missing, and an error if the key has another type. So
/// a value of the wrong type is never mistaken for a missing key.
///
/// ```no_run
/// use rope_cpu::gguf::File;
///
/// let file = File::open("model.gguf")?;
/// let gguf = file.parse(&[])?;
/// if let Some(name) = gguf.metadata().string("general.name")? {
///     println!("{name}");
/// }
/// for (key, value) in gguf.metadata().iter() {
///     println!("{key} = {value}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Metadata<'a> {
    entries: Vec<(&'a str, Value<'a>)>,
    index: HashMap<&'a str, usize>,
    overridden: HashSet<&'a str>,
}

impl<'a> Metadata<'a> {
    /// Adds or replaces a pair like [`Metadata::insert`], and records that a user gave it.
    pub(super) fn override_with(&mut self, key: &'a str, value: Value<'a>) {
        self.insert(key, value);
        self.overridden.insert(key);
    }

    /// Describes the origin of a key's value: the key, after [`Setting::OVERRIDE_KV`] if a user
    /// gave it.
    pub fn origin(&self, key: &str) -> String {
        match self.overridden.contains(key) {
            true => format!("{} {key}", Setting::OVERRIDE_KV),
            false => key.into(),
        }
    }

    /// Adds a pair, or replaces the value of an existing key. Returns whether the key existed.
    ///
    /// ```
    /// use rope_cpu::gguf::{Metadata, Value};
    ///
    /// let mut metadata = Metadata::default();
    /// metadata.insert("llama.block_count", Value::U64(32));
    /// assert_eq!(metadata.u32("llama.block_count")?, Some(32));
    /// assert_eq!(metadata.u32("llama.context_length")?, None);
    /// assert!(metadata.string("llama.block_count").is_err());
    /// # Ok::<(), rope_cpu::gguf::MetadataError>(())
    /// ```
    pub fn insert(&mut self, key: &'a str, value: Value<'a>) -> bool {
        if let Some(&i) = self.index.get(key) {
            self.entries[i].1 = value;
            return true;
        }
        self.index.insert(key, self.entries.len());
        self.entries.push((key, value));
        false
    }

    /// Returns an iterator over all pairs in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a str, Value<'a>)> {
        self.entries.iter().copied()
    }

    /// Returns the value of a key, of any type.
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.index.get(key).map(|&i| self.entries[i].1)
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &'static str,
        convert: impl Fn(Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        convert(value).map(Some).ok_or_else(|| Error::Type {
            key: key.into(),
            found: value.describe(),
            expected,
        })
    }

    /// Returns a string. Text that is not UTF-8 is an error.
    pub fn string(&self, key: &str) -> Result<Option<&'a str>, Error> {
        self.typed(key, "a string of valid UTF-8", |v| match v {
            Value::String(s) => std::str::from_utf8(s).ok(),
            _ => None,
        })
    }

    /// Returns a whole number of any integer type that fits in an unsigned 32-bit number.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, Error> {
        self.typed(key, "a whole number from 0 to 4294967295", |v| v.integer()?.try_into().ok())
    }

    /// Returns a whole number of any integer type that fits in a signed 32-bit number.
    pub fn i32(&self, key: &str) -> Result<Option<i32>, Error> {
        let expected = "a whole number from -2147483648 to 2147483647";
        self.typed(key, expected, |v| v.integer()?.try_into().ok())
    }

    /// Returns a finite floating-point number.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.typed(key, "a finite f32 or f64", |v| match v {
            Value::F32(x) => Some(x).filter(|x| x.is_finite()),
            Value::F64(x) => Some(x as f32).filter(|x| x.is_finite()),
            _ => None,
        })
    }

    /// Returns a boolean.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "true or false", |v| match v {
            Value::Bool(b) => Some(b),
            _ => None,
        })
    }

    /// Returns an array of strings, as raw bytes.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&'a [u8]>>, Error> {
        self.array(key, "an array of strings", Array::strings)
    }

    /// Returns an array of `f32`.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, Error> {
        self.array(key, "an array of f32", Array::f32s)
    }

    /// Returns an array of whole numbers of any width, or of booleans as 0 and 1.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, Error> {
        self.array(key, "an array of whole numbers", Array::integers)
    }

    fn array<T>(
        &self,
        key: &str,
        expected: &'static str,
        convert: impl Fn(Array<'a>) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        self.typed(key, expected, |v| match v {
            Value::Array(a) => convert(a),
            _ => None,
        })
    }

    /// Returns `value`, or [`Error::Missing`] with `key` if it is `None`.
    pub fn require<T>(key: &str, value: Option<T>) -> Result<T, Error> {
        value.ok_or_else(|| Error::Missing(key.into()))
    }
}
