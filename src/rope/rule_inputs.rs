//! The inputs that a rule is resolved from: flags, metadata, and values that all rules share.

use super::{
    Clex, Dynamic, Error, Flags, Origin, Scaling, Sourced,
    keys::{Keys, is_without_factor},
};

/// The origin of a factor that is computed to reach the context.
pub(super) const FOR_CONTEXT: &str = "context / original context";

/// The settings that are resolved before the rule.
pub(super) struct RuleInputs<'a> {
    pub keys: Keys<'a>,
    pub flags: &'a Flags,
    /// The scaling of the frequencies.
    pub scaling: &'a Sourced<Scaling>,
    /// The scaling that the user chose, which may act on attention instead.
    pub chosen: Scaling,
    /// Whether the file has divisors of the frequencies, which extend the model to its trained
    /// context.
    pub has_divisors: bool,
    /// The factor by which `--rope-freq-base` extends the context.
    pub alpha: f64,
    /// The trained length, in tokens.
    pub context_train: &'a Sourced<usize>,
    /// The requested context, in tokens.
    pub context: &'a Sourced<usize>,
}

impl RuleInputs<'_> {
    /// Returns the context before any extension: the flag, otherwise the key, otherwise the trained
    /// length.
    pub fn original_context(&self) -> Result<Sourced<usize>, Error> {
        let linear = self.scaling.value == Scaling::Linear;
        match self.flags.yarn_orig_ctx {
            Some(tokens) => Ok(Sourced::flag(tokens, format!("--yarn-orig-ctx {tokens}"))),
            None if !linear && self.factor_is_computed() => self.extended_from(),
            None => self.keys.original_context(self.context_train),
        }
    }

    /// Returns the trained length, with the scaling of the file in effect: the flag, otherwise the key.
    pub fn trained_context(&self) -> Sourced<usize> {
        match self.flags.yarn_orig_ctx {
            Some(tokens) => Sourced::whole("--yarn-orig-ctx", tokens),
            None => self.context_train.clone(),
        }
    }

    /// Returns the trained length for rules that replace the scaling of the file: the flag, otherwise
    /// the key, divided by the linear factor of the file if the key includes it.
    pub fn unscaled_context(&self) -> Result<Sourced<usize>, Error> {
        let original = self.original_context()?;
        Ok(if is_without_factor(&original) { original } else { self.trained_context() })
    }

    /// Returns the factor by which the context is extended. It is 1 for scaling none, even if the file
    /// has another factor.
    pub fn factor(&self) -> Result<Sourced<f64>, Error> {
        let flags = self.flags;
        let typed = match (flags.scale, flags.freq_scale) {
            (Some(scale), Some(freq_scale)) => {
                let (one, other) = ("--rope-scale", "--rope-freq-scale");
                return Err(Error::Both {
                    one: format!("{one} {scale}"),
                    other: format!("{other} {freq_scale}"),
                    setting: "the factor",
                });
            }
            (Some(scale), None) => Some(Sourced::number("--rope-scale", scale).factor()?),
            (None, Some(freq_scale)) => {
                let freq_scale = Sourced::number("--rope-freq-scale", freq_scale).factor()?;
                Some(Sourced { value: 1.0 / freq_scale.value, origin: freq_scale.origin })
            }
            (None, None) => None,
        };
        match (self.scaling.value, typed) {
            (Scaling::None, Some(Sourced { value, origin: factor })) if value != 1.0 => {
                Err(match &self.scaling.origin {
                    Origin::Flag(_) => Error::NoneWithFactor { factor },
                    key => Error::NoneInFile { factor, key: key.clone() },
                })
            }
            (Scaling::None, _) => Ok(Sourced { value: 1.0, origin: self.scaling.origin.clone() }),
            (scaling @ Scaling::DynamicYarn, Some(Sourced { origin: factor, .. })) => {
                Err(Error::FactorByLength { factor, scaling })
            }
            (Scaling::DynamicYarn, None) => Ok(Sourced::default(1.0)),
            (_, Some(factor)) => Ok(factor),
            (Scaling::Dynamic, None) => match self.keys.factor() {
                // With `for_context`, a factor of the file is ignored: alpha reaches every length.
                Ok(factor) if factor.origin != Origin::Default && !flags.for_context => Ok(factor),
                Err(error) if !flags.for_context => Err(error),
                _ => Dynamic::default_factor(self),
            },
            (Scaling::Clex, None) => Clex::default_factor(self),
            (Scaling::Ntk, None) if !flags.for_context => match self.keys.alpha()? {
                Some(alpha) => Ok(alpha),
                None => self.factor_of_file_or_context(),
            },
            (_, None) => self.factor_of_file_or_context(),
        }
    }

    /// Returns the factor of the file, or the factor that reaches the requested context.
    fn factor_of_file_or_context(&self) -> Result<Sourced<f64>, Error> {
        if !self.factor_is_computed() {
            return self.keys.factor();
        }
        let needed = self.context.value as f64 / self.extended_from()?.value.max(1) as f64;
        let (value, how) = match self.alpha {
            1.0 => (needed, FOR_CONTEXT),
            alpha => (needed / alpha, "context / original context / alpha of the base"),
        };
        Sourced { value: value.max(1.0), origin: Origin::Computed(how) }.factor()
    }

    /// Returns whether the factor is computed to reach the context: if the method has a factor, and
    /// neither a flag nor the file sets it. A file that names linear or YaRN without a factor is not
    /// scaled, as in llama.cpp.
    fn factor_is_computed(&self) -> bool {
        let flags = self.flags;
        let named = match self.scaling.value {
            Scaling::Linear | Scaling::Yarn => matches!(self.scaling.origin, Origin::Flag(_)),
            Scaling::Ntk | Scaling::NtkMixed | Scaling::Llama3 | Scaling::DpRope => true,
            _ => false,
        };
        let no_factor_in_file =
            || self.keys.factor().is_ok_and(|factor| factor.origin == Origin::Default);
        let typed = flags.scale.is_some() || flags.freq_scale.is_some();
        named && !typed && (flags.for_context || no_factor_in_file())
    }

    /// Returns the context that a computed factor extends. Divisors in the file already extend the
    /// model to the trained length.
    fn extended_from(&self) -> Result<Sourced<usize>, Error> {
        // With linear scaling, the flag sets the position from which on log n scales queries.
        let for_log_n = self.scaling.value == Scaling::Linear && self.flags.log_n == Some(true);
        match self.flags.yarn_orig_ctx {
            Some(tokens) if !for_log_n => Ok(Sourced::whole("--yarn-orig-ctx", tokens)),
            _ if self.has_divisors => Ok(self.context_train.clone()),
            _ => self.keys.original_context(self.context_train),
        }
    }
}
