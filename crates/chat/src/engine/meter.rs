//! A budget of bytes for what a template reads and builds.
//!
//! The engine's fuel counts steps, but one step can copy a text of any size. So operations that
//! build or read much in one step pay here. Dropped values return nothing: the budget bounds the
//! time as well as the memory.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use minijinja::{Error, ErrorKind, Value, value::ValueKind};

/// The bytes that a render may build, in addition to a multiple of its input.
const BYTES: usize = 256 << 20;
const BYTES_PER_BYTE: usize = 64;

/// The cost of an item of a list: its place in a list that grows, and the header of an allocation.
pub(super) const ITEM: usize = 64;

/// The cost of a list besides its items.
pub(super) const LIST: usize = 64;

/// Minimum cost of a call.
const CALL: usize = 64;

/// Bytes read for the price of one byte built.
const READ: usize = 8;

/// The cost of reading a part of a value, besides its bytes.
const NODE: usize = 16;

/// Maximum nesting of lists and maps. The engine drops and compares them recursively.
const DEPTH: usize = 200;

/// The rest of the budget.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    left: Arc<AtomicUsize>,
    limit: usize,
}

impl Meter {
    /// Creates the budget of a render with texts of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        let limit = BYTES.saturating_add(bytes.saturating_mul(BYTES_PER_BYTE));
        Self { left: Arc::new(limit.into()), limit }
    }

    /// Charges for `bytes` bytes before they are built.
    ///
    /// # Errors
    /// If less is left.
    pub fn charge(&self, bytes: usize) -> Result<(), Error> {
        // Only one thread renders, so nothing is written in between.
        match self.left.load(Ordering::Relaxed).checked_sub(bytes) {
            Some(left) => self.left.store(left, Ordering::Relaxed),
            None => {
                let limit = self.limit >> 20;
                let what = format!("what it reads and builds is too large: more than {limit} MiB");
                return Err(invalid(what));
            }
        }
        Ok(())
    }

    /// Charges for a call that reads the texts among `values` and the places of their lists.
    ///
    /// # Errors
    /// As for [`Self::charge`].
    pub fn call(&self, values: &[Value]) -> Result<(), Error> {
        let read: usize = values.iter().map(|value| size(value) / READ).sum();
        self.charge(CALL + read)
    }

    /// Charges for a value that was built.
    ///
    /// # Errors
    /// As for [`Self::charge`].
    pub fn built(&self, value: Value) -> Result<Value, Error> {
        // Once to build a text, once to copy it into a value.
        self.charge(size(&value).saturating_mul(2))?;
        Ok(value)
    }

    /// Charges for a value at `depth` within another.
    ///
    /// # Errors
    /// As for [`Self::charge`], or if `depth` exceeds [`DEPTH`].
    pub fn enter(&self, depth: usize) -> Result<(), Error> {
        if depth > DEPTH {
            return Err(invalid(format!("a value is nested too deeply: more than {DEPTH} levels")));
        }
        self.charge(NODE)
    }

    /// Charges for reading a whole value, for example to compare it.
    ///
    /// # Errors
    /// As for [`Self::charge`], or if the value is nested too deeply.
    pub fn read(&self, value: &Value) -> Result<(), Error> {
        self.walk(value, 0, &|_| Ok(()))
    }

    /// Charges for reading a whole value, and passes each part to `visit`.
    ///
    /// # Errors
    /// As for [`Self::read`] and `visit`.
    pub fn walk(
        &self,
        value: &Value,
        depth: usize,
        visit: &dyn Fn(&Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.enter(depth)?;
        self.charge(value.as_str().map_or(0, |text| text.len() / READ))?;
        visit(value)?;
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                value.try_iter()?.try_for_each(|item| self.walk(&item, depth + 1, visit))
            }
            ValueKind::Map => {
                let pairs = value.as_object().and_then(|map| map.try_iter_pairs());
                pairs.into_iter().flatten().try_for_each(|(key, item)| {
                    self.walk(&key, depth + 1, visit)?;
                    self.walk(&item, depth + 1, visit)
                })
            }
            _ => Ok(()),
        }
    }
}

/// Returns the bytes of a text, or of a list without the contents of its items.
fn size(value: &Value) -> usize {
    match value.as_str() {
        Some(text) => text.len(),
        None => value.len().unwrap_or(0).saturating_mul(ITEM),
    }
}

pub(super) fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.into())
}

/// A text that grows within the budget.
pub(super) struct Text<'a> {
    meter: &'a Meter,
    text: String,
}

impl<'a> Text<'a> {
    pub fn new(meter: &'a Meter) -> Self {
        Self { meter, text: String::new() }
    }

    /// Charges for a value at `depth` within another, as [`Meter::enter`] does.
    ///
    /// # Errors
    /// As for [`Meter::enter`].
    pub fn enter(&self, depth: usize) -> Result<(), Error> {
        self.meter.enter(depth)
    }

    /// Creates an empty text within the same budget.
    pub fn another(&self) -> Self {
        Self::new(self.meter)
    }

    pub fn push(&mut self, text: &str) -> Result<(), Error> {
        self.meter.charge(text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    pub fn push_char(&mut self, c: char) -> Result<(), Error> {
        self.push(c.encode_utf8(&mut [0; 4]))
    }

    pub fn repeat(&mut self, text: &str, times: usize) -> Result<(), Error> {
        let bytes = text.len().saturating_mul(times);
        self.meter.charge(bytes)?;
        self.text.reserve(bytes);
        // `str::repeat` would hold a second copy.
        if bytes > 0 {
            self.text.extend(std::iter::repeat_n(text, times));
        }
        Ok(())
    }

    pub fn into_string(self) -> String {
        self.text
    }

    /// # Errors
    /// As for [`Meter::charge`]: the engine copies the text.
    pub fn into_value(self) -> Result<Value, Error> {
        self.meter.charge(self.text.len())?;
        Ok(self.text.into())
    }
}

/// A list that grows within the budget.
pub(super) struct List<'a> {
    meter: &'a Meter,
    items: Vec<Value>,
}

impl<'a> List<'a> {
    pub fn new(meter: &'a Meter) -> Self {
        Self { meter, items: Vec::new() }
    }

    pub fn push(&mut self, item: Value) -> Result<(), Error> {
        self.meter.charge(ITEM)?;
        self.items.push(item);
        Ok(())
    }

    /// Adds a copy of a text.
    pub fn push_text(&mut self, text: &str) -> Result<(), Error> {
        self.meter.charge(text.len())?;
        self.push(text.into())
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn into_items(self) -> Vec<Value> {
        self.items
    }

    pub fn into_value(self) -> Value {
        self.items.into()
    }
}
