//! Names, descriptions and values of the library's settings.
//!
//! A user gives settings through a front end: flags of a command line, fields of a request, or
//! keyword arguments. Each front end derives its names from [`Setting`]. A message of the library
//! has a setting in backquotes, and the front end replaces it by its name with [`renamed`].

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

/// The name of a setting: words in lower case, joined by underscores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setting(pub &'static str);

/// Formats the name in backquotes.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

impl Setting {
    /// The path of the model file.
    pub const MODEL: Setting = Setting("model");
    /// Metadata that replaces values of a model file.
    pub const OVERRIDE_KV: Setting = Setting("override_kv");
    /// The address of the hub that models are downloaded from.
    pub const HUB_ENDPOINT: Setting = Setting("hub_endpoint");
    /// The folder of downloaded files.
    pub const HUB_CACHE: Setting = Setting("hub_cache");
    /// The access token for the hub.
    pub const HUB_TOKEN: Setting = Setting("hub_token");
    /// Whether nothing is downloaded.
    pub const OFFLINE: Setting = Setting("offline");
    /// The seed of random numbers.
    pub const SEED: Setting = Setting("seed");
    /// The samplers of a chain, in order.
    pub const SAMPLERS: Setting = Setting("samplers");
    /// The values that are added to the logits of tokens.
    pub const LOGIT_BIAS: Setting = Setting("logit_bias");
    /// The number of positions of a sequence.
    pub const CONTEXT: Setting = Setting("context");
    /// Whether the oldest tokens are removed when the context is full.
    pub const CONTEXT_SHIFT: Setting = Setting("context_shift");
    /// The type that keys are stored in.
    pub const CACHE_TYPE_K: Setting = Setting("cache_type_k");
    /// The type that values are stored in.
    pub const CACHE_TYPE_V: Setting = Setting("cache_type_v");
    /// The share of attention that sparse attention covers.
    pub const SPARSE_ATTENTION: Setting = Setting("sparse_attention");
    /// The share of attention that sparse attention covers in prompts.
    pub const SPARSE_PROMPT: Setting = Setting("sparse_prompt");
    /// The folder of the cache on disk.
    pub const CACHE_DISK: Setting = Setting("cache_disk");
    /// The minimum tokens of a part of a prompt that moves.
    pub const CACHE_REUSE: Setting = Setting("cache_reuse");
    /// The sources of drafts.
    pub const SPEC_TYPE: Setting = Setting("spec_type");
    /// The path of the draft model.
    pub const SPEC_DRAFT_MODEL: Setting = Setting("spec_draft_model");

    /// The settings above. [`rope`](crate::rope::parameters) and
    /// [`sample`](crate::sample::settings) list theirs.
    pub const ALL: [Setting; 19] = [
        Setting::MODEL,
        Setting::OVERRIDE_KV,
        Setting::HUB_ENDPOINT,
        Setting::HUB_CACHE,
        Setting::HUB_TOKEN,
        Setting::OFFLINE,
        Setting::SEED,
        Setting::SAMPLERS,
        Setting::LOGIT_BIAS,
        Setting::CONTEXT,
        Setting::CONTEXT_SHIFT,
        Setting::CACHE_TYPE_K,
        Setting::CACHE_TYPE_V,
        Setting::SPARSE_ATTENTION,
        Setting::SPARSE_PROMPT,
        Setting::CACHE_DISK,
        Setting::CACHE_REUSE,
        Setting::SPEC_TYPE,
        Setting::SPEC_DRAFT_MODEL,
    ];
}

/// Replaces each backquoted setting in a message by the result of `name`. If that is `None`, the
/// word stays as it is.
///
/// ```
/// # use rope_cpu::settings::renamed;
/// let front_end = |name: &str| (name == "rope_scale").then(|| "ROPE_SCALE".into());
/// assert_eq!(renamed("`rope_scale` is 0", front_end), "ROPE_SCALE is 0");
/// ```
pub fn renamed(message: &str, name: impl Fn(&str) -> Option<String>) -> Cow<'_, str> {
    let mut out = String::new();
    let (mut rest, mut copied) = (message, 0);
    while let Some(open) = rest.find('`') {
        let after = &rest[open + 1..];
        let Some(len) = after.find('`') else { break };
        let start = message.len() - rest.len() + open;
        match name(&after[..len]) {
            Some(name) => {
                out += &message[copied..start];
                out += &name;
                copied = start + len + 2;
                rest = &after[len + 1..];
            }
            None => rest = after,
        }
    }
    match copied {
        0 => Cow::Borrowed(message),
        _ => Cow::Owned(out + &message[copied..]),
    }
}

