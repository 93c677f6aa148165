//! The temperature of queries: some models scale queries by position.

use std::fmt;

use super::Sourced;

/// A factor of queries that grows at each multiple of the original context:
/// `1 + slope * ln(1 + floor(position / context))`.
///
/// Llama 4 introduced it. Ministral 3 has it in all layers; Hugging Face calls it
/// `llama_4_scaling_beta`.
#[derive(Clone, Debug, PartialEq)]
pub struct Temperature {
    /// The weight of the logarithm.
    pub slope: Sourced<f64>,
    /// The original context, or the length in the file, in tokens.
    pub context: usize,
}

impl Temperature {
    /// Returns the factor of the query at `position`.
    pub fn scale(&self, position: usize) -> f32 {
        let times = (position / self.context.max(1)) as f64;
        (1.0 + self.slope.value * times.ln_1p()) as f32
    }
}

impl fmt::Display for Temperature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            ", queries scaled by 1 + {} ln(1 + floor(position / {}))",
            self.slope, self.context
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_formula_is_the_one_that_is_computed() {
        let temperature = Temperature { slope: Sourced::default(0.1), context: 100 };
        let formula = "queries scaled by 1 + 0.1 (default) ln(1 + floor(position / 100))";
        assert_eq!(temperature.to_string(), format!(", {formula}"));
    }

    #[test]
    fn it_grows_from_one_original_context_on() {
        let temperature = Temperature { slope: Sourced::default(0.1), context: 100 };
        let scales = [0, 99, 100, 199, 700].map(|position| temperature.scale(position));
        let second = (1.0 + 0.1 * 2f64.ln()) as f32;
        assert_eq!(scales, [1.0, 1.0, second, second, (1.0 + 0.1 * 8f64.ln()) as f32]);
    }
}
