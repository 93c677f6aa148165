//! The sampling settings: from the command line, else the model file, else llama.cpp's defaults.

use super::{
    args::{ModelArgs, SamplingArgs},
    error::Error,
    escapes, note,
};
use rope_cpu::{
    gguf::Metadata,
    sample::{Settings, breakers, dry, unknown_samplers},
    tokenizer::Tokenizer,
};

/// Returns the settings of a run.
///
/// # Errors
/// If a setting in the file is invalid, or a biased token is not in the vocabulary.
pub fn settings(
    args: &SamplingArgs,
    model: &ModelArgs,
    no_escape: bool,
    metadata: &Metadata,
    tokenizer: &Tokenizer,
) -> Result<Settings, Error> {
    // The options were checked before, so an error here is the file's.
    let file = Settings::from_metadata(metadata, |setting| args.overrides(setting));
    let file = file.map_err(|e| model.named(e))?;
    file.check().map_err(|e| {
        model.named(format_args!("general.sampling: {e}; override it with the flag"))
    })?;
    let mut settings = args.applied_to(file);
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
    set_breakers(&mut settings, args, no_escape, tokenizer)?;
    Ok(settings)
}

/// Sets DRY's breakers, the texts that stop a repetition, if DRY is on.
///
/// # Errors
/// If a text of the command line has an invalid escape.
pub fn set_breakers(
    settings: &mut Settings,
    args: &SamplingArgs,
    no_escape: bool,
    tokenizer: &Tokenizer,
) -> Result<(), Error> {
    if dry::MULTIPLIER.real(&settings.values) == 0.0 {
        return Ok(());
    }
    let texts = match &args.dry_sequence_breaker[..] {
        [] => dry::BREAKERS.map(String::from).to_vec(),
        // "none" removes all texts before it.
        given => given
            .rsplit(|text| text == "none")
            .next()
            .unwrap_or_default()
            .iter()
            .map(|text| escapes::unescaped("--dry-sequence-breaker", text, no_escape))
            .collect::<Result<_, _>>()?,
    };
    settings.dry_breakers = breakers(tokenizer, &texts).into();
    Ok(())
}

/// Prints the settings in the file, and warnings for options without effect.
pub fn print_notes(args: &SamplingArgs, metadata: &Metadata, settings: &Settings, quiet: bool) {
    let recommended: Vec<_> = metadata
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix("general.sampling.")?, value)))
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if !recommended.is_empty() && !quiet {
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
    for warning in args.without_effect(settings) {
        note(format_args!("warning: {warning}"));
    }
}
