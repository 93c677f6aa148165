//! JSON that is computed while it is written to the connection.
//!
//! A tree of JSON values takes fifty times the memory of its numbers. A [`Lazy`] list computes an
//! element only when the client has read the elements before it.

use std::{convert::Infallible, fmt::Write, iter::once, sync::Arc};

use axum::{
    Json,
    body::Body,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value};

use super::memory::Held;

/// Bytes of a piece. A larger value is a separate piece.
const PIECE: usize = 16 << 10;

/// Characters of a long text in a piece.
const PART: usize = 4 << 10;

/// Elements of a list, or the entries of an object.
type Items = Box<dyn Iterator<Item = (Option<String>, Lazy)> + Send>;

/// A JSON value that is computed while it is written.
pub enum Lazy {
    /// A small value.
    Value(Value),
    /// A long text.
    Text(Arc<str>),
    /// A list.
    List(Items),
    /// An object.
    Object(Items),
}

impl Lazy {
    /// Creates a list.
    pub fn list<I: IntoIterator<Item = Lazy>>(items: I) -> Self
    where
        I::IntoIter: Send + 'static,
    {
        Lazy::List(Box::new(items.into_iter().map(|item| (None, item))))
    }

    /// Creates an object from small fields and `large` ones. A large field replaces a small one of
    /// the same name. A value that is not an object stays as it is.
    pub fn object(small: Value, large: Vec<(&'static str, Lazy)>) -> Self {
        let Value::Object(small) = small else { return Lazy::Value(small) };
        let mut all: Vec<_> =
            small.into_iter().map(|(name, value)| (Some(name), Lazy::Value(value))).collect();
        for (name, value) in large {
            match all.iter_mut().find(|(other, _)| other.as_deref() == Some(name)) {
                Some((_, place)) => *place = value,
                None => all.push((Some(name.into()), value)),
            }
        }
        Lazy::Object(Box::new(all.into_iter()))
    }

    /// Computes the whole value.
    pub fn into_value(self) -> Value {
        match self {
            Lazy::Value(value) => value,
            Lazy::Text(text) => text.as_ref().into(),
            Lazy::List(items) => items.map(|(_, item)| item.into_value()).collect(),
            Lazy::Object(items) => {
                let items = items.map(|(name, item)| (name.unwrap_or_default(), item.into_value()));
                Value::Object(items.collect::<Map<_, _>>())
            }
        }
    }

    /// Returns the response. `held` is released when the response is sent or the connection is
    /// closed.
    pub fn response(self, held: Held) -> Response {
        if let Lazy::Value(value) = self {
            return Json(value).into_response();
        }
        let mut pieces = Pieces { next: Some(self), open: Vec::new(), _held: held };
        let first = pieces.next().unwrap_or_default();
        let kind = [(CONTENT_TYPE, "application/json")];
        if pieces.is_complete() {
            // With its length.
            return (kind, first).into_response();
        }
        let all = once(first).chain(pieces).map(Ok::<_, Infallible>);
        (kind, Body::from_stream(tokio_stream::iter(all))).into_response()
    }
}

impl<T: Into<Value>> From<T> for Lazy {
    fn from(value: T) -> Self {
        Lazy::Value(value.into())
    }
}

/// The pieces of a value's text.
struct Pieces {
    next: Option<Lazy>,
    open: Vec<Open>,
    _held: Held,
}

/// A partly written value.
enum Open {
    Items { items: Items, is_first: bool, end: char },
    Text { text: Arc<str>, written: usize },
}

impl Pieces {
    fn is_complete(&self) -> bool {
        self.next.is_none() && self.open.is_empty()
    }

    /// Writes the start of a value.
    fn start(&mut self, value: Lazy, piece: &mut String) {
        let (start, open) = match value {
            Lazy::Value(value) => {
                // Writing to a string cannot fail.
                let _ = write!(piece, "{value}");
                return;
            }
            Lazy::Text(text) => ('"', Open::Text { text, written: 0 }),
            Lazy::List(items) => ('[', Open::Items { items, is_first: true, end: ']' }),
            Lazy::Object(items) => ('{', Open::Items { items, is_first: true, end: '}' }),
        };
        piece.push(start);
        self.open.push(open);
    }
}

impl Iterator for Pieces {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut piece = String::new();
        while piece.len() < PIECE {
            if let Some(value) = self.next.take() {
                self.start(value, &mut piece);
            }
            match self.open.last_mut() {
                None => break,
                Some(Open::Items { items, is_first, end }) => match items.next() {
                    Some((name, value)) => {
                        if !std::mem::take(is_first) {
                            piece.push(',');
                        }
                        if let Some(name) = name {
                            let _ = write!(piece, "{}:", Value::String(name));
                        }
                        self.next = Some(value);
                    }
                    None => {
                        piece.push(*end);
                        self.open.pop();
                    }
                },
                Some(Open::Text { text, written }) => {
                    let rest = &text[*written..];
                    let end = rest.char_indices().nth(PART).map_or(rest.len(), |(end, _)| end);
                    *written += end;
                    let part = Value::from(&rest[..end]).to_string();
                    // Without its quotation marks.
                    piece.push_str(&part[1..part.len() - 1]);
                    if end == rest.len() {
                        piece.push('"');
                        self.open.pop();
                    }
                }
            }
        }
        (!piece.is_empty()).then_some(piece)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use serde_json::json;

    use super::*;
    use crate::server::memory::Memory;

    fn pieces(value: Lazy) -> Pieces {
        Pieces { next: Some(value), open: Vec::new(), _held: Memory::default().hold(0) }
    }

    #[test]
    fn the_text_is_that_of_the_whole_value() {
        let long: Arc<str> = "é\"\\\n𝄞 ".repeat(5000).into();
        let make = || {
            let list = Lazy::list((0..3000).map(|i| Lazy::list([i.into(), "\"".into()])));
            let small = json!({ "a\"": [1, {}], "b": null, "list": 5 });
            let text = Lazy::Text(long.clone());
            Lazy::object(small, vec![("list", list), ("text", text), ("none", Lazy::list([]))])
        };
        let (whole, written) = (make().into_value(), pieces(make()).collect::<Vec<_>>());
        assert_eq!(whole["list"][2999], json!([2999, "\""]));
        assert_eq!(written.concat(), whole.to_string());
        assert!(written.len() > 4 && written.iter().all(|piece| piece.len() < 3 * PIECE));
    }

    #[test]
    fn elements_are_computed_when_they_are_written() {
        let computed = Arc::new(AtomicUsize::new(0));
        let count = computed.clone();
        let list = (0..1_000_000).map(move |i| {
            count.fetch_add(1, Relaxed);
            i.into()
        });
        let mut pieces = pieces(Lazy::list(list));
        pieces.next();
        let first = computed.load(Relaxed);
        assert!((1..PIECE).contains(&first), "{first}");
        pieces.next();
        assert!(computed.load(Relaxed) < 2 * PIECE);
    }
}
