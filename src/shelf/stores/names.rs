//! Names of models from names of files.

use std::path::Path;

use crate::gguf::part_names;

/// Returns the name of a file without `.gguf` and without the number of a part.
pub fn stem(name: &str) -> &str {
    let dot = name.len().saturating_sub(".gguf".len());
    let bare = match name.get(dot..) {
        Some(ending) if ending.eq_ignore_ascii_case(".gguf") => &name[..dot],
        _ => name,
    };
    match part_names(name) {
        // `-00001-of-00003`
        Some(_) => &bare[..bare.len() - 15],
        None => bare,
    }
}

/// Returns the quant that a file name has as its last such word: `Q4_K_M`.
pub fn quant(path: &str) -> Option<&str> {
    let words = path.rsplit(['-', '.', '/']);
    words.into_iter().find(|word| is_quant(word))
}

fn is_quant(word: &str) -> bool {
    let word = word.to_ascii_uppercase();
    let of_digits = |prefix: &str| {
        let rest = word.strip_prefix(prefix);
        rest.is_some_and(|rest| {
            rest.starts_with(|c: char| c.is_ascii_digit())
                && rest.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    ["F32", "F16", "BF16", "MXFP4", "MXFP4_MOE"].contains(&&word[..])
        || ["Q", "IQ", "TQ"].into_iter().any(of_digits)
}

/// Returns `USER/MODEL:QUANT` for a file of a repository, or `USER/MODEL:STEM` if its name has no
/// quant.
pub fn of_repo(repo: &str, file: &str) -> String {
    let name = Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or(file);
    match quant(stem(name)).or_else(|| quant(file)) {
        Some(quant) => format!("{repo}:{}", quant.to_ascii_uppercase()),
        None => format!("{repo}:{}", stem(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_from_files() {
        for (file, expected) in [
            ("m-Q4_K_M.gguf", "u/m:Q4_K_M"),
            ("Q8_0/m-Q8_0-00001-of-00002.gguf", "u/m:Q8_0"),
            ("m.iq2_xs.gguf", "u/m:IQ2_XS"),
            ("m-UD-Q4_K_XL.gguf", "u/m:Q4_K_XL"),
            ("BF16/m-00001-of-00002.gguf", "u/m:BF16"),
            ("Qwen2-7b.gguf", "u/m:Qwen2-7b"),
            ("a b.gguf", "u/m:a b"),
        ] {
            assert_eq!(of_repo("u/m", file), expected);
        }
        assert_eq!(stem("a-00001-of-00003.gguf"), "a");
        assert_eq!(stem("a.GGUF"), "a");
        assert_eq!(stem("ä"), "ä");
    }
}
