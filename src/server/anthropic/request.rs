//! Requests of Anthropic's interface in OpenAI's form.

use rope_cpu::chat::Role;
use serde_json::{Map, Value, json};

use tracing::warn;

use super::client_tools;
use crate::server::{
    chat::role,
    error::ApiError,
    fields::{COUNT_MAX, Fields, objects},
    request_fields,
};

/// The largest number of tokens of an answer if the request gives none, as in llama-server.
const MAX_TOKENS: i64 = 4096;

/// The roles of messages. Anthropic's own interface has no messages of the system: their text is in a field.
const ROLES: [Role; 3] = [Role::User, Role::Assistant, Role::System];

/// Returns a request in OpenAI's form. Fields that both interfaces have, or only llama-server, stay.
///
/// # Errors
/// If a field that differs is of another form than Anthropic's.
pub fn convert(mut fields: Fields) -> Result<Fields, ApiError> {
    request_fields::MESSAGES.check(&fields)?;
    let mut messages = Vec::new();
    if fields.get("system").is_some() {
        let text = text(&fields, "system")?;
        messages.push(json!({ "role": "system", "content": text }));
    }
    let given = fields.objects("messages")?;
    for given in given.ok_or_else(|| fields.error("messages", "a list"))? {
        messages.extend(message(&given)?);
    }
    fields.set("messages", messages);
    if let Some(tools) = fields.objects("tools")? {
        let tools: Result<Vec<_>, _> = tools.iter().map(tool).collect();
        fields.set("tools", tools?.into_iter().flatten().collect::<Vec<_>>());
    }
    if let Some(choice) = fields.within("tool_choice")? {
        if choice.switch("disable_parallel_tool_use", false)? {
            fields.set("parallel_tool_calls", false);
        }
        fields.set("tool_choice", tool_choice(&choice)?);
    }
    if let Some(thinking) = fields.within("thinking")? {
        reason(&mut fields, &thinking)?;
    }
    if let Some(output) = fields.within("output_config")? {
        if let Some(format) = output.within("format")? {
            fields.set_from("response_format", response_format(&format)?, output.place("format"));
        }
        if let Some(effort) = output.text("effort")? {
            fields.set("reasoning_effort", effort);
        }
    }
    fields.rename("stop_sequences", "stop");
    if fields.get("max_tokens").is_none() {
        fields.set("max_tokens", MAX_TOKENS);
    }
    Ok(fields)
}

/// Returns the text of a string or of a list of text blocks.
fn text(fields: &Fields, name: &str) -> Result<String, ApiError> {
    match fields.get(name) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(blocks)) => {
            let text = |block: &Fields| match block.text("type")? {
                Some("text") => Ok(block.required_text("text")?.to_string()),
                Some("image") => Err(ApiError::no_media("image")),
                _ => Err(block.error("type", "\"text\"")),
            };
            objects(&fields.place(name), blocks)?.iter().map(text).collect()
        }
        Some(_) => Err(fields.error(name, "a string or a list of blocks of type \"text\"")),
    }
}

