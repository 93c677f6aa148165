//! `rope-cpu inspect FILE`: the contents of a model file.

mod json;
mod table;
mod totals;

use std::io::Write;
use std::path::{Path, PathBuf};

use super::error::Error;
use rope_cpu::gguf::{File, Gguf, Tensor, Value, cross_check};

/// Show the contents of a GGUF file: metadata, tensors, sizes, RoPE settings
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// Model file (GGUF)
    #[arg(required_unless_present = "model")]
    pub file: Option<PathBuf>,

    /// Model file, as for other commands
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub model: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Show long arrays and strings in full
    #[arg(long)]
    pub full: bool,

    /// Also parse the header with gguf-rs, and fail if the results differ
    #[arg(long)]
    pub verify: bool,
}

impl InspectArgs {
    /// Returns the path of the model file, which clap requires.
    fn path(&self) -> &Path {
        self.file.as_deref().or(self.model.as_deref()).unwrap_or("".as_ref())
    }
}

/// Prints the contents of the file.
///
/// # Errors
///
/// If the file is invalid, writing to `out` fails, or `--verify` finds a difference.
pub fn run(args: &InspectArgs, out: &mut dyn Write) -> Result<(), Error> {
    let file = File::open(args.path()).map_err(Error::usage)?;
    let gguf = file.parse(&[]).map_err(Error::usage)?;
    if args.verify {
        for part in file.parts() {
            let parsed = Gguf::parse(part.bytes(), &[]).map_err(Error::usage)?;
            cross_check::compare(part.bytes(), &parsed).map_err(|error| {
                Error::usage(format_args!("{}: {error}", part.path().display()))
            })?;
        }
    }
    let report = Report { args, parts: file.parts().collect(), gguf: &gguf };
    if args.json {
        json::write(&report, out)?
    } else {
        table::write(&report, out)?
    }
    Ok(())
}

/// The contents that both forms of output show.
struct Report<'a> {
    args: &'a InspectArgs,
    parts: Vec<&'a File>,
    gguf: &'a Gguf<'a>,
}

impl<'a> Report<'a> {
    /// Returns the size of all parts in bytes.
    fn file_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes().len() as u64).sum()
    }

    /// Returns the string of a metadata key; `None` if there is none or it is not UTF-8.
    fn string(&self, key: &str) -> Option<&'a str> {
        match self.gguf.metadata().get(key)? {
            Value::String(text) => str::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// Returns the keys that determine how positions are encoded.
    fn rope_keys(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        let architecture = self.string("general.architecture").unwrap_or_default();
        self.gguf.metadata().iter().filter(move |(key, _)| {
            key.strip_prefix(architecture).is_some_and(|rest| {
                rest.starts_with(".rope.")
                    || rest == ".context_length"
                    || rest == ".attention.sliding_window"
            })
        })
    }

    /// Returns the tensors with divisors of the RoPE frequencies.
    fn rope_tensors(&self) -> impl Iterator<Item = &'a Tensor<'a>> {
        let known = |name: &str| name.contains("rope_freqs") || name.contains("rope_factors");
        self.gguf.tensors().iter().filter(move |tensor| known(tensor.name))
    }

    /// Returns the algorithm that `tokenizer.ggml.model` names.
    fn tokenizer_type(&self) -> Option<&'static str> {
        Some(match self.string("tokenizer.ggml.model")? {
            "llama" => "SPM",
            "gpt2" | "hybriddna" | "whitespace" => "byte-level BPE",
            "gemma4" => "BPE",
            "bert" => "WordPiece",
            "t5" => "Unigram",
            "rwkv" => "RWKV",
            "plamo2" => "PLaMo-2",
            "none" | "no_vocab" => "none",
            _ => "unknown",
        })
    }

    /// Returns the number of tokens in the vocabulary.
    fn tokens(&self) -> Option<usize> {
        match self.gguf.metadata().get("tokenizer.ggml.tokens")? {
            Value::Array(tokens) => Some(tokens.len),
            _ => None,
        }
    }
}
