//! Chooses a repository's file as llama.cpp does.

use std::{fmt, str::FromStr};

use super::Error;
use crate::gguf::{is_later_part, part_names};

/// The model that a user requests: `USER/MODEL`, `USER/MODEL:QUANT`, or a file of the repository.
///
/// ```
/// use rope_cpu::hub::Wanted;
///
/// let wanted: Wanted = "bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M".parse()?;
/// assert_eq!(wanted.quant.as_deref(), Some("Q4_K_M"));
/// # Ok::<(), rope_cpu::hub::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The repository, USER/MODEL.
    pub repo: String,
    /// The quantized format, such as Q4_K_M, in upper or lower case.
    pub quant: Option<String>,
    /// The name of the file, which takes precedence over `quant`. A `*` matches any text.
    pub file: Option<String>,
}

/// The preferred formats if none is given, in order. If the repository has neither, the first model
/// is chosen.
const QUANTS: [&str; 2] = ["Q4_K_M", "Q8_0"];

/// Parts of the names of files that accompany a model but are not models.
const OTHERS: [&str; 6] = ["mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-"];

impl FromStr for Wanted {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let name = without_hub(text);
        let (repo, quant) = match name.split_once(':') {
            Some((repo, quant)) => (repo, Some(quant)),
            None => (name, None),
        };
        // ASCII words, with a single separator between them.
        let words = || repo.split(['/', '.', '-']);
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let names_one = repo.matches('/').count() == 1 && words().all(is_word);
        if !names_one || quant == Some("") {
            return Err(Error::Name { name: text.into() });
        }
        Ok(Wanted { repo: repo.into(), quant: quant.map(Into::into), file: None })
    }
}

/// Returns the name of a model without the hub's, which addresses of pages and ollama's names have.
///
/// ```
/// use rope_cpu::hub::without_hub;
///
/// assert_eq!(without_hub("hf.co/user/model:Q4_0"), "user/model:Q4_0");
/// assert_eq!(without_hub("https://huggingface.co/user/model/"), "user/model");
/// ```
pub fn without_hub(name: &str) -> &str {
    let address = name.strip_prefix("https://").unwrap_or(name);
    let within = ["huggingface.co/", "hf.co/"].iter().find_map(|hub| address.strip_prefix(hub));
    within.map_or(name, |within| within.trim_end_matches('/'))
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Wanted { repo, file: Some(file), .. } => write!(f, "{file} of {repo}"),
            Wanted { repo, quant: Some(quant), .. } => write!(f, "{repo}:{quant}"),
            Wanted { repo, .. } => write!(f, "{repo}"),
        }
    }
}

impl Wanted {
    /// Chooses the file, or all parts of the model, from the `names` of a repository's files.
    ///
    /// # Errors
    ///
    /// Returns an error if the file or one of the parts is not in `names`.
    pub fn choose(&self, names: &[String]) -> Result<Vec<String>, Error> {
        let repo = || self.repo.clone();
        let models: Vec<&String> = names.iter().filter(|name| begins_model(name)).collect();
        let there = || models.iter().copied().cloned().collect();
        let chosen = match (&self.file, &self.quant) {
            (Some(file), _) if names.contains(file) => Some(file),
            (Some(pattern), _) => {
                let alike: Vec<&String> =
                    models.iter().copied().filter(|name| is_like(name, pattern)).collect();
                if alike.len() > 1 {
                    let there = alike.into_iter().cloned().collect();
                    return Err(Error::SeveralFiles {
                        repo: repo(),
                        pattern: pattern.clone(),
                        there,
                    });
                }
                alike.first().copied()
            }
            (None, Some(quant)) => models.iter().copied().find(|name| has_quant(name, quant)),
            (None, None) => {
                let first =
                    |quant: &&str| models.iter().copied().find(|name| has_quant(name, quant));
                QUANTS.iter().find_map(first).or(models.first().copied())
            }
        };
        let missing = || match (models.is_empty(), &self.file, &self.quant) {
            (false, Some(file), _) => {
                Error::NoFile { repo: repo(), file: file.clone(), there: there() }
            }
            (false, None, Some(quant)) => {
                Error::NoQuant { repo: repo(), quant: quant.clone(), there: there() }
            }
            _ => Error::NoModel { repo: repo() },
        };
        let chosen = chosen.ok_or_else(missing)?;
        let parts = part_names(chosen).unwrap_or_else(|| vec![chosen.clone()]);
        match parts.iter().find(|part| !names.contains(part)) {
            Some(part) => Err(Error::NoPart { repo: repo(), part: part.clone() }),
            None => Ok(parts),
        }
    }
}

/// Returns whether a path is a model file, or the first part of one.
fn begins_model(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".gguf") && !accompanies_model(name) && !is_later_part(path)
}

/// Returns whether a file name is that of a file beside a model, such as a projector for images.
pub(crate) fn accompanies_model(name: &str) -> bool {
    OTHERS.iter().any(|other| name.contains(other))
}

/// Returns whether a name matches a pattern, in which each `*` matches any text.
fn is_like(name: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return name == pattern };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(name) = name.strip_prefix(start) else { return false };
    let Some(mut name) = name.strip_suffix(end) else { return false };
    middle.split('*').all(|part| {
        let after = name.split_once(part).map(|(_, after)| after);
        name = after.unwrap_or_default();
        after.is_some()
    })
}

