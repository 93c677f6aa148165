//! `rope-cpu tokenize` and `rope-cpu detokenize`: conversion between text and tokens, with
//! llama-tokenize's output.

mod input;

use std::io::{self, Write};

use super::{
    args::{ModelArgs, all_overrides},
    error::Error,
};
use rope_cpu::{
    gguf::File,
    tokenizer::{Ends, Special, Tokenizer},
};

/// Show the tokens of a text, as llama-tokenize does
#[derive(Debug, clap::Args)]
pub struct TokenizeArgs {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    input: input::InputArgs,

    /// Print only the token IDs, as a list: [1, 2, 3]
    #[arg(long)]
    ids: bool,

    /// Do not add a BOS token, even if the model requires one
    #[arg(long)]
    no_bos: bool,

    /// Treat control tokens in the text, such as <|im_end|>, as plain text
    #[arg(long)]
    no_parse_special: bool,

    /// Print the number of tokens
    #[arg(long)]
    show_count: bool,

    /// Do not print warnings
    #[arg(long)]
    log_disable: bool,
}

/// Show the text of tokens
#[derive(Debug, clap::Args)]
pub struct DetokenizeArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// Token IDs; if none are given, they are read from standard input
    #[arg(value_name = "ID")]
    tokens: Vec<String>,
}

/// Prints the tokens of a text.
///
/// # Errors
///
/// On invalid arguments, an invalid model file, text that cannot be read, or if `out` cannot be
/// written.
pub fn tokenize(args: &TokenizeArgs, out: &mut dyn Write) -> Result<(), Error> {
    with_tokenizer(&args.model, |tokenizer| {
        let text = args.input.text()?;
        let special = if args.no_parse_special { Special::AsText } else { Special::Parse };
        let ends = if args.no_bos || !tokenizer.adds_bos() { Ends::Omit } else { Ends::Add };
        let tokens = tokenizer.encode(&text, special, ends);
        let twice = ends == Ends::Add && tokens.get(1).is_some_and(|&t| Some(t) == tokenizer.bos());
        if twice && !args.log_disable {
            let _ = writeln!(
                io::stderr(),
                "warning: the text starts with a BOS token, and the model adds another one; use --no-bos to omit it"
            );
        }
        if args.ids {
            writeln!(out, "{tokens:?}")?;
        } else {
            for &token in &tokens {
                write!(out, "{token:>6} -> '")?;
                out.write_all(&tokenizer.piece(token, true))?;
                out.write_all(b"'\n")?;
            }
        }
        if args.show_count {
            writeln!(out, "Total number of tokens: {}", tokens.len())?;
        }
        Ok(out.flush()?)
    })
}

/// Prints the text of tokens, control tokens included, and nothing else.
///
/// # Errors
///
/// See [`tokenize`]; also on IDs that are not in the vocabulary.
pub fn detokenize(args: &DetokenizeArgs, out: &mut dyn Write) -> Result<(), Error> {
    with_tokenizer(&args.model, |tokenizer| {
        let len = tokenizer.len();
        let tokens = match &args.tokens[..] {
            [] => input::tokens(&io::read_to_string(io::stdin()).map_err(input::stdin_error)?)?,
            given => input::tokens(&given.join(" "))?,
        };
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= len) {
            return Err(Error::usage(format_args!(
                "there is no token {token}: the vocabulary has {len} tokens, from 0"
            )));
        }
        out.write_all(&tokenizer.decode(&tokens, true))?;
        Ok(out.flush()?)
    })
}

fn with_tokenizer(
    args: &ModelArgs,
    run: impl FnOnce(&Tokenizer) -> Result<(), Error>,
) -> Result<(), Error> {
    let path = args.file()?;
    let file = File::open(path).map_err(Error::usage)?;
    let overrides = all_overrides(&args.override_kv);
    let gguf = file.parse(&overrides).map_err(Error::usage)?;
    let tokenizer = Tokenizer::from_metadata(gguf.metadata())
        .map_err(|error| Error::usage(format_args!("{}: {error}", path.display())))?;
    run(&tokenizer)
}
