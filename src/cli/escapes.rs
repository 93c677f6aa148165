//! Escapes as in llama.cpp's command lines: `\n \r \t \' \" \\` and `\x` with two hex digits.

use super::error::Error;

/// Replaces the escapes in `text`. A backslash before anything else stays.
pub fn resolve(text: &[u8]) -> Vec<u8> {
    let mut resolved = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let replacement = match after {
            _ if first != b'\\' => None,
            [b'n', ..] => Some((b'\n', 1)),
            [b'r', ..] => Some((b'\r', 1)),
            [b't', ..] => Some((b'\t', 1)),
            [c @ (b'\'' | b'"' | b'\\'), ..] => Some((*c, 1)),
            [b'x', high, low, ..] => hex(*high, *low).map(|byte| (byte, 3)),
            _ => None,
        };
        let (byte, taken) = replacement.unwrap_or((first, 0));
        resolved.push(byte);
        rest = &after[taken..];
    }
    resolved
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |c: u8| char::from(c).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// Replaces the escapes in a text of the command line, unless `no_escape`.
pub fn unescaped(option: &str, text: &str, no_escape: bool) -> Result<String, Error> {
    if no_escape {
        return Ok(text.into());
    }
    String::from_utf8(resolve(text.as_bytes())).map_err(|_| {
        Error::usage(format_args!(
            "{option}: the \\x escapes give bytes that are not UTF-8; --no-escape does not process \
             escapes"
        ))
    })
}

/// Returns the texts of `--reverse-prompt`, with their escapes replaced unless `no_escape`.
///
/// # Errors
/// If a text is empty, or its escapes give no UTF-8.
pub fn stops(texts: &[String], no_escape: bool) -> Result<Vec<String>, Error> {
    let stop = |text: &String| match text.is_empty() {
        true => Err(Error::usage("--reverse-prompt is empty: give a text")),
        false => unescaped("--reverse-prompt", text, no_escape),
    };
    texts.iter().map(stop).collect()
}

#[cfg(test)]
mod tests {
    use super::resolve;

    #[test]
    fn escapes_are_those_of_llama_cpp() {
        for (text, resolved) in [
            (r"a\nb\tc\r", &b"a\nb\tc\r"[..]),
            (r#"\'\"\\n"#, br#"'"\n"#),
            (r"\x41\xe2\x82\xAC!", "A€!".as_bytes()),
            (r"\x4", br"\x4"),
            (r"\xg0\x+1", br"\xg0\x+1"),
            (r"\q\é\", r"\q\é\".as_bytes()),
            ("", b""),
        ] {
            assert_eq!(resolve(text.as_bytes()), resolved, "{text}");
        }
    }
}
