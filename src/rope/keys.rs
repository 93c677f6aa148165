//! The RoPE keys of a GGUF file's metadata, `{architecture}.rope.*`, and their defaults.

use super::{
    CONTEXT_MAX, Error, Factors, Family, LogMultiplier, METHODS, Origin, Scaling, Sourced,
    linear::LINEAR, scaling::Factor, temperature::Temperature, trained,
};
use crate::gguf::Metadata;

const BETA_FAST: &str = "scaling.yarn_beta_fast";
const BETA_SLOW: &str = "scaling.yarn_beta_slow";

/// The origin of an original context that is computed by [`Keys::original_context`].
const WITHOUT_FACTOR: &str = "trained context / linear factor of the file";

/// Returns whether an original context is the trained length divided by the linear factor of the file.
pub(super) fn is_without_factor(original: &Sourced<usize>) -> bool {
    original.origin == Origin::Computed(WITHOUT_FACTOR)
}

/// The RoPE metadata of a model.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub architecture: &'a str,
    pub family: Family,
    pub metadata: &'a Metadata<'a>,
    /// The tensors of divisors in the file.
    pub factors: &'a Factors,
    /// The number of rotated pairs.
    pub pairs: usize,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.rope.{name}", self.architecture)
    }

    fn number(&self, name: &str) -> Result<Option<Sourced<f64>>, Error> {
        let key = self.key(name);
        let value = self.metadata.f32(&key)?;
        Ok(value.map(|value| Sourced::key(f64::from(value), self.metadata.origin(&key))))
    }

    /// Returns the scaling. The default is linear; with a factor of 1, this is none. If the family
    /// uses the divisors of a method, a file with divisors need not name the scaling.
    pub fn scaling(&self) -> Result<Sourced<&'static Scaling>, Error> {
        let key = self.key("scaling.type");
        match self.metadata.string(&key)? {
            None => Ok(self.scaling_by_tensor().unwrap_or(Sourced::default(&LINEAR))),
            Some(name) => match Scaling::named(name) {
                Ok(scaling) if scaling.acts_on_frequencies() => {
                    Ok(Sourced::key(scaling, self.metadata.origin(&key)))
                }
                _ => Err(Error::UnknownScalingInFile { key, name: name.into() }),
            },
        }
    }

    /// Returns the method that the divisors in the file belong to, if the family uses them.
    pub fn scaling_by_tensor(&self) -> Option<Sourced<&'static Scaling>> {
        METHODS.iter().find_map(|scaling| {
            let tensor = scaling.stored?.tensors[0];
            let marks =
                self.factors.get(tensor).is_some() && self.family.divisors.contains(&tensor);
            marks.then(|| Sourced::key(*scaling, tensor))
        })
    }

    /// Returns the base of the frequencies in the key `name` (`freq_base` or `freq_base_swa`), by
    /// default 10000.
    pub fn base(&self, name: &str) -> Result<Sourced<f64>, Error> {
        let mut base = self.number(name)?.unwrap_or(Sourced::default(10000.0));
        if let Some(alpha) = self.alpha()?.filter(|_| self.family.alpha_in_base) {
            let n_rot = 2.0 * self.pairs as f64;
            base.value *= alpha.value.powf(n_rot / (n_rot - 2.0));
        }
        base.base()
    }

    /// Returns the base in layers with a sliding window.
    pub fn window_base(&self) -> Result<Sourced<f64>, Error> {
        let own = !self.family.shares_base || self.number("freq_base_swa")?.is_some();
        self.base(if own { "freq_base_swa" } else { "freq_base" })
    }

    /// Returns the factor, from its present or its old key. 0 means 1.
    pub fn factor(&self) -> Result<Sourced<f64>, Error> {
        let factor = match self.number("scaling.factor")? {
            None => self.number("scale_linear")?,
            some => some,
        };
        match factor {
            None => Ok(Sourced::default(1.0)),
            Some(zero) if zero.value == 0.0 => Ok(Sourced { value: 1.0, origin: zero.origin }),
            Some(factor) => factor.factor(),
        }
    }

    /// Returns NTK's α, if the file has one. 0 means none.
    pub fn alpha(&self) -> Result<Option<Sourced<f64>>, Error> {
        let alpha = self.number("scaling.alpha")?.filter(|alpha| alpha.value != 0.0);
        alpha.map(Sourced::factor).transpose()
    }

    /// Returns the context before any extension. The default is `context_train`, divided by the
    /// linear factor if it includes that factor.
    pub fn original_context(
        &self,
        context_train: &Sourced<usize>,
    ) -> Result<Sourced<usize>, Error> {
        let key = self.key("scaling.original_context_length");
        if let Some(tokens) = self.metadata.u32(&key)?.filter(|tokens| *tokens != 0) {
            let tokens = Sourced::key(tokens as usize, self.metadata.origin(&key));
            return tokens.between(1, CONTEXT_MAX);
        }
        let linear = self.scaling().is_ok_and(|scaling| scaling.value == &LINEAR);
        // An invalid factor is not an error here, since a setting may replace it.
        let factor = self.factor().map_or(1.0, |factor| factor.value);
        if !self.family.trained_with_factor || !linear || factor <= 1.0 {
            return Ok(context_train.clone());
        }
        let value = (context_train.value as f64 / factor).ceil() as usize;
        Ok(Sourced { value, origin: Origin::Computed(WITHOUT_FACTOR) })
    }

    /// Returns the attention scale in the file, which applies to every rule.
    pub fn attention_factor(&self) -> Result<Option<Sourced<f64>>, Error> {
        self.number("scaling.attn_factor")?.map(Sourced::factor).transpose()
    }

    /// Returns the weights of the numerator and the denominator of YaRN's attention scale, with their
    /// origin, if the file has them.
    pub fn magnitude_weights(&self) -> Result<Option<(f64, f64, Origin)>, Error> {
        let below = self.number("scaling.yarn_log_multiplier")?.filter(|w| w.value != 0.0);
        Ok(below.and_then(|Sourced { value, origin }| match self.family.log_multiplier {
            LogMultiplier::Ignored => None,
            LogMultiplier::Denominator => Some((1.0, value, origin)),
            // Files hold a tenth of it.
            LogMultiplier::Both => Some((10.0 * value, 10.0 * value, origin)),
        }))
    }

    /// Returns the turns at the two ends of YaRN's ramp, fast and slow, if the family uses these
    /// keys.
    pub fn betas(&self) -> Result<[Option<Sourced<f64>>; 2], Error> {
        if !self.family.yarn_betas {
            return Ok([None, None]);
        }
        let [fast, slow] = [self.number(BETA_FAST)?, self.number(BETA_SLOW)?];
        Ok([fast.map(Sourced::factor).transpose()?, slow.map(Sourced::factor).transpose()?])
    }

    /// Returns the temperature of queries, if both the family and the file have one.
    pub fn temperature(
        &self,
        context_train: &Sourced<usize>,
    ) -> Result<Option<Temperature>, Error> {
        let key = format!("{}.attention.temperature_scale", self.architecture);
        let value = self.metadata.f32(&key)?.filter(|_| self.family.temperature);
        let Some(value) = value.filter(|value| *value != 0.0) else { return Ok(None) };
        let slope = Sourced::key(f64::from(value), self.metadata.origin(&key)).share()?;
        let length = format!("{}.attention.temperature_length", self.architecture);
        let length = self.metadata.u32(&length)?.filter(|length| *length > 0);
        let context = match length.filter(|_| self.family.temperature_length) {
            Some(length) => length as usize,
            None => self.original_context(context_train)?.value,
        };
        Ok(Some(Temperature { slope, context }))
    }

    /// Checks that no key names a method that is trained into the model and not computed here.
    ///
    /// # Errors
    /// If one does, whatever the settings are.
    pub fn check_trained(&self) -> Result<(), Error> {
        for key in [self.key("scaling.type"), format!("{}.attention_type", self.architecture)] {
            let name = self.metadata.string(&key)?;
            if let Some((name, about)) = name.and_then(|name| Some((name, trained(name)?))) {
                return Err(Error::TrainedInFile { key, name: name.into(), about });
            }
        }
        Ok(())
    }

    /// Returns a warning for each key that this architecture does not use, unless its value is
    /// neutral. llama.cpp's converter writes these keys for all models, and its loader reads them
    /// for only a few.
    pub fn unread(&self, scaling: &Scaling) -> Result<Vec<String>, Error> {
        let neutral: [(&str, &[f64]); 6] = [
            ("scaling.alpha", &[0.0]),
            // llama.cpp saves -1, which means: depends on the scaling.
            ("scaling.yarn_ext_factor", &[1.0, -1.0]),
            ("scaling.yarn_attn_factor", &[1.0]),
            (BETA_FAST, &[32.0]),
            (BETA_SLOW, &[1.0]),
            ("scaling.yarn_log_multiplier", &[0.0]),
        ];
        let mut warnings = Vec::new();
        for (name, neutral) in neutral {
            let read = name.ends_with("log_multiplier")
                && self.family.log_multiplier != LogMultiplier::Ignored
                || [BETA_FAST, BETA_SLOW].contains(&name) && self.family.yarn_betas
                || name.ends_with("alpha") && self.family.alpha_in_base
                || name.ends_with("alpha") && matches!(scaling.factor, Factor::Alpha);
            if read {
                continue;
            }
            if let Some(found) = self.number(name)?
                && !neutral.contains(&found.value)
            {
                warnings.push(format!(
                    "{} = {} is ignored, as in llama.cpp for {} models",
                    found.origin, found.value, self.architecture
                ));
            }
        }
        Ok(warnings)
    }
}
