//! A budget of bytes for what a template reads and builds.
//!
//! The engine's fuel counts steps, but one step can copy a text of any size. So operations that
//! build or read much in one step pay here. Dropped values return nothing: the budget bounds the
//! time as well as the memory. Each render has its own thread, which holds the budget.

use std::cell::Cell;

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

thread_local! {
    /// The budget of the render of this thread.
    static LIMIT: Cell<usize> = const { Cell::new(0) };
    /// The rest of the budget.
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

/// Starts the budget of this thread's render, of texts with `bytes` bytes.
pub(super) fn start(bytes: usize) {
    LIMIT.set(BYTES.saturating_add(bytes.saturating_mul(BYTES_PER_BYTE)));
    LEFT.set(LIMIT.get());
}

/// Charges for `bytes` bytes before they are built.
///
/// # Errors
/// If less is left.
#[inline]
pub(super) fn charge(bytes: usize) -> Result<(), Error> {
    LEFT.with(|left| {
        left.set(left.get().checked_sub(bytes).ok_or_else(exhausted)?);
        Ok(())
    })
}

#[cold]
fn exhausted() -> Error {
    let limit = LIMIT.get() >> 20;
    invalid(format!("what it reads and builds is too large: more than {limit} MiB"))
}

/// Charges for a call that reads the texts among `values` and the places of their lists.
///
/// # Errors
/// As for [`charge`].
pub(super) fn call(values: &[Value]) -> Result<(), Error> {
    let read: usize = values.iter().map(|value| size(value) / READ).sum();
    charge(CALL + read)
}

/// Charges for a value that was built.
///
/// # Errors
/// As for [`charge`].
pub(super) fn built(value: Value) -> Result<Value, Error> {
    // Once to build a text, once to copy it into a value.
    charge(size(&value).saturating_mul(2))?;
    Ok(value)
}

/// Charges for a value at `depth` within another.
///
/// # Errors
/// As for [`charge`], or if `depth` exceeds [`DEPTH`].
pub(super) fn enter(depth: usize) -> Result<(), Error> {
    if depth > DEPTH {
        return Err(invalid(format!("a value is nested too deeply: more than {DEPTH} levels")));
    }
    charge(NODE)
}

/// Charges for reading a whole value, for example to compare it.
///
/// # Errors
/// As for [`charge`], or if the value is nested too deeply.
pub(super) fn read(value: &Value) -> Result<(), Error> {
    walk(value, 0, &|_| Ok(()))
}

/// Charges for reading a whole value, and passes each part to `visit`.
///
/// # Errors
/// As for [`read`] and `visit`.
pub(super) fn walk(
    value: &Value,
    depth: usize,
    visit: &dyn Fn(&Value) -> Result<(), Error>,
) -> Result<(), Error> {
    enter(depth)?;
    charge(value.as_str().map_or(0, |text| text.len() / READ))?;
    visit(value)?;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter()?.try_for_each(|item| walk(&item, depth + 1, visit))
        }
        ValueKind::Map => {
            let pairs = value.as_object().and_then(|map| map.try_iter_pairs());
            pairs.into_iter().flatten().try_for_each(|(key, item)| {
                walk(&key, depth + 1, visit)?;
                walk(&item, depth + 1, visit)
            })
        }
        _ => Ok(()),
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
#[derive(Default)]
pub(super) struct Text(String);

impl Text {
    pub fn push(&mut self, text: &str) -> Result<(), Error> {
        charge(text.len())?;
        self.0.push_str(text);
        Ok(())
    }

    pub fn push_char(&mut self, c: char) -> Result<(), Error> {
        self.push(c.encode_utf8(&mut [0; 4]))
    }

    pub fn repeat(&mut self, text: &str, times: usize) -> Result<(), Error> {
        let bytes = text.len().saturating_mul(times);
        charge(bytes)?;
        self.0.reserve(bytes);
        // `str::repeat` would hold a second copy.
        if bytes > 0 {
            self.0.extend(std::iter::repeat_n(text, times));
        }
        Ok(())
    }

    pub fn into_string(self) -> String {
        self.0
    }

    /// # Errors
    /// As for [`charge`]: the engine copies the text.
    pub fn into_value(self) -> Result<Value, Error> {
        charge(self.0.len())?;
        Ok(self.0.into())
    }
}

/// A list that grows within the budget.
#[derive(Default)]
pub(super) struct List(Vec<Value>);

impl List {
    pub fn push(&mut self, item: Value) -> Result<(), Error> {
        charge(ITEM)?;
        self.0.push(item);
        Ok(())
    }

    /// Adds a copy of a text.
    pub fn push_text(&mut self, text: &str) -> Result<(), Error> {
        charge(text.len())?;
        self.push(text.into())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn into_items(self) -> Vec<Value> {
        self.0
    }

    pub fn into_value(self) -> Value {
        self.0.into()
    }
}
