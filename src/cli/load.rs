//! Opening the model that a command line selects.

use super::{
    args::{AdapterArgs, ModelArgs, all_overrides},
    error::Error,
    note,
};
use rope_cpu::model::{Model, OpenOptions, memory::Bytes};

/// Opens a model without adapters.
///
/// # Errors
/// If its file cannot be downloaded or read, or is not a supported model.
pub fn model(args: &ModelArgs) -> Result<Model, Error> {
    adapted(args, &AdapterArgs::default())
}

/// Opens a model with adapters, and prints the number of tensors that each changes.
///
/// # Errors
/// As for [`model`], or if a file is not an adapter for this model.
pub fn adapted(args: &ModelArgs, adapters: &AdapterArgs) -> Result<Model, Error> {
    let options = OpenOptions::new().overrides(all_overrides(&args.override_kv));
    let options =
        adapters.all().fold(options, |options, (path, scale)| options.adapter(path, *scale));
    let model = options.open(args.file()?).map_err(Error::usage)?;
    note_media(&model);
    for adapter in model.adapters() {
        let (path, changed) = (adapter.path().display(), adapter.changed());
        note(format_args!("adapter {path}: {changed} tensors, scale {}", adapter.scale()));
        for norm in adapter.norms() {
            note(format_args!("warning: {path}: {norm} is ignored, as in llama.cpp"));
        }
    }
    Ok(model)
}

/// Prints a line if the file also has a vision or audio part, which is not read.
pub fn note_media(model: &Model) {
    let bytes = model.media_bytes();
    if bytes > 0 {
        let (path, bytes) = (model.path().display(), Bytes(bytes));
        note(format_args!(
            "warning: {path}: its vision or audio part ({bytes}) is ignored: text only"
        ));
    }
}
