//! Which methods gave the same result, and why.

use rope_cpu::{
    eval::perplexity::{Scored, windows::Windows},
    rope::{Layers, Plan, Table},
};

/// What one method gave.
pub struct Run<'a> {
    /// The method as typed.
    pub method: &'a str,
    /// The windows.
    pub windows: Windows,
    /// The result.
    pub scored: &'a Scored,
    /// Whether frequencies were those of the model's training: [`as_trained`].
    pub as_trained: bool,
}

/// A sentence for each group of methods whose results are the same in all digits.
pub fn sentences(runs: &[Run], context_train: usize) -> Vec<String> {
    let mut left: Vec<&Run> = runs.iter().collect();
    let mut sentences = Vec::new();
    while let Some(&first) = left.first() {
        let is_equal = |run: &&Run| run.windows == first.windows && run.scored == first.scored;
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

/// Whether a plan leaves all frequencies as the model was trained for sequences of up to `tokens`.
pub fn as_trained(plan: &Plan, tokens: usize) -> bool {
    let trained = plan.trained_inv_freq();
    // A rule that follows the length changes more, the longer the sequence is.
    let table = Table::new(plan, Layers::Global, plan.effective_length(tokens));
    // Rules may round differently on the way to a factor of 1.
    let is_near = |(a, b): (&f64, &f64)| (a / b - 1.0).abs() < 1e-12;
    table.scale == 1.0 && table.inv_freq.iter().zip(&trained).all(is_near)
}
