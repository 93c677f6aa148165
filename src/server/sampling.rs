//! Sampler settings of a request.

use std::{collections::BTreeMap, mem};

use rope_cpu::{
    Token,
    sample::{self, SamplerSetting, Settings, breakers, dry, parse_letters, parse_names},
    settings::{Kind, Setting, Value as SettingValue, Values},
    tokenizer::{Ends, Special, Tokenizer},
};
use serde::{Deserializer, de::MapAccess};
use serde_json::{Map, Value};

use super::{
    error::ApiError,
    fields::whole_number,
    parameters::Shared,
    read::{Failure, Object, Read, Texts, Whole, value, whole},
};

crate::object! {
    /// The fields of a request for the sampler.
    pub struct Sampling {
        /// Texts that end repetitions for DRY: at most 64, 1 KiB together, because each request
        /// looks up their tokens.
        dry_sequence_breakers: Option<Texts<64, 1024>>,
        /// Numbers to add to the logits of tokens or texts, or false to exclude them.
        logit_bias: Option<Value>,
        /// The samplers, in order: a list of names or a string of letters.
        samplers: Option<sample::Order>,
        /// Random seed, or -1 for a random one.
        seed: Option<Whole<{ i64::MIN }, { i64::MAX }>>,
        ..numbers: Numbers,
    }
}

/// Names of settings in vLLM and SGLang, and here.
const OTHER_NAMES: [(&str, &str); 1] = [("repetition_penalty", "repeat_penalty")];

/// The numbers in a request for samplers, under llama-server's names.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    values: Values,
    /// The rank of each value's name among the names of its setting. The first name takes precedence.
    ranks: BTreeMap<Setting, usize>,
}

impl Object for Numbers {
    fn take<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        let named = |setting: &'static SamplerSetting| {
            let parameter = &setting.parameter;
            let names = [parameter.setting.0].into_iter().chain(parameter.aliases.iter().copied());
            // llama-server's other names, mirostat_tau and mirostat_eta, are metadata keys.
            let own = OTHER_NAMES.iter().find(|(other, _)| *other == name).map(|(_, own)| *own);
            let own = own.unwrap_or(name);
            let place = names.chain(setting.key).position(|known| known == own)?;
            Some((setting, place))
        };
        let Some((setting, place)) = sample::settings().find_map(named) else { return Ok(false) };
        // Only the caller of `take` has the place of the field.
        let failed = |failure: Failure| failure.within(name).into_error();
        let given = match setting.parameter.kind {
            Kind::Integer(least, most) => {
                let given = value::<Option<Value>, _>(map)?;
                let number = given.map(|given| whole(&given, least, most)).transpose();
                number.map_err(failed)?.map(SettingValue::from)
            }
            _ => value::<Option<f64>, _>(map)?.map(SettingValue::from),
        };
        if let Some(value) = given {
            if !setting.permits(&value) {
                let reason = format_args!("must be {}, not {value}", setting.expected());
                return Err(failed(Failure::of("", reason)));
            }
            let rank = self.ranks.entry(setting.name()).or_insert(place);
            if place <= *rank {
                *rank = place;
                self.values = mem::take(&mut self.values).with(&setting.parameter, value);
            }
        }
        Ok(true)
    }
}

impl Read for sample::Order {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::read(deserializer)?;
        order(&value).map_err(Failure::into_error)
    }
}

