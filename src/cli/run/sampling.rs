//! The sampling settings: the command line's, then the file's, then llama.cpp's.

use super::{Args, prompt};
use crate::cli::{error::Error, note};
use rope_cpu::{
    gguf::{Gguf, Metadata},
    sample::{Settings, breakers, unknown_samplers},
    tokenizer::Tokenizer,
};

/// DRY's breakers where none are given.
const BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

/// The settings of a run.
///
/// # Errors
/// A setting in the file that can't be used, and a bias on a token that the model lacks.
pub fn settings(
    args: &Args,
    metadata: &Metadata,
    tokenizer: &Tokenizer,
) -> Result<Settings, Error> {
    // What is typed was checked by itself, so what is wrong here is the file's.
    let file = Settings::from_metadata(metadata, |key| args.sampling.overrides(key));
    let file = file.map_err(|e| args.model.named(e))?;
    file.check().map_err(|e| {
        args.model.named(format_args!("general.sampling: {e}; give the flag to override it"))
    })?;
    let mut settings = args.sampling.over(file);
    let tokens = tokenizer.len();
    if let Some((token, _)) = settings.logit_bias.iter().find(|(t, _)| *t as usize >= tokens) {
        let error = format!("--logit-bias {token}: the vocabulary has {tokens} tokens, from 0");
        return Err(Error::usage(error));
    }
    let suppressed = tokenizer.suppressed().iter();
    settings.logit_bias.extend(suppressed.map(|token| (*token, f32::NEG_INFINITY)));
    if settings.dry_multiplier != 0.0 {
        let texts = match &args.sampling.dry_sequence_breaker[..] {
            [] => BREAKERS.map(String::from).to_vec(),
            // "none" clears what is before it.
            given => given
                .rsplit(|text| text == "none")
                .next()
                .unwrap_or_default()
                .iter()
                .map(|text| prompt::unescaped("--dry-sequence-breaker", text, &args.prompt))
                .collect::<Result<_, _>>()?,
        };
        settings.dry_breakers = breakers(tokenizer, &texts);
    }
    Ok(settings)
}

/// Says what the file sets, and what was given without effect.
pub fn tell(args: &Args, gguf: &Gguf, settings: &Settings) {
    let recommended: Vec<_> = gguf
        .metadata()
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix("general.sampling.")?, value)))
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if !recommended.is_empty() && !args.answer.quiet {
        note(format_args!(
            "sampling: {} from the file, where no flag says otherwise",
            recommended.join(", ")
        ));
    }
    for name in unknown_samplers(gguf.metadata()).unwrap_or_default() {
        note(format_args!(
            "note: general.sampling.sequence names the sampler {name:?}, which rope-cpu does not have: \
             it is left out"
        ));
    }
    for warning in args.sampling.idle(settings) {
        note(format_args!("warning: {warning}"));
    }
}
