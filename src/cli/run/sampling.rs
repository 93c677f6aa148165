//! The sampling settings: from the command line, else the model file, else llama.cpp's defaults.

use super::{Args, prompt};
use crate::cli::{error::Error, note};
use rope_cpu::{
    gguf::Metadata,
    sample::{Settings, breakers, dry, unknown_samplers},
    tokenizer::Tokenizer,
};

/// DRY's default breakers.
const BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

/// Returns the settings of a run.
///
/// # Errors
/// If a setting in the file is invalid, or a biased token is not in the vocabulary.
pub fn settings(
    args: &Args,
    metadata: &Metadata,
    tokenizer: &Tokenizer,
) -> Result<Settings, Error> {
    // The options were checked before, so an error here is the file's.
    let file = Settings::from_metadata(metadata, |setting| args.sampling.overrides(setting));
    let file = file.map_err(|e| args.model.named(e))?;
    file.check().map_err(|e| {
        args.model.named(format_args!("general.sampling: {e}; override it with the flag"))
    })?;
    let mut settings = args.sampling.applied_to(file);
    let tokens = tokenizer.len();
    if let Some((token, _)) = settings.logit_bias.iter().find(|(t, _)| *t as usize >= tokens) {
        let error = format!(
            "--logit-bias {token}: the token must be from 0 to {}",
            tokens.saturating_sub(1)
        );
        return Err(Error::usage(error));
    }
    let suppressed = tokenizer.suppressed().iter();
    settings.logit_bias.extend(suppressed.map(|token| (*token, f32::NEG_INFINITY)));
    if dry::MULTIPLIER.real(&settings.values) != 0.0 {
        let texts = match &args.sampling.dry_sequence_breaker[..] {
            [] => BREAKERS.map(String::from).to_vec(),
            // "none" removes all texts before it.
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

/// Prints the settings in the file, and warnings for options without effect.
pub fn print_notes(args: &Args, metadata: &Metadata, settings: &Settings) {
    let recommended: Vec<_> = metadata
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix("general.sampling.")?, value)))
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if !recommended.is_empty() && !args.answer.quiet {
        note(format_args!(
            "sampling: {} from the file, unless a flag overrides them",
            recommended.join(", ")
        ));
    }
    for name in unknown_samplers(metadata).unwrap_or_default() {
        note(format_args!(
            "note: general.sampling.sequence: the sampler {name:?} is not supported, and is ignored"
        ));
    }
    for warning in args.sampling.without_effect(settings) {
        note(format_args!("warning: {warning}"));
    }
}
