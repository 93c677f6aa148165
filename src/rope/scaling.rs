//! Describes RoPE methods, and derives settings from [`METHODS`].

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use super::{
    ATTENTION_SINKS, Error, FREQ_BASE, FREQ_SCALE, LOG_N, METHODS, Method, POLICY, Rule, SCALE,
    Sourced, divisors::Stored, linear, rule_inputs::RuleInputs, trained, yarn,
};
use crate::settings::Parameter;

/// The description of a RoPE method: a rule that changes frequencies, or a method that changes the
/// distances in attention.
pub struct Scaling {
    /// The name in settings. A rule also has this name in files (`{arch}.rope.scaling.type`).
    pub name: &'static str,
    /// The effect in one sentence, without a full stop.
    pub help: &'static str,
    /// The parameters that belong to the method.
    pub parameters: &'static [&'static Parameter],
    /// The parameters of other methods that also act on this one.
    pub shared: &'static [&'static Parameter],
    pub(super) effect: Effect,
    pub(super) factor: Factor,
    /// Whether llama.cpp has the method, under the same name.
    pub in_llama_cpp: bool,
    /// Whether the method replaces the divisors of frequencies in a file.
    pub(super) replaces_divisors: bool,
    /// The divisors that files of the method store.
    pub(super) stored: Option<Stored>,
}

/// Resolves a rule from the inputs, the factor, and the model's own frequencies.
type ResolveRule = fn(&RuleInputs, &Sourced<f64>, &[f64]) -> Result<Arc<dyn Rule>, Error>;

/// What a method changes, with the function that resolves it.
#[derive(Clone, Copy)]
pub(super) enum Effect {
    /// The frequencies.
    Frequencies(ResolveRule),
    /// The distances in attention. The frequencies of the file's scaling remain.
    Distances(fn(&RuleInputs) -> Result<Arc<dyn Method>, Error>),
}

/// The factor of a method if it is not set.
#[derive(Clone, Copy)]
pub(super) enum Factor {
    /// The factor of the file, else the factor that reaches the context.
    ForContext,
    /// Like [`Factor::ForContext`] if the user named the method. A file that names the method
    /// without a factor is not scaled, as in llama.cpp.
    ForContextIfNamed,
    /// The α of the file, else like [`Factor::ForContext`].
    Alpha,
    /// The factor of the file, else 1.
    OfFile,
    /// The result of a function.
    Own(fn(&RuleInputs) -> Result<Sourced<f64>, Error>),
    /// Computed from the length of the sequence. No setting gives it.
    ByLength,
    /// 1. No setting gives another.
    One,
}

impl Scaling {
    /// Creates a method that changes frequencies.
    pub(super) const fn rule(name: &'static str, help: &'static str, resolve: ResolveRule) -> Self {
        Scaling {
            name,
            help,
            parameters: &[],
            shared: &[],
            effect: Effect::Frequencies(resolve),
            factor: Factor::ForContext,
            in_llama_cpp: false,
            replaces_divisors: false,
            stored: None,
        }
    }

    /// Creates a method that changes the distances in attention.
    pub(super) const fn distances(
        name: &'static str,
        help: &'static str,
        resolve: fn(&RuleInputs) -> Result<Arc<dyn Method>, Error>,
    ) -> Self {
        let rule = Self::rule(name, help, |_, _, _| Ok(Arc::new(linear::Linear)));
        Scaling { effect: Effect::Distances(resolve), ..rule }
    }

