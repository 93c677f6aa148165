//! A plan as a file can carry it, for programs that know none of its rules.

use super::{Divisors, Error, Layers, Plan, Rule, Table, divisors, linear};

/// Divisors for `rope_freqs.weight` and the value of `rope.scaling.attn_factor`: with scaling
/// none, every program that reads these rotates as the plan does.
#[derive(Clone, Debug, PartialEq)]
pub struct Baked {
    /// What the model's own frequencies are divided by, one value for each pair.
    pub divisors: Vec<f32>,
    /// What multiplies cosine and sine.
    pub attention_scale: f64,
}

impl Plan {
    /// This plan for a file.
    ///
    /// # Errors
    /// A plan that depends on the length of the sequence or acts on attention, which no divisors can.
    pub fn baked(&self) -> Result<Baked, Error> {
        let static_rule = match &self.rule {
            Rule::Linear | Rule::Ntk | Rule::NtkMixed(_) | Rule::Yarn(_) | Rule::Llama3(_) => true,
            Rule::DpRope(_) => true,
            Rule::Dynamic(_) | Rule::DynamicYarn(_) | Rule::Clex(_) => false,
        };
        if matches!(self.divisors, Divisors::LongRope(_)) {
            return Err(Error::BakedLongRope);
        }
        if !static_rule {
            return Err(Error::BakedByLength { scaling: self.scaling.value });
        }
        if self.method.is_some() || self.log_n.is_some() {
            let what = match &self.log_n {
                Some(trained) if self.method.is_none() => trained.origin.to_string(),
                _ if self.rolls() => "--attention-sinks".into(),
                _ => format!("RoPE scaling {}", self.scaling.value),
            };
            return Err(Error::BakedAttention { what });
        }
        let table = Table::new(self, Layers::Global, self.context.value);
        let own = linear::frequencies(self.n_rot, self.base_train.value);
        let divisors = own.zip(&table.inv_freq).map(|(own, theta)| (own / theta) as f32);
        let divisors = divisors::check(divisors::ROPE_FREQS, divisors.collect(), self.n_rot / 2)?;
        Ok(Baked { divisors, attention_scale: table.scale })
    }
}
