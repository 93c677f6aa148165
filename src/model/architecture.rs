//! The properties of a family of models that a file's metadata does not contain.
//!
//! A family is a row of `families`. Its properties are grouped into parts. A part's type is in the file
//! that uses it, with its default `PLAIN`: so a new property is a field there, and its value in a row.

mod families;

use std::cmp::Reverse;

pub use super::{
    config::{
        Experts, Factors, Global, Inner, NetworkFamily, PositionFamily, Recurrent, RoutingKeys,
        ScaleFamily, ScoreFactor, Unrotated, Windows,
    },
    weights::{
        AttentionFamily, AttentionGates, BranchNorms, EmbeddingTerms, GateFunction, HeadNorms,
        NormFamily, NormKind,
    },
};
use crate::rope::Family;

/// A family of models, by the properties that its members have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Architecture {
    /// The name in `general.architecture`, which is also the prefix of the metadata keys.
    pub name: &'static str,
    /// Whether tokens attend to earlier tokens only. Otherwise a model is an encoder, in which each
    /// token attends to the whole text. A file may say that its model is one.
    pub causal: bool,
    /// Whether a last layer of the file may predict the token after the next one.
    pub predictor: bool,
    /// Keys that files have though no computation of the family uses them. Any other key that changes
    /// the results of some family is refused if this one does not read it.
    pub ignored_keys: &'static [&'static str],
    /// The vectors that are added to the embeddings of tokens.
    pub terms: EmbeddingTerms,
    /// The norms of activations.
    pub norms: NormFamily,
    /// Norms of heads, sinks and gates.
    pub attention: AttentionFamily,
    /// Whether keys and values are products of a short vector of each token, its latent. The cache holds
    /// the latent in their place (DeepSeek).
    pub latent: bool,
    /// The layers that are recurrent instead of attending.
    pub recurrent: Recurrent,
    /// The feed-forward network, or the experts in its place.
    pub network: NetworkFamily,
    /// The factors and limits of activations, scores and logits.
    pub scales: ScaleFamily,
    /// Sliding windows, and the layers and elements that rotate.
    pub positions: PositionFamily,
    /// The use of RoPE.
    pub rope: Family,
}

impl Architecture {
    /// Returns the family with this name in `general.architecture`.
    ///
    /// ```
    /// use rope_cpu::model::Architecture;
    ///
    /// let qwen3 = Architecture::named("qwen3").unwrap();
    /// assert!(qwen3.causal && qwen3.rope.divisors.is_empty());
    /// assert_eq!(Architecture::named("Qwen3"), None);
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|family| family.name == name).copied()
    }

    /// Returns the name of the family with the name most like `name`, for messages: the longest
    /// common start decides, then the distance. A single common letter does not count.
    ///
    /// ```
    /// use rope_cpu::model::Architecture;
    ///
    /// assert_eq!(Architecture::nearest("gemma3n"), "gemma3");
    /// assert_eq!(Architecture::nearest("command-a"), "command-r");
    /// ```
    pub fn nearest(name: &str) -> &'static str {
        let stem = |known: &str| {
            let pairs = name.bytes().zip(known.bytes());
            Some(pairs.take_while(|(a, b)| a == b).count()).filter(|len| *len > 1)
        };
        let unlikeness = |known: &&str| (Reverse(stem(known)), strsim::levenshtein(name, known));
        let names = Self::ALL.iter().map(|architecture| architecture.name);
        names.min_by_key(unlikeness).unwrap_or_default()
    }

    /// Returns the names of all families, for messages.
    pub fn names() -> String {
        let names: Vec<_> = Self::ALL.iter().map(|architecture| architecture.name).collect();
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::Architecture;

    #[test]
    fn the_nearest_family_has_the_longest_common_start() {
        for (name, nearest) in [
            ("qwen35vl", "qwen35"),
            ("qwen3vlmoe2", "qwen3vlmoe"),
            ("gemma3n", "gemma3"),
            ("command-a", "command-r"),
            ("deepseek4", "deepseek2"),
            ("glm5-next", "glm4moe"),
            ("llama4", "llama"),
            ("phimoe", "phi3"),
            // One common letter tells nothing.
            ("cwen2", "qwen2"),
        ] {
            assert_eq!(Architecture::nearest(name), nearest, "{name}");
        }
    }
}
