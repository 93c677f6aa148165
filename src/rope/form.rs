//! What a plan does to positions and frequencies, as formulas.

use super::{Plan, Rule, sourced::short};

impl Plan {
    /// g(m) and h(θ_i) of f'(x, m, θ) = f(x, g(m), h(θ)), the general form of section 2.3 of the
    /// YaRN paper (arXiv:2309.00071), for the model's own θ and a sequence of n tokens.
    pub fn form(&self) -> [String; 2] {
        let s = short(self.factor.value);
        let h = match &self.rule {
            Rule::Linear if self.factor.value == 1.0 => "θ_i".into(),
            Rule::Linear => return [format!("m / {s}"), "θ_i".into()],
            Rule::Ntk => format!("θ_i · {s}^(-2i/(d-2))"),
            Rule::NtkMixed(mixed) => {
                let b = short(mixed.exponent.value);
                format!("θ_i · exp(-a · (i+1)^{b}), a = ln {s} / (d/2)^{b}")
            }
            Rule::Dynamic(dynamic) => {
                let trained = &dynamic.trained;
                let (constant, c) =
                    (dynamic.target.as_ref().unwrap_or(trained).value, trained.value);
                let less = short(self.factor.value - 1.0);
                format!("θ_i · α^(-2i/(d-2)), α = {s} · max(n, {constant}) / {c} - {less}")
            }
            Rule::Yarn(_) => format!("(1 - γ_i) · θ_i / {s} + γ_i · θ_i"),
            Rule::DynamicYarn(dynamic) => {
                let original = dynamic.yarn.original_context.value;
                format!("(1 - γ_i) · θ_i / s + γ_i · θ_i, s = max(1, n / {original})")
            }
            Rule::Llama3(_) => format!("(1 - γ_i) · θ_i / {s} + γ_i · θ_i, γ by turns"),
            Rule::Clex(clex) => {
                let original = clex.original_context.value;
                format!("θ_i(t) of the learned equation, t = min(⌈n / {original}⌉, {s})")
            }
            Rule::DpRope(_) => format!("θ_i / {s} for the pairs that gain by it, else θ_i"),
        };
        ["m".into(), h]
    }
}
