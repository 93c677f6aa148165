//! `rope-cpu inspect FILE`: what is in a model file.

mod json;
mod table;
mod totals;

use std::io::Write;
use std::path::{Path, PathBuf};

use thiserror::Error;

use rope_cpu::gguf::{self, File, Gguf, Tensor, Value, cross_check};

/// Show what is in a GGUF file: metadata, tensors, sizes, RoPE settings
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// The model file
    #[arg(required_unless_present = "model")]
    pub file: Option<PathBuf>,

    /// The same, as other commands take it
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub model: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Show long arrays and strings in full
    #[arg(long)]
    pub full: bool,

    /// Let gguf-rs read the header too, and fail if it disagrees
    #[arg(long)]
    pub verify: bool,
}

impl InspectArgs {
    /// The model file; clap sees to it that there is one.
    fn path(&self) -> &Path {
        self.file.as_deref().or(self.model.as_deref()).unwrap_or("".as_ref())
    }
}

/// Why a file could not be shown.
#[derive(Debug, Error)]
pub enum Error {
    /// There is something wrong with the file.
    #[error(transparent)]
    File(#[from] gguf::Error),
    /// `--verify`: the header was not confirmed.
    #[error("{path}: {source}", path = path.display())]
    CrossCheck {
        /// The file.
        path: PathBuf,
        /// The difference, or the reason why gguf-rs cannot read the file.
        source: cross_check::Error,
    },
    /// The output was not accepted.
    #[error("cannot write: {0}")]
    Write(#[from] std::io::Error),
}

/// Prints what the file holds.
///
/// # Errors
///
/// If the file is faulty, `out` does not take the text, or `--verify` finds a difference.
pub fn run(args: &InspectArgs, out: &mut dyn Write) -> Result<(), Error> {
    let file = File::open(args.path())?;
    let gguf = file.parse(&[])?;
    if args.verify {
        for part in file.parts() {
            cross_check::compare(part.bytes(), &Gguf::parse(part.bytes(), &[])?)
                .map_err(|source| Error::CrossCheck { path: part.path().into(), source })?;
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

/// What both forms of output are made of.
struct Report<'a> {
    args: &'a InspectArgs,
    parts: Vec<&'a File>,
    gguf: &'a Gguf<'a>,
}

impl<'a> Report<'a> {
    /// The bytes of all parts.
    fn file_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes().len() as u64).sum()
    }

    /// A string of the metadata, if it is there and is one.
    fn string(&self, key: &str) -> Option<&'a str> {
        match self.gguf.metadata().get(key)? {
            Value::String(text) => str::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// The keys that say how positions are encoded.
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

    /// The tensors that do: divisors of the frequencies.
    fn rope_tensors(&self) -> impl Iterator<Item = &'a Tensor<'a>> {
        let known = |name: &str| name.contains("rope_freqs") || name.contains("rope_factors");
        self.gguf.tensors().iter().filter(move |tensor| known(tensor.name))
    }

    /// The algorithm that `tokenizer.ggml.model` stands for.
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

    /// How many tokens the vocabulary has.
    fn tokens(&self) -> Option<usize> {
        match self.gguf.metadata().get("tokenizer.ggml.tokens")? {
            Value::Array(tokens) => Some(tokens.len),
            _ => None,
        }
    }
}
