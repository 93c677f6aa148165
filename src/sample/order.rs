//! Which samplers there are, what they are called, and the order in which they act.

use super::Error;

/// A sampler, as `--samplers` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Penalties on tokens that occurred.
    Penalties,
    /// Penalties on tokens that would go on repeating.
    Dry,
    /// A distance from the largest logit, in standard deviations.
    TopNSigma,
    /// A number of tokens.
    TopK,
    /// Tokens of typical surprise.
    TypicalP,
    /// A sum of probabilities.
    TopP,
    /// A share of the largest probability.
    MinP,
    /// Now and then none of the likeliest but one.
    Xtc,
    /// The temperature.
    Temperature,
}

use Kind::*;

/// Each with its letter in `--sampler-seq` and its names, of which the first is shown.
const TABLE: [(Kind, char, &[&str]); 9] = [
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

impl Kind {
    /// The order of llama.cpp.
    pub const ORDER: [Self; 9] =
        [Penalties, Dry, TopNSigma, TopK, TypicalP, TopP, MinP, Xtc, Temperature];

    /// What it is called.
    pub fn name(self) -> &'static str {
        TABLE.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, _, names)| names[0])
    }

    /// The order that names with semicolons between give; nothing stands for no sampler.
    ///
    /// # Errors
    /// A name that no sampler has.
    pub fn parse_names(names: &str) -> Result<Vec<Self>, Error> {
        let names = names.split(';').filter(|_| !names.is_empty());
        let kind = |name| Self::named(name).ok_or_else(|| Error::Name { name: String::from(name) });
        names.map(kind).collect()
    }

    /// The one with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        let has = |known: &[&str]| known.iter().any(|known| known.eq_ignore_ascii_case(name));
        TABLE.iter().find(|(_, _, names)| has(names)).map(|(kind, ..)| *kind)
    }

    /// The order that letters give.
    ///
    /// # Errors
    /// A letter that no sampler has.
    pub fn parse_letters(letters: &str) -> Result<Vec<Self>, Error> {
        let kind = |letter| TABLE.iter().find(|(_, known, _)| *known == letter).map(|row| row.0);
        letters.chars().map(|c| kind(c).ok_or(Error::Letter { letter: c })).collect()
    }
}

/// All names, for messages.
pub(super) fn names() -> String {
    TABLE.map(|(_, _, names)| names[0]).join(", ")
}

/// All letters and what they stand for, for messages.
pub(super) fn letters() -> String {
    TABLE.map(|(_, letter, names)| format!("{letter} ({})", names[0])).join(", ")
}
