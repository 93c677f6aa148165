//! Names of models in the stores of all programs.

mod presets;
mod stores;

use std::{
    fs,
    path::{Path, PathBuf},
};

use rope_cpu::shelf::{Options, Shelf};
use rope_cpu_testing::reader::tiny_reader;
use tempfile::TempDir;

/// Folders of all programs, with a model to put there.
struct Stores {
    home: TempDir,
    model: Vec<u8>,
}

impl Stores {
    fn new() -> Self {
        let model = fs::read(tiny_reader(5, true).path()).unwrap();
        Stores { home: tempfile::tempdir().unwrap(), model }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.home.path().join(path)
    }

    /// Writes a file and its folders.
    fn write(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Writes the model to a file.
    fn model(&self, path: &str) -> PathBuf {
        self.write(path, &self.model)
    }

    fn options(&self) -> Options {
        Options {
            models_dir: Some(self.path("models")).filter(|path| path.is_dir()),
            hub_cache: Some(self.path("hub")),
            ollama: vec![self.path("ollama")],
            lm_studio: vec![self.path("lmstudio")],
            jan: vec![self.path("jan")],
            llama_cpp: vec![self.path("llama.cpp")],
            presets: Some(self.path("presets.toml")),
        }
    }

    fn shelf(&self) -> Shelf {
        Shelf::new(self.options())
    }

    /// The names of all models.
    fn names(&self) -> Vec<String> {
        self.shelf().entries().unwrap().into_iter().map(|entry| entry.name).collect()
    }

    fn notes(&self) -> String {
        self.shelf().listing().unwrap().notes.join("\n")
    }

    /// Returns the model that a name finds, or the error.
    fn found(&self, name: &str) -> String {
        match self.shelf().find(name) {
            Ok(entry) => entry.name,
            Err(error) => format!("error: {error}"),
        }
    }

    /// Writes an ollama model with a digest.
    fn ollama(&self, name: &str, digest: &str) {
        let layers = format!(
            r#"{{"layers":[{{"mediaType":"application/vnd.ollama.image.model","digest":"{digest}"}}]}}"#
        );
        self.write(&format!("ollama/manifests/{name}"), layers);
    }

    /// Writes a file of the hub as its programs do: a blob and a link.
    fn hub(&self, repo: &str, file: &str, hash: &str) -> (PathBuf, PathBuf) {
        let folder = format!("hub/models--{}", repo.replace('/', "--"));
        let blob = self.model(&format!("{folder}/blobs/{hash}"));
        let link = self.path(&format!("{folder}/snapshots/c0ffee/{file}"));
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        link_to(&blob, &link);
        self.write(&format!("{folder}/refs/main"), "c0ffee");
        (blob, link)
    }
}

/// Makes a link. Where users cannot, a copy.
fn link_to(target: &Path, link: &Path) {
    #[cfg(unix)]
    std::os::unix::fs::symlink(target, link).unwrap();
    #[cfg(not(unix))]
    fs::copy(target, link).map(|_| ()).unwrap();
}
