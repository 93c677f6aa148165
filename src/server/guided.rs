//! Fields of vLLM and SGLang: the format of an answer, and fields that have no counterpart here.

use rope_cpu::constraint::Grammar;
use serde::Deserializer;
use serde_json::{Value, json};

use super::{
    grammars::Given,
    parameters::Place,
    read::{
        Failure, Read, Texts,
        Treatment::{Ignored, Refused},
    },
};

crate::object! {
    /// The fields of vLLM and SGLang.
    pub struct Guided {
        /// Another name of `grammar`.
        ebnf: Option<String>,
        /// A list of texts: the answer is one of them.
        guided_choice: Option<Choice>,
        /// Another name of `grammar`.
        guided_grammar: Option<String>,
        /// Another name of `json_schema`; the schema may be a string.
        guided_json: Option<Value>,
        /// Another name of `regex`.
        guided_regex: Option<String>,
        /// The form of the answer.
        structured_outputs: Option<StructuredOutputs>,
    }
    others {
        "allowed_token_ids": Refused("use \"logit_bias\", \"grammar\" or \"regex\"", &[]),
        "bad_words": Refused("exclude tokens with \"logit_bias\", or texts with \"regex\"", &[]),
        "guided_decoding_backend": Ignored("there is one"),
        "guided_whitespace_pattern": Refused("use \"regex\" or \"grammar\"", &[]),
        "include_stop_str_in_output": Refused("an answer ends before its stop string", &[]),
        "length_penalty": Refused("there is no beam search", &["1"]),
        "min_tokens": Refused("use \"ignore_eos\", or a \"regex\" with a length", &[]),
        "prompt_logprobs": Refused("use \"echo\" with \"logprobs\" of /v1/completions", &[]),
        "stop_token_ids": Refused("use \"stop\"", &[]),
        "truncate_prompt_tokens": Refused("a prompt is never cut: raise the context with -c", &[]),
        "use_beam_search": Refused("an answer is sampled", &[]),
    }
}

crate::object! {
    /// vLLM's object for the form of an answer.
    pub struct StructuredOutputs {
        /// A list of texts: the answer is one of them.
        choice: Option<Choice>,
        /// A grammar of the answer, in GBNF or Lark.
        grammar: Option<String>,
        /// A JSON schema of the answer, which may be a string.
        json: Option<Value>,
        /// Whether the answer is any JSON object.
        json_object: Option<bool>,
        /// A regular expression of the answer.
        regex: Option<String>,
    }
    others {
        "disable_additional_properties": Refused("set \"additionalProperties\" in the schema", &[]),
        "disable_any_whitespace": Refused("use \"regex\" or \"grammar\"", &[]),
        "disable_fallback": Ignored("grammars are always enforced"),
        "structural_tag": Refused("use \"tools\" or \"grammar\"", &[]),
        "whitespace_pattern": Refused("use \"regex\" or \"grammar\"", &[]),
    }
}

/// The texts that an answer may be.
#[derive(Clone, Debug)]
pub struct Choice(Vec<String>);

impl Read for Choice {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Texts(texts): Texts<1024, { 64 << 10 }> = Read::read(deserializer)?;
        match texts.is_empty() {
            true => Err(Failure::of("", "must have at least one text").into_error()),
            false => Ok(Choice(texts)),
        }
    }
}

impl Choice {
    fn grammar(&self) -> Grammar {
        let texts: Vec<_> = self.0.iter().map(|text| json!(text).to_string()).collect();
        Grammar::Lark(format!("start: {}", texts.join(" | ")))
    }
}

impl Guided {
    /// Returns the grammars of the fields.
    pub fn given(&self, place: Place) -> Vec<Given> {
        let outputs = self.structured_outputs.clone().unwrap_or_default();
        let text = |text: &Option<String>| text.clone().map(Grammar::from_text);
        let regex = |regex: &Option<String>| regex.clone().map(Grammar::Regex);
        let choice = |choice: &Option<Choice>| choice.as_ref().map(Choice::grammar);
        let object = outputs.json_object.unwrap_or(false).then_some(Grammar::JsonObject);
        let given = [
            ("ebnf", text(&self.ebnf)),
            ("guided_choice", choice(&self.guided_choice)),
            ("guided_grammar", text(&self.guided_grammar)),
            ("guided_json", self.guided_json.as_ref().map(schema)),
            ("guided_regex", regex(&self.guided_regex)),
            ("structured_outputs.choice", choice(&outputs.choice)),
            ("structured_outputs.grammar", text(&outputs.grammar)),
            ("structured_outputs.json", outputs.json.as_ref().map(schema)),
            ("structured_outputs.json_object", object),
            ("structured_outputs.regex", regex(&outputs.regex)),
        ];
        let given = given.into_iter().filter_map(|(name, grammar)| Some((name, grammar?)));
        given.map(|(name, grammar)| Given { place: place.of(name), grammar }).collect()
    }
}

/// Returns a schema that is a value or its text.
fn schema(schema: &Value) -> Grammar {
    Grammar::JsonSchema(schema.as_str().map_or_else(|| schema.to_string(), str::to_string))
}
