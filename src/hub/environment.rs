//! The hub client's options, from environment variables of Hugging Face's programs and of
//! llama.cpp.

use std::{fs, path::PathBuf};

use super::{Error, Options};

impl Options {
    /// Reads the options from environment variables. `variable` looks up a variable.
    ///
    /// The address is HF_ENDPOINT. The cache is LLAMA_CACHE, or HF_HUB_CACHE, or a folder in
    /// HF_HOME. The token is HF_TOKEN, or the token that `hf auth login` stored. HF_HUB_OFFLINE
    /// sets `offline`.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), rope_cpu::hub::Error> {
    /// let options = rope_cpu::hub::Options::from_variables(|name| std::env::var(name).ok())?;
    /// println!("models are in {}", options.cache.display());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`Error::NoCache`] if no variable gives the cache folder.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let folder = |name: &str| set(name).map(PathBuf::from);
        let home = || folder("HOME").or_else(|| folder("USERPROFILE"));
        let home = folder("HF_HOME")
            .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("huggingface")))
            .or_else(|| Some(home()?.join(".cache/huggingface")));
        let cache = ["LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"];
        let cache = cache.into_iter().find_map(folder);
        let cache = cache.or_else(|| Some(home.as_ref()?.join("hub"))).ok_or(Error::NoCache)?;
        let stored = || {
            let file = folder("HF_TOKEN_PATH").or(Some(home?.join("token")))?;
            fs::read_to_string(file).ok()
        };
        let token = set("HF_TOKEN").or_else(stored);
        let endpoint = set("HF_ENDPOINT").unwrap_or("https://huggingface.co".into());
        let yes = |value: String| ["1", "on", "yes", "true"].contains(&&*value.to_lowercase());
        let offline = set("HF_HUB_OFFLINE").is_some_and(yes);
        Ok(Options { endpoint, cache, token, offline })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Returns a lookup of variables, in which the last entry of a name takes precedence.
    fn among(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| {
            let found = variables.iter().rfind(|(known, _)| *known == name);
            found.map(|(_, value)| String::from(*value))
        }
    }

    fn read(variables: &[(&str, &str)]) -> Result<Options, Error> {
        Options::from_variables(among(variables))
    }

    /// Each variable takes precedence over those above it.
    #[test]
    fn variables_choose_the_cache_folder() {
        let cases = [
            ("USERPROFILE", "/user", "/user/.cache/huggingface/hub"),
            ("HOME", "/home", "/home/.cache/huggingface/hub"),
            ("XDG_CACHE_HOME", "/xdg", "/xdg/huggingface/hub"),
            ("HF_HOME", "/hf", "/hf/hub"),
            ("HUGGINGFACE_HUB_CACHE", "/former", "/former"),
            ("HF_HUB_CACHE", "/hub", "/hub"),
            ("LLAMA_CACHE", "/llama", "/llama"),
        ];
        assert!(matches!(read(&[]), Err(Error::NoCache)));
        let kept = |set: &[_]| read(set).unwrap().cache;
        let mut set = Vec::new();
        for (name, value, expected) in cases {
            assert_eq!(kept(&[(name, value)]), Path::new(expected), "{name}");
            set.push((name, value));
            assert_eq!(kept(&set), Path::new(expected), "{name} and those above");
        }
        for above in cases.windows(2).rev() {
            set.push((above[1].0, "")); // as if it were not set
            assert_eq!(kept(&set), Path::new(above[0].2), "without {}", above[1].0);
        }
    }

    #[test]
    fn variables_choose_the_token() {
        let folder = tempfile::tempdir().unwrap();
        let [home, elsewhere] = ["token", "elsewhere"].map(|name| folder.path().join(name));
        fs::write(home, "of-home\n").unwrap();
        fs::write(&elsewhere, " of-path \n").unwrap();
        let mut set = vec![("HOME", "/no/such")];
        assert_eq!(read(&set).unwrap().token, None);
        for (name, value, expected) in [
            ("HF_HOME", folder.path().to_str().unwrap(), "of-home"),
            ("HF_TOKEN_PATH", elsewhere.to_str().unwrap(), "of-path"),
            ("HF_TOKEN", "of-variable", "of-variable"),
        ] {
            set.push((name, value));
            assert_eq!(read(&set).unwrap().token.unwrap().trim(), expected, "{name}");
        }
    }

    #[test]
    fn variables_choose_the_address_and_offline_mode() {
        let with = |name, value| read(&[("HOME", "/home"), (name, value)]);
        assert_eq!(with("", "").unwrap().endpoint, "https://huggingface.co");
        let mirror = with("HF_ENDPOINT", "http://mirror.example").unwrap();
        assert_eq!(mirror.endpoint, "http://mirror.example");
        for (value, offline) in
            [("1", true), ("ON", true), ("Yes", true), ("true", true), ("0", false), ("", false)]
        {
            assert_eq!(with("HF_HUB_OFFLINE", value).unwrap().offline, offline, "{value}");
        }
    }
}
