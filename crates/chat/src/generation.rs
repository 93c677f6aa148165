//! `{% generation %}` marks the text to train on.
//!
//! It does not affect the rendered text, but Jinja lacks it. So the tags are replaced by an `if`
//! that is always true. This keeps the effect of their dashes on surrounding white space.

/// The source without generation tags.
pub(super) fn strip(source: &str) -> String {
    let mut stripped = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        stripped.push_str(before);
        rest = tag;
        let sign = tag.strip_prefix(['-', '+']).unwrap_or(tag);
        let body = sign.trim_start();
        for (word, replacement) in [("generation", "if true"), ("endgeneration", "endif")] {
            let Some(after) = body.strip_prefix(word) else { continue };
            let close = after.trim_start();
            if close.strip_prefix(['-', '+']).unwrap_or(close).starts_with("%}") {
                stripped.push_str(&tag[..tag.len() - body.len()]);
                stripped.push_str(replacement);
                rest = after;
            }
        }
    }
    stripped.push_str(rest);
    stripped
}

#[cfg(test)]
mod tests {
    use super::strip;

    #[test]
    fn tags_become_an_if_and_keep_their_dashes() {
        assert_eq!(
            strip("a {%- generation -%} b {% endgeneration%}{%endgeneration +%}"),
            "a {%- if true -%} b {% endif%}{%endif +%}"
        );
    }

    #[test]
    fn other_tags_stay() {
        for source in
            ["{% if generation %}", "{% generations %}", "{{ generation }}", "{% generation", "{%"]
        {
            assert_eq!(strip(source), source);
        }
    }
}
