//! What a rule is made from: flags, metadata, and the values that all rules share.

use super::{
    Clex, Dynamic, Error, Flags, Origin, Scaling, Sourced,
    keys::{Keys, is_without_factor},
};

/// All that is known before the rule is.
pub(super) struct Given<'a> {
    pub keys: Keys<'a>,
    pub flags: &'a Flags,
    /// How the factor acts on frequencies.
    pub scaling: &'a Sourced<Scaling>,
    /// What the user chose, which may act on attention instead.
    pub chosen: Scaling,
    /// Tokens that the model was trained for.
    pub context_train: &'a Sourced<usize>,
    /// Tokens that were asked for.
    pub context: &'a Sourced<usize>,
}

impl Given<'_> {
    /// The context before any extension: the flag, else the key, else the trained one.
    pub fn original_context(&self) -> Result<Sourced<usize>, Error> {
        match self.flags.yarn_orig_ctx {
            Some(tokens) => Ok(Sourced::flag(tokens, format!("--yarn-orig-ctx {tokens}"))),
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
        let given = match (flags.scale, flags.freq_scale) {
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
        match (self.scaling.value, given) {
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
            (_, Some(given)) => Ok(given),
            (Scaling::Linear | Scaling::Yarn | Scaling::LongRope, None) => self.keys.factor(),
            (Scaling::Ntk, None) => match self.keys.alpha()? {
                Some(alpha) => Ok(alpha),
                None => self.factor_of_file_or_context(),
            },
            (Scaling::Dynamic, None) => {
                let factor = self.keys.factor()?;
                if factor.origin == Origin::Default {
                    Dynamic::default_factor(self)
                } else {
                    Ok(factor)
                }
            }
            (Scaling::Clex, None) => Clex::default_factor(self),
            (_, None) => self.factor_of_file_or_context(),
        }
    }

    /// The factor of the file, or else what reaches the context that was asked for.
    fn factor_of_file_or_context(&self) -> Result<Sourced<f64>, Error> {
        let factor = self.keys.factor()?;
        if factor.origin != Origin::Default {
            return Ok(factor);
        }
        let ratio = self.context.value as f64 / self.original_context()?.value.max(1) as f64;
        let origin = Origin::Computed("context / original context");
        Sourced { value: ratio.max(1.0), origin }.factor()
    }
}
