//! Requests of OpenAI's responses in the form of its chat completions.

use serde_json::{Map, Value, json};

use crate::server::{
    chat::{ROLES, content, function_tool, role},
    error::ApiError,
    fields::{Fields, objects},
};

/// Fields that need an earlier response or another server.
const UNSUPPORTED: [(&str, &str); 3] = [
    ("previous_response_id", "responses are not stored: send the whole conversation as \"input\""),
    ("conversation", "conversations are not stored: send the whole conversation as \"input\""),
    ("prompt", "prompt templates are not stored: send the text as \"input\""),
];

/// Returns a request in the form of chat completions. Fields that both have stay.
///
/// # Errors
/// If a field that differs is of another form, or requires that responses are stored.
pub fn convert(mut fields: Fields) -> Result<Fields, ApiError> {
    for (name, reason) in UNSUPPORTED {
        if fields.get(name).is_some() {
            return Err(ApiError::invalid(format_args!("\"{name}\" is not supported: {reason}")));
        }
    }
    if fields.switch("background", false)? {
        return Err(ApiError::invalid("\"background\": must be false: responses are not stored"));
    }
    let mut messages = Vec::new();
    if let Some(instructions) = fields.text("instructions")? {
        messages.push(json!({ "role": "system", "content": instructions }));
    }
    match fields.get("input") {
        Some(Value::String(text)) => messages.push(json!({ "role": "user", "content": text })),
        Some(Value::Array(items)) if !items.is_empty() => {
            for item in objects("input", items)? {
                add(&mut messages, &item)?;
            }
        }
        _ => return Err(fields.error("input", "a string or a list of at least one item")),
    }
    fields.set("messages", messages);
    if let Some(tools) = fields.objects("tools")? {
        let tools: Result<Vec<_>, _> = tools.into_iter().map(tool).collect();
        fields.set("tools", tools?);
    }
    if fields.get("tool_choice").is_some_and(Value::is_object)
        && let Some(choice) = fields.within("tool_choice")?
    {
        fields.set("tool_choice", tool_choice(&choice)?);
    }
    fields.rename("max_output_tokens", "max_tokens");
    if let Some(reasoning) = fields.within("reasoning")?
        && let Some(effort) = reasoning.text("effort")?
    {
        fields.set("reasoning_effort", effort);
    }
    if let Some(text) = fields.within("text")?
        && let Some(format) = text.within("format")?
    {
        fields.set_from("response_format", response_format(&format)?, text.place("format"));
    }
    Ok(fields)
}

/// Adds an item to the messages. What the model wrote in one turn is one message.
fn add(messages: &mut Vec<Value>, item: &Fields) -> Result<(), ApiError> {
    match item.text("type")?.unwrap_or("message") {
        "message" => {
            let role = role(item, &ROLES)?;
            content(item, "content", "")?;
            let parts = item.get("content").cloned().unwrap_or_default();
            match turn(messages).filter(|_| role == "assistant") {
                Some(turn) if !turn.contains_key("content") => {
                    turn.insert("content".into(), parts);
                }
                _ => messages.push(json!({ "role": role, "content": parts })),
            }
        }
        "reasoning" => {
            let parts = [item.list("content")?, item.list("summary")?];
            let parts = parts.into_iter().flatten().find(|parts| !parts.is_empty());
            let texts = parts.unwrap_or_default().iter().map(|part| part["text"].as_str());
            let text: Option<String> = texts.collect();
            let expected = "reasoning with a list of parts that have a \"text\"";
            let text = text.ok_or_else(|| item.error("content", expected))?;
            messages.push(json!({ "role": "assistant", "reasoning_content": text }));
        }
        "function_call" => {
            let call = json!({
                "id": item.required_text("call_id")?,
                "type": "function",
                "function": {
                    "name": item.required_text("name")?,
                    "arguments": item.required_text("arguments")?,
                },
            });
            match turn(messages).map(|turn| turn.entry("tool_calls").or_insert_with(|| json!([]))) {
                Some(Value::Array(calls)) => calls.push(call),
                _ => messages.push(json!({ "role": "assistant", "tool_calls": [call] })),
            }
        }
        "function_call_output" => {
            content(item, "output", "")?;
            messages.push(json!({
                "role": "tool",
                "tool_call_id": item.required_text("call_id")?,
                "content": item.get("output"),
            }));
        }
        _ => {
            let expected = "message, reasoning, function_call or function_call_output";
            return Err(item.error("type", expected));
        }
    }
    Ok(())
}

