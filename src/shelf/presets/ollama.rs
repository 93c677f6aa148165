//! ollama's parameters as options of presets.

use serde_json::{Map, Value};

use super::Choice;
use crate::json;

/// The options for ollama's parameters.
const OPTIONS: [(&str, &str); 21] = [
    ("num_ctx", "ctx"),
    ("num_predict", "predict"),
    ("num_keep", "keep"),
    ("num_thread", "threads"),
    ("num_batch", "batch-size"),
    ("seed", "seed"),
    ("stop", STOP),
    ("temperature", "temp"),
    ("top_k", "top-k"),
    ("top_p", "top-p"),
    ("min_p", "min-p"),
    ("typical_p", "typical"),
    ("repeat_last_n", "repeat-last-n"),
    ("repeat_penalty", "repeat-penalty"),
    ("presence_penalty", "presence-penalty"),
    ("frequency_penalty", "frequency-penalty"),
    ("mirostat", "mirostat"),
    ("mirostat_tau", "mirostat-ent"),
    ("mirostat_eta", "mirostat-lr"),
    ("rope_frequency_base", "rope-freq-base"),
    ("rope_frequency_scale", "rope-freq-scale"),
];

/// ollama's parameters of other hardware and of how a model is loaded, which change no answer.
const HARDWARE: [&str; 8] =
    ["num_gpu", "main_gpu", "low_vram", "f16_kv", "use_mmap", "use_mlock", "numa", "vocab_only"];

/// The option with stop strings.
const STOP: &str = "reverse-prompt";

/// Maximum stop strings.
const STOPS_MAX: usize = 1024;

/// The options for a model of ollama.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfOllama {
    /// The options, in the order of the parameters.
    pub choices: Vec<Choice>,
    /// Parameters that have no option.
    pub unknown: Vec<String>,
}

impl OfOllama {
    /// Reads parameters, such as `{"temperature": 0.2, "stop": ["</s>"]}`. Those of other hardware are
    /// left out, and so is `null`.
    ///
    /// # Errors
    /// If they are not an object, or a value is neither a text, a number, true, false nor, for `stop`, a
    /// list of texts.
    ///
    /// ```
    /// use rope_cpu::shelf::presets::OfOllama;
    ///
    /// let read = OfOllama::parameters(r#"{"temperature": 0.2, "tfs_z": 1}"#)?;
    /// assert_eq!((&read.choices[0].key[..], &read.choices[0].values[0][..]), ("temp", "0.2"));
    /// assert_eq!(read.unknown, ["tfs_z"]);
    /// # Ok::<(), String>(())
    /// ```
    pub fn parameters(text: &str) -> Result<Self, String> {
        let parameters: Map<String, Value> = json::parse(text).map_err(|e| e.to_string())?;
        let mut read = OfOllama::default();
        for (name, value) in parameters {
            if value.is_null() || HARDWARE.contains(&&name[..]) {
                continue;
            }
            match option(&name) {
                None => read.unknown.push(name),
                Some(key) => {
                    let values = values(&name, value)?;
                    if !values.is_empty() {
                        read.choices.push(choice(key, values));
                    }
                }
            }
        }
        Ok(read)
    }

    /// Adds a system message, unless it is empty.
    pub fn add_system(&mut self, text: &str) {
        if !text.is_empty() {
            self.choices.push(choice("system-prompt", vec![text.into()]));
        }
    }

    /// Adds LoRA adapters.
    pub fn add_adapters(&mut self, paths: Vec<String>) {
        if !paths.is_empty() {
            // A comma would end the name in a list.
            let quoted = |path: String| match path.contains([',', '"']) {
                true => format!("\"{}\"", path.replace('"', "\"\"")),
                false => path,
            };
            self.choices.push(choice("lora", paths.into_iter().map(quoted).collect()));
        }
    }
}

/// Returns the option for a parameter of ollama; `None` if none has its effect.
pub fn option(parameter: &str) -> Option<&'static str> {
    OPTIONS.iter().find(|(name, _)| *name == parameter).map(|(_, option)| *option)
}

/// Returns the parameter of ollama that sets an option.
pub fn parameter(option: &str) -> Option<&'static str> {
    OPTIONS.iter().find(|(_, name)| *name == option).map(|(parameter, _)| *parameter)
}

/// Returns an option that is in no file. Texts are literal: a backslash starts no escape.
fn choice(key: &str, values: Vec<String>) -> Choice {
    let literal = ["system-prompt", STOP].contains(&key);
    let value = |text: String| if literal { text.replace('\\', "\\\\") } else { text };
    Choice { key: key.into(), values: values.into_iter().map(value).collect(), line: 0 }
}

fn values(name: &str, value: Value) -> Result<Vec<String>, String> {
    let wrong = |expected: &str| format!("{name}: must be {expected}");
    match value {
        Value::Array(list) if name == "stop" => {
            let texts = list.into_iter().filter(|one| *one != "").map(|one| match one {
                Value::String(text) => Ok(text),
                _ => Err(wrong("a text or a list of texts")),
            });
            let texts = texts.collect::<Result<Vec<_>, _>>()?;
            match texts.len() <= STOPS_MAX {
                true => Ok(texts),
                false => Err(wrong(&format!("a list of at most {STOPS_MAX} texts"))),
            }
        }
        Value::String(text) if name == "stop" => {
            Ok(Some(text).filter(|text| !text.is_empty()).into_iter().collect())
        }
        _ if name == "stop" => Err(wrong("a text or a list of texts")),
        Value::String(text) => Ok(vec![text]),
        Value::Number(number) => Ok(vec![number.to_string()]),
        Value::Bool(switch) => Ok(vec![switch.to_string()]),
        _ => Err(wrong("a number, a text, true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_options() {
        let text = r#"{"num_ctx": 4096, "stop": ["</s>", "a\\nb", ""], "temperature": 0.70, "num_gpu": 99,
            "seed": null, "tfs_z": 1, "penalize_newline": false}"#;
        let mut read = OfOllama::parameters(text).unwrap();
        read.add_system("Write \\n");
        read.add_adapters(vec!["/a,b".into(), "/c".into()]);
        let shown: Vec<_> =
            read.choices.iter().map(|choice| (&choice.key[..], choice.values.join("|"))).collect();
        for expected in [
            ("ctx", "4096"),
            ("reverse-prompt", "</s>|a\\\\nb"),
            ("temp", "0.7"),
            ("system-prompt", "Write \\\\n"),
            ("lora", "\"/a,b\"|/c"),
        ] {
            let (key, value) = expected;
            assert!(shown.contains(&(key, value.into())), "{expected:?}: {shown:?}");
        }
        assert_eq!(shown.len(), 5);
        let mut unknown = read.unknown;
        unknown.sort();
        assert_eq!(unknown, ["penalize_newline", "tfs_z"]);
        for (wrong, said) in [
            ("[]", "invalid type"),
            (r#"{"stop": 1}"#, "stop: must be a text or a list of texts"),
            (r#"{"stop": [1]}"#, "stop: must be"),
            (r#"{"seed": {}}"#, "seed: must be a number"),
        ] {
            let error = OfOllama::parameters(wrong).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
