//! `rope-cpu embed`: embeddings of texts, or the relevance of documents, as in llama-embedding.

mod format;

use std::{io::Write, path::PathBuf};

use format::Format;

use super::{
    args::{AdapterArgs, EngineArgs, MemoryArgs, ModelArgs, RopeArgs},
    bar,
    error::Error,
    escapes, handle_interrupts, load, resources, text, warn,
};
use rope_cpu::{
    Token,
    model::{Model, Pooling, TEXTS_TOGETHER, normalized},
    platform::interrupt,
    runtime::{Sequences, Settings},
    tokenizer::{Ends, Special},
};

/// Compute embeddings of texts, as llama-embedding does
///
/// Embeddings are vectors: the more alike the meanings of two texts, the larger the cosine of their
/// angle. Some models expect a prefix such as "search_query: " in each text: see the model's card.
///
/// A reranker computes the relevance of a document instead. Each text is then a query and a
/// document, with a tab between them.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub adapters: AdapterArgs,

    /// Texts
    #[arg(value_name = "TEXT", help_heading = "Texts")]
    pub texts: Vec<String>,

    /// Texts in one argument, one on each line
    #[arg(short, long, value_name = "TEXTS", allow_hyphen_values = true, help_heading = "Texts")]
    pub prompt: Option<String>,

    /// File with texts, one on each line; -: stdin
    #[arg(short, long, value_name = "FILE", help_heading = "Texts")]
    pub file: Option<PathBuf>,

    /// What separates texts in -p and -f instead of a newline
    #[arg(long, value_name = "TEXT", default_value = "\\n", hide_default_value = true)]
    #[arg(allow_hyphen_values = true, help_heading = "Texts")]
    pub embd_separator: String,

    /// What separates a query from its document, for rerankers, instead of a tab
    #[arg(long, value_name = "TEXT", default_value = "\\t", hide_default_value = true)]
    #[arg(allow_hyphen_values = true, help_heading = "Texts")]
    pub cls_separator: String,

    /// How embeddings of tokens become one of the text: none mean cls last rank
    ///
    /// By default as the model was trained, or else the mean.
    #[arg(long, value_name = "POOLING", help_heading = "Output")]
    pub pooling: Option<Pooling>,

    /// Scale embeddings: 2 to unit length, -1 not at all
    #[arg(long, value_name = "N", default_value_t = 2, allow_negative_numbers = true)]
    #[arg(value_parser = super::args::numbers::normalization, help_heading = "Output")]
    pub embd_normalize: i64,

    /// Format: text json json+ array raw
    ///
    /// text: the first numbers of each embedding, and the similarities of all texts. json: OpenAI's
    /// form. json+: the same with similarities. array: a list of lists. raw: the numbers of an
    /// embedding on each line.
    #[arg(long, alias = "embd-output-format", value_name = "FORMAT", default_value = "text")]
    #[arg(hide_possible_values = true, help_heading = "Output")]
    pub format: Format,

    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub rope: RopeArgs,
    #[command(flatten)]
    pub machine: EngineArgs,
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, without enough memory, or if the output cannot be
/// written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let (texts, names) = texts(args)?;
    let model = load::adapted(&args.model, &args.adapters)?;
    let pooling = args.pooling.unwrap_or_else(|| Pooling::of(&model));
    model.require_pooling(pooling).map_err(Error::usage)?;
    let normalizes = args.embd_normalize == 2 && pooling != Pooling::Rank;
    let tokens = tokens(args, &model, pooling, &texts, &names)?;
    let settings = resources::settings(&args.memory, &args.machine, args.rope.flags());
    let sequences = Sequences::SideBySide(texts.len().min(TEXTS_TOGETHER));
    let settings = Settings { sequences, ..settings };
    let Some(plan) = resources::plan(&model, &settings, &args.memory)? else { return Ok(()) };
    resources::show(&plan);
    warn(&plan.rope);
    handle_interrupts()?;
    let mut engine = plan.engine(&model).map_err(Error::failed)?;
    let context = engine.options().context;
    if let Some((name, tokens)) = names.iter().zip(&tokens).find(|(_, all)| all.len() > context) {
        return Err(Error::failed(format_args!(
            "{name} has {} tokens, more than the context of {context}: shorten it, or raise --ctx",
            tokens.len()
        )));
    }
    let progress = bar(tokens.len() as u64);
    let mut embeddings = Vec::with_capacity(tokens.len());
    for tokens in tokens.chunks(TEXTS_TOGETHER) {
        if interrupt::raised() {
            return Err(Error::Interrupted);
        }
        embeddings.extend(engine.embed(tokens, pooling).map_err(Error::failed)?);
        progress.inc(tokens.len() as u64);
    }
    progress.finish_and_clear();
    if normalizes {
        embeddings.iter_mut().flatten().for_each(|embedding| *embedding = normalized(embedding));
    }
    args.format.write(&texts, pooling, &embeddings, out).map_err(Error::Output)
}

