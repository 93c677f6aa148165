//! Requests of Anthropic's interface in OpenAI's form.

use serde_json::{Map, Value, json};

use crate::server::{error::ApiError, fields::Fields};

/// The largest number of tokens of an answer if the request gives none, as in llama-server.
const MAX_TOKENS: i64 = 4096;

/// Returns a request in OpenAI's form. Fields that both interfaces have, or only llama-server, stay.
///
/// # Errors
/// If a field that differs is of another form than Anthropic's.
pub fn convert(mut fields: Fields) -> Result<Fields, ApiError> {
    let mut messages = Vec::new();
    if let Some(system) = fields.get("system") {
        let text = text("system", system)?;
        messages.push(json!({ "role": "system", "content": text }));
    }
    let given = fields.list("messages")?.ok_or_else(|| ApiError::field("messages", "a list"))?;
    for given in given {
        messages.extend(message(&Fields::from_value("messages", given)?)?);
    }
    fields.set("messages", messages);
    if let Some(tools) = fields.list("tools")? {
        let tools: Result<Vec<_>, _> = tools.iter().map(tool).collect();
        fields.set("tools", tools?);
    }
    if let Some(choice) = fields.object("tool_choice")?.cloned().map(Fields::of) {
        if choice.switch("disable_parallel_tool_use", false)? {
            fields.set("parallel_tool_calls", false);
        }
        fields.set("tool_choice", tool_choice(&choice)?);
    }
    if let Some(thinking) = fields.object("thinking")?.cloned().map(Fields::of) {
        reason(&mut fields, &thinking)?;
    }
    if let Some(stops) = fields.remove("stop_sequences") {
        fields.set("stop", stops);
    }
    if fields.get("max_tokens").is_none() {
        fields.set("max_tokens", MAX_TOKENS);
    }
    Ok(fields)
}

/// Returns the text of a string or of a list of text blocks.
fn text(name: &str, value: &Value) -> Result<String, ApiError> {
    let expected = || ApiError::field(name, "a string or a list of blocks of type \"text\"");
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => {
            let text = |block: &Value| match (block["type"].as_str(), block["text"].as_str()) {
                (Some("text"), Some(text)) => Ok(text.to_string()),
                _ => Err(expected()),
            };
            blocks.iter().map(text).collect()
        }
        _ => Err(expected()),
    }
}

/// Returns the messages of a message: the results of tools are messages of their own, which follow
/// the calls and so come first.
fn message(message: &Fields) -> Result<Vec<Value>, ApiError> {
    let role = message.text("role")?.unwrap_or_default();
    let blocks = match message.get("content") {
        Some(Value::Array(blocks)) => blocks,
        Some(Value::String(text)) => return Ok(vec![json!({ "role": role, "content": text })]),
        _ => return Err(ApiError::field("content", "a string or a list of blocks")),
    };
    let (mut parts, mut calls, mut results) = (Vec::new(), Vec::new(), Vec::new());
    let mut reasoning = String::new();
    for value in blocks {
        let block = Fields::from_value("content", value)?;
        match block.text("type")?.unwrap_or_default() {
            "text" => parts.push(value.clone()),
            "thinking" => reasoning += block.text("thinking")?.unwrap_or_default(),
            "tool_use" => calls.push(json!({
                "id": block.text("id")?,
                "type": "function",
                "function": {
                    "name": block.text("name")?,
                    "arguments": Value::Object(block.object("input")?.cloned().unwrap_or_default()).to_string(),
                },
            })),
            "tool_result" => results.push(json!({
                "role": "tool",
                "tool_call_id": block.text("tool_use_id")?,
                "content": block.get("content").map_or(Ok(String::new()), result)?,
            })),
            "image" => return Err(ApiError::no_images()),
            kind => {
                return Err(ApiError::invalid(format_args!(
                    "\"content\": a block of type {kind:?} is not supported, only \"text\", \
                     \"thinking\", \"tool_use\" and \"tool_result\""
                )));
            }
        }
    }
    if parts.is_empty() && calls.is_empty() && reasoning.is_empty() && !results.is_empty() {
        return Ok(results);
    }
    let mut rest = Map::new();
    rest.insert("role".into(), role.into());
    rest.insert("content".into(), parts.into());
    if !reasoning.is_empty() {
        rest.insert("reasoning_content".into(), reasoning.into());
    }
    if !calls.is_empty() {
        rest.insert("tool_calls".into(), calls.into());
    }
    results.push(rest.into());
    Ok(results)
}

/// Returns the text of the result of a tool.
fn result(content: &Value) -> Result<String, ApiError> {
    let image = |block: &Value| block["type"] == "image";
    match content.as_array().is_some_and(|blocks| blocks.iter().any(image)) {
        true => Err(ApiError::no_images()),
        false => text("content", content),
    }
}

