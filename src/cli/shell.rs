//! `rope-cpu completions` and `rope-cpu man`: what shells and `man` are told about the program.

use std::{io::Write, path::PathBuf};

use clap_complete::Shell;

use super::{Error, command};

/// The options of `completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// For this shell
    shell: Shell,
}

/// The options of `man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Write a page for every command to this folder, instead of one page to stdout
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Prints a shell's completions.
///
/// # Errors
/// If `out` does not take them.
pub fn completions(args: &CompletionsArgs, out: &mut dyn Write) -> Result<(), Error> {
    // By way of memory, as clap_complete panics where a pipe is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "rope-cpu", &mut script);
    Ok(out.write_all(&script)?)
}

/// Prints or writes manual pages.
///
/// # Errors
/// If `out` or the folder does not take them.
pub fn man(args: &ManArgs, out: &mut dyn Write) -> Result<(), Error> {
    match &args.folder {
        None => Ok(clap_mangen::Man::new(command()).render(out)?),
        Some(folder) => clap_mangen::generate_to(command(), folder).map_err(|e| {
            Error::failed(format_args!("cannot write pages to {}: {e}", folder.display()))
        }),
    }
}