/// The description of a setting. Front ends derive their options and documentation from it.
///
/// ```
/// use rope_cpu::settings::{Parameter, Value};
///
/// static BATCH: Parameter =
///     Parameter::whole("batch", "N", "from 1 to 4096", "Prompts in a batch").default(8.0);
/// assert_eq!(BATCH.parse("16"), Some(Value::Whole(16)));
/// assert_eq!(BATCH.kind.expected(), "a whole number from 1 to 4096");
/// ```
#[derive(Debug)]
pub struct Parameter {
    /// The name.
    pub setting: Setting,
    /// Other names for it, for example in other programs.
    pub aliases: &'static [&'static str],
    /// llama.cpp's other names for it: short options of several letters (`-gan`) and environment
    /// variables (`LLAMA_ARG_GRP_ATTN_N`).
    pub llama_cpp: &'static [&'static str],
    /// The kind of the value.
    pub kind: Kind,
    /// The name of the value in a synopsis, such as `N` or `FILE`.
    pub value_name: &'static str,
    /// The description in one line, without a full stop.
    pub summary: &'static str,
    /// More sentences, or an empty text.
    pub details: &'static str,
    /// The default, if it is a number to show in the description.
    pub default: Option<f64>,
    /// Whether most users never need the setting.
    pub rare: bool,
}

/// The kind of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A number.
    Number,
    /// A number above the first and below the second.
    Between(f64, f64),
    /// A whole number from the first to the second.
    Integer(i64, i64),
    /// A whole number that is not negative. The text describes the range: `from 1 to 1048576`.
    Whole(&'static str),
    /// One of these words.
    Word(&'static [&'static str]),
    /// Some of these words, separated by commas.
    Words(&'static [&'static str]),
    /// Yes or no.
    Switch,
    /// The path of a file.
    Path,
}

impl Kind {
    /// Returns whether a value is of this kind.
    fn has(self, value: &Value) -> bool {
        matches!(
            (self, value),
            (Kind::Number | Kind::Between(..), Value::Number(_))
                | (Kind::Integer(..), Value::Integer(_))
                | (Kind::Whole(_), Value::Whole(_))
                | (Kind::Word(_), Value::Word(_))
                | (Kind::Words(_), Value::Words(_))
                | (Kind::Switch, Value::Switch(_))
                | (Kind::Path, Value::Path(_))
        )
    }

    /// Returns the allowed values, in words that can follow "must be".
    pub fn expected(self) -> String {
        match self {
            Kind::Number => "a number".into(),
            Kind::Between(least, most) => format!("a number above {least} and below {most}"),
            Kind::Integer(i64::MIN, i64::MAX) => "a whole number of at most 18 digits".into(),
            Kind::Integer(least, i64::MAX) => format!("a whole number of at least {least}"),
            Kind::Integer(least, most) => format!("a whole number from {least} to {most}"),
            Kind::Whole(range) => format!("a whole number {range}"),
            Kind::Word(words) => format!("one of {}", words.join(", ")),
            Kind::Words(words) => format!("some of {}, separated by commas", words.join(", ")),
            Kind::Switch => "on or off".into(),
            Kind::Path => "a path".into(),
        }
    }
}

impl Parameter {
    /// Creates the description of a number.
    pub const fn number(
        name: &'static str,
        value_name: &'static str,
        summary: &'static str,
    ) -> Self {
        Parameter {
            setting: Setting(name),
            aliases: &[],
            llama_cpp: &[],
            kind: Kind::Number,
            value_name,
            summary,
            details: "",
            default: None,
            rare: false,
        }
    }

    /// Creates the description of a number above `least` and below `most`.
    pub const fn between(
        name: &'static str,
        value_name: &'static str,
        least: f64,
        most: f64,
        summary: &'static str,
    ) -> Self {
        Parameter { kind: Kind::Between(least, most), ..Self::number(name, value_name, summary) }
    }

    /// Creates the description of a whole number in a range such as `from 1 to 1048576`.
    pub const fn whole(
        name: &'static str,
        value_name: &'static str,
        range: &'static str,
        summary: &'static str,
    ) -> Self {
        Parameter { kind: Kind::Whole(range), ..Self::number(name, value_name, summary) }
    }

    /// Creates the description of a whole number from `least` to `most`.
    pub const fn integer(
        name: &'static str,
        value_name: &'static str,
        least: i64,
        most: i64,
        summary: &'static str,
    ) -> Self {
        Parameter { kind: Kind::Integer(least, most), ..Self::number(name, value_name, summary) }
    }

