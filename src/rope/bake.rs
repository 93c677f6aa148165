//! Stores a plan as tensors and metadata of a file, for programs that do not implement its rule.

use super::{ATTENTION_SINKS, Error, Layers, Plan, ROPE_FREQS, Table, divisors, linear};

/// Values of `rope_freqs.weight` and `rope.scaling.attn_factor` that reproduce a plan. A program
/// that applies both, without scaling, rotates like the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Baked {
    /// The divisors of the model's own frequencies, one for each pair.
    pub divisors: Vec<f32>,
    /// The attention scale, which multiplies cosines and sines.
    pub attention_scale: f64,
}

impl Plan {
    /// Returns the values to store in a file.
    ///
    /// # Errors
    /// If the plan depends on the length of the sequence, or changes attention. Divisors cannot
    /// express either.
    ///
    /// ```no_run
    /// use rope_cpu::{model::Model, rope::Flags};
    ///
    /// let model = Model::open("llama2-7b.gguf")?;
    /// let baked = model.rope_plan(&Flags::method("yarn"), 16384)?.baked()?;
    /// println!("{} divisors, attention scale {}", baked.divisors.len(), baked.attention_scale);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
        let divisor = |(own, theta): (f64, &f64)| match *theta {
            0.0 => divisors::STILL,
            theta => (own / theta) as f32,
        };
        let divisors = own.zip(&table.inv_freq).map(divisor);
        let divisors = divisors.chain(std::iter::repeat(divisors::STILL)).take(self.n_rot / 2);
        let divisors = divisors::check(ROPE_FREQS, divisors.collect(), self.n_rot / 2)?;
        Ok(Baked { divisors, attention_scale: table.scale })
    }
}