fn tool(tool: &Value) -> Result<Value, ApiError> {
    let tool = Fields::from_value("tools", tool)?;
    match tool.text("type")?.unwrap_or("custom") {
        "custom" => Ok(json!({
            "type": "function",
            "function": {
                "name": tool.text("name")?,
                "description": tool.text("description")?.unwrap_or_default(),
                "parameters": tool.object("input_schema")?.cloned().unwrap_or_default(),
            },
        })),
        kind => Err(ApiError::invalid(format_args!(
            "\"tools\": a tool of type {kind:?} is not supported, only \"custom\""
        ))),
    }
}

fn tool_choice(choice: &Fields) -> Result<Value, ApiError> {
    match choice.text("type")?.unwrap_or_default() {
        "auto" => Ok("auto".into()),
        "any" => Ok("required".into()),
        "none" => Ok("none".into()),
        "tool" => Ok(json!({ "type": "function", "function": { "name": choice.text("name")? } })),
        kind => Err(ApiError::field(
            "tool_choice",
            format_args!("of type \"auto\", \"any\", \"none\" or \"tool\", not {kind:?}"),
        )),
    }
}

/// Switches reasoning on with a budget, or off where the template permits it.
fn reason(fields: &mut Fields, thinking: &Fields) -> Result<(), ApiError> {
    match thinking.text("type")?.unwrap_or_default() {
        "enabled" => {
            if let Some(budget) = thinking.whole("budget_tokens", 0, i64::MAX)? {
                fields.set("reasoning_budget_tokens", budget);
            }
            Ok(())
        }
        "disabled" => fields.set_template_argument("enable_thinking", false),
        "adaptive" => Ok(()),
        kind => Err(ApiError::field(
            "thinking",
            format_args!("of type \"enabled\", \"disabled\" or \"adaptive\", not {kind:?}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(request: Value) -> Result<Value, String> {
        let fields = Fields::from_value("request", &request).unwrap();
        convert(fields).map(|fields| json!(fields)).map_err(|e| e.message)
    }

    #[test]
    fn blocks_become_messages_of_their_roles() {
        let request = json!({
            "max_tokens": 9,
            "system": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }],
            "messages": [
                { "role": "user", "content": "q" },
                { "role": "assistant", "content": [
                    { "type": "thinking", "thinking": "t", "signature": "" },
                    { "type": "text", "text": "x" },
                    { "type": "tool_use", "id": "1", "name": "f", "input": { "n": 1 } },
                ] },
                { "role": "user", "content": [
                    { "type": "text", "text": "y" },
                    { "type": "tool_result", "tool_use_id": "1", "content": [
                        { "type": "text", "text": "r" },
                    ] },
                ] },
            ],
        });
        let messages = json!([
            { "role": "system", "content": "ab" },
            { "role": "user", "content": "q" },
            {
                "role": "assistant",
                "content": [{ "type": "text", "text": "x" }],
                "reasoning_content": "t",
                "tool_calls": [{
                    "id": "1", "type": "function",
                    "function": { "name": "f", "arguments": "{\"n\":1}" },
                }],
            },
            { "role": "tool", "tool_call_id": "1", "content": "r" },
            { "role": "user", "content": [{ "type": "text", "text": "y" }] },
        ]);
        assert_eq!(converted(request).unwrap()["messages"], messages);
    }

    #[test]
    fn parameters_get_the_names_of_openai() {
        let converted = converted(json!({
            "messages": [],
            "stop_sequences": ["x"],
            "top_k": 3,
            "tools": [{ "name": "f", "input_schema": { "type": "object" } }],
            "tool_choice": { "type": "tool", "name": "f", "disable_parallel_tool_use": true },
            "thinking": { "type": "disabled" },
            "chat_template_kwargs": { "a": 1 },
        }));
        let function =
            json!({ "name": "f", "description": "", "parameters": { "type": "object" } });
        let expected = json!({
            "messages": [],
            "stop": ["x"],
            "top_k": 3,
            "tools": [{ "type": "function", "function": function }],
            "tool_choice": { "type": "function", "function": { "name": "f" } },
            "parallel_tool_calls": false,
            "thinking": { "type": "disabled" },
            "chat_template_kwargs": { "a": 1, "enable_thinking": false },
            "max_tokens": 4096,
        });
        assert_eq!(converted.unwrap(), expected);
    }

    #[test]
    fn other_forms_are_errors_that_name_the_permitted_ones() {
        let of_content =
            |content: Value| json!({ "messages": [{ "role": "user", "content": content }] });
        for (request, expected) in [
            (json!({}), "\"messages\": must be a list"),
            (json!({ "messages": [1] }), "\"messages\": must be"),
            (of_content(json!(1)), "a string or a list of blocks"),
            (of_content(json!([{ "type": "video" }])), "a block of type \"video\""),
            (of_content(json!([{ "type": "image" }])), "image input is not supported"),
            (
                of_content(json!([{ "type": "tool_result", "content": [{ "type": "image" }] }])),
                "image input is not supported",
            ),
            (json!({ "messages": [], "system": 1 }), "\"system\": must be"),
            (
                json!({ "messages": [], "tools": [{ "type": "web_search" }] }),
                "a tool of type \"web_search\"",
            ),
            (json!({ "messages": [], "tool_choice": { "type": "all" } }), "not \"all\""),
        ] {
            let error = converted(request).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
