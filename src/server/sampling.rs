//! The sampler's settings of a request.

use rope_cpu::{
    Token,
    sample::{self, Settings, breakers, dry, parse_letters, parse_names},
    settings::{Kind, Value as SettingValue},
    tokenizer::{Ends, Special, Tokenizer},
};
use serde_json::{Map, Value};

use super::{
    error::ApiError,
    fields::{Fields, whole_number},
};

/// The most sequence breakers for DRY, and the most bytes of them together: the tokens that spell them
/// are found for each request.
const BREAKERS_MAX: (usize, usize) = (64, 1024);

/// Returns `defaults` with the settings that the fields of a request give, under the names that
/// llama-server has for them.
///
/// # Errors
/// If a value is of another type than its setting, or out of range.
pub fn settings(
    fields: &Fields,
    defaults: &Settings,
    tokenizer: &Tokenizer<'_>,
) -> Result<Settings, ApiError> {
    let mut settings = defaults.clone();
    for setting in sample::settings() {
        let parameter = &setting.parameter;
        let names = [&[parameter.setting.0][..], parameter.aliases].concat();
        let Some((name, _)) = fields.first(&names) else { continue };
        let value = match parameter.kind {
            Kind::Integer(least, most) => fields.whole(name, least, most)?.map(SettingValue::from),
            _ => fields.number(name)?.map(SettingValue::from),
        };
        if let Some(value) = value {
            settings = settings.with(setting, value);
        }
    }
    if let Some(seed) = fields.whole("seed", i64::MIN, i64::MAX)? {
        // The lowest bits, as in llama-server; of -1 they are all 1, for a random seed.
        settings.seed = Some(seed as u32).filter(|seed| *seed != u32::MAX);
    }
    if let Some(samplers) = fields.get("samplers") {
        settings.samplers = order(fields, samplers)?;
    }
    if let Some(bias) = fields.get("logit_bias") {
        settings.logit_bias.extend(logit_bias(fields, bias, tokenizer)?);
    }
    let given = fields.get("dry_sequence_breakers").is_some();
    let texts = fields.limited_texts("dry_sequence_breakers", BREAKERS_MAX)?;
    if dry::MULTIPLIER.real(&settings.values) == 0.0 {
        // They have no effect.
    } else if given {
        settings.dry_breakers = breakers(tokenizer, &texts).into();
    } else if settings.dry_breakers.is_empty() {
        settings.dry_breakers = breakers(tokenizer, &dry::BREAKERS.map(String::from)).into();
    }
    settings.check().map_err(ApiError::invalid)?;
    Ok(settings)
}

fn order(fields: &Fields, samplers: &Value) -> Result<sample::Order, ApiError> {
    let order = match samplers {
        Value::String(letters) => parse_letters(letters),
        Value::Array(names) => {
            let names: Option<Vec<_>> = names.iter().map(Value::as_str).collect();
            let names = names.ok_or_else(|| fields.error("samplers", "a list of names"))?;
            parse_names(&names.join(";"))
        }
        _ => return Err(fields.error("samplers", "a list of names, or a string of letters")),
    };
    order.map_err(ApiError::invalid)
}

/// Returns the biases of a list of pairs or of an object. `false` excludes a token; a text stands
/// for each of its tokens.
fn logit_bias(
    fields: &Fields,
    bias: &Value,
    tokenizer: &Tokenizer<'_>,
) -> Result<Vec<(Token, f32)>, ApiError> {
    let expected = || {
        let tokens = tokenizer.len();
        fields.error(
            "logit_bias",
            format_args!(
                "an object or a list of pairs of a token (from 0 to {}) or a text and a number or \
                 false",
                tokens.saturating_sub(1)
            ),
        )
    };
    let too_many = || {
        let most = tokenizer.len();
        ApiError::field(
            &fields.place("logit_bias"),
            format_args!("for at most {most} tokens, the size of the vocabulary"),
        )
    };
    let given = bias.as_array().map(Vec::len).or(bias.as_object().map(Map::len));
    if given.is_some_and(|given| given > tokenizer.len()) {
        return Err(too_many());
    }
    let value = |value: &Value| match value {
        Value::Bool(false) => Some(f32::NEG_INFINITY),
        Value::Number(_) => value.as_f64().map(|number| number as f32),
        _ => None,
    };
    let known = |token: i64| usize::try_from(token).ok().filter(|token| *token < tokenizer.len());
    let mut all = Vec::new();
    let mut add = |tokens: Vec<Token>, bias: &Value| {
        let bias = value(bias).ok_or_else(expected)?;
        if all.len() + tokens.len() > tokenizer.len() {
            return Err(too_many());
        }
        all.extend(tokens.into_iter().map(|token| (token, bias)));
        Ok(())
    };
    let of_text = |text: &str| tokenizer.encode(text, Special::Parse, Ends::Omit);
    let of_number =
        |token: i64| known(token).map(|token| vec![token as Token]).ok_or_else(expected);
    match bias {
        Value::Object(biases) => {
            for (token, bias) in biases {
                match token.parse() {
                    Ok(token) => add(of_number(token)?, bias)?,
                    Err(_) => add(of_text(token), bias)?,
                }
            }
        }
        Value::Array(pairs) => {
            for pair in pairs {
                let [token, bias] = pair.as_array().map(Vec::as_slice).unwrap_or_default() else {
                    return Err(expected());
                };
                match (token.as_str(), whole_number(token)) {
                    (Some(text), _) => add(of_text(text), bias)?,
                    (_, Some(token)) => add(of_number(token)?, bias)?,
                    _ => return Err(expected()),
                }
            }
        }
        _ => return Err(expected()),
    }
    Ok(all)
}
