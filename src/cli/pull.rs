//! `rope-cpu pull`: downloads a model.

use std::io::Write;

use rope_cpu::{hub::Wanted, shelf::Shelf};

use super::{
    args::{HubArgs, ShelfArgs},
    error::Error,
};

/// Download models from Hugging Face
///
/// Files go to the cache of Hugging Face's own programs. The same command resumes a download that
/// was interrupted. Prints the name of each model, for `rope-cpu run NAME`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rope-cpu pull bartowski/SmolLM2-135M-Instruct-GGUF
  rope-cpu pull bartowski/Llama-3.2-1B-Instruct-GGUF:Q8_0")]
pub struct Args {
    /// Models: USER/MODEL or USER/MODEL:QUANT
    ///
    /// Without QUANT: Q4_K_M, else Q8_0, else the first model file.
    #[arg(value_name = "REPO", required = true)]
    repos: Vec<Wanted>,

    /// File of the repository, instead of QUANT
    ///
    /// A `*` matches any text: '*Q8_0.gguf'.
    #[arg(long, value_name = "FILE")]
    hf_file: Option<String>,

    /// Access token for private and gated models
    ///
    /// By default the value of HF_TOKEN, or the token that `hf auth login` stored.
    #[arg(long, alias = "-hft", value_name = "TOKEN")]
    hf_token: Option<String>,

    #[command(flatten)]
    shelf: ShelfArgs,
}

/// Runs the command.
///
/// # Errors
/// If a model cannot be downloaded, or `out` cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let hub = HubArgs::of(args.repos.clone(), args.hf_file.clone(), args.hf_token.clone());
    let shelf: Shelf = args.shelf.shelf();
    for path in hub.fetch()? {
        // A cache that the shelf does not read has no names.
        let entries = shelf.entries()?;
        let entry = entries.iter().find(|entry| entry.path == path);
        match entry {
            Some(entry) => writeln!(out, "{}", entry.name)?,
            None => writeln!(out, "{}", path.display())?,
        }
    }
    Ok(())
}
