//! `rope-cpu completions` and `rope-cpu man`: shell completions and manual pages.

use std::{fs, io::Write, path::PathBuf};

use clap_complete::Shell;

use super::{Error, command};

/// The options of `completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Shell that the script is for
    shell: Shell,
}

/// The options of `man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Folder for one page per command; by default one page is printed
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Prints a shell's completion script.
///
/// # Errors
/// If `out` cannot be written.
pub fn completions(args: &CompletionsArgs, out: &mut dyn Write) -> Result<(), Error> {
    // Generated in memory, since clap_complete panics if a pipe is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "rope-cpu", &mut script);
    Ok(out.write_all(&script)?)
}

/// Prints or writes manual pages.
///
/// # Errors
/// If `out` or the folder cannot be written.
pub fn man(args: &ManArgs, out: &mut dyn Write) -> Result<(), Error> {
    match &args.folder {
        None => Ok(clap_mangen::Man::new(command()).render(out)?),
        Some(folder) => {
            let written = fs::create_dir_all(folder);
            written.and_then(|()| clap_mangen::generate_to(command(), folder)).map_err(|e| {
                Error::failed(format_args!("cannot write pages to {}: {e}", folder.display()))
            })
        }
    }
}