/// Returns whether a path contains the quant as a whole word, followed by a dot or a dash.
fn has_quant(path: &str, quant: &str) -> bool {
    let (path, quant) = (path.to_uppercase(), quant.to_uppercase());
    path.match_indices(&quant).any(|(start, _)| {
        !path[..start].ends_with(|c: char| c.is_alphanumeric())
            && path[start + quant.len()..].starts_with(['.', '-'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(wanted: &str, names: &[&str]) -> Result<Vec<String>, String> {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let wanted = Wanted::from_str(wanted).map_err(|e| e.to_string())?;
        wanted.choose(&names).map_err(|e| e.to_string())
    }

    const NAMES: [&str; 8] = [
        "README.md",
        "m-BF16.gguf",
        "m-IQ2_XS.gguf",
        "m-Q4_0.gguf",
        "m-Q4_K_M.gguf",
        "m-Q8_0.gguf",
        "mmproj-m-F16.gguf",
        "mmproj-m-Q2_K.gguf",
    ];

    #[test]
    fn without_a_quant_it_is_q4_k_m_then_q8_0_then_the_first() {
        assert_eq!(chosen("u/m", &NAMES).unwrap(), ["m-Q4_K_M.gguf"]);
        let without: Vec<&str> = NAMES.into_iter().filter(|name| !name.contains("Q4_K")).collect();
        assert_eq!(chosen("u/m", &without).unwrap(), ["m-Q8_0.gguf"]);
        assert_eq!(chosen("u/m", &without[..4]).unwrap(), ["m-BF16.gguf"]);
        assert_eq!(
            chosen("u/m", &["mmproj-x.gguf", "q.Q4_K_M-x.gguf"]).unwrap(),
            ["q.Q4_K_M-x.gguf"]
        );
    }

    #[test]
    fn a_quant_is_found_in_any_case_as_a_whole_and_never_replaced() {
        assert_eq!(chosen("u/m:q4_0", &NAMES).unwrap(), ["m-Q4_0.gguf"]);
        assert_eq!(chosen("u/m:bf16", &NAMES).unwrap(), ["m-BF16.gguf"]);
        assert_eq!(chosen("u/m:f16", &["m-BF16.gguf", "m-F16.gguf"]).unwrap(), ["m-F16.gguf"]);
        assert_eq!(chosen("u/m:Q8_0", &["Q8_0/a.gguf", "b.q8_0.gguf"]).unwrap(), ["b.q8_0.gguf"]);
        let message = chosen("u/m:Q4_K", &NAMES).unwrap_err();
        assert!(message.contains("u/m has no model of Q4_K: it has m-BF16.gguf, "), "{message}");
        assert!(!message.contains("mmproj") && !message.contains("README"), "{message}");
        assert!(chosen("u/m:Q2_K", &NAMES).is_err());
        assert!(chosen("u/m", &NAMES[6..]).unwrap_err().contains("u/m has no GGUF model"));
    }

    #[test]
    fn a_pattern_names_the_only_model_that_it_describes() {
        let chosen = |file: &str| {
            let wanted = Wanted { repo: "u/m".into(), quant: None, file: Some(file.into()) };
            wanted.choose(&NAMES.map(String::from)).map_err(|e| e.to_string())
        };
        for pattern in ["*Q8_0.gguf", "m-Q8*", "m*Q8*gguf", "m-*Q*8*_0*.gguf", "m-Q8_0.gguf"] {
            assert_eq!(
                chosen(pattern).as_deref(),
                Ok(&["m-Q8_0.gguf".to_string()][..]),
                "{pattern}"
            );
        }
        // A file that is not a model must be named.
        assert_eq!(chosen("README.md").unwrap(), ["README.md"]);
        for pattern in ["README*", "*Q8_0", "Q8_0*", "m-Q8_0.gguf*gguf", "*8*Q*"] {
            let message = chosen(pattern).unwrap_err();
            assert!(
                message.starts_with(&format!("u/m has no file {pattern}: it has ")),
                "{message}"
            );
        }
        let message = chosen("*Q4*").unwrap_err();
        assert!(message.ends_with("of u/m: name one of m-Q4_0.gguf, m-Q4_K_M.gguf"), "{message}");
    }

    #[test]
    fn all_parts_belong_to_a_model() {
        let parts = ["x/m-Q4_0-00001-of-00002.gguf", "x/m-Q4_0-00002-of-00002.gguf"];
        assert_eq!(chosen("u/m:q4_0", &["a.gguf", parts[1], parts[0]]).unwrap(), parts);
        assert_eq!(chosen("u/m", &[parts[1], parts[0]]).unwrap(), parts);
        let message = chosen("u/m:q4_0", &parts[..1]).unwrap_err();
        assert!(message.contains(parts[1]), "{message}");
        let file = Some(parts[1].into());
        let wanted = Wanted { repo: "u/m".into(), quant: None, file };
        assert_eq!(wanted.choose(&parts.map(String::from)).unwrap(), parts);
    }

    #[test]
    fn a_name_of_too_many_parts_is_one_of_a_file() {
        let name = "x-00001-of-4294967295.gguf";
        assert_eq!(chosen("u/m", &[name]).unwrap(), [name]);
    }

    #[test]
    fn names_of_models_are_two_words_and_a_quant() {
        for name in ["u/m", "us.er/m-o_d.el-7B", "u/m:Q4_K_M"] {
            assert_eq!(Wanted::from_str(name).unwrap().to_string(), name);
        }
        let wrong = ["", "m", "u/", "/m", "u/m:", "u/m/x", "../m", "u/..", "u/m b", "u/ä", "-u/m"];
        for name in wrong {
            let message = Wanted::from_str(name).unwrap_err().to_string();
            assert!(message.contains(&format!("{name:?}")), "{message}");
        }
    }
}
