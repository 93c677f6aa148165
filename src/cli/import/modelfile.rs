//! The syntax of a Modelfile: an instruction on each line, and texts of several lines in `"""`.

/// The instructions of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Modelfile(pub Vec<Instruction>);

/// An instruction, such as `SYSTEM You are brief.`
#[derive(Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The name, in the case of the file.
    pub name: String,
    pub value: String,
    /// The line, from 1.
    pub line: usize,
}

const QUOTES: &str = "\"\"\"";

impl Modelfile {
    /// Parses a file. The error has a line and the reason.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut instructions = Vec::new();
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        while let Some((at, line)) = lines.next() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = line
                .split_once(char::is_whitespace)
                .ok_or_else(|| (at, format!("{} has no value", line.escape_debug())))?;
            // MESSAGE and PARAMETER have a word before the text.
            let value = value.trim();
            let value = match value.split_once(QUOTES) {
                None => unquoted(value).to_string(),
                Some((before, rest)) => {
                    let mut text = String::from(before) + rest;
                    while !text[before.len()..].contains(QUOTES) {
                        let (_, next) = lines
                            .next()
                            .ok_or_else(|| (at, format!("{name} has no closing {QUOTES}")))?;
                        text += "\n";
                        text += next;
                    }
                    let end = before.len() + text[before.len()..].find(QUOTES).unwrap_or_default();
                    text.truncate(end);
                    text
                }
            };
            instructions.push(Instruction { name: name.into(), value, line: at });
        }
        Ok(Modelfile(instructions))
    }
}

/// Returns a text without the quotes around it.
pub fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_values_of_one_or_several_lines() {
        let text =
            "# note\nFROM llama3:8b\n\nPARAMETER stop \"<|end|>\"\nsystem \"\"\"You\n  are\"\"\"\n";
        let read: Vec<_> = Modelfile::parse(text)
            .unwrap()
            .0
            .into_iter()
            .map(|Instruction { name, value, line }| (name, value, line))
            .collect();
        let expected = [
            ("FROM", "llama3:8b", 2),
            ("PARAMETER", "stop \"<|end|>\"", 4),
            ("system", "You\n  are", 5),
        ];
        let expected =
            expected.map(|(name, value, line)| (name.to_string(), value.to_string(), line));
        assert_eq!(read, expected);
        assert_eq!(Modelfile::parse("FROM").unwrap_err(), (1, "FROM has no value".into()));
        assert_eq!(Modelfile::parse("\nSYSTEM \"\"\"a\nb").unwrap_err().0, 2);
    }
}
