//! The folders and files of a shelf.

use std::path::PathBuf;

use super::Folders;
use crate::hub;

/// The folders and files of a shelf. Those that do not exist are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The folder of models. It must exist.
    pub models_dir: Option<PathBuf>,
    /// The cache of the Hugging Face Hub.
    pub hub_cache: Option<PathBuf>,
    /// ollama's folders of models.
    pub ollama: Vec<PathBuf>,
    /// LM Studio's folders of models.
    pub lm_studio: Vec<PathBuf>,
    /// Jan's data folders.
    pub jan: Vec<PathBuf>,
    /// llama.cpp's caches.
    pub llama_cpp: Vec<PathBuf>,
    /// The file of presets and aliases.
    pub presets: Option<PathBuf>,
}

impl Options {
    /// Reads the folders from environment variables. `variable` looks up a variable.
    ///
    /// ROPE_CPU_MODELS_DIR is the folder of models; by default `rope-cpu/models` in the user's data
    /// folder, if it exists. ROPE_CPU_PRESETS is the file of presets; by default
    /// `rope-cpu/presets.toml` in the user's configuration folder. The other folders are where their
    /// programs keep them: HF_HUB_CACHE and OLLAMA_MODELS count, for example.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let folder = |name: &str| set(name).map(PathBuf::from);
        let home = folder("HOME").or_else(|| folder("USERPROFILE"));
        let in_home = |path: &str| home.as_ref().map(|home| home.join(path));
        let all = |folders: &[Option<PathBuf>]| -> Folders {
            folders.iter().flatten().cloned().collect()
        };
        let app_data = folder("APPDATA");
        let library = || in_home("Library/Application Support").filter(|path| path.is_dir());
        let data = folder("XDG_DATA_HOME").or_else(|| in_home(".local/share"));
        let cache = folder("XDG_CACHE_HOME").or_else(|| in_home(".cache"));
        let config =
            folder("XDG_CONFIG_HOME").or_else(|| app_data.clone()).or_else(|| in_home(".config"));

        let own = [data.clone(), library(), folder("LOCALAPPDATA")].into_iter().flatten();
        let own = own.map(|folder| folder.join("rope-cpu/models")).find(|folder| folder.is_dir());
        let ollama = match folder("OLLAMA_MODELS") {
            Some(folder) => vec![folder],
            None => {
                all(&[in_home(".ollama/models"), Some("/usr/share/ollama/.ollama/models".into())])
            }
        };
        let jan = [data, library(), app_data].map(|folder| Some(folder?.join("Jan/data")));
        Options {
            models_dir: folder("ROPE_CPU_MODELS_DIR")
                .or_else(|| folder("LLAMA_ARG_MODELS_DIR"))
                .or(own),
            hub_cache: hub::Options::from_variables(&variable).ok().map(|options| options.cache),
            ollama,
            lm_studio: all(&[in_home(".lmstudio/models"), in_home(".cache/lm-studio/models")]),
            jan: all(&[&[in_home("jan")][..], &jan].concat()),
            llama_cpp: all(&[
                cache.map(|cache| cache.join("llama.cpp")),
                in_home("Library/Caches/llama.cpp"),
            ]),
            presets: folder("ROPE_CPU_PRESETS")
                .or_else(|| folder("LLAMA_ARG_MODELS_PRESET"))
                .or_else(|| Some(config?.join("rope-cpu/presets.toml"))),
        }
    }
}
