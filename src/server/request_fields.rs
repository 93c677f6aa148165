//! The fields of requests that other servers define, and what this one does with each.
//!
//! A field that would change an answer and is not supported is an error. Fields that no interface defines
//! are ignored, as by llama-server. docs/fields.md lists this table.

use serde_json::Value;

use super::{error::ApiError, fields::Fields};

use Treatment::{Ignored, Refused, Used};

/// The treatment of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The field has the documented effect.
    Used,
    /// The field has no effect on an answer, for this reason.
    Ignored(&'static str),
    /// A value other than an empty one or these is an error, for this reason.
    Refused(&'static str, &'static [&'static str]),
}

/// An interface, as docs/fields.md names it, with its fields.
pub struct Interface {
    name: &'static str,
    fields: &'static [(&'static str, Treatment)],
}

const ONE_MODEL: Treatment = Ignored("the server has one model");
const CACHE: Treatment = Ignored("the longest known prefix is always reused");
const ABOUT_USER: Treatment = Ignored("for the provider's records");
const TIER: Treatment = Ignored("there is one tier");
const STORED: Treatment = Ignored("nothing is stored");
const NOT_STORED: Treatment = Refused("nothing is stored: send the whole conversation", &[]);
const TEXT_ONLY: Treatment = Refused("the model writes text only", &["text"]);
const NO_SEARCH: Treatment = Refused("the server does not search the web", &[]);
const LENGTH: Treatment = Refused("ask for the length in the prompt", &["medium"]);

/// `/v1/chat/completions`.
pub const CHAT: Interface = Interface {
    name: "/v1/chat/completions",
    fields: &[
        ("model", ONE_MODEL),
        ("messages", Used),
        ("audio", Refused("the model writes text only", &[])),
        ("frequency_penalty", Used),
        ("function_call", Refused("use \"tool_choice\"", &["auto", "none"])),
        ("functions", Refused("use \"tools\"", &[])),
        ("logit_bias", Used),
        ("logprobs", Used),
        ("max_completion_tokens", Used),
        ("max_tokens", Used),
        ("metadata", ABOUT_USER),
        ("modalities", TEXT_ONLY),
        ("n", Used),
        ("parallel_tool_calls", Used),
        ("prediction", Ignored("drafts come from the conversation, and change no answer")),
        ("presence_penalty", Used),
        ("prompt_cache_key", CACHE),
        ("prompt_cache_retention", CACHE),
        ("reasoning_effort", Used),
        ("response_format", Used),
        ("safety_identifier", ABOUT_USER),
        ("seed", Used),
        ("service_tier", TIER),
        ("stop", Used),
        ("store", STORED),
        ("stream", Used),
        ("stream_options", Used),
        ("temperature", Used),
        ("tool_choice", Used),
        ("tools", Used),
        ("top_logprobs", Used),
        ("top_p", Used),
        ("user", ABOUT_USER),
        ("verbosity", LENGTH),
        ("web_search_options", NO_SEARCH),
    ],
};

/// `/v1/completions`.
pub const COMPLETIONS: Interface = Interface {
    name: "/v1/completions",
    fields: &[
        ("model", ONE_MODEL),
        ("prompt", Used),
        ("best_of", Used),
        ("echo", Used),
        ("frequency_penalty", Used),
        ("logit_bias", Used),
        ("logprobs", Used),
        ("max_tokens", Used),
        ("n", Used),
        ("presence_penalty", Used),
        ("seed", Used),
        ("stop", Used),
        ("stream", Used),
        ("stream_options", Used),
        ("suffix", Used),
        ("temperature", Used),
        ("top_p", Used),
        ("user", ABOUT_USER),
    ],
};

/// `/v1/responses`.
pub const RESPONSES: Interface = Interface {
    name: "/v1/responses",
    fields: &[
        ("model", ONE_MODEL),
        ("input", Used),
        ("background", Refused("answers are not stored", &[])),
        ("conversation", NOT_STORED),
        (
            "include",
            Refused("use /v1/chat/completions for probabilities", &["reasoning.encrypted_content"]),
        ),
        ("instructions", Used),
        ("max_output_tokens", Used),
        ("max_tool_calls", Ignored("it counts tools of OpenAI's servers")),
        ("metadata", ABOUT_USER),
        ("parallel_tool_calls", Used),
        ("previous_response_id", NOT_STORED),
        ("prompt", Refused("prompt templates are not stored: send the text as \"input\"", &[])),
        ("prompt_cache_key", CACHE),
        ("prompt_cache_retention", CACHE),
        ("reasoning", Used),
        ("safety_identifier", ABOUT_USER),
        ("service_tier", TIER),
        ("store", STORED),
        ("stream", Used),
        ("stream_options", Ignored("there is nothing to obfuscate")),
        ("temperature", Used),
        ("text", Used),
        ("tool_choice", Used),
        ("tools", Used),
        ("top_logprobs", Refused("use /v1/chat/completions", &[])),
        ("top_p", Used),
        ("truncation", Refused("a prompt that does not fit is an error", &["disabled"])),
        ("user", ABOUT_USER),
    ],
};

