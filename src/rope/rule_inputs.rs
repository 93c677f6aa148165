//! The inputs of a rule: settings, metadata, and values that all rules share.

use super::{
    Error, FREQ_SCALE, Flags, LOG_N, Origin, SCALE, Scaling, Sourced,
    keys::{Keys, is_without_factor},
    scaling::Factor,
    yarn::ORIG_CTX,
};

/// The origin of a factor that is computed to reach the context.
pub(super) const FOR_CONTEXT: &str = "context / original context";

/// The settings that are resolved before the rule.
pub(super) struct RuleInputs<'a> {
    pub keys: Keys<'a>,
    pub flags: &'a Flags,
    /// The scaling of the frequencies.
    pub scaling: &'a Sourced<&'static Scaling>,
    /// The scaling that the user chose, which may act on attention instead.
    pub chosen: &'static Scaling,
    /// Whether the file has divisors of the frequencies, which extend the model to its trained
    /// context.
    pub has_divisors: bool,
    /// How many times the user's base extends the context.
    pub alpha: f64,
    /// The trained length, in tokens.
    pub context_train: &'a Sourced<usize>,
    /// The requested context, in tokens.
    pub context: &'a Sourced<usize>,
}

impl RuleInputs<'_> {
    /// Returns the context before any extension: the setting, else the key, else the trained
    /// length.
    pub fn original_context(&self) -> Result<Sourced<usize>, Error> {
        match self.flags.whole(&ORIG_CTX) {
            Some(given) => Ok(given),
            None if self.scaling.value.reads(&ORIG_CTX) && self.factor_is_computed() => {
                self.extended_from()
            }
            None => self.keys.original_context(self.context_train),
        }
    }

    /// Returns the trained length, with the scaling of the file in effect: the setting, else the
    /// key.
    pub fn trained_context(&self) -> Sourced<usize> {
        self.flags.whole(&ORIG_CTX).unwrap_or_else(|| self.context_train.clone())
    }

    /// Returns the trained length for rules that replace the file's scaling: the setting, else the
    /// key. If the key includes the linear factor of the file, it is divided by that factor.
    pub fn unscaled_context(&self) -> Result<Sourced<usize>, Error> {
        let original = self.original_context()?;
        Ok(if is_without_factor(&original) { original } else { self.trained_context() })
    }

    /// Returns the factor that extends the context. Without scaling it is 1, even if the file has
    /// another factor.
    pub fn factor(&self) -> Result<Sourced<f64>, Error> {
        let flags = self.flags;
        let given = match (flags.number(&SCALE), flags.number(&FREQ_SCALE)) {
            (Some(scale), Some(freq_scale)) => {
                return Err(Error::Both {
                    one: scale.origin.to_string(),
                    other: freq_scale.origin.to_string(),
                    setting: "the factor",
                });
            }
            (Some(scale), None) => Some(scale.factor()?),
            (None, Some(freq_scale)) => {
                let freq_scale = freq_scale.factor()?;
                Some(Sourced { value: 1.0 / freq_scale.value, origin: freq_scale.origin })
            }
            (None, None) => None,
        };
        let Sourced { value: scaling, origin } = self.scaling;
        match (scaling.factor, given) {
            (Factor::One, Some(Sourced { value, origin: factor })) if value != 1.0 => {
                Err(match origin {
                    Origin::Setting(..) => Error::NoneWithFactor { factor },
                    key => Error::NoneInFile { factor, key: key.clone() },
                })
            }
            (Factor::One, _) => Ok(Sourced { value: 1.0, origin: origin.clone() }),
            (Factor::ByLength, Some(Sourced { origin: factor, .. })) => {
                Err(Error::FactorByLength { factor, scaling })
            }
            (Factor::ByLength, None) => Ok(Sourced::default(1.0)),
            (_, Some(factor)) => Ok(factor),
            (Factor::Own(factor), None) => factor(self),
            (Factor::Alpha, None) if !flags.for_context => match self.keys.alpha()? {
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

    /// Returns whether the factor is computed to reach the context. It is if the method has a
    /// factor, and neither a setting nor the file gives it.
    fn factor_is_computed(&self) -> bool {
        let flags = self.flags;
        let named = match self.scaling.value.factor {
            Factor::ForContext | Factor::Alpha => true,
            Factor::ForContextIfNamed => matches!(self.scaling.origin, Origin::Setting(..)),
            Factor::OfFile | Factor::Own(_) | Factor::ByLength | Factor::One => false,
        };
        let no_factor_in_file =
            || self.keys.factor().is_ok_and(|factor| factor.origin == Origin::Default);
        let given = flags.values.has(&SCALE) || flags.values.has(&FREQ_SCALE);
        named && !given && (flags.for_context || no_factor_in_file())
    }

    /// Returns the context that a computed factor extends. Divisors in the file already extend the
    /// model to its trained length.
    fn extended_from(&self) -> Result<Sourced<usize>, Error> {
        // A setting that the scaling does not use is the position from which log n scales queries.
        let log_n = self.flags.values.switch(&LOG_N) == Some(true);
        match self.flags.whole(&ORIG_CTX) {
            Some(given) if self.scaling.value.reads(&ORIG_CTX) || !log_n => Ok(given),
            _ if self.has_divisors => Ok(self.context_train.clone()),
            _ => self.keys.original_context(self.context_train),
        }
    }
}
