//! Options of LoRA adapters.

use std::path::{Path, PathBuf};

use rope_cpu::gguf::split_list;

/// The options that select LoRA adapters.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Model")]
pub struct AdapterArgs {
    /// LoRA adapters: FILE[,...]
    ///
    /// GGUF files that were made for this model. They are applied while the model runs; the weights
    /// are not changed.
    #[arg(long, value_name = "LIST", value_parser = plain)]
    lora: Vec<Adapters>,

    /// LoRA adapters with scales: FILE:SCALE[,...]
    #[arg(long, value_name = "LIST", value_parser = scaled)]
    lora_scaled: Vec<Adapters>,
}

/// Adapter files, each with the scale of its contribution.
type Adapters = std::sync::Arc<[(PathBuf, f32)]>;

fn plain(list: &str) -> Result<Adapters, String> {
    let items = split_list(list).map_err(|e| e.to_string())?;
    Ok(items.into_iter().map(|file| (file.into(), 1.0)).collect())
}

fn scaled(list: &str) -> Result<Adapters, String> {
    let item = |item: String| {
        let (file, scale) = item.rsplit_once(':').ok_or("give a scale: FILE:SCALE")?;
        match scale.parse() {
            Ok(scale) if f32::is_finite(scale) => Ok((file.into(), scale)),
            _ => Err(format!("the scale {scale} is not a finite number")),
        }
    };
    split_list(list).map_err(|e| e.to_string())?.into_iter().map(item).collect()
}

impl AdapterArgs {
    /// Returns each adapter's file and scale, in the order of their effects.
    pub fn all(&self) -> impl Iterator<Item = &(PathBuf, f32)> {
        self.lora.iter().chain(&self.lora_scaled).flat_map(|list| list.iter())
    }

    /// Returns each adapter's file name and scale, which distinguish results.
    pub fn names(&self) -> Vec<String> {
        let name = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
        self.all().map(|(path, scale)| format!("{}:{scale}", name(path))).collect()
    }
}