/// Returns the texts of the arguments, at least one, and a name of each for errors.
fn texts(args: &Args) -> Result<(Vec<String>, Vec<String>), Error> {
    let separator = unescaped(&args.embd_separator)?;
    let mut texts = args.texts.clone();
    let mut names: Vec<_> = (0..texts.len()).map(|index| format!("text {index}")).collect();
    let file =
        args.file.as_ref().map(|path| Ok::<_, Error>((text::name(path), text::input(path)?)));
    let prompt =
        args.prompt.as_ref().map(|prompt| ("--prompt".into(), prompt.clone().into_bytes()));
    for (name, bytes) in prompt.into_iter().chain(file.transpose()?) {
        let whole = text::text(&name, bytes)?;
        let pieces = whole.split(&*separator);
        // Windows ends lines with CRLF.
        let (line_end, piece) = if separator == "\n" { ("\r", "line") } else { ("", "part") };
        let first = texts.len();
        texts.extend(pieces.map(|text| text.strip_suffix(line_end).unwrap_or(text).to_string()));
        names.extend((1..=texts.len() - first).map(|number| format!("{name}: {piece} {number}")));
    }
    match texts.iter().position(|text| text.trim().is_empty()) {
        None if texts.is_empty() => {
            Err(Error::usage("no text is given: give texts as arguments, or with -p or -f FILE"))
        }
        None => Ok((texts, names)),
        Some(index) => Err(Error::usage(format_args!("{} is empty: remove it", names[index]))),
    }
}

/// Returns the value of an option with its escapes replaced.
fn unescaped(text: &str) -> Result<String, Error> {
    let bytes = escapes::resolve(text.as_bytes());
    String::from_utf8(bytes)
        .ok()
        .filter(|text| !text.is_empty())
        .ok_or_else(|| Error::usage(format_args!("the separator {text:?} must be a text")))
}

/// Returns the tokens of each text: for a reranker, of its query and its document.
fn tokens(
    args: &Args,
    model: &Model,
    pooling: Pooling,
    texts: &[String],
    names: &[String],
) -> Result<Vec<Vec<Token>>, Error> {
    if pooling != Pooling::Rank {
        let tokenizer = model.tokenizer().map_err(Error::usage)?;
        let tokens = texts.iter().map(|text| tokenizer.encode(text, Special::Parse, Ends::Add));
        return Ok(tokens.collect());
    }
    let separator = unescaped(&args.cls_separator)?;
    let pair = |(name, text): (&String, &String)| match text.split_once(&*separator) {
        Some((query, document)) => model.pair(query, document).map_err(Error::usage),
        None => Err(Error::usage(format_args!(
            "{name} has no {separator:?}: a reranker reads a query and a document with it between them"
        ))),
    };
    names.iter().zip(texts).map(pair).collect()
}
