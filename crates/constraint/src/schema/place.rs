//! Finds an error in a schema if llguidance does not report its position. The position is the
//! smallest part without which the error disappears.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{DEFINITIONS, NAMED, NESTED, escaped};

/// Maximum time of the search. After it, the part found so far is the place.
const TIME_MAX: Duration = Duration::from_secs(1);

/// A part of a schema.
struct Part {
    pointer: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A keyword with schemas for references.
    Definitions,
    /// A keyword without schemas in its value.
    Plain,
    /// The keyword `type`. Other keywords may depend on it.
    Type,
    /// A keyword with a schema, or several, in its value.
    Nested,
    /// A schema in a list, or with a name.
    Schema,
}

/// Returns a JSON Pointer to the error in a schema. `error` returns the error of a schema.
pub fn of_error<E: PartialEq>(mut schema: Value, error: impl Fn(&Value) -> Option<E>) -> String {
    let (began, expected) = (Instant::now(), error(&schema));
    let mut place = Part { pointer: String::new(), kind: Kind::Schema };
    loop {
        let parts = parts(&schema, &place);
        let without = |count: usize| {
            let mut rest = schema.clone();
            parts[..count].iter().for_each(|part| part.remove(&mut rest));
            rest
        };
        let is_gone = |count| error(&without(count)) != expected;
        if began.elapsed() > TIME_MAX || parts.is_empty() || !is_gone(parts.len()) {
            return place.pointer;
        }
        // The error remains without the first `least` parts, and disappears without the first
        // `most`.
        let (mut least, mut most) = (0, parts.len());
        while most - least > 1 {
            let middle = least.midpoint(most);
            if is_gone(middle) { most = middle } else { least = middle }
        }
        // Errors in earlier parts would hide it.
        schema = without(least);
        place = parts.into_iter().nth(least).unwrap_or(place);
    }
}

/// Returns the parts of a part in the order of their removal: dependent parts first.
fn parts(schema: &Value, of: &Part) -> Vec<Part> {
    let part =
        |name: &str, kind| Part { pointer: format!("{}/{}", of.pointer, escaped(name)), kind };
    let last = of.pointer.rsplit('/').next().unwrap_or_default();
    let named = of.kind == Kind::Definitions || of.kind == Kind::Nested && NAMED.contains(&last);
    let mut parts: Vec<_> = match (of.kind, schema.pointer(&of.pointer)) {
        (Kind::Plain | Kind::Type, _) => Vec::new(),
        (_, Some(Value::Object(schemas))) if named => {
            schemas.keys().map(|name| part(name, Kind::Schema)).collect()
        }
        (_, Some(Value::Object(keywords))) => {
            keywords.keys().map(|name| part(name, Kind::of(name))).collect()
        }
        (Kind::Nested, Some(Value::Array(schemas))) => {
            (0..schemas.len()).map(|index| part(&index.to_string(), Kind::Schema)).collect()
        }
        _ => Vec::new(),
    };
    parts.sort_by_key(|part| part.kind);
    parts
}

impl Kind {
    fn of(keyword: &str) -> Self {
        match keyword {
            "type" => Kind::Type,
            _ if DEFINITIONS.contains(&keyword) => Kind::Definitions,
            _ if NAMED.contains(&keyword) || NESTED.contains(&keyword) => Kind::Nested,
            _ => Kind::Plain,
        }
    }
}

impl Part {
    /// Removes the part from a schema, and keeps references to it valid.
    fn remove(&self, schema: &mut Value) {
        match self.kind {
            Kind::Schema => {
                if let Some(schema) = schema.pointer_mut(&self.pointer) {
                    *schema = Value::Bool(true);
                }
            }
            Kind::Definitions => {
                let schemas = schema.pointer_mut(&self.pointer).and_then(Value::as_object_mut);
                schemas.into_iter().flat_map(|schemas| schemas.values_mut()).for_each(|schema| {
                    *schema = Value::Bool(true);
                });
            }
            Kind::Plain | Kind::Type | Kind::Nested => {
                // Keywords have no characters that a pointer escapes.
                if let Some((parent, keyword)) = self.pointer.rsplit_once('/')
                    && let Some(Value::Object(keywords)) = schema.pointer_mut(parent)
                {
                    keywords.shift_remove(keyword);
                }
            }
        }
    }
}
