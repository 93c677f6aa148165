//! A plan as tensors and metadata of a file, for programs that do not implement its rule.

use super::{ATTENTION_SINKS, Error, Layers, Plan, ROPE_FREQS, Table, divisors, linear};

/// The values of `rope_freqs.weight` and `rope.scaling.attn_factor` that reproduce a plan: a program
/// that applies both, with scaling none, rotates as the plan does.
#[derive(Clone, Debug, PartialEq)]
pub struct Baked {
    /// The divisors of the model's own frequencies, one for each pair.
    pub divisors: Vec<f32>,
    /// The attention scale, which multiplies cosines and sines.
    pub attention_scale: f64,
}

impl Plan {
    /// Returns the values that store this plan in a file.
    ///
    /// # Errors
    /// If the plan depends on the length of the sequence, or acts on attention: divisors can express
    /// neither.
    pub fn baked(&self) -> Result<Baked, Error> {
        if let Some(divisors) = &self.divisors {
            divisors.check_bakeable()?;
        }
        if self.rule.effective_length(1).is_some() {
            return Err(Error::BakedByLength { scaling: self.scaling.value });
        }
        if self.method.is_some() || self.log_n.is_some() {
            let setting = match &self.log_n {
                Some(trained) if self.method.is_none() => trained.origin.to_string(),
                _ if self.rolls() => ATTENTION_SINKS.setting.to_string(),
                _ => format!("RoPE scaling {}", self.scaling.value),
            };
            return Err(Error::BakedAttention { setting });
        }
        let table = Table::new(self, Layers::Global, self.context.value);
        let own = linear::frequencies(self.n_rot, self.base_train.value);
        let divisors = own.zip(&table.inv_freq).map(|(own, theta)| (own / theta) as f32);
        let divisors = divisors.chain(std::iter::repeat(divisors::STILL)).take(self.n_rot / 2);
        let divisors = divisors::check(ROPE_FREQS, divisors.collect(), self.n_rot / 2)?;
        Ok(Baked { divisors, attention_scale: table.scale })
    }
}
