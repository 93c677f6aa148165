//! Options of LoRA adapters.

use std::path::{Path, PathBuf};

use super::named;
use crate::cli::{error::Error, note};
use rope_cpu::{
    gguf::{File, Gguf, split_list},
    model::Adapter,
};

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

/// An open adapter file, not yet parsed.
pub struct AdapterFile {
    file: File,
    scale: f32,
}

impl AdapterArgs {
    fn all(&self) -> impl Iterator<Item = &(PathBuf, f32)> {
        self.lora.iter().chain(&self.lora_scaled).flat_map(|list| list.iter())
    }

    /// Returns each adapter's file name and scale, which distinguish results.
    pub fn names(&self) -> Vec<String> {
        let name = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
        self.all().map(|(path, scale)| format!("{}:{scale}", name(path))).collect()
    }

    /// Opens all files.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn open(&self) -> Result<Vec<AdapterFile>, Error> {
        let open = |(path, scale): &(PathBuf, f32)| {
            Ok(AdapterFile { file: File::open(path).map_err(Error::usage)?, scale: *scale })
        };
        self.all().map(open).collect()
    }
}

/// Reads adapters for a model, and prints the number of tensors that each changes.
///
/// # Errors
/// If a file is not an adapter, or one for another model.
pub fn adapters<'a>(files: &'a [AdapterFile], model: &Gguf) -> Result<Vec<Adapter<'a>>, Error> {
    let read = |AdapterFile { file, scale }: &'a AdapterFile| {
        let gguf = file.parse(&[]).map_err(Error::usage)?;
        let adapter = Adapter::read(&gguf, model, *scale).map_err(|e| named(file.path(), e))?;
        let (path, changed) = (file.path().display(), adapter.changed());
        note(format_args!("adapter {path}: {changed} tensors, scale {scale}"));
        for norm in adapter.norms() {
            note(format_args!("warning: {path}: {norm} is ignored, as in llama.cpp"));
        }
        Ok(adapter)
    };
    files.iter().map(read).collect()
}
