//! The user's RoPE settings, and the parameters that belong to no method.

use std::str::FromStr;

use super::{ATTENTION_SINKS, Error, POLICY, SCALING, Scaling, Sourced, parameters, trained, yarn};
use crate::settings::{Parameter, Value, Values};

/// The factor that extends the context.
pub static SCALE: Parameter =
    Parameter::number("rope_scale", "N", "Extend the context by a factor of N")
        .details(
            "Linear scaling keeps the distances between far tokens within the trained range; YaRN \
             (`rope_scaling` yarn) also preserves those between near tokens, and needs no fine-tuning. \
             If neither a flag nor the file gives the factor, it is the one that reaches the context.",
        )
        .llama_cpp(&["LLAMA_ARG_ROPE_SCALE"]);

/// The inverse of [`SCALE`].
pub static FREQ_SCALE: Parameter =
    Parameter::number("rope_freq_scale", "N", "Inverse of `rope_scale`: 0.25 extends 4 times")
        .llama_cpp(&["LLAMA_ARG_ROPE_FREQ_SCALE"]);

/// The base of the frequencies.
pub static FREQ_BASE: Parameter =
    Parameter::number("rope_freq_base", "N", "Base frequency of RoPE")
        .details("NTK-aware scaling raises it.")
        .llama_cpp(&["LLAMA_ARG_ROPE_FREQ_BASE"]);

/// Whether queries are scaled by the logarithm of their position.
pub static LOG_N: Parameter = Parameter::switch(
    "rope_log_n",
    "WHEN",
    "Scale queries by the logarithm of their position: on or off",
)
.details(
    "By ln(position) / ln(trained context), beyond the trained context, so that attention stays as \
     peaked. On by default for rerope and leaky-rerope.",
)
.rare();

/// The RoPE settings of a user.
///
/// ```
/// use rope_cpu::rope::{Flags, SCALE};
///
/// let own = Flags::default(); // the settings of the model's file
/// let yarn = Flags::method("yarn").with(&SCALE, 4.0);
/// assert_eq!(yarn.scaling().unwrap().name, "yarn");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flags {
    /// The values of [`parameters`].
    pub values: Values,
    /// Whether to ignore the file's factor, and compute the factor that reaches the context. This
    /// lets you compare methods at one length. An explicit setting takes precedence.
    pub for_context: bool,
    /// Whether a full context removes its oldest tokens.
    pub context_shift: bool,
}

/// Parses a method with settings, `METHOD[:SETTING=VALUE]...`. Setting names may have dashes. A
/// value without a name is the factor: `yarn:4` is `yarn:rope-scale=4`.
///
/// ```
/// use rope_cpu::rope::{Flags, SCALE};
///
/// let flags: Flags = "yarn:4:yarn-ramp=turns".parse()?;
/// assert_eq!(flags.values.number(&SCALE), Some(4.0));
/// assert!("yarn:no-setting=1".parse::<Flags>().is_err());
/// # Ok::<(), rope_cpu::rope::Error>(())
/// ```
impl FromStr for Flags {
    type Err = Error;

    fn from_str(text: &str) -> Result<Flags, Error> {
        let mut parts = Flags::parts(text);
        let method = parts.next().unwrap_or_default();
        let flags = Flags::default().parsed(SCALING.setting.0, method)?;
        parts.try_fold(flags, |flags, part| match part.split_once('=') {
            Some((name, value)) => flags.parsed(&name.replace('-', "_"), value),
            None => flags.parsed(SCALE.setting.0, part),
        })
    }
}

impl Flags {
    /// Splits `METHOD[:SETTING=VALUE]...` into its parts. A colon before `\` or `/` is part of a
    /// Windows path.
    ///
    /// ```
    /// let parts = rope_cpu::rope::Flags::parts(r"clex:16:clex-weights=C:\clex.safetensors");
    /// assert!(parts.eq(["clex", "16", r"clex-weights=C:\clex.safetensors"]));
    /// ```
    pub fn parts(text: &str) -> impl Iterator<Item = &str> {
        let of_path = |end: usize| text[end + 1..].starts_with(['\\', '/']);
        let mut ends =
            text.match_indices(':').map(|(end, _)| end).filter(move |end| !of_path(*end));
        let mut start = Some(0);
        std::iter::from_fn(move || {
            let first = start?;
            let end = ends.next();
            start = end.map(|end| end + 1);
            Some(&text[first..end.unwrap_or(text.len())])
        })
    }

    /// Returns the settings that select a method.
    pub fn method(name: &'static str) -> Flags {
        Flags::default().with(&SCALING, name)
    }

    /// Returns these settings with one more value. It replaces an earlier value of the same
    /// setting.
    ///
    /// # Panics
    /// If the value is not of the setting's kind.
    pub fn with(self, parameter: &Parameter, value: impl Into<Value>) -> Flags {
        Flags { values: self.values.with(parameter, value), ..self }
    }

    /// Returns these settings with one more value, unless it is `None`.
    ///
    /// # Panics
    /// If the value is not of the setting's kind.
    pub fn with_some(self, parameter: &Parameter, value: Option<impl Into<Value>>) -> Flags {
        match value {
            Some(value) => self.with(parameter, value),
            None => self,
        }
    }

