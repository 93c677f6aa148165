//! The formulas of a plan for positions and frequencies.

use super::{Plan, sourced::short};

impl Plan {
    /// Returns the formulas g(m) and h(θ_i) for the model's own θ and a sequence of n tokens. The
    /// general form is f'(x, m, θ) = f(x, g(m), h(θ)), from section 2.3 of the YaRN paper
    /// (arXiv:2309.00071).
    pub fn formulas(&self) -> [String; 2] {
        let factor = self.factor.value;
        let [g, mut h] = match self.rule.effective_length(1) {
            None if factor == 1.0 => ["m".into(), "θ_i".into()],
            _ => [self.rule.position_formula(factor), self.rule.frequency_formula(factor)],
        };
        if self.base.value != self.base_train.value {
            h += &format!(" for θ_i of base {}", short(self.base.value));
        }
        [g, h]
    }
}