    /// Sets the parameters that belong to the method.
    pub(super) const fn parameters(self, parameters: &'static [&'static Parameter]) -> Self {
        Scaling { parameters, ..self }
    }

    /// Sets the parameters of other methods that also act on this one.
    pub(super) const fn shares(self, shared: &'static [&'static Parameter]) -> Self {
        Scaling { shared, ..self }
    }

    /// Sets the default of the factor.
    pub(super) const fn factor(self, factor: Factor) -> Self {
        Scaling { factor, ..self }
    }

    /// Marks the method as one that llama.cpp has, under the same name.
    pub(super) const fn in_llama_cpp(self) -> Self {
        Scaling { in_llama_cpp: true, ..self }
    }

    /// Marks the method as one that replaces the divisors in a file.
    pub(super) const fn replaces_divisors(self) -> Self {
        Scaling { replaces_divisors: true, ..self }
    }

    /// Sets the divisors that files of the method store.
    pub(super) const fn stores(self, stored: Stored) -> Self {
        Scaling { stored: Some(stored), ..self }
    }

    /// Returns the method with this name.
    ///
    /// # Errors
    /// If no method has this name.
    ///
    /// ```
    /// # use rope_cpu::rope::Scaling;
    /// let yarn = Scaling::named("yarn")?;
    /// assert!(yarn.acts_on_frequencies());
    /// # Ok::<(), rope_cpu::rope::Error>(())
    /// ```
    pub fn named(name: &str) -> Result<&'static Scaling, Error> {
        METHODS.iter().copied().find(|scaling| scaling.name == name).ok_or_else(|| {
            let names: Vec<_> = METHODS.iter().map(|scaling| scaling.name).collect();
            let known = names.join(", ");
            match trained(name) {
                Some(about) => Error::Trained { name: name.into(), about },
                None => Error::UnknownScaling { name: name.into(), known },
            }
        })
    }

    /// Returns true if the method changes frequencies, and false if it changes attention.
    pub fn acts_on_frequencies(&self) -> bool {
        matches!(self.effect, Effect::Frequencies(_))
    }

    /// Returns whether the method uses a parameter.
    pub fn reads(&self, parameter: &Parameter) -> bool {
        let all = || self.parameters.iter().chain(self.shared);
        all().any(|own| own.setting == parameter.setting)
    }

    /// Returns the effective scaling with `factor`: linear scaling by 1 is none.
    pub(super) fn with_factor(&'static self, factor: f64) -> &'static Scaling {
        if self == &linear::LINEAR && factor == 1.0 { &linear::NONE } else { self }
    }
}

impl PartialEq for Scaling {
    fn eq(&self, other: &Scaling) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Scaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scaling({})", self.name)
    }
}

impl fmt::Display for Scaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The method, or `auto` to choose one for the context.
pub static SCALING: LazyLock<Parameter> = LazyLock::new(|| {
    Parameter::word("rope_scaling", "METHOD", &NAMES, "Method: auto, none, linear, ntk, yarn, ...")
        .details(&DETAILS)
        .llama_cpp(&["LLAMA_ARG_ROPE_SCALING_TYPE"])
});

static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    METHODS.iter().map(|scaling| scaling.name).chain([yarn::BY_PARTS, "auto"]).collect()
});

static DETAILS: LazyLock<String> = LazyLock::new(|| {
    let sentences = |on_frequencies: bool| {
        let all = METHODS.iter().filter(|s| s.acts_on_frequencies() == on_frequencies);
        all.map(|s| format!(" {}: {}.", s.name, s.help)).collect::<String>()
    };
    format!(
        "These change the frequencies.{} {}: yarn with its ramp by turns and without its attention \
         scale. auto: the settings of the file if they reach the context, \
         else yarn with the factor that does.\n\nThese leave the frequencies unchanged, and change \
         the distances between queries and keys in attention.{}",
        sentences(true),
        yarn::BY_PARTS,
        sentences(false)
    )
});

/// Returns the parameters of all methods, and the settings that apply to every method.
///
/// ```
/// let mut parameters = rope_cpu::rope::parameters();
/// assert!(parameters.any(|parameter| parameter.setting.0 == "rope_scale"));
/// ```
pub fn parameters() -> impl Iterator<Item = &'static Parameter> {
    let general = [&*SCALING, &SCALE, &FREQ_SCALE, &FREQ_BASE];
    let of_methods = METHODS.iter().flat_map(|scaling| scaling.parameters).copied();
    general.into_iter().chain(of_methods).chain([&POLICY, &ATTENTION_SINKS, &LOG_N])
}
