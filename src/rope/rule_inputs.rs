//! What a rule is made from: flags, metadata, and the values that all rules share.

use super::{
    Clex, Dynamic, Error, Flags, Origin, Scaling, Sourced,
    keys::{Keys, is_without_factor},
};

/// The origin of a factor that is what reaches the context.
pub(super) const FOR_CONTEXT: &str = "context / original context";

/// All that is known before the rule is.
pub(super) struct RuleInputs<'a> {
    pub keys: Keys<'a>,
    pub flags: &'a Flags,
    /// How the factor acts on frequencies.
    pub scaling: &'a Sourced<Scaling>,
    /// What the user chose, which may act on attention instead.
    pub chosen: Scaling,
    /// Whether the file divides frequencies, which takes the model to its trained context.
    pub divided: bool,
    /// By how much `--rope-freq-base` extends the context.
    pub alpha: f64,
    /// Tokens that the model was trained for.
    pub context_train: &'a Sourced<usize>,
    /// Tokens that were asked for.
    pub context: &'a Sourced<usize>,
}

impl RuleInputs<'_> {
    /// The context before any extension: the flag, else the key, else the trained one.
    pub fn original_context(&self) -> Result<Sourced<usize>, Error> {
        let linear = self.scaling.value == Scaling::Linear;
        match self.flags.yarn_orig_ctx {
            Some(tokens) => Ok(Sourced::flag(tokens, format!("--yarn-orig-ctx {tokens}"))),
            None if !linear && self.factor_reaches() => self.start(),
            None => self.keys.original_context(self.context_train),
        }
    }

    /// What the model was trained for, with the scaling of its file: the flag, else the key.
    pub fn trained(&self) -> Sourced<usize> {
        match self.flags.yarn_orig_ctx {
            Some(tokens) => Sourced::whole("--yarn-orig-ctx", tokens),
            None => self.context_train.clone(),
        }
    }

    /// What the model was trained for, for rules that replace the scaling of its file: the flag, else the
    /// key, without the factor that it counts in.
    pub fn unscaled(&self) -> Result<Sourced<usize>, Error> {
        let original = self.original_context()?;
        Ok(if is_without_factor(&original) { original } else { self.trained() })
    }

    /// The factor by which the context is extended: 1 for scaling none, whatever the file says.
    pub fn factor(&self) -> Result<Sourced<f64>, Error> {
        let flags = self.flags;
        let typed = match (flags.scale, flags.freq_scale) {
            (Some(scale), Some(freq_scale)) => {
                let (one, other) = ("--rope-scale", "--rope-freq-scale");
                return Err(Error::Both {
                    one: format!("{one} {scale}"),
                    other: format!("{other} {freq_scale}"),
                    what: "the factor",
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
                // A factor of the file is not for lengths that are reached by alpha.
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

    /// The factor of the file, or else what reaches the context that was asked for.
    fn factor_of_file_or_context(&self) -> Result<Sourced<f64>, Error> {
        if !self.factor_reaches() {
            return self.keys.factor();
        }
        let needed = self.context.value as f64 / self.start()?.value.max(1) as f64;
        let (value, how) = match self.alpha {
            1.0 => (needed, FOR_CONTEXT),
            alpha => (needed / alpha, "context / original context / alpha of the base"),
        };
        Sourced { value: value.max(1.0), origin: Origin::Computed(how) }.factor()
    }

    /// Whether the factor is what reaches the context: where a method is named that has one, and
    /// neither a flag nor the file gives it. A file that names linear or YaRN and no factor is one
    /// without scaling, as for llama.cpp.
    fn factor_reaches(&self) -> bool {
        let flags = self.flags;
        let named = match self.scaling.value {
            Scaling::Linear | Scaling::Yarn => matches!(self.scaling.origin, Origin::Flag(_)),
            Scaling::Ntk | Scaling::NtkMixed | Scaling::Llama3 | Scaling::DpRope => true,
            _ => false,
        };
        let silent = || self.keys.factor().is_ok_and(|factor| factor.origin == Origin::Default);
        let typed = flags.scale.is_some() || flags.freq_scale.is_some();
        named && !typed && (flags.for_context || silent())
    }

    /// The context that a factor which is to reach another one extends. Divisors of the file already
    /// take the model to the trained one.
    fn start(&self) -> Result<Sourced<usize>, Error> {
        // Beside linear scaling the flag says where queries begin to grow.
        let for_log_n = self.scaling.value == Scaling::Linear && self.flags.log_n == Some(true);
        match self.flags.yarn_orig_ctx {
            Some(tokens) if !for_log_n => Ok(Sourced::whole("--yarn-orig-ctx", tokens)),
            _ if self.divided => Ok(self.context_train.clone()),
            _ => self.keys.original_context(self.context_train),
        }
    }
}
