//! `rope-cpu rm` and `rope-cpu cp`: names of models.

use super::{args::ShelfArgs, error::Error, note};
use indicatif::HumanBytes;

/// Remove models
///
/// Removes downloaded models, files of --models-dir, and presets. If other names share a model,
/// only the name is removed. Models of other programs stay: the message says how to remove them.
#[derive(Debug, clap::Args)]
pub struct RmArgs {
    /// Names of the models
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    #[command(flatten)]
    shelf: ShelfArgs,
}

/// Give a model another name
///
/// The name is a preset without options, in the file of presets.
#[derive(Debug, clap::Args)]
pub struct CpArgs {
    /// Name of the model
    #[arg(value_name = "FROM")]
    from: String,

    /// The new name
    #[arg(value_name = "TO")]
    to: String,

    #[command(flatten)]
    shelf: ShelfArgs,
}

/// Removes models.
///
/// # Errors
/// If a name does not exist or a model cannot be removed. The names before it are removed.
pub fn rm(args: &RmArgs) -> Result<(), Error> {
    let shelf = args.shelf.shelf();
    for name in &args.names {
        let removed = shelf.remove(name)?;
        match &removed.shared[..] {
            [] => note(format_args!("removed {name} ({})", HumanBytes(removed.bytes))),
            shared => note(format_args!(
                "removed the name {name}; the model stays, as {}",
                shared.join(", ")
            )),
        }
    }
    Ok(())
}

/// Adds an alias.
///
/// # Errors
/// If no model or several have the name, or the new name is taken.
pub fn cp(args: &CpArgs) -> Result<(), Error> {
    let entry = args.shelf.shelf().copy(&args.from, &args.to)?;
    note(format_args!("{} stands for {}", entry.name, entry.alias_of().unwrap_or_default()));
    Ok(())
}