/// Returns the messages of a message: the results of tools are messages of their own, which follow
/// the calls and so come first.
fn message(message: &Fields) -> Result<Vec<Value>, ApiError> {
    let role = role(message, &ROLES)?;
    let blocks = match message.get("content") {
        Some(Value::Array(blocks)) => blocks,
        Some(Value::String(text)) => return Ok(vec![json!({ "role": role, "content": text })]),
        _ => return Err(message.error("content", "a string or a list of blocks")),
    };
    let (mut parts, mut calls, mut results) = (Vec::new(), Vec::new(), Vec::new());
    let mut reasoning = String::new();
    for block in objects(&message.place("content"), blocks)? {
        match block.text("type")?.unwrap_or_default() {
            "text" => parts.push(json!({ "type": "text", "text": block.required_text("text")? })),
            "document" => parts.push(json!({ "type": "text", "text": document(&block)? })),
            // Encrypted: only Anthropic's models can read it.
            "redacted_thinking" => {}
            kind if of_server(kind) => {
                warn!(target: "tools", kind, "skipped: a block of a tool that does not run on the client");
            }
            "thinking" => reasoning += block.text("thinking")?.unwrap_or_default(),
            "tool_use" => calls.push(json!({
                "id": block.required_text("id")?,
                "type": "function",
                "function": {
                    "name": block.required_text("name")?,
                    "arguments": Value::Object(block.object("input")?.cloned().unwrap_or_default()).to_string(),
                },
            })),
            "tool_result" => results.push(json!({
                "role": "tool",
                "tool_call_id": block.required_text("tool_use_id")?,
                "content": text(&block, "content")?,
            })),
            "image" => return Err(ApiError::no_media("image")),
            _ => {
                let expected = "text, document, thinking, redacted_thinking, tool_use or tool_result";
                return Err(block.error("type", expected));
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

/// Returns whether a block is of a tool that runs on Anthropic's servers.
fn of_server(kind: &str) -> bool {
    kind == "server_tool_use" || (kind.ends_with("_tool_result") && kind != "tool_result")
}

/// Returns the text of a document, with its title.
fn document(block: &Fields) -> Result<String, ApiError> {
    let source = block.within("source")?.ok_or_else(|| block.error("source", "an object"))?;
    let content = match source.text("type")?.unwrap_or_default() {
        "text" => source.required_text("data")?.to_string(),
        "content" => text(&source, "content")?,
        _ => return Err(source.error("type", "text or content: the model reads only text")),
    };
    let mut whole = String::new();
    for name in ["title", "context"] {
        if let Some(line) = block.text(name)? {
            whole += line;
            whole += "\n\n";
        }
    }
    Ok(whole + &content + "\n\n")
}

/// Returns a tool; `None` if it does not run on the client.
fn tool(tool: &Fields) -> Result<Option<Value>, ApiError> {
    let name = tool.required_text("name")?;
    let (description, parameters) = match tool.text("type")?.unwrap_or("custom") {
        "custom" => (
            tool.text("description")?.unwrap_or_default(),
            tool.object("input_schema")?.cloned().unwrap_or_default().into(),
        ),
        kind => match client_tools::function(kind) {
            Some(function) => function,
            None => {
                warn!(target: "tools", kind, "skipped: it does not run on the client");
                return Ok(None);
            }
        },
    };
    let function = json!({ "name": name, "description": description, "parameters": parameters });
    Ok(Some(json!({ "type": "function", "function": function })))
}

/// Returns the format of an answer.
fn response_format(format: &Fields) -> Result<Value, ApiError> {
    match (format.text("type")?, format.object("schema")?) {
        (Some("json_schema"), Some(schema)) => {
            Ok(json!({ "type": "json_schema", "json_schema": { "schema": schema } }))
        }
        (Some("json_schema"), None) => Err(format.error("schema", "a JSON schema")),
        _ => Err(format.error("type", "json_schema")),
    }
}

fn tool_choice(choice: &Fields) -> Result<Value, ApiError> {
    match choice.text("type")?.unwrap_or_default() {
        "auto" => Ok("auto".into()),
        "any" => Ok("required".into()),
        "none" => Ok("none".into()),
        "tool" => {
            Ok(json!({ "type": "function", "function": { "name": choice.required_text("name")? } }))
        }
        _ => Err(choice.error("type", "auto, any, none or tool")),
    }
}

/// Switches reasoning on with a budget, or off where the template permits it.
fn reason(fields: &mut Fields, thinking: &Fields) -> Result<(), ApiError> {
    match thinking.text("type")?.unwrap_or_default() {
        "enabled" => {
            if let Some(budget) = thinking.whole("budget_tokens", 0, COUNT_MAX)? {
                fields.set("reasoning_budget_tokens", budget);
            }
            Ok(())
        }
        "disabled" => fields.set_template_argument("enable_thinking", false),
        "adaptive" => Ok(()),
        _ => Err(thinking.error("type", "enabled, disabled or adaptive")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(request: Value) -> Result<Value, String> {
        let fields = Fields::of_value("", &request).unwrap();
        convert(fields).map(|fields| json!(fields)).map_err(|e| e.message)
    }

    #[test]
    fn documents_and_tools_of_the_client_are_converted() {
        let source = |source: Value| json!({ "type": "document", "title": "T", "source": source });
        let request = json!({
            "messages": [
                { "role": "user", "content": [
                    source(json!({ "type": "text", "media_type": "text/plain", "data": "a" })),
                    source(json!({ "type": "content", "content": [{ "type": "text", "text": "b" }] })),
                ] },
                { "role": "assistant", "content": [
                    { "type": "redacted_thinking", "data": "x" },
                    { "type": "server_tool_use", "id": "1", "name": "web_search", "input": {} },
                    { "type": "web_search_tool_result", "tool_use_id": "1", "content": [] },
                    { "type": "text", "text": "c" },
                ] },
            ],
            "tools": [
                { "type": "bash_20250124", "name": "bash" },
                { "type": "text_editor_20250728", "name": "str_replace_based_edit_tool" },
                { "type": "web_search_20250305", "name": "web_search" },
            ],
            "output_config": {
                "effort": "low", "format": { "type": "json_schema", "schema": { "type": "object" } },
            },
        });
        let converted = converted(request).unwrap();
        let texts = |message: usize| converted["messages"][message]["content"].clone();
        assert_eq!(texts(0)[0]["text"], "T\n\na\n\n");
        assert_eq!(texts(0)[1]["text"], "T\n\nb\n\n");
        assert_eq!(texts(1), json!([{ "type": "text", "text": "c" }]));
        let tools = converted["tools"].as_array().unwrap();
        let names: Vec<_> = tools.iter().map(|tool| &tool["function"]["name"]).collect();
        assert_eq!(names, ["bash", "str_replace_based_edit_tool"]);
        let required = &tools[1]["function"]["parameters"]["required"];
        assert_eq!(required, &json!(["command", "path"]));
        let schema = &converted["response_format"]["json_schema"]["schema"];
        assert_eq!(
            (schema, &converted["reasoning_effort"]),
            (&json!({ "type": "object" }), &json!("low"))
        );
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
            (json!({}), "\"messages\": must be given: a list"),
            (json!({ "messages": [1] }), "\"messages[0]\": must be"),
            (of_content(json!(1)), "a string or a list of blocks"),
            (of_content(json!([{ "type": "video" }])), "tool_result, not \"video\""),
            (of_content(json!([{ "type": "image" }])), "image input is not supported"),
            (
                of_content(
                    json!([{ "type": "tool_result", "tool_use_id": "1", "content": [{ "type": "image" }] }]),
                ),
                "image input is not supported",
            ),
            (json!({ "messages": [], "system": 1 }), "\"system\": must be"),
            (json!({ "messages": [], "tools": [{ "type": "web_search" }] }), "\"tools[0].name\""),
            (json!({ "messages": [], "tool_choice": { "type": "all" } }), "not \"all\""),
        ] {
            let error = converted(request).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