/// `/v1/messages`.
pub const MESSAGES: Interface = Interface {
    name: "/v1/messages",
    fields: &[
        ("model", ONE_MODEL),
        ("messages", Used),
        ("container", Refused("the server runs no code", &[])),
        ("context_management", Ignored("messages are used as they are sent")),
        ("max_tokens", Used),
        ("mcp_servers", Refused("connect to them from the client, and send \"tools\"", &[])),
        ("metadata", ABOUT_USER),
        ("output_config", Used),
        ("service_tier", TIER),
        ("stop_sequences", Used),
        ("stream", Used),
        ("system", Used),
        ("temperature", Used),
        ("thinking", Used),
        ("tool_choice", Used),
        ("tools", Used),
        ("top_k", Used),
        ("top_p", Used),
    ],
};

/// `/api/chat` and `/api/generate`.
pub const OLLAMA: Interface = Interface {
    name: "/api/chat and /api/generate",
    fields: &[
        ("model", ONE_MODEL),
        ("messages", Used),
        ("prompt", Used),
        ("context", Refused("use /api/chat with all messages", &[])),
        ("format", Used),
        ("images", Refused("image input is not supported: send text only", &[])),
        ("keep_alive", Ignored("the model stays loaded")),
        ("logprobs", Refused("use /v1/chat/completions", &[])),
        ("options", Used),
        ("raw", Used),
        ("shift", Ignored("--context-shift is an option of the server")),
        ("stream", Used),
        ("suffix", Used),
        ("system", Used),
        (
            "template",
            Refused(
                "start the server with --chat-template, or set \"raw\" and send the whole text",
                &[],
            ),
        ),
        ("think", Used),
        ("tools", Used),
        ("top_logprobs", Refused("use /v1/chat/completions", &[])),
        ("truncate", Ignored("a prompt that does not fit is an error")),
    ],
};

impl Interface {
    /// Refuses fields that would change an answer and are not supported.
    ///
    /// # Errors
    /// If there are any, with the reason.
    pub fn check(&self, fields: &Fields) -> Result<(), ApiError> {
        for (name, treatment) in self.fields {
            if let Refused(reason, permitted) = treatment
                && let Some(value) = fields.get(name)
                && !has_no_effect(value, permitted)
            {
                let interface = self.name;
                let reason = format_args!("not supported in {interface}: {reason}");
                return Err(fields.invalid_field(name, reason));
            }
        }
        Ok(())
    }
}

fn has_no_effect(value: &Value, permitted: &[&str]) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || permitted.contains(&&**text),
        Value::Array(list) => list.iter().all(|one| has_no_effect(one, permitted)),
        // An empty object may ask for defaults: `"web_search_options": {}`.
        Value::Object(_) | Value::Bool(true) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fmt::Write, fs};

    use serde_json::json;

    use super::*;

    const ALL: [Interface; 5] = [CHAT, COMPLETIONS, RESPONSES, MESSAGES, OLLAMA];

    fn page() -> String {
        let mut page = String::from(
            "# Fields of requests\n\n\
             What the server does with the fields that each interface defines. llama-server's fields for \
             sampling\n(`top_k`, `min_p`, `grammar`, ...) work in all of them. Other fields are ignored.\n",
        );
        for Interface { name, fields } in ALL {
            write!(page, "\n## {name}\n\n| field | |\n|---|---|\n").unwrap();
            for (field, treatment) in fields {
                let cell = match treatment {
                    Used => "used".to_string(),
                    Ignored(reason) => format!("no effect: {reason}"),
                    Refused(reason, []) => format!("refused: {reason}"),
                    Refused(reason, permitted) => {
                        format!("refused, except `{}`: {reason}", permitted.join("`, `"))
                    }
                };
                writeln!(page, "| `{field}` | {cell} |").unwrap();
            }
        }
        page
    }

    #[test]
    fn the_book_lists_every_field() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/fields.md");
        if env::var_os("FIELDS").is_some_and(|value| value == "write") {
            fs::write(file, page()).unwrap();
        }
        let written = fs::read_to_string(file).unwrap();
        assert_eq!(written, page(), "write docs/fields.md anew: FIELDS=write cargo test fields");
    }

    #[test]
    fn names_are_different() {
        for Interface { name, fields } in ALL {
            for (index, (field, _)) in fields.iter().enumerate() {
                assert!(fields[..index].iter().all(|(other, _)| other != field), "{name}: {field}");
            }
        }
    }

    #[test]
    fn fields_that_change_an_answer_are_refused() {
        let check = |interface: Interface, request: Value| {
            interface.check(&Fields::of_value("", &request).unwrap()).map_err(|e| e.message)
        };
        for request in [
            json!({ "modalities": ["text"], "verbosity": "medium", "functions": [], "audio": null }),
            json!({ "store": true, "unknown": 1, "user": "u", "function_call": "auto" }),
        ] {
            assert_eq!(check(CHAT, request), Ok(()));
        }
        for (interface, request, part) in [
            (CHAT, json!({ "modalities": ["text", "audio"] }), "\"modalities\": not supported"),
            (CHAT, json!({ "functions": [{ "name": "f" }] }), "use \"tools\""),
            (RESPONSES, json!({ "previous_response_id": "r" }), "send the whole conversation"),
            (RESPONSES, json!({ "background": true }), "\"background\""),
            (MESSAGES, json!({ "mcp_servers": [{}, { "url": "u" }] }), "\"mcp_servers\""),
            (OLLAMA, json!({ "context": [1] }), "use /api/chat"),
        ] {
            let error = check(interface, request).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
