//! The options of where models lie.

use std::{env, path::PathBuf};

use rope_cpu::shelf::{Options, Shelf};

/// The options of where models lie.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ShelfArgs {
    /// Folder of models, for names
    ///
    /// By default rope-cpu/models in the user's data folder, such as ~/.local/share, if it exists.
    /// The caches of Hugging Face and llama.cpp and the models of ollama, LM Studio and Jan are
    /// found in any case.
    #[arg(long, alias = "LLAMA_ARG_MODELS_DIR", value_name = "DIR", help_heading = "Model")]
    #[arg(hide_short_help = true)]
    pub models_dir: Option<PathBuf>,

    /// File of presets: names with a model and options
    ///
    /// By default rope-cpu/presets.toml in the user's configuration folder, such as ~/.config. A file
    /// that ends in .ini has llama-server's format.
    #[arg(long, aliases = ["models-preset", "LLAMA_ARG_MODELS_PRESET"], value_name = "FILE")]
    #[arg(help_heading = "Model", hide_short_help = true)]
    pub presets: Option<PathBuf>,
}

impl ShelfArgs {
    /// Returns the models on the disk.
    pub fn shelf(&self) -> Shelf {
        let mut options = Options::from_variables(|name| env::var(name).ok());
        options.models_dir = self.models_dir.clone().or(options.models_dir);
        options.presets = self.presets.clone().or(options.presets);
        Shelf::new(options)
    }
}
