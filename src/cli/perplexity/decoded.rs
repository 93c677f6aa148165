//! Generates the end of a text with the run's cache and attention, and with the defaults, and compares
//! the probabilities.

use std::{io::Write, path::Path};

use serde_json::json;

use super::{Args, Error, divergence, named, tokens};
use crate::cli::{args::MemoryArgs, flags, resources, warn};
use rope_cpu::{
    eval::{
        decode::{Decoded, decode},
        perplexity::{self, windows},
    },
    kv_cache::CacheType,
    model::Model,
    runtime::{Plan, Settings},
};

/// Checks that the run differs from the defaults.
///
/// # Errors
/// If it does not.
pub fn check(args: &Args) -> Result<(), Error> {
    let MemoryArgs { cache, .. } = &args.memory;
    let dense = args.sparse.settings().lines().next().is_none();
    if dense && [cache.keys(), cache.values()] == [CacheType::F16; 2] {
        return Err(Error::usage(
            "--decode compares this run with one that has the same cache and attention: give it \
             --cache-type-k, --cache-type-v, --sparse-attention or --sparse-prompt",
        ));
    }
    Ok(())
}

/// Compares windows of the text at `path`, and prints the statistics.
///
/// # Errors
/// As [`super::run`].
pub fn run(
    args: &Args,
    path: &Path,
    window: usize,
    steps: usize,
    model: &Model,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let tokenizer = model.tokenizer().map_err(Error::usage)?;
    let memory = MemoryArgs { context: window, ..args.memory.clone() };
    let settings = resources::settings(&memory, &args.machine, args.rope.flags());
    let (keys, values) = (CacheType::F16, CacheType::F16);
    let base = Plan::new(model, &Settings { keys, values, ..settings.clone() })?;
    // Both engines share the weights.
    let taken = base.need().total() - base.need().weights;
    let settings = Settings { sparse: args.sparse.settings(), taken, ..settings };
    let Some(other) = resources::plan(model, &settings, &args.memory)? else { return Ok(()) };
    resources::show(&other);
    warn(&other.rope);
    let rope_line = flags::line(&other.rope);
    let tokens = tokens(path, tokenizer)?;
    if tokens.len() < window {
        let (tokens, needed) = (tokens.len(), window);
        return Err(named(args, path, perplexity::Error::ShortText { tokens, window, needed }));
    }

    let mut base = base.engine(model).map_err(Error::failed)?;
    let mut other = other.engine(model).map_err(Error::failed)?;
    let mut found = Decoded::default();
    let windows_max = usize::try_from(args.chunks).unwrap_or(usize::MAX);
    for window in windows::halves(tokens.len(), window).take(windows_max) {
        let mut text = tokens[window.tokens].to_vec();
        text[0] = tokenizer.bos().filter(|_| tokenizer.adds_bos()).unwrap_or(text[0]);
        decode([&mut base, &mut other], &text, steps, &mut found, &mut |_| ())
            .map_err(|e| named(args, path, e))?;
    }
    match args.json {
        true => json(&found, window, &rope_line, out)?,
        false => text(&found, out)?,
    }
    Ok(())
}

/// Prints the statistics.
fn text(found: &Decoded, out: &mut dyn Write) -> std::io::Result<()> {
    divergence::text(&found.divergence, out)?;
    let prompts = &found.prompts;
    if let Some(share) = prompts.share_read() {
        let ratio = |[base, other]: [f64; 2]| base / other;
        let [base, other] = prompts.sparse_seconds;
        writeln!(out, "\n====== Prompts ======")?;
        writeln!(out, "Keys read in sparse layers: {:.2} %", 100.0 * share)?;
        writeln!(out, "Sparse part: {other:.2} s, {base:.2} s dense")?;
        let [part, whole] = [prompts.sparse_seconds, prompts.seconds].map(ratio);
        writeln!(out, "Ratios: {part:.3}, {whole:.3} for whole prompts")?;
    }
    let [base, other] = found.seconds().map(|seconds| 1000.0 * seconds);
    writeln!(out, "\n====== Generation ======")?;
    if let Some(share) = found.share_read() {
        writeln!(out, "Keys read in sparse layers: {:.2} %", 100.0 * share)?;
    }
    writeln!(out, "Median of a token: {other:.2} ms, {base:.2} ms with an f16 cache, dense")?;
    writeln!(out, "Median of ratios: {:.3}", found.speedup())?;
    out.flush()
}

/// Prints the statistics as JSON.
fn json(found: &Decoded, window: usize, rope: &str, out: &mut dyn Write) -> std::io::Result<()> {
    let mut value = divergence::object(&found.divergence, window, rope);
    let [base, other] = found.seconds();
    value["share_read"] = found.share_read().into();
    value["base_seconds"] = base.into();
    value["seconds"] = other.into();
    value["speedup"] = found.speedup().into();
    let prompts = &found.prompts;
    let seconds = |[base, other]: [f64; 2]| json!({ "base_seconds": base, "seconds": other });
    value["prompts"] = seconds(prompts.seconds);
    value["prompts"]["share_read"] = prompts.share_read().into();
    value["prompts"]["sparse_part"] = seconds(prompts.sparse_seconds);
    writeln!(out, "{value:#}")
}
