//! The orders of chains: texts that name samplers.

use super::{Error, SAMPLERS, StageKind};

/// A chain of samplers.
pub type Order = Vec<&'static StageKind>;

/// Returns the default order, which is llama.cpp's.
pub fn default_order() -> Order {
    SAMPLERS.to_vec()
}

/// Parses names separated by semicolons; an empty text is an empty chain.
///
/// # Errors
///
/// Returns an error for an unknown name.
///
/// ```
/// let chain = rope_cpu::sample::parse_names("top_k;temperature")?;
/// assert_eq!(chain[0].name, "top_k");
/// # Ok::<(), rope_cpu::sample::Error>(())
/// ```
pub fn parse_names(names: &str) -> Result<Order, Error> {
    let names = names.split(';').filter(|_| !names.is_empty());
    let kind = |name| named(name).ok_or_else(|| Error::Name { name: String::from(name) });
    names.map(kind).collect()
}

/// Parses a sequence of letters.
///
/// # Errors
///
/// Returns an error for an unknown letter.
///
/// ```
/// # use rope_cpu::sample::{parse_letters, parse_names};
/// assert_eq!(parse_letters("kt")?, parse_names("top_k;temperature")?);
/// # Ok::<(), rope_cpu::sample::Error>(())
/// ```
pub fn parse_letters(letters: &str) -> Result<Order, Error> {
    let kind = |letter| SAMPLERS.into_iter().find(|kind| kind.letter == letter);
    letters.chars().map(|c| kind(c).ok_or(Error::Letter { letter: c })).collect()
}

/// Returns the sampler with this name.
pub(super) fn named(name: &str) -> Option<&'static StageKind> {
    let has = |kind: &StageKind| {
        let mut names = kind.other_names.iter().chain([&kind.name]);
        names.any(|known| known.eq_ignore_ascii_case(name))
    };
    SAMPLERS.into_iter().find(|kind| has(kind))
}

/// Returns all names, for messages.
pub(super) fn names() -> String {
    SAMPLERS.map(|kind| kind.name).join(", ")
}

/// Returns all letters with their names, for messages.
pub(super) fn letters() -> String {
    SAMPLERS.map(|kind| format!("{} ({})", kind.letter, kind.name)).join(", ")
}