    /// Creates the description of a choice between words.
    pub const fn word(
        name: &'static str,
        value_name: &'static str,
        words: &'static [&'static str],
        summary: &'static str,
    ) -> Self {
        Parameter { kind: Kind::Word(words), ..Self::number(name, value_name, summary) }
    }

    /// Creates the description of a list of words.
    pub const fn words(
        name: &'static str,
        value_name: &'static str,
        words: &'static [&'static str],
        summary: &'static str,
    ) -> Self {
        Parameter { kind: Kind::Words(words), ..Self::number(name, value_name, summary) }
    }

    /// Creates the description of a switch.
    pub const fn switch(
        name: &'static str,
        value_name: &'static str,
        summary: &'static str,
    ) -> Self {
        Parameter { kind: Kind::Switch, ..Self::number(name, value_name, summary) }
    }

    /// Creates the description of a file's path.
    pub const fn path(name: &'static str, value_name: &'static str, summary: &'static str) -> Self {
        Parameter { kind: Kind::Path, ..Self::number(name, value_name, summary) }
    }

    /// Adds more sentences.
    pub const fn details(self, details: &'static str) -> Self {
        Parameter { details, ..self }
    }

    /// Adds the default.
    pub const fn default(self, default: f64) -> Self {
        Parameter { default: Some(default), ..self }
    }

    /// Adds other names.
    pub const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Parameter { aliases, ..self }
    }

    /// Adds llama.cpp's command-line and environment names.
    pub const fn llama_cpp(self, names: &'static [&'static str]) -> Self {
        Parameter { llama_cpp: names, ..self }
    }

    /// Marks the setting as one that most users never need.
    pub const fn rare(self) -> Self {
        Parameter { rare: true, ..self }
    }

    /// Parses a value. Returns `None` if `text` is not of the setting's kind; [`Kind::expected`]
    /// describes the allowed values.
    ///
    /// ```
    /// use rope_cpu::{rope::SCALE, settings::Value};
    ///
    /// assert_eq!(SCALE.parse("4"), Some(Value::Number(4.0)));
    /// assert_eq!(SCALE.parse("four"), None);
    /// ```
    pub fn parse(&self, text: &str) -> Option<Value> {
        match self.kind {
            Kind::Number => text.parse().ok().map(Value::Number),
            Kind::Between(least, most) => {
                text.parse().ok().filter(|n| *n > least && *n < most).map(Value::Number)
            }
            Kind::Integer(least, most) => {
                text.parse().ok().filter(|n| (least..=most).contains(n)).map(Value::Integer)
            }
            Kind::Whole(_) => text.parse().ok().map(Value::Whole),
            Kind::Word(words) => word_of(words, text).map(Value::Word),
            Kind::Words(words) => text
                .split(',')
                .map(|text| word_of(words, text))
                .collect::<Option<_>>()
                .map(Value::Words),
            Kind::Switch => match text {
                "on" => Some(Value::Switch(true)),
                "off" => Some(Value::Switch(false)),
                _ => None,
            },
            Kind::Path => Some(Value::Path(text.into())),
        }
    }

    /// Returns whether `name` is the name of the setting or one of its other names.
    pub fn is_named(&self, name: &str) -> bool {
        self.setting.0 == name || self.aliases.contains(&name)
    }
}