    /// Returns these settings with one more value, for the setting called `name`, parsed from
    /// `text`.
    ///
    /// # Errors
    /// If there is no such setting, or the text is not a value of it.
    ///
    /// ```
    /// use rope_cpu::rope::{Flags, yarn::BETA_FAST};
    ///
    /// let flags = Flags::method("yarn").parsed(BETA_FAST.setting.0, "16")?;
    /// assert_eq!(flags.values.number(&BETA_FAST), Some(16.0));
    /// assert!(flags.parsed("yarn_ramp", "steep").is_err());
    /// # Ok::<(), rope_cpu::rope::Error>(())
    /// ```
    pub fn parsed(self, name: &str, text: &str) -> Result<Flags, Error> {
        let named = |parameter: &&Parameter| parameter.is_named(name);
        let parameter = parameters().find(named).ok_or_else(|| {
            let known: Vec<_> = parameters().map(|parameter| parameter.setting.0).collect();
            Error::UnknownSetting { name: name.into(), known: known.join(", ") }
        })?;
        let about = trained(text).filter(|_| parameter.setting == SCALING.setting);
        let value = parameter.parse(text).ok_or_else(|| match about {
            Some(about) => Error::Trained { name: text.into(), about },
            None => Error::OutOfRange {
                value: format!("{} {text}", parameter.setting),
                expected: parameter.kind.expected(),
            },
        })?;
        Ok(self.with(parameter, value))
    }

    /// Returns these settings without the value of one setting.
    pub fn without(self, parameter: &Parameter) -> Flags {
        Flags { values: self.values.without(parameter), ..self }
    }

    /// Returns the method that these settings select; `None` if it is chosen for the context.
    pub fn scaling(&self) -> Option<&'static Scaling> {
        Scaling::named(self.values.word(&SCALING)?).ok()
    }

    /// Returns whether the method is chosen automatically, for the context.
    pub fn auto(&self) -> bool {
        self.values.word(&SCALING) == Some("auto")
    }

    /// Returns whether the context rolls, as with attention sinks.
    pub fn rolls(&self) -> bool {
        self.values.has(&ATTENTION_SINKS)
    }

    /// Returns these settings without values that mean "default" in llama.cpp: -1 for YaRN's
    /// numbers, and 0 for its original context.
    pub(super) fn without_defaults(&self) -> Flags {
        let numbers = [&yarn::EXT_FACTOR, &yarn::ATTN_FACTOR, &yarn::BETA_FAST, &yarn::BETA_SLOW];
        let minus = numbers.into_iter().filter(|p| self.values.number(p) == Some(-1.0));
        let zero = [&yarn::ORIG_CTX].into_iter().filter(|p| self.values.whole(p) == Some(0));
        minus.chain(zero).fold(self.clone(), |flags, parameter| flags.without(parameter))
    }

    /// Returns only the settings that apply to every method.
    pub(super) fn method_independent(&self) -> Flags {
        let values = self.values.only(&[&LOG_N, &ATTENTION_SINKS, &POLICY]);
        Flags { values, for_context: false, context_shift: self.context_shift }
    }

    /// Returns the number that is set.
    pub(super) fn number(&self, parameter: &Parameter) -> Option<Sourced<f64>> {
        Some(Sourced::setting(self.values.number(parameter)?, parameter.setting))
    }

    /// Returns the number that is set, or `default`.
    pub(super) fn number_or(&self, parameter: &Parameter, default: f64) -> Sourced<f64> {
        self.number(parameter).unwrap_or(Sourced::default(default))
    }

    /// Returns the whole number that is set.
    pub(super) fn whole(&self, parameter: &Parameter) -> Option<Sourced<usize>> {
        Some(Sourced::setting(self.values.whole(parameter)?, parameter.setting))
    }

    /// Returns the element of `all` that is set, or the first one.
    pub(super) fn word_or_first<T: Copy>(
        &self,
        parameter: &Parameter,
        all: &[T],
        name_of: fn(T) -> &'static str,
    ) -> Result<Sourced<T>, Error> {
        Ok(self.word(parameter, all, name_of)?.unwrap_or(Sourced::default(all[0])))
    }

    /// Returns the element of `all` that is set.
    pub(super) fn word<T: Copy>(
        &self,
        parameter: &Parameter,
        all: &[T],
        name_of: fn(T) -> &'static str,
    ) -> Result<Option<Sourced<T>>, Error> {
        let Some(word) = self.values.word(parameter) else { return Ok(None) };
        let given = Sourced::setting(word, parameter.setting);
        match all.iter().find(|value| name_of(**value) == word) {
            Some(value) => Ok(Some(Sourced { value: *value, origin: given.origin })),
            None => {
                let names: Vec<_> = all.iter().map(|value| name_of(*value)).collect();
                let (value, expected) = (given.origin.to_string(), names.join(", "));
                Err(Error::OutOfRange { value, expected: format!("one of {expected}") })
            }
        }
    }
}
