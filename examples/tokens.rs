//! Writes the tokens of texts, to compare with other programs.
//!
//! ```text
//! cargo run --release --example tokens -- MODEL.gguf < TEXTS.json
//! ```
//! TEXTS.json is an array of strings. Their characters are bytes (Latin-1), since texts need not be
//! UTF-8. For each there is a line of JSON: the tokens of the text as it is, and the tokens with
//! control tokens parsed.

use std::{
    error::Error,
    io::{self, Write},
    path::PathBuf,
};

use clap::Parser;
use rope_cpu::{
    gguf::File,
    json,
    tokenizer::{Ends, Special, Tokenizer},
};

#[derive(Parser)]
struct Args {
    /// Model file; only its vocabulary is used
    model: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let file = File::open(&Args::parse().model)?;
    let gguf = file.parse(&[])?;
    let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
    let texts: Vec<String> = json::parse(&io::read_to_string(io::stdin())?)?;
    let mut out = io::stdout().lock();
    for text in texts {
        let text: Vec<u8> = text.chars().map(u8::try_from).collect::<Result<_, _>>()?;
        let tokens =
            [Special::AsText, Special::Parse].map(|s| tokenizer.encode(&text, s, Ends::Omit));
        writeln!(out, "{}", serde_json::to_string(&tokens)?)?;
    }
    Ok(())
}