fn word_of(words: &[&'static str], text: &str) -> Option<&'static str> {
    words.iter().copied().find(|word| *word == text)
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A value of [`Kind::Number`].
    Number(f64),
    /// A value of [`Kind::Integer`].
    Integer(i64),
    /// A value of [`Kind::Whole`].
    Whole(usize),
    /// A value of [`Kind::Word`].
    Word(&'static str),
    /// A value of [`Kind::Words`].
    Words(Vec<&'static str>),
    /// A value of [`Kind::Switch`].
    Switch(bool),
    /// A value of [`Kind::Path`].
    Path(PathBuf),
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Number(value)
    }
}

impl From<f32> for Value {
    fn from(value: f32) -> Self {
        Value::Number(value.into())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Integer(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Value::Integer(value.into())
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Value::Whole(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Switch(value)
    }
}

impl From<&'static str> for Value {
    fn from(value: &'static str) -> Self {
        Value::Word(value)
    }
}

impl From<PathBuf> for Value {
    fn from(value: PathBuf) -> Self {
        Value::Path(value)
    }
}

/// Formats the value as a user would give it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(value) => write!(f, "{value}"),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Whole(value) => write!(f, "{value}"),
            Value::Word(value) => f.write_str(value),
            Value::Words(value) => f.write_str(&value.join(",")),
            Value::Switch(value) => f.write_str(if *value { "on" } else { "off" }),
            Value::Path(value) => write!(f, "{}", value.display()),
        }
    }
}

/// The settings that a user gave, with their values.
///
/// ```
/// use rope_cpu::{rope::{LOG_N, SCALE}, settings::Values};
///
/// let file = Values::default().with(&SCALE, 2.0).with(&LOG_N, true);
/// let user = Values::default().with(&SCALE, 4.0);
/// let values = user.or(file);
/// assert_eq!((values.number(&SCALE), values.switch(&LOG_N)), (Some(4.0), Some(true)));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(BTreeMap<Setting, Value>);

impl Values {
    /// Returns these values with one more. It replaces an earlier value of the same setting.
    ///
    /// # Panics
    /// If the value is not of the setting's kind.
    pub fn with(mut self, parameter: &Parameter, value: impl Into<Value>) -> Self {
        let value = match (parameter.kind, value.into()) {
            // A literal such as 4 is an `i32` by default.
            (Kind::Whole(_), Value::Integer(number)) => {
                usize::try_from(number).map_or(Value::Integer(number), Value::Whole)
            }
            (_, value) => value,
        };
        assert!(
            parameter.kind.has(&value),
            "{} is of another kind than {value}",
            parameter.setting
        );
        self.0.insert(parameter.setting, value);
        self
    }

    /// Returns these values, and from `others` the values of settings that have none here.
    pub fn or(mut self, others: Values) -> Self {
        for (setting, value) in others.0 {
            self.0.entry(setting).or_insert(value);
        }
        self
    }

    /// Returns these values without one setting.
    pub fn without(mut self, parameter: &Parameter) -> Self {
        self.0.remove(&parameter.setting);
        self
    }

    /// Returns only the values of these settings.
    pub fn only(&self, parameters: &[&Parameter]) -> Self {
        let kept = parameters.iter().map(|parameter| parameter.setting);
        Values(kept.filter_map(|kept| Some((kept, self.0.get(&kept)?.clone()))).collect())
    }

    /// Returns the value of a setting; `None` if it was not given.
    pub fn get(&self, parameter: &Parameter) -> Option<&Value> {
        self.0.get(&parameter.setting)
    }

    /// Returns whether a setting was given.
    pub fn has(&self, parameter: &Parameter) -> bool {
        self.has_setting(parameter.setting)
    }

    /// Returns whether a setting with this name was given.
    pub fn has_setting(&self, setting: Setting) -> bool {
        self.0.contains_key(&setting)
    }

    /// Returns the value of a number; `None` if it was not given.
    pub fn number(&self, parameter: &Parameter) -> Option<f64> {
        let Value::Number(value) = self.get(parameter)? else { return None };
        Some(*value)
    }

    /// Returns the value of a whole number; `None` if it was not given.
    pub fn whole(&self, parameter: &Parameter) -> Option<usize> {
        let Value::Whole(value) = self.get(parameter)? else { return None };
        Some(*value)
    }

    /// Returns the value of a whole number from a range; `None` if it was not given.
    pub fn integer(&self, parameter: &Parameter) -> Option<i64> {
        let Value::Integer(value) = self.get(parameter)? else { return None };
        Some(*value)
    }

    /// Returns the words of a list; `None` if it was not given.
    pub fn words(&self, parameter: &Parameter) -> Option<&[&'static str]> {
        let Value::Words(value) = self.get(parameter)? else { return None };
        Some(value)
    }

    /// Returns the word of a choice; `None` if it was not given.
    pub fn word(&self, parameter: &Parameter) -> Option<&'static str> {
        let Value::Word(value) = self.get(parameter)? else { return None };
        Some(value)
    }

    /// Returns the value of a switch; `None` if it was not given.
    pub fn switch(&self, parameter: &Parameter) -> Option<bool> {
        let Value::Switch(value) = self.get(parameter)? else { return None };
        Some(*value)
    }

    /// Returns the path of a file; `None` if it was not given.
    pub fn path(&self, parameter: &Parameter) -> Option<&Path> {
        let Value::Path(value) = self.get(parameter)? else { return None };
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_in_a_message_are_renamed() {
        let name = |setting: &str| (setting == "top_k").then(|| "topK".into());
        for (message, expected) in [
            ("none", "none"),
            ("`top_k` 4: must be", "topK 4: must be"),
            ("set `top_k` or `top_k`", "set topK or topK"),
            ("`other` and `top_k`", "`other` and topK"),
            ("an odd ` before `top_k`", "an odd ` before topK"),
            ("`top_k", "`top_k"),
            ("``", "``"),
        ] {
            assert_eq!(renamed(message, name), expected);
        }
    }
}
