//! The stages of the sampler chain: their names and their default order.

use super::Error;

/// A stage of the sampler chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageKind {
    /// Penalizes tokens that occurred.
    Penalties,
    /// Penalizes tokens that would continue a repetition.
    Dry,
    /// Keeps logits within a number of standard deviations of the largest.
    TopNSigma,
    /// Keeps a number of the likeliest tokens.
    TopK,
    /// Keeps tokens of typical surprise.
    TypicalP,
    /// Keeps the likeliest tokens up to a sum of probabilities.
    TopP,
    /// Keeps tokens with at least a share of the largest probability.
    MinP,
    /// Excludes all but one of the likeliest tokens, with a given probability.
    Xtc,
    /// Divides the logits by the temperature.
    Temperature,
}

use StageKind::*;

/// The kinds with their letters in `--sampler-seq` and their names; the first name is shown.
const TABLE: [(StageKind, char, &[&str]); 9] = [
    (Penalties, 'e', &["penalties"]),
    (Dry, 'd', &["dry"]),
    (TopNSigma, 's', &["top_n_sigma", "top-n-sigma", "topnsigma"]),
    (TopK, 'k', &["top_k", "top-k", "topk"]),
    (TypicalP, 'y', &["typ_p", "typ-p", "typp", "typ"]),
    (TopP, 'p', &["top_p", "top-p", "topp", "nucleus"]),
    (MinP, 'm', &["min_p", "min-p", "minp"]),
    (Xtc, 'x', &["xtc"]),
    (Temperature, 't', &["temperature", "temp"]),
];

impl StageKind {
    /// llama.cpp's order.
    pub const ORDER: [Self; 9] =
        [Penalties, Dry, TopNSigma, TopK, TypicalP, TopP, MinP, Xtc, Temperature];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        TABLE.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, _, names)| names[0])
    }

    /// Parses names separated by semicolons; an empty text is an empty chain.
    ///
    /// # Errors
    ///
    /// Returns an error for an unknown name.
    pub fn parse_names(names: &str) -> Result<Vec<Self>, Error> {
        let names = names.split(';').filter(|_| !names.is_empty());
        let kind = |name| Self::named(name).ok_or_else(|| Error::Name { name: String::from(name) });
        names.map(kind).collect()
    }

    /// Returns the kind with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        let has = |known: &[&str]| known.iter().any(|known| known.eq_ignore_ascii_case(name));
        TABLE.iter().find(|(_, _, names)| has(names)).map(|(kind, ..)| *kind)
    }

    /// Parses a sequence of letters.
    ///
    /// # Errors
    ///
    /// Returns an error for an unknown letter.
    pub fn parse_letters(letters: &str) -> Result<Vec<Self>, Error> {
        let kind = |letter| TABLE.iter().find(|(_, known, _)| *known == letter).map(|row| row.0);
        letters.chars().map(|c| kind(c).ok_or(Error::Letter { letter: c })).collect()
    }
}

/// Returns all names, for messages.
pub(super) fn names() -> String {
    TABLE.map(|(_, _, names)| names[0]).join(", ")
}

/// Returns all letters with their names, for messages.
pub(super) fn letters() -> String {
    TABLE.map(|(_, letter, names)| format!("{letter} ({})", names[0])).join(", ")
}
