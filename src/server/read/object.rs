//! Objects: types with fields, and the table of these fields.

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;

use super::{Failure, Read, Seed, Shape, unknown};

/// Name of the only field of a number. serde_json passes numbers as objects, because `gguf-rs`
/// enables its `arbitrary_precision`.
const NUMBER: &str = "$serde_json::private::Number";

/// The effect of a field, or why it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Has this effect.
    Used(&'static str),
    /// Has no effect on an answer, for this reason.
    Ignored(&'static str),
    /// Is an error for this reason, unless it is empty or one of these values.
    Refused(&'static str, &'static [&'static str]),
}

/// A row in the table of an object's fields.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), allow(dead_code, reason = "docs/fields.md is written by a test"))]
pub struct Entry {
    /// Name in requests.
    pub name: &'static str,
    /// Its effect, or why it has none.
    pub treatment: Treatment,
    /// The fields of its value, if it is an object.
    pub nested: &'static [Entry],
}

impl Entry {
    /// Creates an entry for a field without its own type.
    pub const fn other(name: &'static str, treatment: Treatment) -> Self {
        Entry { name, treatment, nested: &[] }
    }
}

/// A type with fields read by name: see [`object!`](crate::object).
pub trait Object: Default {
    /// The table of fields.
    const FIELDS: &'static [Entry] = &[];

    /// Reads the value of a field. Returns whether the type has this field.
    ///
    /// # Errors
    /// If the value has another form.
    fn take<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error>;
}

impl<T: Object> Shape for T {
    const FIELDS: &'static [Entry] = <T as Object>::FIELDS;

    fn expected() -> String {
        "an object".into()
    }

    fn object<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        let mut object = T::default();
        fill(&mut object, map).map(|()| object)
    }
}

fn fill<'de, T: Object, A: MapAccess<'de>>(object: &mut T, mut map: A) -> Result<(), A::Error> {
    while let Some(name) = map.next_key::<String>()? {
        if name == NUMBER {
            let number: String = map.next_value()?;
            let failure = Failure::of("", format_args!("must be an object, not {number}"));
            return Err(failure.into_error());
        }
        if !object.take(&name, &mut map)? {
            unknown::log(&name);
            map.next_value::<IgnoredAny>()?;
        }
    }
    Ok(())
}

/// Reads an object's fields into an existing value. Null changes nothing.
pub struct Fill<'o, T>(pub &'o mut T);

impl<'de, T: Object> DeserializeSeed<'de> for Fill<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, T: Object> Visitor<'de> for Fill<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_none<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        fill(self.0, map)
    }
}

/// Reads the value of a field.
///
/// # Errors
/// If it has another form.
pub fn value<'de, T: Read, A: MapAccess<'de>>(map: &mut A) -> Result<T, A::Error> {
    map.next_value_seed(Seed::new())
}

/// Skips the value of a field, or refuses it.
///
/// # Errors
/// If the field is not supported and would change the answer.
pub fn skip<'de, A: MapAccess<'de>>(treatment: Treatment, map: &mut A) -> Result<(), A::Error> {
    let Treatment::Refused(reason, permitted) = treatment else {
        return map.next_value::<IgnoredAny>().map(|_| ());
    };
    map.next_value_seed(Refused { reason, permitted })
}

struct Refused {
    reason: &'static str,
    permitted: &'static [&'static str],
}

impl<'de> DeserializeSeed<'de> for Refused {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match has_no_effect(&Value::deserialize(deserializer)?, self.permitted) {
            true => Ok(()),
            false => {
                let reason = format_args!("not supported: {}", self.reason);
                Err(Failure::of("", reason).into_error())
            }
        }
    }
}

fn has_no_effect(value: &Value, permitted: &[&str]) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64().is_some_and(|number| {
            number == 0.0 || permitted.iter().any(|one| one.parse() == Ok(number))
        }),
        Value::String(text) => text.is_empty() || permitted.contains(&&**text),
        // Zero in a list may be a token.
        Value::Array(list) => {
            list.iter().all(|one| !one.is_number() && has_no_effect(one, permitted))
        }
        // An empty object may ask for defaults: `"web_search_options": {}`.
        Value::Object(_) | Value::Bool(true) => false,
    }
}

/// Defines an object of requests. docs/fields.md lists its fields with their comments.
///
/// - A field may have another name in requests, in brackets: `kind ["type"]: Option<String>`.
/// - After `..`, an object has its fields here.
/// - Fields in `others` have no type. They are ignored or refused.
#[macro_export]
macro_rules! object {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $object:ident {
            $( $(#[doc = $doc:literal])+ $field:ident $([$name:literal])? : $type:ty, )*
            $( .. $flat:ident : $flat_type:ty, )*
        }
        $( others { $( $other:literal : $treatment:expr, )* } )?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default)]
        $visibility struct $object {
            $( $(#[doc = $doc])+ pub $field: $type, )*
            $( pub $flat: $flat_type, )*
        }

        impl $crate::server::read::Object for $object {
            const FIELDS: &'static [$crate::server::read::Entry] = &[
                $( $crate::server::read::Entry {
                    name: $crate::object!(@name $field $($name)?),
                    treatment: $crate::server::read::Treatment::Used(concat!($($doc),+)),
                    nested: <$type as $crate::server::read::Read>::ENTRIES,
                }, )*
                $( $( $crate::server::read::Entry::other($other, $treatment), )* )?
            ];

            fn take<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                name: &str,
                map: &mut A,
            ) -> Result<bool, A::Error> {
                $( if name == $crate::object!(@name $field $($name)?) {
                    self.$field = $crate::server::read::value(map)?;
                    return Ok(true);
                } )*
                $( $( if name == $other {
                    $crate::server::read::skip($treatment, map)?;
                    return Ok(true);
                } )* )?
                $( if $crate::server::read::Object::take(&mut self.$flat, name, map)? {
                    return Ok(true);
                } )*
                Ok(false)
            }
        }
    };
    (@name $field:ident $name:literal) => { $name };
    (@name $field:ident) => { stringify!($field) };
}
