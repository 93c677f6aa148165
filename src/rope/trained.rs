//! Methods that are trained into a model, so that no setting applies them. Their names are recognized, since
//! such a model computes nonsense with the rotation of its family.

/// A method, with its names in settings and in the configurations of models.
struct Trained {
    names: &'static [&'static str],
    about: &'static str,
}

const TRAINED: [Trained; 2] = [
    // Gelberg et al., "Extending the Context of Pretrained LLMs by Dropping Their Positional Embeddings"
    // (arXiv:2512.12167). The others are `attention_type` in the configurations of the authors' program.
    Trained {
        names: &["drope", "nope", "qk_norm_nope", "q_norm_nope", "k_norm_nope"],
        about: "DroPE models are trained to attend without rotation, which is not supported in llama and qwen2 \
                models",
    },
    // "Frayed RoPE and Long Inputs: A Geometric Perspective" (arXiv:2603.18017).
    Trained {
        names: &["rope-id", "rope_id"],
        about: "RoPE-ID models are trained with fast rotations of some dimensions, which a file states as \
                rope.dimension_count and rope.freq_base",
    },
];

/// Returns a sentence about the method that is trained into models and has this name; `None` if there is
/// none.
///
/// ```
/// assert!(rope_cpu::rope::trained("drope").unwrap().starts_with("DroPE models are trained"));
/// assert_eq!(rope_cpu::rope::trained("yarn"), None);
/// ```
pub fn trained(name: &str) -> Option<&'static str> {
    let has = |one: &&Trained| one.names.iter().any(|own| own.eq_ignore_ascii_case(name));
    TRAINED.iter().find(has).map(|one| one.about)
}

/// Returns a warning for a rotating model whose title says that it was trained without rotation.
pub(super) fn warning(title: Option<&str>) -> Option<String> {
    let title = title?;
    title.to_ascii_lowercase().contains("drope").then(|| {
        format!(
            "the file is named {} (general.name), and DroPE models are trained to attend without rotation, but \
             its layers rotate: text will be poor unless the name is wrong",
            crate::gguf::quoted(title)
        )
    })
}
