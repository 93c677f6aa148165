//! Models to start with, for a machine without any.

/// A model on the Hugging Face Hub that fits in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The name, for `rope-cpu pull`.
    pub name: &'static str,
    /// The size of the download.
    pub bytes: u64,
}

const fn suggestion(name: &'static str, megabytes: u64) -> Suggestion {
    Suggestion { name, bytes: megabytes * 1_000_000 }
}

/// Models of one size each, from small to large, in Q4_K_M.
const SUGGESTIONS: [Suggestion; 7] = [
    suggestion("bartowski/SmolLM2-135M-Instruct-GGUF", 105),
    suggestion("bartowski/SmolLM2-360M-Instruct-GGUF", 271),
    suggestion("bartowski/Llama-3.2-1B-Instruct-GGUF", 808),
    suggestion("bartowski/Llama-3.2-3B-Instruct-GGUF", 2020),
    suggestion("bartowski/Qwen2.5-7B-Instruct-GGUF", 4680),
    suggestion("bartowski/Qwen2.5-14B-Instruct-GGUF", 8990),
    suggestion("bartowski/Qwen2.5-32B-Instruct-GGUF", 19850),
];

/// How many models are suggested.
const COUNT: usize = 3;

/// Returns up to three models that fit in so many bytes of memory with a context of some thousand
/// tokens, the largest first.
///
/// ```
/// let names: Vec<&str> = rope_cpu::shelf::suggestions(4 << 30).iter().map(|s| s.name).collect();
/// assert_eq!(names[0], "bartowski/Llama-3.2-3B-Instruct-GGUF");
/// ```
pub fn suggestions(memory: u64) -> Vec<Suggestion> {
    // The KV cache and the buffers of such a context take about a third of the weights' size.
    let fits = |suggestion: &Suggestion| suggestion.bytes + suggestion.bytes / 3 <= memory;
    SUGGESTIONS.into_iter().rev().filter(fits).take(COUNT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_that_fit_are_suggested() {
        let names = |memory: u64| suggestions(memory).len();
        assert_eq!([0, 200_000_000, 500_000_000, 1 << 40].map(names), [0, 1, 2, 3]);
        assert!(SUGGESTIONS.is_sorted_by_key(|suggestion| suggestion.bytes));
    }
}