/// Returns the last message if it is the model's.
fn turn(messages: &mut [Value]) -> Option<&mut Map<String, Value>> {
    let last = messages.last_mut()?.as_object_mut()?;
    last.get("role").is_some_and(|role| role == "assistant").then_some(last)
}

fn tool(mut tool: Fields) -> Result<Value, ApiError> {
    if tool.text("type")? != Some("function") {
        return Err(tool.error("type", "function"));
    }
    function_tool(&tool)?;
    tool.remove("type");
    Ok(json!({ "type": "function", "function": tool }))
}

fn tool_choice(choice: &Fields) -> Result<Value, ApiError> {
    match choice.text("type")?.unwrap_or_default() {
        "function" => {
            Ok(json!({ "type": "function", "function": { "name": choice.required_text("name")? } }))
        }
        _ => Err(choice.error("type", "function")),
    }
}

/// Returns the format of a text: a JSON schema has a field of its own in chat completions.
fn response_format(format: &Fields) -> Result<Value, ApiError> {
    match format.text("type")? {
        Some("json_schema") if format.get("schema").is_none() => {
            Err(format.error("schema", "a JSON schema"))
        }
        Some("json_schema") => Ok(json!({ "type": "json_schema", "json_schema": format })),
        _ => Ok(json!(format)),
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
    fn items_of_one_turn_become_one_message() {
        let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{}" });
        let chat_call = |id: &str| json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": "{}" } });
        let request = json!({
            "instructions": "s",
            "input": [
                { "role": "user", "content": "q" },
                { "type": "reasoning", "summary": [], "content": [{ "text": "t" }] },
                { "type": "message", "role": "assistant", "content": "x" },
                call("1"),
                call("2"),
                { "type": "function_call_output", "call_id": "1", "output": "r" },
                { "role": "assistant", "content": "y" },
                { "role": "assistant", "content": "z" },
            ],
        });
        let messages = json!([
            { "role": "system", "content": "s" },
            { "role": "user", "content": "q" },
            {
                "role": "assistant", "reasoning_content": "t", "content": "x",
                "tool_calls": [chat_call("1"), chat_call("2")],
            },
            { "role": "tool", "tool_call_id": "1", "content": "r" },
            { "role": "assistant", "content": "y" },
            { "role": "assistant", "content": "z" },
        ]);
        assert_eq!(converted(request).unwrap()["messages"], messages);
    }

    #[test]
    fn parameters_get_the_names_of_chat_completions() {
        let converted = converted(json!({
            "input": "q",
            "max_output_tokens": 5,
            "reasoning": { "effort": "low" },
            "tools": [{ "type": "function", "name": "f", "parameters": {} }],
            "tool_choice": { "type": "function", "name": "f" },
            "text": { "format": { "type": "json_schema", "name": "n", "schema": {} } },
        }));
        let converted = converted.unwrap();
        for (name, expected) in [
            ("messages", json!([{ "role": "user", "content": "q" }])),
            ("max_tokens", json!(5)),
            ("reasoning_effort", json!("low")),
            (
                "tools",
                json!([{ "type": "function", "function": { "name": "f", "parameters": {} } }]),
            ),
            ("tool_choice", json!({ "type": "function", "function": { "name": "f" } })),
            (
                "response_format",
                json!({
                    "type": "json_schema",
                    "json_schema": { "type": "json_schema", "name": "n", "schema": {} },
                }),
            ),
        ] {
            assert_eq!(converted[name], expected, "{name}");
        }
    }

    #[test]
    fn what_is_not_supported_is_an_error() {
        for (request, expected) in [
            (json!({}), "\"input\": must be"),
            (json!({ "input": [] }), "at least one item"),
            (json!({ "input": "", "previous_response_id": "r" }), "send the whole conversation"),
            (json!({ "input": "", "background": true }), "\"background\": must be false"),
            (json!({ "input": [{ "type": "web_search_call" }] }), "not \"web_search_call\""),
            (
                json!({ "input": [{ "type": "reasoning", "content": [1] }] }),
                "\"input[0].content\": must be",
            ),
            (json!({ "input": "", "tools": [{ "type": "mcp" }] }), "function, not \"mcp\""),
            (json!({ "input": "", "tool_choice": { "type": "mcp" } }), "function, not \"mcp\""),
        ] {
            let error = converted(request).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
