//! What the numbers of a report come from: the command, the model, the seed and the RoPE settings.

use std::{env, fs::File, io, path::Path};

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use crate::cli::{
    args::named, environment, error::Error, eval::Args, flags, method_runs::MethodRun,
};
use rope_cpu::{model::Model, platform::interrupt};

/// The origin of a report's numbers.
pub struct Origin {
    command: String,
    name: Option<String>,
    architecture: String,
    /// The path and the SHA-256 of each file of the model.
    files: Vec<(String, String)>,
    seed: u32,
    /// The method, the length and the RoPE plan of each run.
    rope: Vec<(String, usize, String)>,
}

impl Origin {
    /// Creates the origin of the results of `runs`. Reads all of the model's files.
    ///
    /// # Errors
    /// If a file cannot be read, and after Ctrl-C.
    pub fn new(args: &Args, model: &Model, runs: &[MethodRun]) -> Result<Origin, Error> {
        let files = model.paths().map(|path| {
            let sum = sha256(path).map_err(|e| named(path, e))?;
            Ok((path.display().to_string(), sum))
        });
        let name = model.metadata().string("general.name").ok().flatten();
        Ok(Origin {
            command: command(),
            name: name.map(|name| name.chars().filter(|c| !c.is_control()).collect()),
            architecture: model.config().architecture.name.to_string(),
            files: files.collect::<Result<_, Error>>()?,
            seed: args.seed,
            rope: runs
                .iter()
                .map(|run| (run.method.clone(), run.length, flags::line(&run.plan.rope)))
                .collect(),
        })
    }

    /// Returns the name of each fact, and the fact.
    pub fn facts(&self) -> Vec<(String, String)> {
        let Origin { command, architecture, seed, .. } = self;
        let name = self.name.as_deref().unwrap_or("unnamed");
        let mut facts = vec![
            ("Command".into(), command.clone()),
            ("Program".into(), format!("rope-cpu {}", env!("BUILD_VERSION"))),
            ("Model".into(), format!("{name} ({architecture})")),
        ];
        for (path, sum) in &self.files {
            facts.push(("File".into(), format!("{path}, SHA-256 {sum}")));
        }
        facts.push(("Seed".into(), seed.to_string()));
        for (method, length, plan) in &self.rope {
            facts.push((format!("{method}, {length} tokens"), plan.clone()));
        }
        facts
    }

    /// Returns the origin as JSON.
    pub fn object(&self) -> Json {
        let files = self.files.iter().map(|(path, sum)| json!({ "path": path, "sha256": sum }));
        let rope = self.rope.iter().map(
            |(method, length, plan)| json!({ "method": method, "length": length, "plan": plan }),
        );
        json!({
            "command": self.command,
            "version": env!("BUILD_VERSION"),
            "model": { "name": self.name, "architecture": self.architecture,
                "files": files.collect::<Vec<_>>() },
            "seed": self.seed,
            "rope": rope.collect::<Vec<_>>(),
        })
    }
}

/// Returns the SHA-256 of a file, as the Hugging Face Hub shows it.
fn sha256(path: &Path) -> io::Result<String> {
    let (mut file, mut digest) = (File::open(path)?, Sha256::new());
    let mut buffer = vec![0; 1 << 20];
    loop {
        match interrupt::read(&mut file, &mut buffer)? {
            0 => break,
            read => digest.update(&buffer[..read]),
        }
        if interrupt::raised() {
            return Err(io::Error::other("interrupted"));
        }
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the command as a shell reads it, with the variables that set options and without a token
/// of the hub.
fn command() -> String {
    let variables = environment::applied().into_iter();
    let variables = variables.filter(|(name, _)| !name.ends_with("TOKEN"));
    let variables = variables.map(|(name, value)| format!("{name}={}", quoted(&value)));
    let words = env::args_os().map(|word| word.to_string_lossy().into_owned());
    variables.chain(shown(words)).collect::<Vec<_>>().join(" ")
}

/// Returns words as a shell reads them, without a token of the hub.
fn shown(words: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let secret = |word: &str| ["-hft", "--hft", "--hf-token"].contains(&word);
    let mut hides_next = false;
    words.map(move |word| {
        let hidden = std::mem::replace(&mut hides_next, secret(&word));
        match word.split_once('=') {
            _ if hidden => "...".into(),
            Some((option, _)) if secret(option) => format!("{option}=..."),
            _ => quoted(&word),
        }
    })
}

/// Returns a word with a shell's quotes where it needs them.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::{quoted, shown};

    #[test]
    fn a_token_is_not_shown() {
        let words =
            |words: &str| shown(words.split(' ').map(String::from)).collect::<Vec<_>>().join(" ");
        assert_eq!(words("eval -hft secret -c 4k"), "eval -hft ... -c 4k");
        assert_eq!(words("eval --hf-token=secret -c 4k"), "eval --hf-token=... -c 4k");
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_change_them() {
        assert_eq!(quoted("none,yarn:rope-scale=4"), "none,yarn:rope-scale=4");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
