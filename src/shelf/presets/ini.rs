//! Presets in llama-server's format: `[name]`, `key = value`, comments after `;` or `#`.

use super::{Choice, Fault, Section};

/// Reads the sections of a file. As in llama-server, a section that appears twice counts once, the
/// later one; options before the first section are those of `default`, and `version` is not an
/// option.
pub fn sections(text: &str) -> Result<Vec<Section>, Fault> {
    let mut sections: Vec<Section> = Vec::new();
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, bare(line)));
    for (line, text) in lines.filter(|(_, text)| !text.is_empty()) {
        if let Some(header) = text.strip_prefix('[') {
            let name = header.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
            let name = name.ok_or((line, "a section must be [NAME]".to_string()))?;
            sections.retain(|section| section.name != name);
            sections.push(Section { name: name.into(), line, choices: Vec::new() });
            continue;
        }
        let (key, value) = text.split_once('=').ok_or_else(|| {
            (line, format!("{} is neither [NAME] nor KEY = VALUE", text.escape_debug()))
        })?;
        let key = key.trim();
        if key == "version" {
            continue;
        }
        if sections.is_empty() {
            sections.push(Section { name: "default".into(), line, choices: Vec::new() });
        }
        // Never empty here.
        if let Some(section) = sections.last_mut() {
            section.choices.retain(|choice| choice.key != key);
            let values = vec![value.trim().to_string()];
            section.choices.push(Choice { key: key.into(), values, line });
        }
    }
    Ok(sections)
}

/// Returns a line without its comment: a `;` or `#` at its start or after a space, as in llama-server.
fn bare(line: &str) -> &str {
    let is_start =
        |(at, _): &(usize, &str)| line[..*at].is_empty() || line[..*at].ends_with([' ', '\t']);
    let comment = line.match_indices([';', '#']).find(is_start).map(|(at, _)| at);
    line[..comment.unwrap_or(line.len())].trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_options_and_comments() {
        let text = "version = 1\n; note\n[*]\nc = 8192 # all\n\n[a/b:Q4_0]\nmodel=x#y.gguf\n\
                    LLAMA_ARG_THREADS = 4\n[a/b:Q4_0]\ntemp = 0.5\n";
        let read = sections(text).unwrap();
        let shown: Vec<_> = read.iter().map(|s| (&s.name[..], s.line, s.choices.len())).collect();
        assert_eq!(shown, [("*", 3, 1), ("a/b:Q4_0", 9, 1)]);
        let value = |section: usize| read[section].choices[0].clone();
        assert_eq!(value(0), Choice { key: "c".into(), values: vec!["8192".into()], line: 4 });
        assert_eq!(value(1).key, "temp");
        assert_eq!(bare("model=x#y.gguf"), "model=x#y.gguf");
        for (wrong, line) in [("[a]\nb", 2), ("[]", 1), ("[a", 1)] {
            assert_eq!(sections(wrong).err().unwrap().0, line, "{wrong}");
        }
    }
}
