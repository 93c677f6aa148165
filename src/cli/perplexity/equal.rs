//! Sentences about methods with equal results, and the reason.

use rope_cpu::{
    eval::perplexity::{Scored, windows::Windows},
    rope::{Layers, Plan, Table},
};

/// The result of one method.
pub struct MethodResult<'a> {
    /// The method as the user gave it.
    pub method: &'a str,
    /// The windows.
    pub windows: Windows,
    /// The result.
    pub scored: &'a Scored,
    /// Whether the frequencies are the trained ones: see [`as_trained`].
    pub as_trained: bool,
}

/// Returns a sentence for each group of methods with results that are equal in all digits.
pub fn sentences(runs: &[MethodResult], context_train: usize) -> Vec<String> {
    let mut left: Vec<&MethodResult> = runs.iter().collect();
    let mut sentences = Vec::new();
    while let Some(&first) = left.first() {
        let is_equal =
            |run: &&MethodResult| run.windows == first.windows && run.scored == first.scored;
        let (equal, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_equal);
        left = others;
        if equal.len() == 1 {
            continue;
        }
        let methods: Vec<_> = equal.iter().map(|run| run.method).collect();
        let window = first.windows.window();
        let reason = match equal.iter().all(|run| run.as_trained) && window <= context_train {
            true => format!(
                ": none of them changes a frequency up to this length, as the model was trained for \
                 {context_train} tokens"
            ),
            false => String::new(),
        };
        sentences.push(format!("Equal in windows of {window}: {}{reason}.", methods.join(", ")));
    }
    sentences
}

/// Returns whether a plan has the trained frequencies for sequences of up to `tokens`.
pub fn as_trained(plan: &Plan, tokens: usize) -> bool {
    let trained = plan.trained_inv_freq();
    // A rule that follows the length changes frequencies more for longer sequences.
    let table = Table::new(plan, Layers::Global, plan.effective_length(tokens));
    // With a factor of 1, rules may differ by rounding.
    let is_near = |(a, b): (&f64, &f64)| (a / b - 1.0).abs() < 1e-12;
    table.scale == 1.0 && table.inv_freq.iter().zip(&trained).all(is_near)
}