/// Returns `defaults`, overridden by the settings in a request.
///
/// # Errors
/// If a value is out of range.
pub fn settings(
    shared: &Shared,
    defaults: &Settings,
    tokenizer: &Tokenizer<'_>,
) -> Result<Settings, ApiError> {
    let Shared { sampling, place, .. } = shared;
    let mut settings = defaults.clone();
    settings.values = sampling.numbers.values.clone().or(settings.values);
    if let Some(Whole(seed)) = sampling.seed {
        // The lowest bits, as in llama-server. For -1 all are 1: a random seed.
        settings.seed = Some(seed as u32).filter(|seed| *seed != u32::MAX);
    }
    if let Some(samplers) = &sampling.samplers {
        settings.samplers = samplers.clone();
    }
    if let Some(bias) = &sampling.logit_bias {
        let bias = logit_bias(bias, tokenizer)
            .map_err(|failure| failure.within(&place.of("logit_bias")))?;
        settings.logit_bias.extend(bias);
    }
    if dry::MULTIPLIER.real(&settings.values) == 0.0 {
        // Without DRY, breakers have no effect.
    } else if let Some(Texts(texts)) = &sampling.dry_sequence_breakers {
        settings.dry_breakers = breakers(tokenizer, texts).into();
    } else if settings.dry_breakers.is_empty() {
        settings.dry_breakers = breakers(tokenizer, &dry::BREAKERS.map(String::from)).into();
    }
    settings.check().map_err(ApiError::invalid)?;
    Ok(settings)
}

fn order(samplers: &Value) -> Result<sample::Order, Failure> {
    let order = match samplers {
        Value::String(letters) => parse_letters(letters),
        Value::Array(names) => {
            let names: Option<Vec<_>> = names.iter().map(Value::as_str).collect();
            let names = names.ok_or_else(|| Failure::wrong("", "a list of names", samplers))?;
            parse_names(&names.join(";"))
        }
        _ => {
            let expected = "a list of names, or a string of letters";
            return Err(Failure::wrong("", expected, samplers));
        }
    };
    order.map_err(|e| Failure::of("", e))
}

/// Returns the biases in a list of pairs or an object. `false` excludes a token. A text applies to
/// each of its tokens.
fn logit_bias(bias: &Value, tokenizer: &Tokenizer<'_>) -> Result<Vec<(Token, f32)>, Failure> {
    let expected = || {
        let last = tokenizer.len().saturating_sub(1);
        let expected = format_args!(
            "an object or a list of pairs of a token (from 0 to {last}) or a text and a number or false"
        );
        Failure::wrong("", expected, bias)
    };
    let too_many = || {
        let most = tokenizer.len();
        Failure::of(
            "",
            format_args!("must be for at most {most} tokens, the size of the vocabulary"),
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

#[cfg(test)]
mod tests {
    use rope_cpu::sample::{mirostat, temperature};
    use serde_json::json;

    use super::*;
    use crate::server::read;

    #[test]
    fn a_setting_has_the_names_of_options_and_of_metadata() {
        let request = json!({ "temperature": 0.5, "mirostat_tau": 3, "top_k": null, "other": {} });
        let Numbers { values, ranks } = read::of_value::<Sampling>(request).unwrap().numbers;
        let (temp, tau) = (&temperature::TEMPERATURE.parameter, &mirostat::TARGET.parameter);
        assert_eq!(values, Values::default().with(temp, 0.5).with(tau, 3.0));
        assert_eq!(ranks, BTreeMap::from([(temp.setting, 1), (tau.setting, 1)]));
    }

    #[test]
    fn the_first_name_of_a_setting_takes_precedence() {
        for text in [r#"{"temp": 1, "temperature": 2}"#, r#"{"temperature": 2, "temp": 1}"#] {
            let given: Sampling = read::parse(&text.into()).unwrap();
            assert_eq!(temperature::TEMPERATURE.real(&given.numbers.values), 1.0, "{text}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_errors_with_their_field() {
        for (request, expected) in [
            (json!({ "top_k": 0.5 }), "\"top_k\": must be a whole number of 64 bits, not 0.5"),
            (
                json!({ "temperature": "hot" }),
                "\"temperature\": must be a finite number, not \"hot\"",
            ),
            (json!({ "samplers": [1] }), "\"samplers\": must be a list of names, not [1]"),
        ] {
            let error = read::of_value::<Sampling>(request).unwrap_err();
            assert_eq!(ApiError::from(error).message, expected);
        }
    }
}
