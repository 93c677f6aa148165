//! Templates for models without one in their file.

/// Templates by name, for models without a template in their file.
pub(super) const BUILTIN: &[(&str, &str)] = &[
    ("chatml", include_str!("chatml.jinja")),
    ("llama3", include_str!("llama3.jinja")),
    ("gemma", include_str!("gemma.jinja")),
    ("command-r", include_str!("command-r.jinja")),
];

/// Returns the names of the built-in templates.
///
/// ```
/// assert_eq!(rope_cpu_chat::names(), "chatml, llama3, gemma, command-r");
/// ```
pub fn names() -> String {
    BUILTIN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
