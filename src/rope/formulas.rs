//! Formulas of a plan for positions and frequencies.

use super::{Plan, Rule, sourced::short};

impl Plan {
    /// Returns the formulas g(m) and h(θ_i) of the general form f'(x, m, θ) = f(x, g(m), h(θ)) in
    /// section 2.3 of the YaRN paper (arXiv:2309.00071), for the model's own θ and a sequence of n
    /// tokens.
    pub fn formulas(&self) -> [String; 2] {
        let s = short(self.factor.value);
        let mut g = "m".to_string();
        let mut h = match &self.rule {
            Rule::Linear
            | Rule::Ntk
            | Rule::NtkMixed(_)
            | Rule::Yarn(_)
            | Rule::Llama3(_)
            | Rule::DpRope(_)
                if self.factor.value == 1.0 =>
            {
                "θ_i".into()
            }
            Rule::Linear => {
                g = format!("m / {s}");
                "θ_i".into()
            }
            Rule::Ntk => format!("θ_i · {s}^(-2i/(d-2))"),
            Rule::NtkMixed(mixed) => {
                let b = short(mixed.exponent.value);
                format!("θ_i · exp(-a · (i+1)^{b}), a = ln {s} / (d/2)^{b}")
            }
            Rule::Dynamic(dynamic) => {
                let trained = &dynamic.trained;
                let (constant, c) =
                    (dynamic.target.as_ref().unwrap_or(trained).value, trained.value);
                let by = match self.factor.value {
                    1.0 => format!("max(n, {constant}) / {c}"),
                    s => format!("{} · max(n, {constant}) / {c} - {}", short(s), short(s - 1.0)),
                };
                format!("θ_i · α^(-2i/(d-2)), α = {by}{}", rounded(dynamic.step.value))
            }
            Rule::Yarn(_) => format!("(1 - γ_i) · θ_i / {s} + γ_i · θ_i"),
            Rule::DynamicYarn(dynamic) => {
                let original = dynamic.yarn.original_context.value;
                let rounded = rounded(dynamic.step.value);
                format!("(1 - γ_i) · θ_i / s + γ_i · θ_i, s = max(1, n / {original}){rounded}")
            }
            Rule::Llama3(_) => format!("(1 - γ_i) · θ_i / {s} + γ_i · θ_i, γ by turns"),
            Rule::Clex(clex) => {
                let original = clex.original_context.value;
                format!("θ_i(t) of the learned equation, t = min(⌈n / {original}⌉, {s})")
            }
            Rule::DpRope(_) => {
                format!("θ_i / {s} for the pairs whose disturbance it reduces, otherwise θ_i")
            }
        };
        if self.base.value != self.base_train.value {
            h += &format!(" for θ_i of base {}", short(self.base.value));
        }
        [g, h]
    }
}

/// Returns a note on the rounding of n, for rules that depend on the length.
fn rounded(step: usize) -> String {
    match step {
        1 => String::new(),
        _ => format!(" (n rounded up to a multiple of {step})"),
    }
}
